"""Batches: what an epoch contains, that masks stay hidden, and that the seed decides everything."""

import shutil
from collections import Counter

import numpy as np
import pytest
import torch

from segconf.config.schema import AugmentationConfig
from segconf.conventions import IGNORE
from segconf.data.cache import PixelCache
from segconf.data.cases import BrokenDataError
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import split_cases
from segconf.data.training_set import (
    CaseDataset,
    Normalization,
    TrainingDataset,
    build_loader,
    prepare_training,
    training_batches,
)
from segconf.data.transforms import augment, normalize, training_transform
from tests.conftest import disc, write_folder

NORMALIZATION = Normalization((0.5, 0.4, 0.3), (0.2, 0.25, 0.5))
PLAIN = AugmentationConfig(scale=(1.0, 1.0), horizontal_flip=0.0, vertical_flip=0.0)


@pytest.fixture
def prepared(tmp_path):
    """Twenty discs, six of them labeled; the pixels and the split."""
    root = write_folder(tmp_path / "set", 20)
    write_folder(root / "val", 3, first=100)
    found = find_cases(str(root), options=FindOptions(0, 0))
    split = split_cases(found, labeled=6, labeled_list=None, seed=0)
    return prepare_training(PixelCache(root, Preprocessing((32, 32))), split), split


def dataset_of(pixels, *, steps=4, batch_labeled=4, augmentation=PLAIN, seed=0):
    return TrainingDataset(
        pixels,
        steps=steps,
        batch_labeled=batch_labeled,
        augmentation=augmentation,
        normalization=NORMALIZATION,
        seed=seed,
    )


def test_masks_of_unlabeled_images_are_never_read(tmp_path):
    root = write_folder(tmp_path / "set", 12)
    write_folder(root / "val", 2, first=100)
    found = find_cases(str(root), options=FindOptions(0, 0))
    split = split_cases(found, labeled=4, labeled_list=None, seed=0)
    for case in split.unlabeled:
        (root / "masks" / f"{case.id}.png").unlink()
    pixels = prepare_training(PixelCache(root, Preprocessing((32, 32))), split)
    assert pixels.labeled_masks.shape == (4, 32, 32)
    assert len(pixels.unlabeled_rows) == 8


def test_rows_and_masks_belong_together(prepared):
    pixels, split = prepared
    numbers = sorted(int(case.id[-3:]) for case in split.labeled)
    for position, number in enumerate(numbers):
        image, mask = disc(number)
        row = pixels.labeled_rows[position]
        np.testing.assert_array_equal(pixels.images[row], image)
        np.testing.assert_array_equal(pixels.labeled_masks[position], mask)
    assert sorted([*pixels.labeled_rows, *pixels.unlabeled_rows]) == list(range(20))


def test_the_image_array_serves_every_choice_of_labels(prepared, tmp_path):
    pixels, _ = prepared
    root = tmp_path / "set"
    found = find_cases(str(root), options=FindOptions(0, 0))
    other = split_cases(found, labeled=9, labeled_list=None, seed=5)
    again = prepare_training(PixelCache(root, Preprocessing((32, 32))), other)
    assert again.images.filename == pixels.images.filename


def test_validation_images_without_a_mask_are_left_out(tmp_path):
    root = write_folder(tmp_path / "set", 4)
    write_folder(root / "val", 3, first=100, masks=2)
    found = find_cases(str(root), options=FindOptions(0, 0))
    split = split_cases(found, labeled=None, labeled_list=None, seed=0)
    pixels = prepare_training(PixelCache(root, Preprocessing((32, 32))), split)
    for row, number in enumerate((100, 101)):
        image, mask = disc(number)
        np.testing.assert_array_equal(pixels.validation_images[row], image)
        np.testing.assert_array_equal(pixels.validation_masks[row], mask)
    assert len(pixels.validation_images) == len(pixels.validation_masks) == 2
    assert len(split.validation) == 3  # a part of the run: it may not become a training image


def test_problems_of_structure_and_content_are_told_together(tmp_path):
    root = write_folder(tmp_path / "set", 6)
    write_folder(root / "val", 2, first=100)
    (root / "images/case_002.png").write_bytes(b"")
    (root / "val/masks/case_100.png").write_text("no picture")
    shutil.copy(root / "masks/case_000.png", root / "masks/stray.png")
    found = find_cases(str(root), options=FindOptions(0, 0))
    split = split_cases(found, labeled=None, labeled_list=None, seed=0)
    with pytest.raises(BrokenDataError) as caught:
        prepare_training(PixelCache(root, Preprocessing((32, 32))), split, problems=found.problems)
    for name in ("case_002.png", "case_100.png", "stray.png"):
        assert name in str(caught.value)
    assert len(caught.value.problems) == 3


