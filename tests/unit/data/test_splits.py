"""Which images are labeled: seeded, stable, nested, or as a list says."""

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segconf.data.cases import Case, CaseSet
from segconf.data.splits import split_cases
from segconf.errors import DataError

IDS = [f"ISIC_{number:07d}" for number in range(40)]


def case_set(ids=IDS, without_mask=()):
    cases = tuple(
        Case(i, Path(f"{i}.jpg"), None if i in without_mask else Path(f"{i}_segmentation.png"))
        for i in ids
    )
    return CaseSet("isic", Path("data"), cases, (), ())


def labeled_ids(found, **options):
    options = {"labeled": None, "labeled_list": None, "seed": 0} | options
    return {case.id for case in split_cases(found, **options).labeled}


def test_known_choice():
    # sha256("labeled/0/<id>") of the forty ids, sorted: computed once, the same on any machine.
    order = sorted(IDS, key=lambda i: hashlib.sha256(f"labeled/0/{i}".encode()).hexdigest())
    assert labeled_ids(case_set(), labeled=5) == set(order[:5])


def test_order_of_the_files_does_not_matter():
    shuffled = np.random.default_rng(3).permutation(IDS).tolist()
    assert labeled_ids(case_set(), labeled=10) == labeled_ids(case_set(shuffled), labeled=10)


def test_a_larger_number_contains_a_smaller_one():
    sets = [labeled_ids(case_set(), labeled=number) for number in range(1, 41)]
    for number, (small, large) in enumerate(itertools.pairwise(sets), start=1):
        assert len(small) == number
        assert small < large


def test_another_seed_chooses_others():
    assert labeled_ids(case_set(), labeled=10) != labeled_ids(case_set(), labeled=10, seed=1)


def test_masks_of_unlabeled_images_are_hidden():
    split = split_cases(case_set(), labeled=10, labeled_list=None, seed=0)
    assert len(split.unlabeled) == 30
    assert all(case.mask_path is None for case in split.unlabeled)
    assert all(case.mask_path is not None for case in split.labeled)
    assert sorted(split.ids()["labeled"] + split.ids()["unlabeled"]) == IDS


