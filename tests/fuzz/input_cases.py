"""Cases about images: damaged, odd and hostile files of every format, names, and data sets."""

import gzip
import io
import os
import struct
import zlib
from functools import partial

import nibabel
import numpy as np
import PIL.Image

from tests.conftest import disc
from tests.fuzz.damage import BYTES, KINDS, TABLES, damaged_bytes, damaged_table
from tests.fuzz.fuzz_case import FuzzCase
from tests.fuzz.material import PICTURES, TINY

PREDICT = ("predict", "pictures", "--out", "new", "--checkpoint", "@run", "--device", "cpu")
DATA = ("data", "discs", "--verify")
TRAIN = ("train", "discs", "--epochs", "1", "--out", "new", "--no-calibrate", *TINY)
QUERY = ("query", "@run", "--budget", "1", "--pool", "pictures", "--out", "new/queue.csv")
PIXELS = disc(1, (24, 20))[0]


def input_cases():
    """Damaged pictures, odd ones, odd names, and data sets with both."""
    for name in PICTURES:
        for way, damage in _ways():
            turn = PREDICT if len(way) % 3 else QUERY
            yield FuzzCase(
                f"picture/{name}/{way}/{turn[0]}",
                ("pictures",),
                lambda folder, chance, name=name, damage=damage: damage(
                    folder / "pictures" / name, chance
                ),
                turn,
                (name, "pictures"),
            )
    for name, content in ODD_FILES.items():
        yield FuzzCase(
            f"odd/{name}", ("pictures",), partial(_added, name, content), PREDICT, (name,)
        )
    for name in NAMES:
        yield FuzzCase(
            f"name/{name.encode('utf-8', 'surrogateescape')[:40]!r}",
            ("pictures",),
            partial(_named, name),
            PREDICT,
        )
    yield from _dataset_cases()


def _ways():
    for way in BYTES:
        yield way, partial(damaged_bytes, way)
    for kind, make in KINDS.items():
        yield kind, lambda path, _chance, make=make: make(path)


def _dataset_cases():
    """Images, masks and groups of a data set; `data --verify` and `train` take turns."""
    files = ("images/case_001.png", "masks/case_001.png", "val/masks/case_100.png", "groups.csv")
    turn = 0
    for file in files:
        ways = [*_ways()]
        if file == "groups.csv":
            ways += [(way, partial(damaged_table, way)) for way in TABLES]
        for way, damage in ways:
            command = (DATA, TRAIN)[turn % 2]
            turn += 1
            yield FuzzCase(
                f"data/{file}/{way}/{command[0]}",
                ("discs", "groups.csv"),
                partial(_in_dataset, file, damage),
                command,
                (file.rpartition("/")[2], "case_001", "discs"),
            )
    for name, content in ODD_FILES.items():
        yield FuzzCase(
            f"data/mask/{name}",
            ("discs", "groups.csv"),
            partial(_odd_mask, name, content),
            (DATA, TRAIN)[turn % 2],
            ("case_001", "discs"),
        )
        turn += 1


def _in_dataset(file, damage, folder, chance):
    (folder / "groups.csv").rename(folder / "discs/groups.csv")
    damage(folder / "discs" / file, chance)


def _odd_mask(name, content, folder, _chance):
    (folder / "discs/masks/case_001.png").unlink()
    suffix = name[name.index(".") :]
    (folder / f"discs/masks/case_001{suffix}").write_bytes(content())


def _added(name, content, folder, _chance):
    (folder / "pictures" / name).write_bytes(content())


def _named(name, folder, _chance):
    path = os.path.join(os.fsencode(folder / "pictures"), os.fsencode(name))  # noqa: PTH118
    with open(path, "wb") as stream:  # noqa: PTH123 - the name may be no text
        stream.write(_picture("PNG")())


def _picture(form, pixels=PIXELS, mode=None, **options):
    def content():
        stream = io.BytesIO()
        picture = PIL.Image.fromarray(pixels)
        (picture.convert(mode) if mode else picture).save(stream, form, **options)
        return stream.getvalue()

    return content


def _frames(form):
    def content():
        stream = io.BytesIO()
        frames = [PIL.Image.fromarray(PIXELS + step) for step in range(3)]
        frames[0].save(stream, form, save_all=True, append_images=frames[1:])
        return stream.getvalue()

    return content


