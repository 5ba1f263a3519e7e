"""DICOM files from end to end: predicted or refused by name, whatever their state."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pydicom.data

from segconf.data.datasets.dataset import find_cases
from segconf.data.decisions import Decision, decisions_file, write_decisions
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.review.export import export
from segconf.training.labels import reviewed_labels
from segconf_cli.main import app
from tests.dicom_objects import PATIENT, photograph, series
from tests.tiny_models import brightness_model, write_checkpoint

ROOT = Path(__file__).resolve().parents[2]
DAMAGED = 200


def test_damaged_files_are_read_or_refused(tmp_path):
    """In a process of its own: a crash of a decoder, or a hang, would end it."""
    done = subprocess.run(
        [sys.executable, "tests/damaged_dicom.py", str(tmp_path), str(DAMAGED)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert len({line[0] for line in lines}) == DAMAGED
    kinds = [line[1] for line in lines]
    refused = [line[2] for line in lines if line[1] == "refused"]
    assert all(text.startswith(f"{tmp_path}/") and "QUIXOTTE" not in text for text in refused)
    assert min(kinds.count("read"), kinds.count("refused")) > DAMAGED / 10


def test_files_of_every_kind_are_predicted_or_refused(tmp_path):
    folder = Path(pydicom.data.__file__).parent / "test_files"
    model = brightness_model(tmp_path)
    report = predict(model, find_images([folder]), tmp_path / "maps")
    good = [row for row in report.rows if not row.error]
    assert len(good) >= 30
    assert len(report.broken) >= 30
    for row in report.broken:
        assert row.error.startswith(f"{folder}/")
        assert row.error.endswith(".")


def test_real_series_are_predicted(tmp_path, shared):
    sources = find_images([shared("data/dicom_mr")])
    report = predict(brightness_model(tmp_path), sources, tmp_path / "maps")
    assert [(row.slices, row.error) for row in report.rows] == [(32, ""), (22, "")]


def test_predictions_are_exported_and_become_labels(tmp_path):
    rng = np.random.default_rng(0)
    images, maps = tmp_path / "data/images", tmp_path / "maps"
    uid = series(images / "scan", rng.integers(0, 2000, (3, 40, 40)).astype(np.int16))
    photograph(images / "photo.dcm", rng.integers(0, 256, (40, 50, 3), np.uint8))
    rows = predict(brightness_model(tmp_path), find_images([images]), maps).rows
    pictures = export(maps, tmp_path / "out")
    assert [path.read_bytes() for path in pictures] == [
        (maps / "overlays" / path.name).read_bytes() for path in pictures
    ]
    accepted = [Decision(r.case, r.file, "accept", image_sha256=r.image_sha256) for r in rows]
    write_decisions(decisions_file(maps), accepted)
    labels = reviewed_labels(maps, find_cases(str(tmp_path / "data")))
    (picture,) = (row.case for row in rows if row.case != uid)
    slices = {f"scan_z00{number}": maps / f"masks/{uid}.nii.gz" for number in range(3)}
    assert {name: found.path for name, found in labels.items()} == slices | {
        "photo": maps / f"masks/{picture}.png"
    }


def test_no_patient_is_named_in_results(tmp_path, capsys):
    rng = np.random.default_rng(0)
    volume = rng.integers(0, 2000, (4, 40, 40)).astype(np.int16)
    series(tmp_path / "in" / "QUIXOTTE_ZELDA", volume)
    photograph(tmp_path / "in" / "QUIXOTTE.dcm", rng.integers(0, 256, (40, 50, 3), np.uint8))
    (tmp_path / "in" / "quixotte2.dcm").write_bytes(bytes(300))
    (tmp_path / "in" / "quixotte.doc").write_bytes(b"a letter")
    weights = write_checkpoint(tmp_path / "w.safetensors")

    code = app(
        [
            "predict",
            str(tmp_path / "in"),
            "--out",
            str(tmp_path / "out"),
            "--checkpoint",
            str(weights),
        ],
        standalone_mode=False,
    )

    assert code == 3
    shown = capsys.readouterr()
    texts = [shown.out, shown.err]
    for path in (tmp_path / "out").rglob("*"):
        assert "quixotte" not in path.name.lower()
        if path.suffix in {".csv", ".json", ".html"}:
            texts.append(path.read_text(encoding="utf-8"))
    for name in (*PATIENT.split("^"), "QUIXOTTE-0815"):
        assert not any(name.lower() in text.lower() for text in texts), name
