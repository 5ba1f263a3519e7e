"""`segconf predict`, `export` and `review` from the command line."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import PIL.Image
import pytest
from typer.testing import CliRunner

from segconf.errors import CheckpointError, ConfigError, DataError, FileError
from segconf.images.io import read_confidence, read_image
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.inference.torch_model import native_logits
from segconf.runs.run_folder import newest_run
from segconf_cli.main import app
from tests.tiny_models import disc, write_checkpoint, write_picture

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def digests(folder):
    """Hash of every file by its relative name, but for the record of an export."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "export.json"
    }


def size_of(path):
    """Width and height of a picture that can be decoded completely."""
    with PIL.Image.open(path) as picture:
        picture.load()
        return picture.size


def rows(folder):
    with (folder / "cases.csv").open(encoding="utf-8", newline="") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("run") / "best.safetensors")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(5):
        size = (40 + 7 * number, 64 - 5 * number)
        write_picture(folder / f"{'sub/' * (number % 2)}{number}.png", disc(*size, seed=number))
    return folder


@pytest.fixture(scope="module")
def maps(tmp_path_factory, images, checkpoint):
    out = tmp_path_factory.mktemp("maps") / "maps"
    assert run("predict", images, "--out", out, "--checkpoint", checkpoint).exit_code == 0
    return out


def test_outputs_have_the_names_and_sizes_of_the_inputs(images, maps):
    for path in images.rglob("*.png"):
        name = path.relative_to(images)
        size = size_of(path)
        assert size_of(maps / "masks" / name) == size
        with PIL.Image.open(maps / "confidence" / name) as confidence:
            assert (confidence.size, confidence.mode) == (size, "I;16")
        assert read_confidence(maps / "confidence" / name).min() >= 0.5 - 1e-5
        assert (maps / "overlays" / name).is_file()
    assert set(rows(maps)) == {"0", "2", "4", "sub/1", "sub/3"}
    for case, row in rows(maps).items():
        image = (images / f"{case}.png").read_bytes()
        assert row["image_sha256"] == hashlib.sha256(image).hexdigest()
        with PIL.Image.open(maps / "masks" / f"{case}.png") as mask:
            assert row["mask_sha256"] == hashlib.sha256(mask.tobytes()).hexdigest()
    record = json.loads((maps / "run.json").read_text())
    assert record["notice"] == "research use, not a medical device"
    assert record["confidence"]["temperature"] == 1.0
    assert record["confidence"]["threshold"] is None
    assert not record["confidence"]["scale"]["measured"]
    assert len(record["model"]["sha256"]) == 64
    assert not list(maps.rglob("*.part"))


def test_parts_one_after_another_write_the_same_files(tmp_path, images, checkpoint, maps):
    out = tmp_path / "maps"
    for part in ("2/3", "1/3", "3/3"):
        run("predict", images, "--out", out, "--checkpoint", checkpoint, "--shard", part)
    assert digests(out) == digests(maps)


def test_two_processes_of_torchrun_write_the_same_files(tmp_path, images, checkpoint, maps):
    out = tmp_path / "maps"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    arguments = ["predict", str(images), "--out", str(out), "--checkpoint", str(checkpoint)]
    subprocess.run(
        [*torchrun, "-m", "segconf_cli", *arguments],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
    )
    assert digests(out) == digests(maps)


def test_skip_existing_continues(tmp_path, images, checkpoint, maps):
    out = tmp_path / "maps"
    run("predict", images, "--out", out, "--checkpoint", checkpoint, "--shard", "1/2")
    stamp = (out / "masks" / "0.png").stat().st_mtime_ns
    (out / "overlays" / "4.png").unlink()  # incomplete: predicted again
    arguments = ("predict", images, "--out", out, "--checkpoint", checkpoint, "--skip-existing")
    result = run(*arguments)
    assert "Predicted 3 images, 2 were there already" in result.output
    assert (out / "masks" / "0.png").stat().st_mtime_ns == stamp
    assert digests(out) == digests(maps)