def test_an_epoch_shows_every_unlabeled_image_once(prepared):
    pixels, _ = prepared
    dataset = dataset_of(pixels, steps=4)
    seen = [case for step in build_loader(dataset, workers=0) for case in step.unlabeled.cases]
    assert sorted(int(case) for case in seen) == sorted(pixels.unlabeled_rows.tolist())


def test_labeled_images_start_again_as_often_as_needed(prepared):
    pixels, _ = prepared
    dataset = dataset_of(pixels, steps=7, batch_labeled=4)  # 28 draws of 6 images
    counts = Counter(int(case) for step in iter_steps(dataset) for case in step.labeled.cases)
    assert sorted(counts) == sorted(pixels.labeled_rows.tolist())
    assert set(counts.values()) == {4, 5}  # four full rounds and a part of the fifth


def iter_steps(dataset):
    return (dataset[index] for index in range(len(dataset)))


def test_without_unlabeled_images_an_epoch_is_one_pass_over_the_labeled(prepared):
    pixels, _ = prepared
    labeled_only = pixels.restricted(slice(None), use_unlabeled=False)
    steps = list(iter_steps(dataset_of(labeled_only, steps=2)))
    assert all(step.unlabeled is None for step in steps)
    slots = [int(case) for step in steps for case in step.labeled.cases]
    assert sorted(slots) == list(range(6))  # slots of the history, not rows of the array


def test_ranks_share_the_images(prepared):
    pixels, _ = prepared
    parts = [pixels.restricted(slice(rank, 20, 2), use_unlabeled=True) for rank in (0, 1)]
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(20))
    for part in parts:
        slots = [
            int(case) for step in iter_steps(dataset_of(part)) for case in step.unlabeled.cases
        ]
        rows = part.rows[sorted(slots)]
        np.testing.assert_array_equal(rows, np.sort(part.unlabeled_rows))


def test_pixels_of_a_step_are_normalised_unaugmented_views(prepared):
    pixels, _ = prepared
    step = dataset_of(pixels)[1]
    row = int(step.labeled.cases[2])
    expected = (pixels.images[row] / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.5]
    np.testing.assert_allclose(
        step.labeled.images[2].numpy(), expected.transpose(2, 0, 1), rtol=0, atol=1e-5
    )
    mask = pixels.labeled_masks[list(pixels.labeled_rows).index(row)]
    np.testing.assert_array_equal(step.labeled.masks[2], mask)
    assert step.labeled.images.is_contiguous(memory_format=torch.channels_last)
    # With the identity as augmentation both views are the same.
    torch.testing.assert_close(step.augmented_images, step.labeled.images)
    assert torch.equal(step.augmented_masks, step.labeled.masks.long())


def stream(pixels, *, seed, epoch, workers):
    dataset = dataset_of(pixels, augmentation=AugmentationConfig(), seed=seed)
    dataset.start_epoch(epoch)
    return [
        (step.augmented_images, step.augmented_masks, step.labeled.cases, step.unlabeled.cases)
        for step in build_loader(dataset, workers=workers)
    ]


