"""The page of a model in Chromium against `segconf predict`: pixels, flags, seconds.

    python benchmarks/page.py FOLDER --out benchmarks/results/page.md

FOLDER holds images. They are predicted by `segconf predict` and by the page, as they are and as PNG
copies: what differs only for the former is due to the browser's JPEG decoder. Then copies of the
first image at the sizes of the network are timed, and made-up pictures of many megapixels.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import PIL.Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from segconf.images.io import read_confidence
from segconf.images.masks import read_mask
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.packaging.browser_page import package_page
from segconf.results.prediction_folder import PredictionFolder
from segconf.review.page_archive import import_archive
from tests.browsers import chromium
from tests.model_pages import ChromiumTab

SIZES = ((128, 160), (192, 256))
REPEATED = 12
COUNT = "document.querySelectorAll('#list .name').length"
PICTURE_OF = "document.getElementById('share').textContent !== ''"
LARGE = (5774, 8660)


@contextmanager
def opened(page: Path, downloads: Path | None = None) -> Iterator[tuple[ChromiumTab, float]]:
    """A page in a new browser, and the seconds until its model was ready."""
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium(Path(folder) / "profile", downloads or Path(folder)) as driver,
    ):
        tab = ChromiumTab(driver)
        started = time.perf_counter()
        tab.open(page.as_uri())
        wait(tab, "document.body.dataset.ready")
        yield tab, time.perf_counter() - started


def wait(tab: ChromiumTab, script: str, *, seconds: float = 900) -> float:
    """Seconds until an expression is true."""
    started = time.perf_counter()
    while not tab.run(f"Boolean({script})"):
        time.sleep(0.02)
        if time.perf_counter() - started > seconds:
            raise TimeoutError(script)
    return time.perf_counter() - started


def predicted(page: Path, images: list[Path], folder: Path) -> PredictionFolder:
    """What the page predicts, as a prediction folder."""
    downloads = folder.with_name(f"{folder.name} downloads")
    downloads.mkdir()
    with opened(page, downloads) as (tab, _):
        tab.give_files("files", images)
        wait(tab, f"{COUNT} === {len(images)}")
        tab.run("document.getElementById('export-zip').click()")
        while not (archives := list(downloads.glob("*.zip"))):
            time.sleep(0.5)
    import_archive(PredictionFolder(folder), archives[0])
    return PredictionFolder(folder)


def compared(expected: PredictionFolder, found: PredictionFolder) -> str:
    """A row of the table: worst image for each number."""
    equal, within, largest, flags = [], [], [], 0
    rows = {row.case: row for row in expected.rows()}
    for row in found.rows():
        masks, maps = (
            [read(one, row.case) for one in (expected, found)] for read in (mask_of, confidence_of)
        )
        equal.append((masks[0] == masks[1]).mean())
        gap = np.abs(maps[0] - maps[1])
        within.append((gap <= 0.01).mean())
        largest.append(gap.max())
        flags += row.flags == rows[row.case].flags
    return (
        f"{len(equal)} | {100 * min(equal):.3f}% | {100 * np.mean(equal):.3f}% | "
        f"{100 * min(within):.2f}% | {max(largest):.4f} | {flags} of {len(equal)}"
    )


def mask_of(folder: PredictionFolder, case: str) -> np.ndarray:
    """Mask of a case."""
    return read_mask(folder.mask(case, ".png"))


def confidence_of(folder: PredictionFolder, case: str) -> np.ndarray:
    """Confidence of a case."""
    return read_confidence(folder.confidence(case, ".png"))


def timed(page: Path, image: Path, folder: Path) -> list[str]:
    """Rows: seconds from opening to the model, from dropping to the first result, and an image."""
    lines = []
    with PIL.Image.open(image) as picture:
        for height, width in SIZES:
            small = picture.convert("RGB").resize((width, height))
            files = [folder / f"{height}_{number}.png" for number in range(REPEATED)]
            for file in files:
                small.save(file)
            with opened(page) as (tab, ready):
                tab.give_files("files", files[:1])
                first = wait(tab, PICTURE_OF)
                tab.give_files("files", files[1:])
                rest = wait(tab, f"{COUNT} === {REPEATED}") / (REPEATED - 1)
            cold = dropped_at_once(page, files[0])
            lines.append(
                f"{height} x {width} | {ready:.1f} | {cold:.1f} | {first:.2f} | {rest:.2f}"
            )
    return lines


def dropped_at_once(page: Path, file: Path) -> float:
    """Seconds from dropping to the result, for a file that is dropped before the model is ready."""
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium(Path(folder) / "profile", Path(folder)) as driver,
    ):
        tab = ChromiumTab(driver)
        tab.open(page.as_uri())
        wait(tab, "!document.getElementById('guard')")
        tab.give_files("files", [file])
        return wait(tab, PICTURE_OF)


def many(page: Path, folder: Path, image: Path) -> str:
    """A picture of 50 megapixels, then 200 images: seconds, and the memory of the page's heap."""
    rng = np.random.default_rng(0)
    with PIL.Image.open(image) as picture:
        large = picture.convert("RGB").resize(LARGE[::-1])
        large.save(folder / "large.jpg", quality=90)
        files = []
        for number in range(200):
            shifted = picture.convert("RGB").resize((1024, 768)).rotate(float(rng.uniform(0, 360)))
            files.append(folder / f"many_{number:03d}.jpg")
            shifted.save(files[-1], quality=90)
    with opened(page) as (tab, _):
        tab.give_files("files", [folder / "large.jpg"])
        alone = wait(tab, PICTURE_OF)
        tab.give_files("files", files)
        total = wait(tab, f"{COUNT} === {len(files) + 1}")
        broken = tab.run("document.querySelectorAll('#list .blank').length")
        used = tab.run("performance.memory ? performance.memory.usedJSHeapSize : 0")
    return (
        f"One picture of {LARGE[0]} x {LARGE[1]} pixels ({LARGE[0] * LARGE[1] / 1e6:.0f} MP): "
        f"{alone:.1f} s to its review. Then 200 images of 768 x 1024: {total / 200:.2f} s each, "
        f"{broken} failed; the script's heap of the page held {used / 1e6:.0f} MB afterwards."
    )


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("--model", default="isic2017")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/page.md"))
    given = parser.parse_args()
    images = sorted(path for path in given.images.iterdir() if path.suffix.lower() == ".jpg")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = package_page(given.model, folder / "segconf.html")
        (folder / "copies").mkdir()
        copies = [folder / "copies" / f"{image.stem}.png" for image in images]
        for image, copy in zip(images, copies, strict=True):
            with PIL.Image.open(image) as picture:
                picture.convert("RGB").save(copy, compress_level=1)
        model = load_model(given.model, device="cpu")
        rows = []
        for label, files in (("JPEG", images), ("PNG copies", copies)):
            reference = folder / f"reference {label}"
            predict(model, files, reference)
            found = predicted(page.path, files, folder / f"page {label}")
            rows.append(f"| {label} | {compared(PredictionFolder(reference), found)} |")
            print(rows[-1], flush=True)
        speed = [f"| {row} |" for row in timed(page.path, images[0], folder)]
        print("\n".join(speed), flush=True)
        load = many(page.path, folder, images[0])
        text = report(given.model, page.size, rows, speed, load)
    given.out.write_text(text, encoding="utf-8")
    print(text)


def report(model: str, size: int, rows: list[str], speed: list[str], load: str) -> str:
    """The results as Markdown."""
    accuracy = ("files", "images", "masks equal, worst", "mean")
    accuracy += ("confidence within 0.01, worst", "largest difference", "flags equal")
    seconds = ("image", "s from opening to ready", "s to the first review, dropped at once")
    seconds += ("s to the first review, dropped when ready", "s an image afterwards")
    return "\n".join(
        [
            "# The page of a model against `segconf predict`",
            "",
            f"`python benchmarks/page.py FOLDER`: model {model}, page of {size / 1e6:.1f} MB,",
            "Chromium without a window, WebAssembly with one thread, on one core that other work",
            "shared. Whatever the size of an image, the network sees its own grid.",
            "",
            *head(accuracy),
            *rows,
            "",
            "PNG copies leave the JPEG decoder of the browser out: what is left are weights of",
            "16 bits, and another order of sums.",
            "",
            *head(seconds),
            *speed,
            "",
            load,
            "",
        ]
    )


def head(names: tuple[str, ...]) -> tuple[str, str]:
    """The first two lines of a table."""
    return f"| {' | '.join(names)} |", "|---" * len(names) + "|"


if __name__ == "__main__":
    main()
