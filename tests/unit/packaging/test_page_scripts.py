"""What the page of a model computes is what `predict` computes."""

import base64
import io
import itertools
from dataclasses import replace

import numpy as np
import PIL.Image
import pytest

from segconf.calibration.dice_scale import StoredDiceScale
from segconf.calibration.stored import Calibration, StoredNote, StoredReferral
from segconf.csv_tables import parse_rows
from segconf.images.io import read_image
from segconf.images.resizing import resize_pixels
from segconf.images.run_length import decode_runs
from segconf.inference.resampling import resized_bands
from segconf.overlays.contours import regions_of_maps
from segconf.overlays.layers import Contour
from segconf.overlays.overlay import as_fraction, sampled
from segconf.packaging.browser_page import flag_settings
from segconf.results.flags import with_flags
from segconf.results.maps import Maps
from segconf.results.rows import CaseRow
from segconf.results.summary import summarize
from segconf.review.page_maps import fitting_size, page_level
from tests.page_scripts import NODE, run_scripts

pytestmark = pytest.mark.skipif(not NODE, reason="node is not installed")


def columns_first(pixels, size):
    """Pillow's resize of (H, W, C) in two steps: it chooses the first axis by version and shape."""
    picture, (height, width) = PIL.Image.fromarray(pixels), size
    method = PIL.Image.Resampling.BILINEAR
    return np.asarray(picture.resize((width, len(pixels)), method).resize((width, height), method))