def same(first, second):
    return all(
        torch.equal(a, b)
        for one, two in zip(first, second, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_same_seed_same_stream_with_any_number_of_workers(prepared):
    pixels, _ = prepared
    alone = stream(pixels, seed=0, epoch=3, workers=0)
    assert same(alone, stream(pixels, seed=0, epoch=3, workers=2))
    assert not same(alone, stream(pixels, seed=0, epoch=4, workers=0))
    assert not same(alone, stream(pixels, seed=1, epoch=3, workers=0))


def test_two_views_of_one_image_differ_within_an_epoch(prepared):
    pixels, _ = prepared
    one = pixels.restricted(slice(0, 1), use_unlabeled=False)
    both = dataset_of(
        pixels.restricted(slice(None), use_unlabeled=True),
        steps=6,
        batch_labeled=6,
        augmentation=AugmentationConfig(),
    )
    views = [
        step.augmented_images[position]
        for step in iter_steps(both)
        for position, case in enumerate(step.labeled.cases)
        if int(case) == int(one.labeled_rows[0])
    ]
    assert len(views) == 6
    assert len({view.numpy().tobytes() for view in views}) == 6


def test_image_and_mask_are_moved_alike():
    generator = np.random.default_rng(0)
    mask = np.kron(generator.integers(0, 2, (8, 12)), np.ones((8, 8))).astype(np.uint8)
    image = np.repeat((mask * 200 + 20)[..., None], 3, axis=2)
    transform = training_transform((64, 96), AugmentationConfig())
    for seed in range(20):
        view, view_mask = augment(transform, image, mask, seed=seed)
        assert view.shape == (64, 96, 3)
        assert view_mask.shape == (64, 96)
        bright = view[..., 0] > 120
        counted = view_mask != IGNORE
        # Interpolated borders may differ by half a pixel; everything else agrees.
        assert (bright[counted] == view_mask[counted]).mean() > 0.9
        padding = view_mask == IGNORE
        assert (view[padding] == 0).all()


def test_zoom_stays_in_its_range_and_padding_only_comes_from_zooming_out():
    image = np.full((64, 96, 3), 255, np.uint8)
    mask = np.ones((64, 96), np.uint8)
    transform = training_transform((64, 96), AugmentationConfig(scale=(0.7, 1.5)))
    shares = [(augment(transform, image, mask, seed=seed)[1] == 1).mean() for seed in range(200)]
    assert min(shares) == pytest.approx(0.7**2, abs=0.03)  # smallest zoom: 49% of the frame
    assert max(shares) == 1.0
    assert 0.5 < np.mean([share == 1.0 for share in shares]) < 0.75  # 0.5 / 0.8 of the zooms


def test_flips_follow_their_probability():
    image = np.zeros((32, 32, 3), np.uint8)
    mask = np.zeros((32, 32), np.uint8)
    mask[0, 0] = 1
    always = AugmentationConfig(scale=(1.0, 1.0), horizontal_flip=1.0, vertical_flip=1.0)
    _, flipped = augment(training_transform((32, 32), always), image, mask, seed=0)
    assert np.argwhere(flipped == 1).tolist() == [[31, 31]]


def test_a_rotated_mask_follows_its_image_and_corners_are_ignored():
    image = np.full((64, 64, 1), 60, np.uint8)
    image[8:20, 24:40] = 250
    mask = (image[..., 0] == 250).astype(np.uint8)
    options = AugmentationConfig(scale=(1, 1), horizontal_flip=0, vertical_flip=0, rotation=45)
    transform = training_transform((64, 64), options)
    moved = 0
    for seed in range(20):
        view, turned = augment(transform, image, mask, seed=seed)
        assert set(np.unique(turned)) <= {0, 1, IGNORE}
        # Interpolated pixels along the border may fall on either side of the middle of 60 and 250.
        disagree = (view[..., 0] > 155) != (turned == 1)
        assert disagree[turned != IGNORE].mean() < 0.02
        moved += (turned != mask).mean() > 0.05
    assert moved > 10


def test_one_channel_images():
    image = np.arange(32 * 32, dtype=np.uint8).reshape(32, 32, 1)
    transform = training_transform((32, 32), AugmentationConfig())
    view, mask = augment(transform, image, np.zeros((32, 32), np.uint8), seed=1)
    assert view.shape == (32, 32, 1)
    assert mask.shape == (32, 32)


def test_normalisation_by_hand():
    images = np.array([0, 51, 255], np.uint8).reshape(1, 1, 1, 3)
    tensor = normalize(images, mean=(0.5, 0.1, 0.0), std=(0.5, 0.1, 2.0))
    # (0 - 0.5) / 0.5 = -1    (0.2 - 0.1) / 0.1 = 1    (1 - 0) / 2 = 0.5
    assert tensor.flatten().tolist() == pytest.approx([-1.0, 1.0, 0.5], abs=1e-6)


def test_case_dataset_covers_every_case_in_order(prepared):
    pixels, _ = prepared
    dataset = CaseDataset(
        pixels.validation_images,
        pixels.validation_masks,
        batch_size=2,
        normalization=NORMALIZATION,
    )
    batches = list(build_loader(dataset, workers=0))
    assert [batch.cases.tolist() for batch in batches] == [[0, 1], [2]]
    masks = torch.cat([batch.masks for batch in batches]).numpy()
    np.testing.assert_array_equal(masks, pixels.validation_masks)


def test_training_batches_hide_the_masks_of_unlabeled_images(prepared):
    pixels, _ = prepared
    batches = list(training_batches(pixels, 8, NORMALIZATION))
    assert torch.cat([batch.cases for batch in batches]).tolist() == list(range(20))
    masks = torch.cat([batch.masks for batch in batches]).numpy()
    np.testing.assert_array_equal(masks[pixels.labeled_rows], pixels.labeled_masks)
    assert (masks[pixels.unlabeled_rows] == IGNORE).all()


def test_views_for_the_history_can_be_flipped_and_say_how(prepared):
    pixels, _ = prepared
    plain = dataset_of(pixels)
    flipped = dataset_of(pixels, augmentation=PLAIN.model_copy(update={"history_views": "flipped"}))
    seen = set()
    for step, turned in zip(iter_steps(plain), iter_steps(flipped), strict=True):
        for one, other in ((step.labeled, turned.labeled), (step.unlabeled, turned.unlabeled)):
            assert one.flips is None
            torch.testing.assert_close(one.cases, other.cases)
            for image, view, flip in zip(one.images, other.images, other.flips, strict=True):
                axes = [axis + 1 for axis in (0, 1) if flip[axis]]
                torch.testing.assert_close(image.flip(axes) if axes else image, view)
                seen.add(tuple(flip.tolist()))
    assert len(seen) == 4
