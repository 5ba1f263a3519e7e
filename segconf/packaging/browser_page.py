"""A run as one HTML file that segments in the browser: the review page, with the model inside.

The page is that of `segconf.review`, with another source of cases: `web/model_source.js` asks a
worker, which reads files, runs the network by ONNX Runtime Web and sums up as `predict` does.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from segconf.calibration.stored import Calibration
from segconf.errors import ConfigError
from segconf.files import open_regular, write_bytes
from segconf.inference.choice import choose_model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import describe_run
from segconf.inference.sources import Sources
from segconf.inference.torch_model import TorchModel
from segconf.outputs import check_output_file
from segconf.packaging.package import Package, check_installed, masks_model
from segconf.packaging.page_model import PageModel, page_model
from segconf.packaging.web_licences import licences, model_name
from segconf.packaging.web_runtime import VERSION, Runtime, find_runtime
from segconf.results.flags import REASONS
from segconf.results.rows import (
    EMPTY_MASK,
    NOT_FINITE,
    OUT_OF_DISTRIBUTION,
    TOO_FEW_PIXELS,
    UNREADABLE,
    CaseRow,
)
from segconf.results.run_record import RunRecord
from segconf.review import page as review

LARGEST = 40_000_000
"""Bytes of a page."""
WORKER = (
    *("resizing", "native", "summary", "tiff", "lossless", "pictures", "png", "thumbnail"),
    "predictor",
)
"""Parts of the worker, behind `masks.js` of the review page."""
BEFORE = ("blocks", "model_store", "model_source")
AFTER = ("png", "archive", "intake", "launch")
"""Parts of the page before and behind those of the review page, whose `source.js` they replace."""
_PICTURE_CHANNELS = (1, 3)
_TITLE = b"<title>segconf review</title>"
_FIRST_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class Page(Package):
    """A page that was written.

    Attributes:
        equal: smallest fraction of equal pixels of a mask, on made-up images.
        bits: of the stored weights.
        fingerprint: SHA-256 over scripts and model; its footer shows the beginning.
    """

    equal: float
    bits: int
    fingerprint: str


def package_page(run: Path | str, out: Path | str, *, runtime: Path | None = None) -> Page:
    """Write a run as one HTML file that needs no server, no installation and no network.

    Args:
        run: run folder, weights file or name of a pretrained model.
        out: the file, `.html`.
        runtime: the npm package of ONNX Runtime Web; see `find_runtime`.

    Raises:
        ConfigError: the model predicts labels or does not take pictures, its method takes several
            passes, packages or the runtime are missing, or the page would be too large.
        FileError: it lies in the run, is another file already, or cannot be written.
    """
    path = Path(out)
    if path.suffix != ".html":
        raise ConfigError(f"out = {path}: a page is called NAME.html.")
    chosen = choose_model(run).path
    check_output_file(path, inputs=[chosen], is_own=_is_page)
    check_installed("onnx", "onnxscript", "onnxruntime")
    model = masks_model(chosen)
    _check_pictures(model)
    found = find_runtime(runtime)
    inside = page_model(model)
    text, fingerprint = page_of(model, inside, found)
    content = text.encode()
    if len(content) > LARGEST:
        raise ConfigError(
            f"{model.file}: the page would have {len(content) / 1e6:.0f} MB, more than "
            f"{LARGEST / 1e6:.0f} MB. Use a smaller encoder, or package it as ONNX."
        )
    write_bytes(path, content)
    return Page(path, len(content), inside.difference, inside.equal, inside.bits, fingerprint)


def _is_page(path: Path) -> bool:
    """Whether a file is one that an earlier call has written."""
    try:
        with open_regular(path) as file:
            return _TITLE in file.read(_FIRST_BYTES)
    except OSError:
        return False


def _check_pictures(model: TorchModel) -> None:
    config = model.config
    if config.model.channels not in _PICTURE_CHANNELS or config.data.intensity_window is not None:
        raise ConfigError(
            f"{model.file}: takes {config.model.channels} channels"
            + (" of a window of intensities" if config.data.intensity_window else "")
            + "; a page reads pictures, grey or RGB. Package it as ONNX."
        )


def page_of(model: TorchModel, inside: PageModel, runtime: Runtime) -> tuple[str, str]:
    """The page as text, and its fingerprint."""
    worker = "\n".join([review.part("masks.js"), *(_part(f"{name}.js") for name in WORKER)])
    contents = {"worker": worker.encode(), "model": inside.content, **runtime}
    packed = {name: gzip.compress(content, 6, mtime=0) for name, content in contents.items()}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()}
    script = review.one_scope(
        [
            *(_part(f"{name}.js") for name in BEFORE),
            *(review.part(f"{name}.js") for name in review.SCRIPTS if name != "source"),
            *(_part(f"{name}.js") for name in AFTER),
        ]
    )
    guard, values = _part("guard.js"), {**page_values(model, inside), "blocks": hashes}
    data = review.data_script(values)
    scripts = (guard, data, script)
    slots = {
        "GUARD": f"{_part('guard.html')}<script>{guard}</script>\n",
        "INTAKE": _part("intake.html"),
        "EXPORT": _part("export.html"),
        "ABOUT": _part("about.html").replace("/*LICENCES*/", licences(model)),
        "BLOCKS": "".join(_block(name, content) for name, content in packed.items()),
        "STYLE": _part("intake.css"),
    }
    before, after = review.page_around(policy=policy(scripts), script=script, slots=slots)
    return before + data + after, fingerprint(scripts, hashes)


def policy(scripts: tuple[str, ...]) -> str:
    """Only these scripts run, and no request leaves the page: neither images nor anything else."""
    allowed = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
    )
    return (
        f"connect-src 'none'; img-src blob: data:; worker-src blob:; "
        f"script-src {allowed} blob: 'wasm-unsafe-eval'"
    )


def fingerprint(scripts: tuple[str, ...], hashes: Mapping[str, str]) -> str:
    """SHA-256 over the hashes of scripts and blocks, as `web/blocks.js` computes it."""
    own = [hashlib.sha256(text.encode()).hexdigest() for text in scripts]
    return hashlib.sha256("\n".join([*own, *hashes.values()]).encode()).hexdigest()


def page_values(model: TorchModel, inside: PageModel) -> dict[str, Any]:
    """What the scripts know of the model."""
    record = page_record(model)
    own, more = json.loads(review.part("texts.json")), json.loads(_part("texts.json"))
    return {
        **review.page_data(record),
        "served": False,
        "texts": {code: words | more[code] for code, words in own.items()},
        "record": record.values,
        "settings": settings(model),
        "probe": inside.probe,
    }


def page_record(model: TorchModel) -> RunRecord:
    """`run.json` of what the page predicts; it does not tell where the page was made."""
    values = describe_run(model, Sources(Path("images"), ()), PredictOptions()).values
    values["model"]["file"] = model.file.name
    values["chosen"] = {"model": model_name(model), "reason": "inside of the page"}
    values["versions"] = {"onnxruntime-web": VERSION}
    del values["id"]
    made_of = json.dumps(values, sort_keys=True)
    return RunRecord({"id": hashlib.sha256(made_of.encode()).hexdigest()[:16], **values})


def settings(model: TorchModel) -> dict[str, Any]:
    """What the worker needs to predict and to flag as `predict` does."""
    own = model.detector
    detector = None if model.shares_grid else own
    dice = model.calibration.expected_dice
    return {
        "size": model.config.data.size,
        "channels": model.config.model.channels,
        "classes": model.config.model.classes,
        "detector": None if detector is None else {"band": detector.band, "grid": detector.grid},
        "striped": model.scale.striped,
        "shaded": model.scale.shaded,
        "diceScale": None if dice is None else {"intercept": dice.intercept, "slope": dice.slope},
        "maxPixels": model.config.data.max_pixels,
        "flags": flag_settings(model.calibration, None if own is None else own.threshold),
        "row": CaseRow("", "").plain(),
    }


def flag_settings(calibration: Calibration, ood_limit: float | None) -> dict[str, Any]:
    """Rules, limits and words of the flags; see `results.flags`."""
    rule = calibration.referral
    return {
        "rule": None if rule is None else {"score": rule.score, "threshold": rule.threshold},
        "notes": [
            {"column": one.column, "limit": one.limit, "high": one.high}
            for one in calibration.notes
        ],
        "reasons": REASONS,
        "oodLimit": ood_limit,
        "words": {
            "empty": EMPTY_MASK,
            "outOfDistribution": OUT_OF_DISTRIBUTION,
            "unreadable": UNREADABLE,
            "notFinite": NOT_FINITE,
            "tooFew": TOO_FEW_PIXELS,
        },
    }


def _block(name: str, content: bytes) -> str:
    text = base64.b64encode(content).decode("ascii")
    return f'<script type="application/octet-stream" id="block-{name}">{text}</script>\n'


def _part(name: str) -> str:
    return files("segconf.packaging").joinpath("web", name).read_text(encoding="utf-8")