@pytest.mark.parametrize("size", [(97, 130), (20, 33), (300, 64), (32, 64), (301, 200)])
def test_pixels_are_resized_as_pillow_does_to_the_last_bit(size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    rgba = np.dstack([pixels, np.full(size, 255)])
    bands = """(() => {
      const [height, width] = given.size;
      const resizer = openResizer({ height, width, channels: 3, size: [32, 64] });
      for (let y = 0; y < height; y += 7) {
        const count = Math.min(7, height - y);
        resizer.take(given.rgba.slice(y * width * 4, (y + count) * width * 4), y, count);
      }
      const again = resizePixels(Uint8Array.from(given.pixels), given.size, [40, 60], 3);
      return [[...resizer.pixels()], [...again]];
    })()"""
    found = run_scripts(
        bands, size=size, rgba=rgba.reshape(-1).tolist(), pixels=pixels.reshape(-1).tolist()
    )
    for values, grid in zip(found, ((32, 64), (40, 60)), strict=True):
        own = np.reshape(values, (*grid, 3))
        np.testing.assert_array_equal(own, columns_first(pixels, grid))
        direct = resize_pixels(pixels.transpose(2, 0, 1), grid).transpose(1, 2, 0)
        assert np.abs(own - direct.astype(int)).max() <= 1


def test_colours_become_grey_as_pillow_makes_them():
    pixels = np.random.default_rng(1).integers(0, 256, (9, 11, 3), np.uint8)
    expression = "given.pixels.map(([r, g, b]) => grey(r, g, b))"
    found = run_scripts(expression, pixels=pixels.reshape(-1, 3).tolist())
    expected = np.asarray(PIL.Image.fromarray(pixels).convert("L"))
    np.testing.assert_array_equal(np.reshape(found, (9, 11)), expected)


def smooth_logits(classes, seed=0):
    """Logits (K, 8, 10) with foreground inside and doubt along its border."""
    noise = np.random.default_rng(seed).normal(0, 1, (classes, 8, 10))
    rows, columns = np.mgrid[:8, :10]
    noise[1] += 6 - 1.5 * np.hypot(rows - 4, columns - 5)
    return noise.astype(np.float32)


def grid_of(logits):
    values = logits[1:] - logits[:1] if len(logits) == 2 else logits
    return {
        "values": values.reshape(-1).tolist(),
        "planes": len(values),
        "size": list(logits.shape[1:]),
    }


@pytest.mark.parametrize("classes", [2, 3])
def test_maps_and_numbers_are_those_of_a_prediction(classes):
    logits, size = smooth_logits(classes), (61, 83)
    maps = Maps.empty((1, *size), classes=classes, probabilities=False)
    maps.fill(0, resized_bands(logits, size))
    expected = summarize(CaseRow("a", "a.png", *size), maps, shaded=0.8, ood_score=3.5)

    mask, levels, numbers = run_scripts(
        """(() => {
          const maps = mapsOf(given.grid, given.size);
          const row = summarize(maps, { shaded: 0.8, oodScore: 3.5 });
          return [[...maps.mask], [...maps.levels], row];
        })()""",
        grid=grid_of(logits),
        size=size,
    )

    np.testing.assert_array_equal(np.reshape(mask, size), maps.mask[0])
    assert np.abs(np.reshape(levels, size) - maps.levels[0].astype(int)).max() <= 1
    for name, value in numbers.items():
        assert value == pytest.approx(getattr(expected, name), abs=2e-5), name


def test_numbers_of_an_empty_mask_that_are_not_defined_are_null():
    grid = {"values": [-5.0] * 80, "planes": 1, "size": [8, 10]}
    row = run_scripts(
        "summarize(mapsOf(given.grid, [40, 40]), { shaded: 0.8, oodScore: null })", grid=grid
    )
    assert row["foreground_fraction"] == 0
    assert row["border_confidence"] is None
    assert row["foreground_confidence"] is None
    assert row["expected_dice"] == 0


def test_expected_dice_is_corrected_as_that_of_a_prediction():
    scale = StoredDiceScale(intercept=0.4, slope=0.9, error_before=0.1, error=0.05, images=10)
    values = [0.0, 1e-7, 0.2, 0.5, 0.83, 1.0]
    found = run_scripts(
        "given.values.map((one) => correctedDice(one, given.scale))",
        values=values,
        scale={"intercept": 0.4, "slope": 0.9},
    )
    assert found == pytest.approx([scale.of(value) for value in values])
    assert run_scripts("correctedDice(0.2, null)") == 0.2


RULE = StoredReferral(
    score="expected_dice",
    threshold=0.5,
    refer_fraction=0.2,
    reserved=0.05,
    fraction=0.1,
    kept_dice=0.9,
    kept_dice_interval=(0.8, 0.95),
    target_dice=0.85,
    target_fraction=0.1,
    images=10,
)
LIMITS = {"expected_dice": 0.6, "border_confidence": 0.7, "shaded_fraction": 0.3}
NOTES = tuple(
    StoredNote(column=name, limit=limit, high=name == "shaded_fraction", fraction=0.05, images=10)
    for name, limit in LIMITS.items()
)


def test_flags_are_those_of_a_prediction():
    rules = (None, RULE, RULE.model_copy(update={"threshold": -1.0}))
    remarks = ((), ("too few pixels: 5 x 9", "note: grey"))
    asked, expected = [], []
    for rule, score, area, dice, said in itertools.product(
        rules, (1.0, 9.0), (0.0, 0.4), (0.4, 0.55, 0.9), remarks
    ):
        calibration = Calibration(referral=rule, notes=NOTES)
        row = CaseRow("a", "a.png", foreground_fraction=area, expected_dice=dice)
        row = replace(row, border_confidence=0.65, shaded_fraction=0.3, ood_score=score)
        expected.append(with_flags(row, calibration, ood_limit=4.0, remarks=said))
        asked.append([row.plain(), flag_settings(calibration, 4.0), said])
    found = run_scripts("given.asked.map((one) => flagsOf(...one))", asked=asked)
    assert [tuple(flags) for flags in found] == [row.flags for row in expected]
    severities = run_scripts("given.flags.map(severityOf)", flags=found)
    assert severities == [row.severity for row in expected]
    assert len({row.flags for row in expected}) > 10


def test_the_map_of_the_page_is_that_of_a_prediction_folder():
    logits, size = smooth_logits(2), (500, 300)
    maps = Maps.empty((1, *size), classes=2, probabilities=False)
    maps.fill(0, resized_bands(logits, size))
    lines = (Contour("outer", 1, 0.05, 0.2), Contour("inner", 1, 0.05, 0.8))
    contours = [
        {"kind": one.kind, "class": 1, "alpha": one.alpha, "threshold": one.threshold}
        for one in lines
    ]

    found = run_scripts(
        """(() => {
          const map = pageMap(given.grid, given.size, { classes: 2, contours: given.contours });
          return { ...map, levels: [...map.levels] };
        })()""",
        grid=grid_of(logits),
        size=size,
        contours=contours,
    )

    shape = fitting_size(size, 420)
    assert (found["height"], found["width"]) == shape == (420, 252)
    levels = page_level(as_fraction(sampled(maps.levels[0], shape)), 0.5)
    assert (np.reshape(found["levels"], shape) == levels).mean() > 0.999
    np.testing.assert_array_equal(decode_runs(found["mask"]["runs"], size), maps.mask[0])
    regions = regions_of_maps(maps.mask[0], as_fraction(maps.levels[0]), lines)
    for bit, contour in enumerate(found["contours"]):
        assert contour["kind"] == lines[bit].kind
        inside = decode_runs(contour["runs"], size)
        assert (inside == (regions >> bit & 1)).mean() > 0.9999


@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_png_files_are_read_by_others(kind):
    top = np.iinfo(kind).max
    pixels = np.random.default_rng(0).integers(0, top + 1, (50, 37), kind)
    array = {"uint8": "Uint8Array", "uint16": "Uint16Array"}[kind]
    found = run_scripts(
        f"(async () => Buffer.from(await greyPng({array}.from(given.pixels), 37, 50))"
        ".toString('base64'))()",
        pixels=pixels.reshape(-1).tolist(),
    )
    with PIL.Image.open(io.BytesIO(base64.b64decode(found))) as picture:
        picture.load()
        np.testing.assert_array_equal(np.asarray(picture).astype(kind), pixels)


def header(content):
    found = run_scripts(
        """(() => {
          const bytes = new Uint8Array(Buffer.from(given.content, "base64"));
          try { return HEADERS[kindOf(bytes)](bytes); } catch (error) { return error.message; }
        })()""",
        content=base64.b64encode(content).decode(),
    )
    return found if isinstance(found, str) else (found["height"], found["width"], found["channels"])


@pytest.mark.parametrize("kind", ["jpeg", "png", "bmp"])
def test_a_file_that_was_cut_off_is_refused(kind):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 70, 3), np.uint8)
    for picture, channels in ((pixels, 3), (pixels[..., 0], 1)):
        buffer = io.BytesIO()
        PIL.Image.fromarray(picture).save(buffer, kind)
        whole = buffer.getvalue()
        assert header(whole) == (40, 70, 3 if kind == "bmp" else channels)
        for length in (len(whole) - 2, len(whole) // 2, 60):
            assert "broken or incomplete" in header(whole[:length])


DECODE = """(async () => {
  globalThis.createImageBitmap = async () => ({ close() {} });
  globalThis.ImageData = class {};
  const bytes = new Uint8Array(Buffer.from(given.content, "base64"));
  try {
    const picture = await openPicture(bytes, { maxPixels: 1e6 });
    const rgba = picture.rows(0, picture.height);
    return { size: [picture.height, picture.width], rgba: [...rgba], remarks: picture.remarks };
  } catch (error) { return error.message; }
})()"""


def decoded(content):
    """Pixels (H, W, 3) of a file, and remarks; or the reason why it was refused."""
    found = run_scripts(DECODE, content=base64.b64encode(content).decode())
    if isinstance(found, str):
        return found, []
    rgba = np.reshape(found["rgba"], (*found["size"], 4))
    assert (rgba[..., 3] == 255).all()
    return rgba[..., :3], found["remarks"]


def expected_pixels(tmp_path, content, suffix):
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(content)
    return read_image(path, channels=3).pixels.transpose(1, 2, 0)


def written(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


COLOURS = np.random.default_rng(3).integers(0, 256, (37, 53, 4), np.uint8)
SMOOTH = np.add.outer(np.arange(37), np.arange(53)).astype(np.uint8) // 3


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "packbits", "tiff_adobe_deflate"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "I;16"])
def test_tiff_files_are_read_as_segconf_reads_them(tmp_path, compression, mode):
    colours = np.dstack([SMOOTH, SMOOTH + 1, COLOURS[..., 0], COLOURS[..., 3]])
    picture = PIL.Image.fromarray(colours)
    if mode == "I;16":
        picture = PIL.Image.fromarray(COLOURS[..., 0].astype(np.uint16) * 257 - SMOOTH)
    elif mode != "RGBA":
        picture = picture.convert("RGB").convert(mode)
    content = written(picture, "tiff", compression=compression)
    pixels, remarks = decoded(content)
    np.testing.assert_array_equal(pixels, expected_pixels(tmp_path, content, ".tif"))
    assert remarks == (["note: deep grey levels were reduced to 8 bits"] if mode == "I;16" else [])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_file_is_turned_upright(tmp_path, orientation):
    picture = PIL.Image.fromarray(COLOURS[..., :3])
    content = written(picture, "tiff", tiffinfo={274: orientation})
    pixels, _ = decoded(content)
    np.testing.assert_array_equal(pixels, expected_pixels(tmp_path, content, ".tif"))


