"""The network of a run as an ONNX graph on its own grid, with weights in half precision.

Whoever runs it resizes: the input has the grid of the network already, the output keeps it. The
page for the browser does so, in the integers of `images.resizing`.
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from segconf.inference.torch_model import TorchModel
from segconf.packaging.deployed import DeployedEncoder, DeployedNetwork, networks_of
from segconf.packaging.onnx_graph import (
    GraphBuilder,
    described_output,
    export_module,
    finished,
    normalized,
    ood_score,
)

IMAGE, DESCRIBED = "image", "described"
"""Inputs: (B, h, w, C) uint8 on the grid of the network, and on that of the detector."""
_FEWEST = 256
"""Smaller constants stay as they are: there is nothing to gain."""


def build_grid_graph(model: TorchModel) -> onnx.ModelProto:
    """The graph of a model without any resizing.

    Outputs: `logits` (B, K, h, w), calibrated, and, with a detector, `ood_score` (B,). A
    detector with a grid of its own adds the input `described`.

    Raises:
        ConfigError: the method of the model takes several passes.
    """
    size, channels = model.config.data.size, model.config.model.channels
    networks = networks_of(model)
    graph = GraphBuilder()
    module = DeployedNetwork(networks, calibrator=model.calibrator, features=model.shares_grid)
    exported = export_module(module, size, channels)
    planes = graph.add("Transpose", [IMAGE], "planes", perm=[0, 3, 1, 2])
    pixels = normalized(graph, model, planes, "network", [])
    found = graph.include(exported, "network/", {exported.graph.input[0].name: pixels})
    graph.add("Identity", found[:1], "logits")
    inputs = [_pixels(IMAGE, size, channels)]
    outputs = [described_output("logits", TensorProto.FLOAT, "bk", size)]
    features = found[1] if model.shares_grid else None
    if model.detector is not None and not model.shares_grid:
        encoder = DeployedEncoder(networks[0].get_submodule("encoder"))
        described = export_module(encoder, model.detector.grid, channels)
        finer = graph.add("Transpose", [DESCRIBED], "described_planes", perm=[0, 3, 1, 2])
        source = normalized(graph, model, finer, "detector", [])
        features = graph.include(described, "detector/", {described.graph.input[0].name: source})[0]
        inputs.append(_pixels(DESCRIBED, model.detector.grid, channels))
    if features is not None:
        outputs.append(ood_score(graph, model, features))
    return finished(graph, inputs, outputs)


def _pixels(name: str, size: tuple[int, int], channels: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.UINT8, ["batch", *size, channels])


def with_half_weights(whole: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with its float32 constants stored in 16 bits.

    A cast turns them back when the model is loaded, so that all is computed in float32. Constants
    that 16 bits cannot hold stay as they are.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(whole)
    casts = []
    for tensor in changed.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size < _FEWEST or not _fits(values):
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        casts.append(
            helper.make_node(
                "Cast", [tensor.name], [name], name=f"node_{tensor.name}", to=TensorProto.FLOAT
            )
        )
    nodes = [*casts, *changed.graph.node]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    onnx.checker.check_model(changed)
    return changed


def _fits(values: NDArray[np.float32]) -> bool:
    return bool(np.abs(values).max() <= np.finfo(np.float16).max)
