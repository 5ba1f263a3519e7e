"""Read damaged DICOM files, one line per file: what was read, or how it was refused.

Run: ``python tests/damaged_dicom.py FOLDER COUNT``. Every error but a `DataError` ends the program.
"""

import io
import itertools
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pydicom
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless

from segconf.errors import DataError
from segconf.images.io import read_header, read_image
from segconf.inference.sources import find_images
from tests import dicom_objects
from tests.dicom_objects import enhanced, photograph, positions, save, slice_object


def originals(folder: Path) -> list[Path]:
    """A photograph, plain and compressed, a CT slice and an enhanced object."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (24, 32, 3), np.uint8)
    volume = rng.integers(0, 2000, (4, 12, 10), np.int16)
    stream = io.BytesIO()
    PIL.Image.fromarray(picture).save(stream, "JPEG2000", mct=1)
    compressed = pydicom.dcmread(photograph(folder / "jpeg2000.dcm", picture))
    compressed.PixelData = encapsulate([stream.getvalue()])
    compressed["PixelData"].VR = "OB"
    compressed.PhotometricInterpretation = "YBR_RCT"
    compressed.file_meta.TransferSyntaxUID = JPEG2000Lossless
    shared = {name: dicom_objects.generate_uid() for name in ("study", "series", "frame")}
    return [
        photograph(folder / "photograph.dcm", picture),
        save(compressed, folder / "jpeg2000.dcm"),
        save(slice_object(volume[0], positions(1)[0], shared), folder / "slice.dcm"),
        enhanced(folder / "enhanced.dcm", volume),
    ]


def damaged(content: bytes, rng: np.random.Generator, kind: int) -> bytes:
    """Bits flipped, the end cut off, or an element removed."""
    if kind == 0:
        values = np.frombuffer(content, np.uint8).copy()
        places = rng.integers(132, len(values), rng.integers(1, 20))
        values[places] ^= (1 << rng.integers(0, 8, len(places))).astype(np.uint8)
        return values.tobytes()
    if kind == 1:
        return content[: rng.integers(1, len(content))]
    dataset = pydicom.dcmread(io.BytesIO(content))
    for element in rng.choice(list(dataset.keys()), rng.integers(1, 6), replace=False):
        del dataset[element]
    stream = io.BytesIO()
    pydicom.dcmwrite(stream, dataset, implicit_vr=False, little_endian=True)
    return stream.getvalue()


def main(folder: Path, count: int) -> None:
    """Damage, read, tell; the same files in every run."""
    numbers = itertools.count(1)
    dicom_objects.generate_uid = lambda: f"1.2.826.0.1.3680043.8.498.{next(numbers)}"
    contents = [path.read_bytes() for path in originals(folder / "originals")]
    for number in range(count):
        rng = np.random.default_rng(number)
        place = folder / f"{number}" / "QUIXOTTE.dcm"
        place.parent.mkdir()
        place.write_bytes(damaged(contents[number % 4], rng, number % 3))
        for source in find_images([place.parent]).items:
            try:
                read_header(source.path)
                shape = read_image(source.path).pixels.shape
                told = f"read {shape}"
            except DataError as error:
                told = f"refused {error}"
            sys.stdout.write(f"{number} {told}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