def test_a_tiff_file_with_a_predictor_and_a_large_alphabet_is_read():
    noise = np.random.default_rng(0).integers(0, 256, (200, 150, 3), np.uint8)
    for pixels in (noise, noise // 64):
        content = written(
            PIL.Image.fromarray(pixels), "tiff", compression="tiff_lzw", tiffinfo={317: 2}
        )
        np.testing.assert_array_equal(decoded(content)[0], pixels)


def test_tiff_files_that_are_broken_or_unknown_are_refused():
    picture = PIL.Image.fromarray(COLOURS[..., :3])
    whole = written(picture, "tiff", compression="tiff_lzw")
    for length in (len(whole) - 100, 300, 9):
        assert "broken or incomplete" in decoded(whole[:length])[0]
    assert "not read by this page" in decoded(written(picture, "tiff", compression="jpeg"))[0]
    several = written(picture, "tiff", save_all=True, append_images=[picture])
    assert "several pictures" in decoded(several)[0]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "I;16", "P"])
def test_png_files_with_deep_or_transparent_pixels_are_read_as_segconf_reads_them(tmp_path, mode):
    picture, options = PIL.Image.fromarray(COLOURS), {}
    if mode == "I;16":
        picture = PIL.Image.fromarray(COLOURS[..., 0].astype(np.uint16) * 255 + SMOOTH)
    elif mode == "P":
        picture, options = picture.convert("RGB").convert("P"), {"transparency": 5}
    else:
        picture = picture.convert(mode)
    content = written(picture, "png", **options)
    pixels, _ = decoded(content)
    np.testing.assert_array_equal(pixels, expected_pixels(tmp_path, content, ".png"))


def test_tables_hold_no_formulas_and_are_read_back():
    cells = [
        "=1+1",
        "+1-1",
        "-x",
        "@SUM(A1)",
        "'tis",
        "\t=1",
        "-12.5",
        "+3e2",
        "",
        'a, "b"',
        "-a,b",
    ]
    written = run_scripts("given.cells.map(csvCell)", cells=cells)
    assert written == [
        *("'=1+1", "'+1-1", "'-x", "'@SUM(A1)", "''tis", "'\t=1"),
        *("-12.5", "+3e2", "", '"a, ""b"""', '"\'-a,b"'),
    ]
    assert parse_rows(",".join(written)) == [cells]