def test_another_model_may_not_mix_into_a_folder(tmp_path, images, maps):
    other = write_checkpoint(tmp_path / "w.safetensors", temperature=2.0)
    with pytest.raises(DataError, match="made in another way"):
        run("predict", images, "--out", maps, "--checkpoint", other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("x")
    with pytest.raises(FileError, match=r"thesis\.doc"):
        run("predict", images, "--out", tmp_path / "full", "--checkpoint", other)


def test_strange_files_are_named_and_do_not_stop_the_rest(tmp_path, checkpoint):
    folder = tmp_path / "images"
    write_picture(folder / "good.jpg", disc(80, 90))
    content = (folder / "good.jpg").read_bytes()
    (folder / "truncated.jpg").write_bytes(content[: len(content) // 2])
    (folder / "text.png").write_text("not a picture")
    write_picture(folder / "one.png", np.full((1, 1, 3), 90, np.uint8))
    deep = np.linspace(0, 65535, 50 * 60).reshape(50, 60).astype(np.uint16)
    write_picture(folder / "deep.tif", deep)
    write_picture(folder / "Läsion am Ohr (2).png", disc(50, 70))
    (folder / "notes.txt").write_text("left out")
    out = tmp_path / "maps"

    result = run("predict", folder, "--out", out, "--checkpoint", checkpoint)

    assert result.exit_code == 3
    found = rows(out)
    assert set(found) == {"good", "truncated", "text", "one", "deep", "Läsion am Ohr (2)"}
    assert "broken or incomplete" in found["truncated"]["error"]
    assert "not a JPEG, PNG, BMP or TIFF" in found["text"]["error"]
    assert "too few pixels: 1 x 1" in found["one"]["flags"]
    assert "deep grey levels were reduced to 8 bits" in found["deep"]["flags"]
    assert found["Läsion am Ohr (2)"]["error"] == ""
    assert {path.stem for path in (out / "masks").iterdir()} == set(found) - {"truncated", "text"}
    assert size_of(out / "masks" / "one.png") == (1, 1)
    for name in ("truncated.jpg", "text.png", "left out 1 file without"):
        assert name in result.output


def test_volumes_keep_affine_and_header(tmp_path, checkpoint):
    affine = np.array([[0, -2.0, 0, 5], [1.5, 0, 0, 6], [0, 0, 3, 7], [0, 0, 0, 1]])
    voxels = np.random.default_rng(0).normal(size=(30, 40, 3)).astype(np.float32)
    image = nibabel.Nifti1Image(voxels, affine)
    image.header.set_xyzt_units("mm")
    nibabel.save(image, tmp_path / "v.nii.gz")
    out = tmp_path / "maps"
    arguments = ("predict", tmp_path / "v.nii.gz", "--checkpoint", checkpoint)

    run(*arguments, "--out", out, "--save", "probabilities")

    names = ("masks/v", "confidence/v", "probabilities/v_0", "probabilities/v_1")
    saved = [nibabel.load(out / f"{name}.nii.gz") for name in names]
    for file in saved:
        assert file.shape == (30, 40, 3)
        np.testing.assert_array_equal(file.affine, nibabel.load(tmp_path / "v.nii.gz").affine)
        assert file.header.get_xyzt_units()[0] == "mm"
    mask, confidence, background, foreground = (file.get_fdata() for file in saved)
    np.testing.assert_allclose(background + foreground, 1, atol=1e-6)
    np.testing.assert_allclose(confidence, np.maximum(background, foreground), atol=1e-5)
    np.testing.assert_array_equal(mask, foreground > background)
    logits = native_logits(load_model(checkpoint, device="cpu"), read_image(tmp_path / "v.nii.gz"))
    # Rows and columns of the file lead to the front and to the left: (D, K, H, W) back to them.
    expected = logits.softmax(dim=1)[:, 1].numpy().transpose(1, 2, 0)[::-1]
    np.testing.assert_allclose(foreground, expected, atol=1e-6)

    with (out / "structures.csv").open(encoding="utf-8", newline="") as file:
        (structure,) = csv.DictReader(file)
    assert (structure["case"], int(structure["pixels"])) == ("v", int(mask.sum()))
    assert float(structure["volume_mm3"]) == pytest.approx(9 * mask.sum())  # 1.5 x 2 x 3 mm
    assert structure["expected_dice"] == rows(out)["v"]["expected_dice"]
    assert rows(out)["v"]["marks"] == "RLAP"

    again = tmp_path / "again"
    run(*arguments, "--out", again, "--save", "probabilities")
    assert digests(again) == digests(out)
    run("export", out, "--out", tmp_path / "pictures")
    exported = (tmp_path / "pictures" / "v.png").read_bytes()
    assert exported == (out / "overlays" / "v.png").read_bytes()


def test_probabilities_of_pictures_and_maps_as_nifti(tmp_path, checkpoint):
    write_picture(tmp_path / "images/a.png", disc(40, 56))
    arguments = ("predict", tmp_path / "images", "--checkpoint", checkpoint)
    png, nifti = tmp_path / "png", tmp_path / "nifti"

    run(*arguments, "--out", png, "--save", "probabilities")
    run(*arguments, "--out", nifti, "--save", "probabilities", "--format", "nifti")

    for name in ("masks/a", "confidence/a", "probabilities/a_0", "probabilities/a_1"):
        with PIL.Image.open(png / f"{name}.png") as picture:
            levels = np.asarray(picture)  # (H, W)
        file = nibabel.load(nifti / f"{name}.nii.gz")
        assert file.shape == (56, 40, 1)
        # Upright in an axial slice: columns to the patient's left, rows to the back.
        np.testing.assert_array_equal(file.affine, np.diag([-1.0, -1.0, 1.0, 1.0]))
        scale = 1 if name == "masks/a" else 65535
        np.testing.assert_array_equal(np.rint(file.get_fdata()[..., 0].T * scale), levels)
        assert file.get_fdata().max() <= 1
    assert digests(png / "overlays") == digests(nifti / "overlays")
    run("export", nifti, "--out", tmp_path / "again")
    assert digests(tmp_path / "again") == digests(nifti / "overlays")
    again = run(*arguments, "--out", nifti, "--save", "probabilities", "--format", "nifti")
    assert again.exit_code == 0
    with pytest.raises(DataError, match="made in another way"):
        run(*arguments, "--out", nifti)


def test_a_volume_is_not_written_as_pictures(tmp_path, checkpoint):
    nibabel.save(nibabel.Nifti1Image(np.zeros((9, 8, 3)), np.eye(4)), tmp_path / "v.nii.gz")
    arguments = ("predict", tmp_path / "v.nii.gz", "--checkpoint", checkpoint)
    with pytest.raises(ConfigError, match=r"v\.nii\.gz: nifti files can hold volumes"):
        run(*arguments, "--out", tmp_path / "maps", "--format", "png")
    assert not (tmp_path / "maps").exists()


def test_export_renders_the_same_overlays_and_others(tmp_path, maps):
    run("export", maps, "--out", tmp_path / "same")
    assert digests(tmp_path / "same") == digests(maps / "overlays")

    run("export", maps, "--out", tmp_path / "one", "--case", "0", "--style", "heatmap")
    assert list(digests(tmp_path / "one")) == ["0.png"]
    assert digests(tmp_path / "one")["0.png"] != digests(maps / "overlays")["0.png"]

    options = ("--format", "jpg", "--max-side", 64, "--shade", 20, "--case", "sub/1")
    run("export", maps, "--out", tmp_path / "jpg", *options)
    with PIL.Image.open(tmp_path / "jpg" / "sub" / "1.jpg") as picture:
        assert picture.format == "JPEG"
    with pytest.raises(DataError, match="shade = 3: expected one of 2, 4, 10, 20"):
        run("export", maps, "--out", tmp_path / "x", "--shade", 3)

    run("export", maps, "--out", tmp_path / "pdf", "--format", "pdf", "--case", "0", "--case", "2")
    for option, value in (("--style", "heatmap"), ("--max-side", 64)):
        with pytest.raises(ConfigError, match=f" = {value}: a page of a pdf"):
            run("export", maps, "--out", tmp_path / "x", "--format", "pdf", option, value)
    document = (tmp_path / "pdf" / "cases.pdf").read_bytes()
    assert document.startswith(b"%PDF")
    assert document.rindex(b"/Count 2") > document.rindex(b"/Count 1")
    with pytest.raises(DataError, match="Say where the images are now"):
        run("export", maps, "--out", tmp_path / "x", "--images", tmp_path)


def test_review_writes_table_and_page_again(maps):
    before = digests(maps)
    (maps / "cases.csv").unlink()
    (maps / "review.html").unlink()
    assert "5 cases" in run("review", maps).output
    assert digests(maps) == before


def test_a_full_disk_leaves_no_half_written_file(tmp_path, images, checkpoint, monkeypatch):
    written = []
    write = Path.write_bytes

    def fill(path, content):
        """Fail in the middle of the third map or overlay."""
        if path.suffix != ".png":
            return write(path, content)
        written.append(path)
        if len(written) < 3:
            return write(path, content)
        write(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    out = tmp_path / "maps"
    with pytest.raises(FileError, match="No space left"):
        run("predict", images, "--out", out, "--checkpoint", checkpoint)
    assert len(written) >= 3
    assert not list(out.rglob("*.part*"))
    for path in out.rglob("*.png"):
        size_of(path)
    monkeypatch.undo()
    arguments = ("predict", images, "--out", out, "--checkpoint", checkpoint, "--skip-existing")
    assert run(*arguments).exit_code == 0
    assert set(rows(out)) == {"0", "2", "4", "sub/1", "sub/3"}


def test_an_interrupt_leaves_complete_files_only(tmp_path, images, checkpoint):
    def interrupt(done, _total):
        if done:
            raise KeyboardInterrupt

    model = load_model(checkpoint, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        predict(model, find_images([images]), tmp_path / "maps", on_progress=interrupt)
    pictures = list(tmp_path.rglob("*.png"))
    assert pictures
    for path in pictures:
        size_of(path)
    assert not list(tmp_path.rglob("*.part"))


def test_without_checkpoint_the_newest_finished_run_is_taken(tmp_path, images, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no finished run"):
        newest_run()
    for age, (name, lines) in enumerate({"old": 3, "new": 3, "running": 2}.items()):
        folder = tmp_path / "runs" / name
        write_checkpoint(folder / "best.safetensors")
        (folder / "config.yaml").write_text("training:\n  epochs: 2\n")
        (folder / "epochs.csv").write_text("epoch\n" * lines)
        os.utime(folder / "epochs.csv", (age, age))
    assert newest_run() == Path("runs/new")
    result = run("predict", images / "0.png", "--out", "maps")
    assert "model: runs/new (the newest finished run under runs)" in result.output


def test_real_images_keep_their_size_and_masks_are_the_argmax_that_evaluation_sees(
    tmp_path, checkpoint, shared
):
    # 1024 x 768 and 4288 x 2848
    paths = sorted(shared("data/isic2017_native/images").glob("*.jpg"))[:3]
    run("predict", *paths, "--out", tmp_path / "maps", "--checkpoint", checkpoint)
    model = load_model(checkpoint, device="cpu")
    for path in paths:
        name = f"{path.stem}.png"
        assert size_of(tmp_path / "maps" / "masks" / name) == size_of(path)
        assert size_of(tmp_path / "maps" / "confidence" / name) == size_of(path)
        mask = native_logits(model, model.read(path)).argmax(dim=0).numpy()
        with PIL.Image.open(tmp_path / "maps" / "masks" / name) as saved:
            np.testing.assert_array_equal(np.asarray(saved), mask)


def test_tiles_give_masks_of_the_native_size(tmp_path, images, checkpoint):
    out = tmp_path / "maps"
    assert run("predict", images, "--out", out, "--checkpoint", checkpoint, "--tile").exit_code == 0
    for path in images.rglob("*.png"):
        assert size_of(out / "masks" / path.relative_to(images)) == size_of(path)


def test_an_export_never_writes_into_the_prediction_folder(maps):
    before = digests(maps)
    for out in (maps, maps / "masks", maps / "new"):
        with pytest.raises(FileError, match="which is read"):
            run("export", maps, "--out", out)
    assert digests(maps) == before


@pytest.mark.parametrize("option", ["--batch-size", "--workers"])
def test_no_option_fills_the_memory(tmp_path, images, checkpoint, option):
    out = tmp_path / "maps"
    found = run("predict", images, "--out", out, "--checkpoint", checkpoint, option, 10**11)
    assert found.exit_code == 2
    assert not out.exists()
