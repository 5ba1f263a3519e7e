"""Synthetic dermoscopy: exact masks, plausible statistics, whole data sets or none."""

import json
import math
import threading

import numpy as np
import pytest
from PIL import Image

from segconf.errors import DataError
from segconf.synthetic import generation as archive
from segconf.synthetic.generation import (
    GENERATOR_VERSION,
    DemoParameters,
    contact_sheet,
    write_demo_dataset,
)
from segconf.synthetic.lesion import ANGLES, Lesion, Lobe, draw_lesion
from segconf.synthetic.noise import Canvas, pixel_centres, smooth_noise, smooth_step
from segconf.synthetic.optics import add_vignette, generate_case

SMALL = (48, 64)
TINY_SET = DemoParameters(training=3, validation=2, test=1, size=(32, 40), seed=5)


def table(function):
    angles = -np.pi + 2 * np.pi * np.arange(ANGLES + 1) / ANGLES
    return np.array([function(angle) for angle in angles], dtype=np.float32)


def lobe(centre=(0.5, 0.5), radius=0.25, softness=0.05, stretch=1.0, rotation=0.0):
    radius_at = radius if callable(radius) else lambda _: radius
    return Lobe(centre, rotation, stretch, table(radius_at), table(lambda _: softness))


def logit_at(lesion, x, y):
    return float(lesion.logit(np.float32([[x]]), np.float32([[y]]))[0, 0])


def darkness_of_lesion(image, mask):
    """Mean grey level of the skin around the lesion minus that of the lesion.

    Around: within a quarter of the image height of the mask's bounding box, so that the dark rim of
    the dermatoscope has little influence.
    """
    grey = image.mean(axis=2)
    rows, columns = np.nonzero(mask)
    reach = mask.shape[0] // 4
    box = np.zeros_like(mask)
    box[max(rows.min() - reach, 0) : rows.max() + reach, :] = True
    box[:, : max(columns.min() - reach, 0)] = False
    box[:, columns.max() + reach :] = False
    return np.median(grey[box & ~mask]) - np.median(grey[mask])


# The membership field


def test_membership_of_a_disc_is_a_sigmoid_of_the_distance_to_its_border():
    disc = Lesion((lobe(),), ambiguous=False)
    assert logit_at(disc, 0.75, 0.5) == pytest.approx(0, abs=1e-5)  # distance 0.25 = radius
    assert logit_at(disc, 0.5, 0.3) == pytest.approx((0.25 - 0.2) / 0.05, abs=1e-5)
    assert logit_at(disc, 0.1, 0.5) == pytest.approx((0.25 - 0.4) / 0.05, abs=1e-5)


def test_radius_depends_on_the_angle_counted_from_the_rotated_axis():
    # radius 0.3 along the lobe's axis, 0.2 across, 0.1 behind
    pear = Lesion((lobe(radius=lambda a: 0.2 + 0.1 * math.cos(a)),), ambiguous=False)
    for x, y in [(0.8, 0.5), (0.5, 0.7), (0.5, 0.3), (0.4, 0.5)]:
        assert logit_at(pear, x, y) == pytest.approx(0, abs=0.01)
    turned = lobe(radius=lambda a: 0.2 + 0.1 * math.cos(a), rotation=math.pi / 2)
    for x, y in [(0.5, 0.8), (0.3, 0.5), (0.7, 0.5), (0.5, 0.4)]:
        assert logit_at(Lesion((turned,), ambiguous=False), x, y) == pytest.approx(0, abs=0.01)


def test_stretched_disc_is_an_ellipse_of_the_same_area():
    ellipse = Lesion((lobe(stretch=1.25),), ambiguous=False)
    assert logit_at(ellipse, 0.5 + 0.25 * 1.25, 0.5) == pytest.approx(0, abs=1e-4)
    assert logit_at(ellipse, 0.5, 0.5 + 0.25 / 1.25) == pytest.approx(0, abs=1e-4)
    inside = ellipse.logit(*pixel_centres((400, 400))) >= 0
    assert inside.mean() == pytest.approx(math.pi * 0.25**2, rel=0.005)