def _chunk(kind, content):
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def _png(width, height, *, depth=8, colour=2, data=b"", extra=b""):
    """A PNG file whose header says what is asked for."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = (_chunk(b"IHDR", header), extra, _chunk(b"IDAT", zlib.compress(data)))
    return lambda: b"\x89PNG\r\n\x1a\n" + b"".join(parts) + _chunk(b"IEND", b"")


def _jpeg_with_exif(orientation):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    return _picture("JPEG", exif=exif)


def _nifti(voxels, affine=None, **header):
    def content():
        image = nibabel.Nifti1Image(voxels, np.eye(4) if affine is None else affine)
        raw = bytearray(image.to_bytes())
        for at, value in header.items():
            start = int(at.removeprefix("at"))
            raw[start : start + len(value)] = value
        return bytes(raw)

    return content


BLOCK = np.arange(20 * 16 * 2, dtype=np.int16).reshape(20, 16, 2)
FLOATS = BLOCK.astype(np.float32)
SFORM = struct.pack("<h", 1)
BOMB = zlib.compress(bytes(64 << 20))
ODD_FILES = {
    "one-bit.png": _picture("PNG", mode="1"),
    "palette.png": _picture("PNG", mode="P"),
    "alpha.png": _picture("PNG", mode="RGBA"),
    "grey-alpha.png": _picture("PNG", mode="LA"),
    "deep.png": _picture("PNG", PIXELS[..., 0].astype(np.uint16) * 200),
    "one-pixel.png": _picture("PNG", PIXELS[:1, :1]),
    "one-row.png": _picture("PNG", np.repeat(PIXELS[:1], 1, 0)),
    "thin.png": _picture("PNG", np.zeros((3000, 1, 3), np.uint8)),
    "moving.png": _frames("PNG"),
    "moving.gif": _frames("GIF"),
    "moving.webp": _frames("WEBP"),
    "pages.tif": _frames("TIFF"),
    "huge.png": _png(2_000_000_000, 2_000_000_000),
    "large.png": _png(60_000, 60_000),
    "no-width.png": _png(0, 10),
    "no-pixels.png": _png(32, 32),
    "odd-depth.png": _png(32, 32, depth=5),
    "odd-colours.png": _png(32, 32, colour=9),
    "text-bomb.png": _png(32, 32, data=bytes(97 * 32), extra=_chunk(b"zTXt", b"a\0\0" + BOMB)),
    "profile-bomb.png": _png(32, 32, data=bytes(97 * 32), extra=_chunk(b"iCCP", b"a\0\0" + BOMB)),
    "cmyk.jpg": _picture("JPEG", mode="CMYK"),
    "grey.jpg": _picture("JPEG", mode="L"),
    "progressive.jpg": _picture("JPEG", progressive=True),
    "turned.jpg": _jpeg_with_exif(6),
    "odd-turn.jpg": _jpeg_with_exif(77),
    "named-wrongly.png": _picture("JPEG"),
    "named-wrongly.jpg": _picture("PNG"),
    "named-wrongly.nii": _picture("PNG"),
    "float.tif": _picture("TIFF", PIXELS[..., 0].astype(np.float32) / 255),
    "float-outside.tif": _picture("TIFF", PIXELS[..., 0].astype(np.float32)),
    "float-nan.tif": _picture("TIFF", np.full((20, 20), np.nan, np.float32)),
    "signed.tif": _picture("TIFF", PIXELS[..., 0].astype(np.int32)),
    "plain.nii": _nifti(BLOCK),
    "flat.nii": _nifti(BLOCK[..., 0]),
    "float-nan.nii": _nifti(np.full(BLOCK.shape, np.nan, np.float32)),
    "some-nan.nii": _nifti(np.where(FLOATS > 300, np.nan, FLOATS)),
    "infinite.nii": _nifti(np.where(FLOATS > 300, np.inf, FLOATS)),
    "constant.nii": _nifti(np.ones(BLOCK.shape, np.uint8)),
    "complex.nii": _nifti(BLOCK.astype(np.complex64)),
    "five-axes.nii": _nifti(BLOCK[..., None, None]),
    "four-axes.nii": _nifti(BLOCK[..., None].repeat(3, 3)),
    "no-slices.nii": _nifti(BLOCK[:, :, :0]),
    "singular.nii": _nifti(BLOCK, at254=SFORM, at280=bytes(48)),
    "oblique.nii": _nifti(
        BLOCK, np.array([[1, 1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    ),
    "affine-nan.nii": _nifti(BLOCK, at254=SFORM, at280=struct.pack("<12f", *[np.nan] * 12)),
    "negative-dim.nii": _nifti(BLOCK, at42=struct.pack("<h", -5)),
    "huge-dim.nii": _nifti(BLOCK, at42=struct.pack("<hhh", 32767, 32767, 32767)),
    "eight-axes.nii": _nifti(BLOCK, at40=struct.pack("<h", 8)),
    "odd-type.nii": _nifti(BLOCK, at70=struct.pack("<h", 999)),
    "far-data.nii": _nifti(BLOCK, at108=struct.pack("<f", 1e9)),
    "negative-data.nii": _nifti(BLOCK, at108=struct.pack("<f", -400.0)),
    "odd-slope.nii": _nifti(BLOCK, at112=struct.pack("<ff", float("nan"), float("inf"))),
    "odd-magic.nii": _nifti(BLOCK, at344=b"abc\0"),
    "not-zipped.nii.gz": _nifti(BLOCK),
    "zipped-garbage.nii.gz": lambda: gzip.compress(b"garbage"),
    "zipped-bomb.nii.gz": lambda: gzip.compress(_nifti(BLOCK)() + bytes(64 << 20)),
    "zip-cut.nii.gz": lambda: gzip.compress(_nifti(BLOCK)())[:-20],
}
"""Files by name, as functions that give their content."""
NAMES = (
    *("a b c.png", "\u00e4\u00f6\u00fc\u00df.png", "\u65e5\u672c.png", "\U0001f600.png", "-x.png"),
    *("--out.png", "=1+1.png", "@x.png", "a\nb.png", "a\tb.png", "a\x1b[31mb.png", "\u202egnp.png"),
    *("<script>alert(1)</script>.png"[:8] + ".png", "a'\"b.png", "&amp;.png", "%2e%2e.png"),
    *(
        "CON.png",
        "nul.png",
        "a..png",
        "...png",
        "a.PNG",
        "a.png.png",
        "a.jpg.png",
        "x" * 251 + ".png",
    ),
    *(
        "e\u0301.png",
        "\u00e9.png",
        "a\udcff\udcfe.png",
        "\udc80.png",
        "a;b,c.png",
        "\\a.png",
        "a:b.png",
    ),
    *(
        "masks.png",
        "review.png",
        ".hidden.png",
        "a_superpixels.png",
        "{x}.png",
        "[b]x[/b].png",
        "~.png",
    ),
)
"""File names that a system allows; those with lone surrogates are bytes that are no UTF-8."""
