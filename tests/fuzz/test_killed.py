"""A process that is killed at any moment (SIGKILL) leaves what another one can continue."""

import multiprocessing
import os
import random
import shutil
import signal
import time

import pytest

from tests.conftest import write_folder
from tests.fuzz.material import fingerprints
from tests.tiny_models import disc, write_checkpoint, write_picture
from tests.training_runs import contents, differences, train_tiny

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
KILLS = {0: 2}
"""How often a job is killed before it may end, by its seed: 22 times in all seeds."""
MOST_KILLS = 4
IMAGES = 6


def _train(data, run, *, resume):
    train_tiny(data, run, resume=resume)


def _predict(images, checkpoint, maps, *, resume):
    from segconf.inference.model import load_model
    from segconf.inference.pipeline import PredictOptions
    from segconf.inference.predict import predict

    model = load_model(checkpoint, device="cpu")
    predict(model, images, maps, options=PredictOptions(skip_existing=resume, workers=2))


@pytest.fixture(scope="module")
def processes():
    """Processes that begin with everything imported, so that the moments fall into the work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fuzz.test_killed", "segconf.inference.predict"])
    return context


def _run(processes, work, arguments, *, resume, moment=None):
    """Let a process work, to its end or until it is killed; the seconds that it took."""
    process = processes.Process(target=work, args=arguments, kwargs={"resume": resume})
    process.start()
    begin = time.monotonic()
    process.join(moment)
    if process.exitcode is None:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    elif process.exitcode:
        pytest.fail(f"ended with exit code {process.exitcode}")
    return time.monotonic() - begin, process.exitcode


def _kill_and_continue(processes, seed, work, arguments, *, seconds, begun):
    """Kill a job at random moments of its time, continue it as often, and let it end.

    A job that ends before its moment has come begins anew, with moments of the time that it took.
    """
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    folder = arguments[-1]
    kills = 0
    while kills < KILLS.get(seed, MOST_KILLS):
        moment = chance.uniform(0, seconds)
        taken, code = _run(processes, work, arguments, resume=begun(), moment=moment)
        if code == -signal.SIGKILL:
            kills += 1
        else:
            seconds = min(seconds, taken)
            shutil.rmtree(folder)
    _run(processes, work, arguments, resume=begun())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_training_ends_as_if_nothing_had_happened(seed, processes, tmp_path):
    data = write_folder(tmp_path / "discs", 8)
    write_folder(data / "val", 4, first=100)
    whole, run = tmp_path / "whole", tmp_path / "run"
    seconds, _ = _run(processes, _train, (data, whole), resume=False)

    def begun():
        return (run / "split.json").exists()

    _kill_and_continue(processes, seed, _train, (data, run), seconds=seconds, begun=begun)
    assert differences(contents(whole), contents(run)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_prediction_is_completed_byte_by_byte(seed, processes, tmp_path):
    images = tmp_path / "images"
    for number in range(IMAGES):
        write_picture(images / f"{number}.png", disc(90, 120, seed=number))
    checkpoint = write_checkpoint(tmp_path / "best.safetensors")
    whole, maps = tmp_path / "whole", tmp_path / "maps"
    seconds, _ = _run(processes, _predict, (images, checkpoint, whole), resume=False)
    _kill_and_continue(
        processes,
        seed,
        _predict,
        (images, checkpoint, maps),
        seconds=seconds,
        begun=lambda: True,
    )
    assert _written(maps) == _written(whole)


def _written(folder):
    """Hashes of all files by name, but for those that a killed process did not finish."""
    return {
        path.relative_to(folder).as_posix(): known
        for path, known in fingerprints(folder).items()
        if not path.name.endswith(".part")
    }