def test_two_lobes_join_by_log_sum_exp():
    pair = Lesion((lobe(), lobe(centre=(1.0, 0.5))), ambiguous=False)
    # The middle lies on both borders: log(exp(0) + exp(0)).
    assert logit_at(pair, 0.75, 0.5) == pytest.approx(math.log(2), abs=1e-4)
    # logits (0.25 - 0.2) / 0.05 = 1 and (0.25 - 0.3) / 0.05 = -1
    assert logit_at(pair, 0.7, 0.5) == pytest.approx(math.log(math.e + 1 / math.e), abs=1e-4)


@pytest.mark.parametrize("index", [0, 3, 8])
def test_mask_is_where_the_membership_is_at_least_one_half(index):
    size = (60, 80)
    _, mask = generate_case(2, index, size)
    lesion = draw_lesion(np.random.default_rng([2, index]), 80 / 60)
    compared = 0
    for row in range(0, 60, 3):
        for column in range(0, 80, 3):
            x, y = (column + 0.5) / 60, (row + 0.5) / 60
            odds = 0.0
            for part in lesion.lobes:
                dx, dy = x - part.centre[0], y - part.centre[1]
                along = (math.cos(part.rotation) * dx + math.sin(part.rotation) * dy) / part.stretch
                across = (
                    math.cos(part.rotation) * dy - math.sin(part.rotation) * dx
                ) * part.stretch
                turn = math.atan2(across, along) / (2 * math.pi) + 0.5
                entry = round(turn * ANGLES)
                gap = float(part.radius[entry]) - math.hypot(along, across)
                odds += math.exp(gap / float(part.softness[entry]))
            membership = odds / (1 + odds)
            if abs(membership - 0.5) > 0.01:
                assert mask[row, column] == (membership > 0.5)
                compared += 1
    assert compared > 500


# Cases


def test_same_arguments_give_the_same_case_and_others_do_not():
    image, mask = generate_case(1, 4, SMALL)
    again, mask_again = generate_case(1, 4, SMALL)
    assert image.tobytes() == again.tobytes()
    assert mask.tobytes() == mask_again.tobytes()
    for seed, index in [(2, 4), (1, 5), (4, 1)]:
        other, other_mask = generate_case(seed, index, SMALL)
        assert (other != image).mean() > 0.5
        assert (other_mask != mask).any()


def test_image_and_mask_have_the_size_asked_for():
    for size in [(32, 32), (50, 70), (96, 64)]:
        image, mask = generate_case(0, 0, size)
        assert image.shape == (*size, 3)
        assert image.dtype == np.uint8
        assert mask.shape == size
        assert mask.dtype == np.bool_


def test_a_case_shows_the_same_lesion_at_any_resolution():
    _, coarse = generate_case(0, 6, (48, 64))
    _, fine = generate_case(0, 6, (144, 192))
    # The centre of a coarse pixel is the centre of the middle one of its 3 x 3 fine pixels.
    assert (fine[1::3, 1::3] == coarse).mean() > 0.999


@pytest.mark.parametrize(
    ("seed", "index", "size"), [(-1, 0, SMALL), (0, -1, SMALL), (0, 0, (31, 64))]
)
def test_impossible_arguments_are_refused(seed, index, size):
    with pytest.raises(ValueError, match=r"must not be negative|too small"):
        generate_case(seed, index, size)


def test_lesions_vary_in_area_and_place_like_real_ones():
    lesions = [draw_lesion(np.random.default_rng([9, index]), 4 / 3) for index in range(300)]
    masks = [lesion.logit(*pixel_centres(SMALL)) >= 0 for lesion in lesions]
    shares = np.array([mask.mean() for mask in masks])
    assert shares.min() >= 0.02
    assert shares.max() <= 0.60
    low, median, high = np.quantile(shares, [0.1, 0.5, 0.9])
    assert low < 0.06
    assert 0.10 < median < 0.18
    assert high > 0.27
    edges = [
        mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any() for mask in masks
    ]
    assert 0.05 < np.mean(edges) < 0.4
    assert 0.15 < np.mean([lesion.ambiguous for lesion in lesions]) < 0.35
    middle = np.mean([mask[16:32, 21:43].any() for mask in masks])
    assert middle > 0.85


