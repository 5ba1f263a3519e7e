"""One case: what it needs, how it damages it, the command, and what the answer must name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

Damage = Callable[[Path, Random], None]


@dataclass(frozen=True, slots=True)
class FuzzCase:
    """A command on damaged material.

    Attributes:
        id: unique; the random numbers of the case follow from it.
        needs: material that is copied into the folder of the case.
        damage: changes that folder.
        arguments: of the command, which runs in that folder. `@` at the beginning stands for the
            folder of the material, which no command may change.
        names: a refusal has to name one of them.
        writes: files and folders that the command may change when it does its work.
    """

    id: str
    needs: tuple[str, ...]
    damage: Damage
    arguments: tuple[str, ...]
    names: tuple[str, ...] = ()
    writes: tuple[str, ...] = ("new",)


def undamaged(_folder, _chance):
    """Leave everything as it is: the arguments are odd."""
