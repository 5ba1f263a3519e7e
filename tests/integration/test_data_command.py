"""`segconf data` and the start of the command, as a user meets them."""

import json
import subprocess
import sys

import nibabel
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from segconf import __version__
from segconf.data.cases import BrokenDataError
from segconf.errors import SegconfError
from segconf_cli.main import app
from tests.conftest import write_folder


def segconf(*arguments, cwd=None):
    """Run the real command in a process of its own."""
    command = [sys.executable, "-m", "segconf_cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def in_process(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def finds_problems(*arguments):
    return isinstance(in_process(*arguments).exception, BrokenDataError)


def test_version():
    result = segconf("--version")
    assert (result.returncode, result.stdout.strip()) == (0, f"segconf {__version__}")


@pytest.mark.parametrize("arguments", [["--help"], ["data", "--help"], ["train", "--help"]])
def test_help_starts_without_heavy_libraries(arguments):
    code = (
        "import sys, segconf_cli.main as m\n"
        f"sys.argv = ['segconf', *{arguments!r}]\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'PIL', 'matplotlib', 'albumentations'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "Usage" in result.stdout
    assert "HEAVY []" in result.stdout


def test_report_of_a_folder(folder_dataset):
    result = in_process("data", folder_dataset, "--verify")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines() if "32 x 32" in line]
    numbers = {row[1]: (row[3], row[5]) for row in rows}
    assert numbers == {"training": ("8", "8"), "validation": ("4", "4"), "test": ("2", "2")}
    assert "every file was decoded" in result.stdout


def test_verify_finds_what_headers_do_not_show(folder_dataset):
    image = folder_dataset / "images/case_003.png"
    image.write_bytes(image.read_bytes()[:-200])
    Image.new("L", (32, 32), 100).save(folder_dataset / "masks/case_005.png")
    assert in_process("data", folder_dataset).exit_code == 0
    result = segconf("data", folder_dataset, "--verify", "--quiet", "--json")
    assert result.returncode == 2
    for text in (result.stderr, json.loads(result.stdout)["error"]):
        assert "case_003.png" in text
        assert "case_005.png" in text
        assert "2 problems" in text
    assert "Traceback" not in result.stderr


def test_three_class_masks_need_to_be_announced(folder_dataset):
    Image.new("L", (32, 32), 2).save(folder_dataset / "masks/case_005.png")
    assert finds_problems("data", folder_dataset, "--verify")
    assert finds_problems("data", folder_dataset, "--verify", "--classes", "3")
    for mask in folder_dataset.rglob("masks/*.png"):  # 0/255 is no mask of three classes either
        Image.new("L", (32, 32), 2).save(mask)
    assert in_process("data", folder_dataset, "--verify", "--classes", "3").exit_code == 0


def test_data_is_verified_as_the_experiment_reads_it(tmp_path):
    """Four channels, three classes and pixels without a class, as the configuration says."""
    voxels = np.random.default_rng(0).normal(size=(8, 9, 2, 4)).astype(np.float32)
    labels = np.array([0, 1, 2, 255], np.uint8)[np.arange(8 * 9 * 2).reshape(8, 9, 2) % 4]
    for folder, values in (("images", voxels), ("masks", labels)):
        (tmp_path / "set" / folder).mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / f"set/{folder}/v.nii.gz")
    assert finds_problems("data", tmp_path / "set", "--verify")
    settings = ["model.channels=4", "model.classes=3", "data.ignore_255=true"]
    flags = [word for setting in settings for word in ("--set", setting)]
    assert in_process("data", tmp_path / "set", "--verify", *flags).exit_code == 0
    for missing in range(3):
        some = flags[: 2 * missing] + flags[2 * missing + 2 :]
        assert finds_problems("data", tmp_path / "set", "--verify", *some), missing
    config = "model: {channels: 4, classes: 3}\ndata: {ignore_255: true}\n"
    (tmp_path / "config.yaml").write_text(config)
    verified = in_process(
        "data", tmp_path / "set", "--verify", "--config", tmp_path / "config.yaml"
    )
    assert verified.exit_code == 0


def test_mask_of_other_size_is_found_from_headers(folder_dataset):
    Image.new("L", (16, 32)).save(folder_dataset / "masks/case_001.png")
    result = segconf("data", folder_dataset)
    assert result.returncode == 2
    assert "mask is 32 x 16" in result.stderr


def test_user_mistakes_are_one_message_and_exit_code_2(tmp_path):
    result = segconf("data", "isic", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "segconf data isic --download" in result.stderr
    assert "Traceback" not in result.stderr


def test_training_without_data_says_how_to_get_it(tmp_path):
    result = segconf("train", "isic", "--labeled", "250", cwd=tmp_path)
    assert result.returncode == 2
    assert str(tmp_path / "data/isic2017") in result.stderr
    assert "segconf data isic --download --data data/isic2017" in result.stderr
    assert list(tmp_path.iterdir()) == []  # no run folder is left behind


def test_only_isic_can_be_downloaded(tmp_path):
    with pytest.raises(SegconfError, match="cannot be downloaded"):
        CliRunner().invoke(app, ["data", str(tmp_path), "--download"], catch_exceptions=False)


def test_demo_data_is_made_once(tmp_path, monkeypatch):
    from segconf.synthetic.generation import DemoParameters

    small = DemoParameters(training=4, validation=2, test=2, size=(32, 48))
    monkeypatch.setattr("segconf.data.datasets.demo.DemoParameters", lambda: small)
    first = in_process("data", "demo", "--data", tmp_path / "demo")
    assert first.exit_code == 0, first.output
    assert "32 x 48" in first.stdout
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "demo").rglob("*.jpg")}
    assert len(before) == 8
    in_process("data", "demo", "--data", tmp_path / "demo")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "demo").rglob("*.jpg")} == before


def test_real_isic_is_complete_and_sound(shared):
    result = in_process("data", "isic", "--data", shared("data/isic2017"), "--verify")
    assert result.exit_code == 0
    for numbers in ("1389", "150", "200"):
        assert result.stdout.count(f" {numbers} ") == 2


def test_real_grey_microscopy_with_one_channel(shared):
    import numpy as np

    from segconf.data.cache import PixelCache
    from segconf.data.datasets.dataset import FindOptions, find_cases
    from segconf.data.preprocessing import Preprocessing

    root = shared("data/isbi2012_em")
    found = find_cases(str(root), options=FindOptions(0, 0))
    assert (len(found.training), found.problems) == (30, ())
    cache = PixelCache(root, Preprocessing((512, 512), channels=1))
    images = cache.images(found.training, label="training")
    masks = cache.masks(found.training, label="training")
    first = found.training[0]
    np.testing.assert_array_equal(images[0, :, :, 0], np.array(Image.open(first.image_path)))
    np.testing.assert_array_equal(masks[0], np.array(Image.open(first.mask_path)) // 255)


def test_bugs_keep_their_traceback(monkeypatch, tmp_path):
    root = write_folder(tmp_path / "set", 1)
    monkeypatch.setattr("segconf.data.inspection.describe", lambda *_, **__: 1 / 0)
    result = in_process("data", root)
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)