def test_clear_lesions_are_darker_than_the_skin_and_ambiguous_ones_barely():
    clear, ambiguous = [], []
    for index in range(80):
        image, mask = generate_case(3, index, (72, 96))
        lesion = draw_lesion(np.random.default_rng([3, index]), 96 / 72)
        (ambiguous if lesion.ambiguous else clear).append(darkness_of_lesion(image, mask))
    assert min(clear) > 8
    assert np.median(clear) > 35
    assert min(ambiguous) > 0
    assert np.median(ambiguous) < 0.6 * np.median(clear)


def test_skin_ranges_from_light_to_dark_without_strange_hues():
    colours = []
    for index in range(100):
        image, mask = generate_case(4, index, SMALL)
        colours.append(np.median(image[~mask & (image.max(axis=2) > 60)], axis=0))
    red, green, blue = np.array(colours).T
    assert red.max() > 215
    assert red.min() < 115
    assert np.all(red > 0.95 * green)
    assert np.all(green > 0.8 * blue)
    assert np.all(red < 2.6 * blue)


def test_vignette_never_covers_the_lesion():
    image = np.full((3, *SMALL), 0.7, dtype=np.float32)
    everywhere = np.full(SMALL, 5.0, dtype=np.float32)
    darkened = 0
    for seed in range(40):
        with_lesion = add_vignette(np.random.default_rng(seed), image, everywhere)
        without = add_vignette(np.random.default_rng(seed), image, -everywhere)
        # A window larger than the image would leave the lesion lit: then it may stay.
        assert with_lesion.min() > 0.6
        assert np.abs(without[:, 24, 32] - 0.7).max() < 1e-6
        darkened += without[0, 0, 0] < 0.3 or without[0, -1, -1] < 0.3
    assert 4 <= darkened <= 20


# Fields


def test_smooth_noise_has_zero_mean_unit_deviation_and_the_grain_asked_for():
    generator = np.random.default_rng(0)
    for cells in (12, 30):
        noise = smooth_noise(generator, (192, 256), cells)
        assert noise.shape == (192, 256)
        assert abs(noise.mean()) < 0.15
        assert noise.std() == pytest.approx(1, abs=0.15)
        cell = 192 / cells

        def correlation(shift, noise=noise):
            return np.corrcoef(noise[:, shift:].ravel(), noise[:, :-shift].ravel())[0, 1]

        assert correlation(round(0.2 * cell)) > 0.8
        assert abs(correlation(round(2.5 * cell))) < 0.2


def test_smooth_step_by_hand():
    values = np.array([0.0, 1.0, 1.5, 2.0, 3.0], dtype=np.float32)
    # 1.5 is a quarter of the way from 1 to 3: 3 / 16 - 2 / 64
    assert smooth_step(values, 1, 3).tolist() == pytest.approx([0, 0, 10 / 64, 0.5, 1])
    assert smooth_step(values, 3, 1).tolist() == pytest.approx([1, 1, 54 / 64, 0.5, 0])


def test_canvas_covers_the_area_that_was_drawn():
    canvas = Canvas((100, 200))
    # From (0.5, 0.5) to (1.5, 0.5), full width 0.2: the area is 0.2 of the image's 2.
    canvas.tapered_curve(np.array([[0.5, 0.5], [1.5, 0.5]]), np.array([0.1, 0.1]))
    coverage = canvas.coverage()
    assert coverage.mean() == pytest.approx(0.1, abs=0.003)
    assert coverage[45:55, 60:140].min() == 1
    assert coverage[:35].max() == 0


# The archive


