"""What the cases damage: a small trained run, its predictions, data sets, lists and pictures."""

import hashlib
import json
import shutil

import nibabel
import numpy as np
import PIL.Image

from tests.conftest import disc, write_folder

TINY = (
    *("--set", "model.encoder=tu-test_efficientnet", "--set", "model.encoder_weights=none"),
    *("--set", "data.size=[32,32]", "--set", "training.batch_labeled=2"),
    *("--set", "training.batch_unlabeled=2", "--device", "cpu"),
)
"""Options of a training that takes a second."""
HEAVY = ("last.ckpt", "last.previous.ckpt", "training.png")
"""Files of a run that only its resumption reads."""
SETTINGS = """\
data: {size: [32, 32], labeled: 3}
model: {encoder: tu-test_efficientnet, encoder_weights: none}
training: {epochs: 1, batch_labeled: 2, batch_unlabeled: 2, device: cpu}
"""
PICTURES = ("a.png", "a.jpg", "a.bmp", "a.tif", "a.webp", "a.nii", "a.nii.gz")


def make_material(folder, worker):
    """Write everything below a folder: a training, an evaluation, a prediction and a query."""
    write_folder(folder / "discs", 8)
    write_folder(folder / "discs/val", 4, first=100)
    write_folder(folder / "discs/test", 2, first=200)
    options = ("--labeled", "5", "--epochs", "2", "--out", "run", *TINY)
    for arguments in (
        ("train", str(folder / "discs"), *options),
        ("evaluate", "run", "--device", "cpu"),
        ("predict", str(folder / "discs/test/images"), "--out", "maps", "--checkpoint", "run"),
        ("query", "run", "--budget", "2", "--out", "queue.csv"),
    ):
        ended = worker.run(arguments, folder=folder)
        assert ended.code == 0, ended.err
    _write_lists(folder)
    _write_pictures(folder / "pictures")
    return folder


def _write_lists(folder):
    names = ["case_000", "case_001", "case_002"]
    (folder / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
    (folder / "ids.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    (folder / "ids.csv").write_text("\n".join(["id", *names]) + "\n", encoding="utf-8")
    (folder / "ids.json").write_text(json.dumps(names), encoding="utf-8")
    np.save(folder / "ids.npy", np.array(names))
    paths = [str(folder / f"discs/test/images/case_{n}.png") for n in (200, 201)]
    (folder / "paths.txt").write_text("\n".join(paths) + "\n", encoding="utf-8")
    groups = [f"case_00{number}.png,patient{number // 2}" for number in range(8)]
    (folder / "groups.csv").write_text("\n".join(["image,group", *groups]), encoding="utf-8")
    rows = ["case,file,decision,note", "case_200,case_200.png,accept,", "case_201,,edit,border"]
    (folder / "decisions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    decided = [{"case": "case_200", "file": "case_200.png", "decision": "accept", "note": ""}]
    content = {"format": "segconf decisions 1", "decisions": decided}
    (folder / "decisions.json").write_text(json.dumps(content), encoding="utf-8")


def _write_pictures(folder):
    folder.mkdir()
    pixels, _mask = disc(0, (40, 48))
    for name in PICTURES:
        if ".nii" in name:
            volume = np.stack([pixels[..., 0], pixels[..., 1]], axis=2).astype(np.int16)
            nibabel.save(nibabel.Nifti1Image(volume, np.diag([1.5, 1.5, 3, 1])), folder / name)
        else:
            PIL.Image.fromarray(pixels).save(folder / name)


def provide(material, names, workspace):
    """Copy material into the folder of a case; of a run what only its resumption reads on demand.

    Args:
        material: from `make_material`.
        names: files and folders; `state` stands for the heavy files of the run.
        workspace: of the case.
    """
    for name in names:
        if name == "state":
            for heavy in HEAVY:
                shutil.copy(material / "run" / heavy, workspace / "run" / heavy)
        elif (material / name).is_dir():
            ignored = shutil.ignore_patterns(*HEAVY)
            shutil.copytree(material / name, workspace / name, ignore=ignored)
        else:
            shutil.copy(material / name, workspace / name)


def fingerprints(folder):
    """SHA-256 of every regular file below a folder, and what stands for all others, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path] = f"link to {path.readlink()}"
        elif path.is_file():
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif not path.is_dir():
            found[path] = "special"
    return found
