"""Folders of images and masks, paired by name, with every oddity named."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from segconf.data.cases import BrokenDataError, Case, images_of, raise_problems
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.errors import DataError
from tests.conftest import write_folder


def picture(path, size=(8, 6), value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)
    return path


def by_id(cases):
    return {case.id: case for case in cases}


def test_names_are_matched_with_and_without_suffix(tmp_path):
    for name in ("a", "b", "c", "d_mask"):
        picture(tmp_path / "images" / f"{name}.png")
    masks = tmp_path / "masks"
    plain = picture(masks / "a.png")
    isic = picture(masks / "b_segmentation.png")
    own = picture(masks / "d_mask.png")
    found = find_cases(str(tmp_path), options=FindOptions(0, 0))
    masks_by_id = {case.id: case.mask_path for case in found.training}
    assert masks_by_id == {"a": plain, "b": isic, "c": None, "d_mask": own}
    assert found.problems == ()


def test_subfolders_are_part_of_the_id(tmp_path):
    picture(tmp_path / "images/p1/x.png")
    picture(tmp_path / "images/p2/x.png")
    mask = picture(tmp_path / "masks/p2/x_mask.png")
    found = by_id(find_cases(str(tmp_path), options=FindOptions(0, 0)).training)
    assert found["p1/x"].mask_path is None
    assert found["p2/x"].mask_path == mask


def test_val_and_test_folders_are_used_as_they_are(folder_dataset):
    found = find_cases(str(folder_dataset))
    assert [len(part) for part in found.parts().values()] == [8, 4, 2]
    assert found.validation[0].id == "val/case_100"


def test_without_val_and_test_a_seeded_share_is_held_out(tmp_path):
    root = write_folder(tmp_path / "set", 40, masks=20)
    found = find_cases(str(root), options=FindOptions(validation=0.2, test=0.1))
    assert (len(found.validation), len(found.test)) == (4, 2)  # of the 20 with masks
    assert len(found.training) == 34
    assert all(case.mask_path for case in (*found.validation, *found.test))
    assert found == find_cases(str(root), options=FindOptions(validation=0.2, test=0.1))


def test_with_a_test_folder_validation_takes_its_own_fraction_only(tmp_path):
    root = write_folder(tmp_path / "set", 100)
    write_folder(root / "test", 10, first=200)
    found = find_cases(str(root), options=FindOptions(validation=0.15, test=0.15))
    assert (len(found.training), len(found.validation), len(found.test)) == (85, 15, 10)


@pytest.mark.parametrize("name", ["image", "s{slice}"])
def test_a_patient_is_never_on_both_sides(tmp_path, name):
    for patient in range(20):
        for number in range(1 if name == "image" else 3):
            file = f"p{patient:02d}/{name.format(slice=number)}.png"
            picture(tmp_path / "images" / file)
            picture(tmp_path / "masks" / file)
    found = find_cases(str(tmp_path), options=FindOptions(validation=0.2, test=0.1))
    parts = {part: {case.group for case in cases} for part, cases in found.parts().items()}
    assert [len(groups) for groups in parts.values()] == [14, 4, 2]
    assert sum(map(len, parts.values())) == len(set().union(*parts.values()))


def test_a_table_says_which_images_belong_together(tmp_path):
    lines = ["image,group"]
    for number in range(20):
        picture(tmp_path / f"images/{number:02d}.png")
        picture(tmp_path / f"masks/{number:02d}.png")
        lines.append(f"{number:02d}.png,patient {number // 4}")
    (tmp_path / "groups.csv").write_text("\n".join(lines))
    found = find_cases(str(tmp_path), options=FindOptions(validation=0.4, test=0))
    assert not found.problems
    assert {case.group for case in found.training} & {c.group for c in found.validation} == set()
    assert len(found.validation) == 8  # two of five patients with four images each
    (tmp_path / "groups.csv").write_text("image,group\n00.png,a\n00,b\nzz.png,c\n01.png,\n")
    text = "\n".join(find_cases(str(tmp_path)).problems)
    assert "00: belongs to two groups, a and b" in text
    assert "zz.png: no such image" in text
    assert "01.png: no such image, or no group" in text
    (tmp_path / "groups.csv").write_text("file\n1\n")
    assert "columns image and group" in find_cases(str(tmp_path)).problems[0]


@pytest.mark.parametrize("kind", [".nii", ".nii.gz"])
def test_a_volume_becomes_slices_that_stay_together(tmp_path, kind):
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        for name in ("scan1", "scan2"):
            volume = nibabel.Nifti1Image(np.zeros((5, 4, 3), np.uint8), np.eye(4))
            nibabel.save(volume, tmp_path / folder / f"{name}{kind}")
    found = find_cases(str(tmp_path), options=FindOptions(validation=0.5, test=0))
    assert len(found.training) == len(found.validation) == 3
    held_out = {case.image_path for case in found.validation}
    assert len(held_out) == 1
    assert [case.slice_index for case in found.training] == [0, 1, 2]
    assert found.training[2].id.endswith("_z002")


def test_volume_and_mask_of_other_depth(tmp_path):
    for folder, depth in (("images", 3), ("masks", 4)):
        (tmp_path / folder).mkdir()
        volume = nibabel.Nifti1Image(np.zeros((5, 4, depth), np.uint8), np.eye(4))
        nibabel.save(volume, tmp_path / folder / "scan.nii")
    (problem,) = find_cases(str(tmp_path)).problems
    assert "mask has 4 slices" in problem
    assert "has 3" in problem


def test_every_problem_of_a_folder_is_listed(tmp_path):
    picture(tmp_path / "images/a.png")
    picture(tmp_path / "images/a.bmp")
    picture(tmp_path / "images/b.png")
    picture(tmp_path / "masks/b.png")
    picture(tmp_path / "masks/b_mask.png")
    picture(tmp_path / "masks/lonely_segmentation.png")
    (tmp_path / "images/c.mha").write_bytes(b"x")
    (tmp_path / "images/notes.txt").write_text("x")
    (tmp_path / "images/.DS_Store").write_text("x")
    (tmp_path / "images/gone.png").symlink_to("nowhere.png")
    found = find_cases(str(tmp_path), options=FindOptions(0, 0))
    text = "\n".join(found.problems)
    assert "several images with the name 'a'" in text
    assert "several masks for the image 'b'" in text
    assert "lonely_segmentation.png: mask without an image" in text
    assert "c.mha: not a supported image format" in text
    assert len(found.problems) == 4
    assert "notes.txt" in found.notes[0]
    assert "gone" in by_id(found.training)  # opening it later says that it does not exist


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "no such folder or data set"),
        (lambda root: root.write_text("x"), "a file"),
        (lambda root: root.mkdir(), "has no images/ folder (it holds nothing)"),
        (lambda root: (root / "ISIC-2017_Test_v2_Data").mkdir(parents=True), "data set isic"),
    ],
)
def test_not_a_data_set(tmp_path, make, message):
    root = tmp_path / "set"
    make(root)
    with pytest.raises(DataError) as caught:
        find_cases(str(root))
    assert message in str(caught.value)


def test_empty_images_folder_is_a_problem(tmp_path):
    (tmp_path / "images").mkdir()
    found = find_cases(str(tmp_path))
    assert any("no image found" in problem for problem in found.problems)


def isic(root, *, parts):
    for part, count in parts.items():
        for number in range(count):
            name = f"ISIC_{number:07d}"
            picture(root / f"ISIC-2017_{part}_Data" / f"{name}.jpg")
            picture(root / f"ISIC-2017_{part}_Data" / f"{name}_superpixels.png")
            picture(root / f"ISIC-2017_{part}_Part1_GroundTruth" / f"{name}_segmentation.png")
        (root / f"ISIC-2017_{part}_Data" / "metadata.csv").write_text("x")
    return root


def test_isic_layout(tmp_path):
    isic(tmp_path, parts={"Training": 5, "Validation": 3, "Test_v2": 2})
    found = find_cases("isic", tmp_path)
    assert [len(part) for part in found.parts().values()] == [5, 3, 2]
    assert all(case.mask_path for part in found.parts().values() for case in part)
    assert found.problems == ()
    assert found.training[0].id == "ISIC_0000000"


def test_isic_without_validation_and_test(tmp_path):
    isic(tmp_path, parts={"Training": 20})
    found = find_cases("isic", tmp_path)
    assert (len(found.training), len(found.validation), len(found.test)) == (17, 3, 0)
    assert any("no validation folder" in note for note in found.notes)
    assert any("no test folder" in note for note in found.notes)


def test_isic_data_may_come_from_the_environment(tmp_path, monkeypatch):
    isic(tmp_path, parts={"Training": 4, "Validation": 1})
    monkeypatch.setenv("SEGCONF_DATA", str(tmp_path))
    assert len(find_cases("isic").training) == 4


def test_isic_missing_names_place_and_command(tmp_path):
    with pytest.raises(DataError) as caught:
        find_cases("isic", tmp_path / "nowhere")
    assert f"segconf data isic --download --data {tmp_path / 'nowhere'}" in str(caught.value)
    assert "ISIC-2017_Training_Data" in str(caught.value)


def test_ten_problems_are_shown_and_the_rest_counted(tmp_path):
    with pytest.raises(BrokenDataError) as caught:
        raise_problems([f"file {number}" for number in range(13)], tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{tmp_path}: 13 problems:"
    assert lines[1] == "  file 0"
    assert lines[10] == "  file 9"
    assert lines[11] == "  ... and 3 more"
    assert len(caught.value.problems) == 13


def test_slices_of_a_file_make_one_image():
    cases = [
        Case(f"p/v_z{number:03d}", Path("p/v.nii"), None, number, group="p")
        for number in (1000, 101, 0)
    ]
    cases.insert(1, Case("p/a", Path("p/a.png"), group="p"))
    volume, picture = images_of(cases)
    assert (volume.name, volume.group, volume.path) == ("p/v", "p", Path("p/v.nii"))
    assert [case.slice_index for case in volume.cases] == [0, 101, 1000]
    assert (picture.name, len(picture.cases)) == ("p/a", 1)
    assert Case("x_z01", Path("x_z01.png")).group == "x_z01"
    assert Case("v_z003", Path("v.nii"), None, 3).group == "v"
