"""`segconf models`: the pretrained models that come with segconf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import results
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from segconf.models.pretrained import Measured


def models(
    card: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show the model card of one of them."),
    ] = None,
) -> None:
    """List the pretrained models: task, grid, size, quality, licence.

    Example: segconf models
    """
    from segconf.models.pretrained import (
        CARD,
        describe,
        file_size,
        pretrained_folder,
        pretrained_names,
    )

    show = results()
    if card is not None:
        text = (pretrained_folder(card) / CARD).read_text(encoding="utf-8")
        show.print(text, highlight=False)
        record(name=card, card=text)
        return
    record(
        models=[
            {"name": name, "bytes": file_size(name), **describe(name).model_dump(mode="json")}
            for name in pretrained_names()
        ]
    )
    for name in pretrained_names():
        about, size = describe(name), file_size(name)
        quality = about.quality
        facts = {
            "task": f"{about.task}: {about.summary}",
            "network": f"UNet with {about.encoder}, trained with {about.method}",
            "grid": f"{about.size[0]} x {about.size[1]} pixels",
            "size": f"{size / 1e6:.1f} MB",
            "trained on": about.trained_on,
            "quality": f"Dice {_with_interval(quality.dice)}, "
            f"Jaccard {_with_interval(quality.jaccard)}",
            "": f"AURC {_with_interval(quality.aurc, 1000)} (x 10^3), "
            f"ECE {_with_interval(quality.ece, 100)} (x 10^2)",
            "measured on": quality.on,
            "licence": about.licence,
        }
        show.print(name, style="bold", highlight=False)
        for label, value in facts.items():
            show.print(f"  {label:12} {value}", highlight=False)
    show.print(
        "\nUse one: segconf predict images/ --out maps/ --checkpoint NAME\n"
        "Its limits: segconf models --card NAME (research use, not a medical device)",
        highlight=False,
    )


def _with_interval(number: Measured, scale: float = 1) -> str:
    """The number and its interval with three significant digits."""
    value, low, high = (scale * one for one in (number.value, *number.interval))
    return f"{value:.3g} ({low:.3g} to {high:.3g})"
