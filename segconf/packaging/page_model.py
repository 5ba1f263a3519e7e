"""The network inside of a page: its graph, how far it is from the run, and a probe.

The probe is a small picture with the logits that the network gives for it. The page computes them
again in the reader's browser before it predicts anything.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from segconf.confidence import FloatArray, probabilities_of
from segconf.errors import CheckpointError
from segconf.images.encoding import png_bytes
from segconf.images.resizing import reduced_slices, slices_on_grid
from segconf.images.types import ByteArray
from segconf.inference.onnx_model import graph_outputs
from segconf.inference.torch_model import TorchModel
from segconf.synthetic.optics import generate_case

EQUAL = 0.999
"""Fraction of the pixels in which masks must be equal for weights of 16 bits."""
TOLERANCE = 0.05
"""Largest difference of a logit in the browser, on the probe."""
_COMPARED, _COMPARED_SIZE = 6, (192, 256)
_PROBE_SIZE, _PROBE_LOGITS = (96, 128), 512
_HALF, _WHOLE = 16, 32
_GREY = 1
_BINARY = 2


@dataclass(frozen=True, slots=True)
class PageModel:
    """A graph that was compared with its run.

    Attributes:
        content: the ONNX file.
        bits: of its weights.
        equal: smallest fraction of equal pixels of a mask.
        difference: largest difference of a probability.
        probe: picture, hash of its pixels, and logits to expect.
    """

    content: bytes
    bits: int
    equal: float
    difference: float
    probe: dict[str, Any]


def page_model(model: TorchModel) -> PageModel:
    """The graph of a model: weights of 16 bits where masks stay the same, else of 32.

    Raises:
        CheckpointError: even with 32 bits the graph predicts something else.
    """
    from segconf.packaging.grid_graph import build_grid_graph, with_half_weights

    whole = build_grid_graph(model)
    pictures = [_picture(index, _COMPARED_SIZE) for index in range(_COMPARED)]
    half = with_half_weights(whole).SerializeToString()
    for bits, content in ((_HALF, half), (_WHOLE, whole.SerializeToString())):
        equal, difference = compare_masks(model, content, pictures)
        if equal >= EQUAL:
            return PageModel(content, bits, equal, difference, _probe(model, content))
    raise CheckpointError(
        f"{model.file}: the graph of the page predicts other masks than the run (only "
        f"{equal:.2%} of the pixels are equal). Package it as ONNX."
    )


def compare_masks(
    model: TorchModel, content: bytes, pictures: list[ByteArray]
) -> tuple[float, float]:
    """Smallest fraction of equal pixels of a mask, and largest difference of a probability."""
    equal, difference = 1.0, 0.0
    for picture in pictures:
        inputs = graph_inputs(model, picture)
        found = graph_outputs(content, inputs)["logits"][0]  # (K, h, w)
        own = model.grid_logits(inputs["image"])[0]
        equal = min(equal, float((found.argmax(axis=0) == own.argmax(axis=0)).mean()))
        gap = np.abs(probabilities_of(found) - probabilities_of(own)).max()
        difference = max(difference, float(gap))
    return equal, difference


def graph_inputs(model: TorchModel, picture: ByteArray) -> dict[str, ByteArray]:
    """What the graph takes of a picture (H, W, 3)."""
    planes = picture.transpose(2, 0, 1)
    if model.config.model.channels == _GREY:
        planes = _grey(picture)[None]
    inputs = {"image": np.ascontiguousarray(slices_on_grid(planes, model.config.data.size))}
    if model.detector is not None and not model.shares_grid:
        described = reduced_slices(planes, model.detector.band, model.detector.grid)
        inputs["described"] = np.ascontiguousarray(described)
    return inputs


def _probe(model: TorchModel, content: bytes) -> dict[str, Any]:
    picture = _picture(_COMPARED, _PROBE_SIZE)
    logits: FloatArray = graph_outputs(content, graph_inputs(model, picture))["logits"][0]
    values = (logits[1] - logits[0] if len(logits) == _BINARY else logits).reshape(-1)
    step = max(1, len(values) // _PROBE_LOGITS)
    return {
        "image": base64.b64encode(png_bytes(picture)).decode("ascii"),
        "pixels": hashlib.sha256(picture.tobytes()).hexdigest(),
        "logits": [round(float(value), 5) for value in values[::step][: len(values) // step]],
        "tolerance": TOLERANCE,
    }


def _picture(index: int, size: tuple[int, int]) -> ByteArray:
    """Made-up dermoscopy, (H, W, 3)."""
    return generate_case(0, index, size)[0]


def _grey(picture: ByteArray) -> ByteArray:
    """Grey levels as pictures are read: ITU-R 601 in 16 bits, (H, W)."""
    weights = np.array([19595, 38470, 7471])
    return np.asarray((picture.astype(np.int64) @ weights + 32768) >> 16, np.uint8)
