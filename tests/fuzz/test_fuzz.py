"""No input of any kind ends in a traceback, a hang or a loss.

Every case damages one thing that a command reads, in the way that its name says, and runs the
command. One of them again: ``pytest "tests/fuzz/test_fuzz.py::test_damage_is_answered[ID]" -m ""``.
"""

import os
import zlib

import pytest

from tests.fuzz.damage import generator
from tests.fuzz.input_cases import input_cases
from tests.fuzz.material import fingerprints, make_material, provide
from tests.fuzz.prediction_cases import prediction_cases
from tests.fuzz.run_cases import run_cases
from tests.fuzz.settings_cases import settings_cases
from tests.fuzz.worker import Worker

EVERYTHING = [*run_cases(), *prediction_cases(), *input_cases(), *settings_cases()]
SLOW, DEFAULT = 3, 36
"""One case of so many is tried, and one of so many in the default suite. `SEGCONF_FUZZ=all` tries
all of them."""


def _is_one_of(case, many):
    """Whether a case is drawn when one of so many is: the same cases every time."""
    return zlib.crc32(case.id.encode("utf-8", "surrogateescape")) % many == 0


CASES = [
    case for case in EVERYTHING if os.environ.get("SEGCONF_FUZZ") == "all" or _is_one_of(case, SLOW)
]
DONE, REFUSED, SOME_BROKEN = 0, 2, 3


def _parameters():
    for case in CASES:
        marks = [] if _is_one_of(case, DEFAULT) else [pytest.mark.slow]
        yield pytest.param(
            case, id=case.id.encode("ascii", "backslashreplace").decode(), marks=marks
        )


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """The process that runs the commands."""
    running = Worker(tmp_path_factory.mktemp("streams"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def material(tmp_path_factory, worker):
    """A folder that no command may change, which is checked at the end."""
    folder = make_material(tmp_path_factory.mktemp("material"), worker)
    before = fingerprints(folder)
    yield folder
    assert _changed(before, folder, ("cache",)) == []


def test_there_are_enough_cases_and_each_has_its_own_name():
    assert len(CASES) >= 600
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", list(_parameters()))
def test_damage_is_answered(case, worker, material, tmp_path):
    provide(material, case.needs, tmp_path)
    case.damage(tmp_path, generator(case.id))
    before = fingerprints(tmp_path)
    arguments = [_placed(argument, material) for argument in case.arguments]

    ended = worker.run(arguments, folder=tmp_path)

    said = f"segconf {' '.join(arguments)}\n{ended.out[-2000:]}\n{ended.err[-6000:]}"
    assert ended.code is not None, f"hangs, or ends the process: {said}"
    assert "Traceback (most recent call last)" not in ended.err, said
    assert ended.code in {DONE, REFUSED, SOME_BROKEN}, said
    writes = () if ended.code == REFUSED else case.writes
    assert _changed(before, tmp_path, ("cache", *writes)) == [], said
    assert not (tmp_path / "executed").exists(), said
    if ended.code != DONE and case.names:
        assert any(name in ended.err + ended.out for name in case.names), said


def _placed(argument, material):
    return str(material / argument[1:]) if argument.startswith("@") else argument


def _changed(before, folder, allowed):
    """Files that were there and are not as they were, but for those that may change."""
    now = fingerprints(folder)
    places = [folder / name for name in allowed]
    return [
        str(path.relative_to(folder))
        for path, known in before.items()
        if now.get(path) != known
        and not any(path == place or path.is_relative_to(place) for place in places)
    ]