def test_archive_has_the_isic_layout_and_the_generated_pixels(tmp_path):
    write_demo_dataset(tmp_path / "demo", TINY_SET)
    written = {
        p.relative_to(tmp_path / "demo").as_posix() for p in tmp_path.rglob("*.*") if p.is_file()
    }
    names = {
        "Training": ["ISIC_0000000", "ISIC_0000001", "ISIC_0000002"],
        "Validation": ["ISIC_1000000", "ISIC_1000001"],
        "Test_v2": ["ISIC_2000000"],
    }
    expected = {"demo.json"}
    for split, cases in names.items():
        expected |= {f"ISIC-2017_{split}_Data/{case}.jpg" for case in cases}
        expected |= {
            f"ISIC-2017_{split}_Part1_GroundTruth/{case}_segmentation.png" for case in cases
        }
    assert written == expected
    for split, cases in names.items():
        for case in cases:
            image, mask = generate_case(5, int(case.removeprefix("ISIC_")), (32, 40))
            photo = Image.open(tmp_path / f"demo/ISIC-2017_{split}_Data/{case}.jpg")
            truth = Image.open(
                tmp_path / f"demo/ISIC-2017_{split}_Part1_GroundTruth/{case}_segmentation.png"
            )
            assert photo.format == "JPEG"
            assert photo.mode == "RGB"
            assert np.abs(np.asarray(photo).astype(int) - image).mean() < 4
            assert truth.mode == "L"
            np.testing.assert_array_equal(np.asarray(truth), np.where(mask, 255, 0))


def test_parameters_are_written_beside_the_cases(tmp_path):
    write_demo_dataset(tmp_path / "demo", TINY_SET)
    assert json.loads((tmp_path / "demo/demo.json").read_text(encoding="utf-8")) == {
        "training": 3,
        "validation": 2,
        "test": 1,
        "size": [32, 40],
        "seed": 5,
        "generator_version": GENERATOR_VERSION,
    }


def test_files_do_not_depend_on_the_number_of_cases(tmp_path):
    write_demo_dataset(tmp_path / "small", TINY_SET)
    larger = DemoParameters(training=5, validation=2, test=0, size=(32, 40), seed=5)
    write_demo_dataset(tmp_path / "large", larger)
    shared = [p.relative_to(tmp_path / "small") for p in (tmp_path / "small").glob("*[ng]_*/*")]
    assert len(shared) == 2 * (3 + 2)
    for path in shared:
        assert (tmp_path / "small" / path).read_bytes() == (tmp_path / "large" / path).read_bytes()
    assert not list((tmp_path / "large").glob("*Test*"))