def test_all_masks_are_used_when_no_number_is_given():
    assert labeled_ids(case_set(without_mask=IDS[:4])) == set(IDS[4:])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", "ISIC_0000003\n# a comment\n\nISIC_0000007.jpg\n"),
        ("ids.csv", "number,image_id\n1,ISIC_0000003\n2,folder/ISIC_0000007_segmentation.png\n"),
        ("bare.csv", "ISIC_0000003\nISIC_0000007\n"),
        ("ids.json", '["ISIC_0000003", "masks\\\\ISIC_0000007.png"]'),
        ("split.json", '{"labeled": ["ISIC_0000003", "ISIC_0000007"], "unlabeled": []}'),
        ("bom.txt", "\ufeffISIC_0000003\r\nISIC_0000007\r\n"),
    ],
)
def test_lists(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert labeled_ids(case_set(), labeled_list=path) == {"ISIC_0000003", "ISIC_0000007"}


def test_numpy_list(tmp_path):
    np.save(tmp_path / "ids.npy", np.array([["ISIC_0000003"], ["ISIC_0000007.jpg"]]))
    chosen = labeled_ids(case_set(), labeled_list=tmp_path / "ids.npy")
    assert chosen == {"ISIC_0000003", "ISIC_0000007"}


def test_pickled_numpy_list_is_refused(tmp_path):
    np.save(tmp_path / "ids.npy", np.array(["ISIC_0000003", 7], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"ids\.npy: not a list of ids"):
        labeled_ids(case_set(), labeled_list=tmp_path / "ids.npy")


def test_every_wrong_entry_of_a_list_is_named(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("ISIC_0000003\nISIC_9\nISIC_0000001\n")
    with pytest.raises(DataError) as caught:
        labeled_ids(case_set(without_mask=["ISIC_0000001"]), labeled_list=path)
    assert "ISIC_9: no training image of that name" in str(caught.value)
    assert "ISIC_0000001: this image has no mask" in str(caught.value)


def test_ambiguous_entry_of_a_list(tmp_path):
    found = case_set(["p1/x", "p2/x"])
    path = tmp_path / "ids.txt"
    path.write_text("x.png\n")
    with pytest.raises(DataError, match="several images of that name"):
        labeled_ids(found, labeled_list=path)
    path.write_text("p2/x\n")
    assert labeled_ids(found, labeled_list=path) == {"p2/x"}


@pytest.mark.parametrize(
    "entry",
    [
        *("p2/x.png", "p2/x_mask.png", "images/p2/x.png", "/data/images/p2/x", "masks\\p2\\x.png"),
        *("s/q/z.png", "q/z", "z.jpg", "r/s/q/z"),
    ],
)
def test_a_path_names_the_image_in_its_folder(tmp_path, entry):
    (tmp_path / "ids.txt").write_text(f"{entry}\n")
    chosen = labeled_ids(
        case_set(["p1/x", "p2/x", "x", "s/q/z"]), labeled_list=tmp_path / "ids.txt"
    )
    assert chosen == {"s/q/z" if "z" in entry else "p2/x"}


@pytest.mark.parametrize("entry", ["p3/x", "p3/x.png", "q/p/x_mask.png", "1/x.png"])
def test_a_path_in_another_folder_names_no_image(tmp_path, entry):
    (tmp_path / "ids.txt").write_text(f"{entry}\n")
    with pytest.raises(DataError, match="no training image of that name"):
        labeled_ids(case_set(["p1/x", "p2/x", "p4/y"]), labeled_list=tmp_path / "ids.txt")
    with pytest.raises(DataError, match="no training image of that name"):
        labeled_ids(case_set(["p1/x"]), labeled_list=tmp_path / "ids.txt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.xls", "x", "unknown kind of list"),
        ("ids.json", '{"a": 1}', "expected a list"),
        ("ids.json", "[", "not a list of ids"),
        ("ids.txt", "# nothing\n", "holds no id"),
        ("missing.txt", None, "no such file"),
    ],
)
def test_unusable_lists(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=message):
        labeled_ids(case_set(), labeled_list=path)


def test_more_labels_than_masks():
    with pytest.raises(DataError, match="has 38 training images with masks"):
        labeled_ids(case_set(without_mask=IDS[:2]), labeled=39)


def test_no_masks_at_all():
    with pytest.raises(DataError, match="none of the 40 training images has a mask"):
        labeled_ids(case_set(without_mask=IDS))


def test_problems_are_told_when_they_explain_the_missing_masks():
    found = replace(case_set(without_mask=IDS), problems=("masks/a.xyz: not a supported format",))
    with pytest.raises(DataError, match=r"a\.xyz"):
        labeled_ids(found)


def test_lists_of_the_paper_are_found(shared):
    from segconf.data.datasets.dataset import find_cases

    found = find_cases("isic", shared("data/isic2017"))
    for count in (125, 250, 500):
        path = shared(f"data/isic2017_splits/labeled_{count}.txt")
        assert len(labeled_ids(found, labeled_list=path)) == count


def test_split_ids_are_json():
    ids = split_cases(case_set(), labeled=3, labeled_list=None, seed=0).ids()
    assert json.loads(json.dumps(ids)) == ids


def grouped(groups=8, slices=5, without_mask=()):
    """Volumes of several slices each."""
    cases = tuple(
        Case(f"v{volume}_z{index:03d}", Path(f"v{volume}.nii"), mask, index)
        for volume in range(groups)
        for index in range(slices)
        for mask in [None if volume in without_mask else Path(f"m{volume}.nii")]
    )
    return CaseSet("folder", Path("data"), cases, (), ())


def test_labels_of_volumes_are_counted_in_volumes():
    split = split_cases(grouped(), labeled=3, labeled_list=None, seed=0)
    order = sorted(range(8), key=lambda v: hashlib.sha256(f"labeled/0/v{v}".encode()).hexdigest())
    expected = {f"v{volume}_z{index:03d}" for volume in order[:3] for index in range(5)}
    assert {case.id for case in split.labeled} == expected
    assert (split.unit, split.labels, len(split.unlabeled)) == ("groups", 3, 25)
    more = split_cases(grouped(), labeled=4, labeled_list=None, seed=0)
    assert {case.id for case in more.labeled} > expected
    single = split_cases(case_set(), labeled=3, labeled_list=None, seed=0)
    assert (single.unit, single.labels) == ("images", 3)


def test_more_groups_than_there_are():
    with pytest.raises(
        DataError, match=r"labeled = 7: data has 6 groups .* with masks. .* up to 6"
    ):
        split_cases(grouped(without_mask=(0, 1)), labeled=7, labeled_list=None, seed=0)
    with pytest.raises(DataError, match=r"labeled = 41: data has 40 training images with masks"):
        split_cases(case_set(), labeled=41, labeled_list=None, seed=0)


def test_a_list_may_name_volumes(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("v2.nii\nv5_z001\n")
    split = split_cases(grouped(), labeled=None, labeled_list=path, seed=0)
    expected = [f"v2_z{index:03d}" for index in range(5)] + ["v5_z001"]
    assert [case.id for case in split.labeled] == expected
    assert (split.unit, split.labels) == ("groups", 2)
