"""Memory, disk and time of the prediction history for 2000 images of 192 x 256, 250 labeled.

Each design runs in a process of its own and reports by how much its resident memory grew once all
its arrays were written: ours, and the obvious one (a dictionary of tensors per image with an int64
last prediction and int32 counters). Then the time to record and gather the batch of the paper,
32 labeled and 64 unlabeled images, and to commit and restore.

Run: ``python benchmarks/history.py``
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from segconf.history.predictions import PredictionHistory

IMAGES, LABELED, SIZE, EPOCHS = 2000, 250, (192, 256), 200
BATCH_LABELED, BATCH_UNLABELED = 32, 64
MEGABYTE = 1e6


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS in /proc/self/status: this benchmark needs Linux")


def fill_ours(scratch: Path | None) -> PredictionHistory:
    """A history in which every image was recorded twice."""
    history = PredictionHistory(
        IMAGES, SIZE, labeled=range(LABELED), epochs=EPOCHS, scratch=scratch
    )
    prediction = torch.ones(1, *SIZE, dtype=torch.uint8)
    for epoch in range(2):
        for case in range(IMAGES):
            history.record(torch.tensor([case]), prediction, epoch=epoch, masks=prediction)
    return history


def fill_dictionaries() -> list[dict[int, torch.Tensor]]:
    """The obvious design, touched in every pixel."""
    last = {case: torch.ones(SIZE, dtype=torch.int64) for case in range(IMAGES)}
    agreements = {case: torch.ones(SIZE, dtype=torch.int32) for case in range(IMAGES)}
    correct = {case: torch.ones(SIZE, dtype=torch.int32) for case in range(LABELED)}
    return [last, agreements, correct]


def report_growth(design: str) -> None:
    """Fill one design and print the growth of resident memory in bytes."""
    # Everything that the first use loads for itself is there before the measurement begins.
    warm = PredictionHistory(1, (1, 1), labeled=[0], epochs=2)
    one = torch.ones(1, 1, 1, dtype=torch.uint8)
    warm.record(torch.tensor([0]), one, epoch=0, masks=one)
    before = resident_bytes()
    kept = fill_ours(None) if design == "ours" else fill_dictionaries()
    print(resident_bytes() - before)
    del kept


def measured_growth(design: str) -> float:
    """Growth of a fresh process in megabytes."""
    command = [sys.executable, __file__, "--design", design]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return int(done.stdout) / MEGABYTE


def best_milliseconds(action: Callable[[int], object], repeats: int) -> float:
    """Least time of ``action(repeat)``."""
    times = []
    for repeat in range(repeats):
        start = time.perf_counter()
        action(repeat)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def measure_batch(history: PredictionHistory) -> tuple[float, float]:
    """Milliseconds to record a batch of 32 + 64 predictions (int64, like argmax), and to gather."""
    labels = torch.randint(2, (BATCH_LABELED + BATCH_UNLABELED, *SIZE))
    masks = torch.randint(2, (BATCH_LABELED, *SIZE), dtype=torch.uint8)
    labeled = torch.randperm(LABELED)[:BATCH_LABELED]
    unlabeled = LABELED + torch.randperm(IMAGES - LABELED)[:BATCH_UNLABELED]
    both = torch.cat([labeled, unlabeled])

    def record(repeat: int) -> None:
        epoch = 2 + repeat
        history.record(labeled, labels[:BATCH_LABELED], epoch=epoch, masks=masks)
        history.record(unlabeled, labels[BATCH_LABELED:], epoch=epoch)

    def gather(_: int) -> None:
        history.correctness(labeled)
        history.consistency(both)

    return best_milliseconds(record, 20), best_milliseconds(gather, 20)


def measure_disk(
    history: PredictionHistory, folder: Path, scratch: Path | None
) -> tuple[float, float]:
    """Milliseconds to commit the whole history and to restore it."""
    commit = best_milliseconds(lambda epoch: history.commit(folder, epoch=epoch), 5)
    restore = best_milliseconds(
        lambda _: PredictionHistory.restore(folder, epoch=4, scratch=scratch), 3
    )
    return commit, restore


def main() -> None:
    """Print memory, then time in memory and memory-mapped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--design", choices=["ours", "dictionaries"], help="used by itself")
    parser.add_argument(
        "--step-seconds", type=float, help="time of a training step, for the fraction"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.design:
        report_growth(arguments.design)
        return

    ours, dictionaries = measured_growth("ours"), measured_growth("dictionaries")
    print(f"resident memory: ours {ours:.0f} MB, dictionaries {dictionaries:.0f} MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "history"
        for scratch in (None, Path(name) / "scratch"):
            history = fill_ours(scratch)
            record, gather = measure_batch(history)
            commit, restore = measure_disk(history, folder, scratch)
            print(
                f"{'mapped' if scratch else 'memory'}: record {record:.1f} ms, "
                f"gather {gather:.1f} ms, commit {commit:.0f} ms, restore {restore:.0f} ms"
            )
            if arguments.step_seconds:
                fraction = (record + gather) / 1000 / arguments.step_seconds
                print(f"        recording and gathering: {fraction:.2%} of the step")
        on_disk = sum(path.stat().st_size for path in folder.iterdir())
        print(f"disk: {on_disk / MEGABYTE:.0f} MB in three generations")


if __name__ == "__main__":
    main()