def test_progress_counts_every_case(tmp_path):
    seen = []
    write_demo_dataset(tmp_path / "demo", TINY_SET, on_progress=lambda *step: seen.append(step))
    assert seen == [(number, 6) for number in range(1, 7)]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_interrupted_generation_leaves_nothing(tmp_path, failure):
    def interrupt(done, _):
        if done == 3:
            raise failure

    with pytest.raises(failure):
        write_demo_dataset(tmp_path / "demo", TINY_SET, on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    write_demo_dataset(tmp_path / "demo", TINY_SET)
    assert (tmp_path / "demo/demo.json").is_file()


def test_interruption_stops_the_work_that_was_not_begun(tmp_path, monkeypatch):
    made = []

    def count(seed, index, size):
        made.append(index)
        return generate_case(seed, 0, size)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(archive, "generate_case", count)
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        write_demo_dataset(
            tmp_path / "demo", DemoParameters(training=200, size=(32, 40)), on_progress=interrupt
        )
    assert threading.active_count() == threads
    assert len(made) < 100


def test_nothing_is_visible_before_the_end(tmp_path):
    def look(*_):
        assert not (tmp_path / "demo").exists()

    write_demo_dataset(tmp_path / "demo", TINY_SET, on_progress=look)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_complete_folder_is_kept(tmp_path):
    folder = tmp_path / "new" / "demo"
    write_demo_dataset(folder, TINY_SET)
    mask = next(folder.glob("*Training_Part1*/*"))
    mask.write_bytes(b"touched")

    def fail(*_):
        raise AssertionError

    write_demo_dataset(folder, TINY_SET, on_progress=fail)
    assert mask.read_bytes() == b"touched"


def test_empty_folder_is_filled(tmp_path):
    write_demo_dataset(tmp_path, TINY_SET)
    assert (tmp_path / "demo.json").is_file()


def test_folder_of_other_parameters_is_refused_and_left_alone(tmp_path):
    write_demo_dataset(tmp_path / "demo", TINY_SET)
    other = DemoParameters(training=3, validation=2, test=1, size=(32, 40), seed=6)
    with pytest.raises(DataError, match=r"demo\.json: .*other parameters.*\"seed\": 6.*Delete it"):
        write_demo_dataset(tmp_path / "demo", other)
    write_demo_dataset(tmp_path / "demo", TINY_SET)


def test_folder_with_missing_files_is_refused(tmp_path):
    write_demo_dataset(tmp_path / "demo", TINY_SET)
    (tmp_path / "demo/ISIC-2017_Training_Data/ISIC_0000001.jpg").unlink()
    with pytest.raises(DataError, match=r"1 files .* gone, the first is ISIC_0000001\.jpg"):
        write_demo_dataset(tmp_path / "demo", TINY_SET)


def test_foreign_folder_or_file_is_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/mine.jpg").write_bytes(b"precious")
    (tmp_path / "file").write_bytes(b"")
    for name in ("photos", "file"):
        with pytest.raises(DataError, match=f"{name}: exists and is not demo data"):
            write_demo_dataset(tmp_path / name, TINY_SET)
    assert (tmp_path / "photos/mine.jpg").read_bytes() == b"precious"
    with pytest.raises(DataError, match="cannot be written"):
        write_demo_dataset(tmp_path / "file" / "demo", TINY_SET)


def test_another_process_that_finishes_first_wins(tmp_path):
    folder = tmp_path / "demo"

    def overtake(done, total):
        if done == total:
            write_demo_dataset(folder, TINY_SET)
            (folder / "first").touch()

    write_demo_dataset(folder, TINY_SET, on_progress=overtake)
    assert (folder / "first").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_impossible_counts_are_refused():
    for counts in [(0, 1, 1), (1, -1, 0), (1_000_001, 0, 0)]:
        with pytest.raises(ValueError, match="cannot make"):
            DemoParameters(*counts)


# The contact sheet


def test_contact_sheet_places_images_in_rows_four_pixels_apart():
    images = [np.full((5, 7, 3), 10 * number, dtype=np.uint8) for number in range(3)]
    masks = [np.zeros((5, 7), dtype=bool)] * 3
    sheet = contact_sheet(images, masks, columns=2)
    assert sheet.shape == (4 + 2 * (5 + 4), 4 + 2 * (7 + 4), 3)
    expected = np.full(sheet.shape, 255)
    expected[4:9, 4:11] = 0
    expected[4:9, 15:22] = 10
    expected[13:18, 4:11] = 20
    np.testing.assert_array_equal(sheet, expected)


def test_contour_is_white_inside_and_dark_outside_and_absent_at_the_edge():
    image = np.full((5, 6, 3), 100, dtype=np.uint8)
    mask = np.zeros((5, 6), dtype=bool)
    mask[1:4, :4] = True
    sheet = contact_sheet([image], [mask], columns=1)[4:9, 4:10, 0]
    w, d, o = 255, 20, 100
    assert sheet.tolist() == [
        [d, d, d, d, o, o],
        [w, w, w, w, d, o],
        [o, o, o, w, d, o],
        [w, w, w, w, d, o],
        [d, d, d, d, o, o],
    ]
    assert image.min() == image.max() == 100


def test_contact_sheet_refuses_what_it_cannot_arrange():
    image, mask = np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), bool)
    for images, masks, columns in [([], [], 2), ([image], [], 2), ([image], [mask], 0)]:
        with pytest.raises(ValueError, match="no sheet"):
            contact_sheet(images, masks, columns)
    with pytest.raises(ValueError, match="sizes differ"):
        contact_sheet([image, image[:3]], [mask, mask[:3]], 2)
