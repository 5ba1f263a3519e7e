"""The network of a run as an ONNX graph: from pixels of any size to maps on the same grid.

The input is uint8 RGB, (B, H, W, C). Resizing to the network's grid, normalisation, network,
temperature and resizing to the input's grid are nodes of the graph. Shrinking is antialiased as
`images.resizing` does it: ONNX Runtime follows the same algorithm, up to rounding.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from segconf.images.types import Size
from segconf.inference.torch_model import TorchModel
from segconf.models.encoders import encoder_normalization
from segconf.ood.energies import LEAST_ENERGY, Directions
from segconf.packaging.deployed import DeployedEncoder, DeployedNetwork, networks_of

OPSET = 18
"""The first in which shrinking can be antialiased."""
IR_VERSION = 10
Infos = Sequence[onnx.ValueInfoProto]


@dataclass
class GraphBuilder:
    """Nodes and constants of a graph that grows from its input to its outputs."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Append a node, and name its output."""
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name=f"node_{output}", **attributes)
        )
        return output

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """A constant under a name."""
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def include(self, model: onnx.ModelProto, prefix: str, inputs: dict[str, str]) -> list[str]:
        """Append a whole graph; equal constants are kept once. Returns the names of its outputs."""
        known = {_content(tensor): name for name, tensor in self.constants.items()}
        names = dict(inputs)
        for tensor in model.graph.initializer:
            key = _content(tensor)
            if key not in known:
                known[key] = prefix + tensor.name
                self.constants[known[key]] = onnx.TensorProto()
                self.constants[known[key]].CopyFrom(tensor)
                self.constants[known[key]].name = known[key]
            names[tensor.name] = known[key]
        for node in model.graph.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            copied.name = prefix + node.name
            copied.doc_string = ""
            del copied.metadata_props[:]
            copied.input[:] = [
                names.get(name, prefix + name if name else "") for name in node.input
            ]
            copied.output[:] = [prefix + name if name else "" for name in node.output]
            self.nodes.append(copied)
        return [prefix + output.name for output in model.graph.output]


def _content(tensor: onnx.TensorProto) -> tuple[int, tuple[int, ...], bytes]:
    return tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes()


def build_graph(model: TorchModel) -> onnx.ModelProto:
    """The graph of a model.

    Input `image`: (B, H, W, C) uint8. Outputs: `mask` (B, H, W) uint8, `confidence` (B, H, W) and
    `probabilities` (B, K, H, W) on the grid of the input, `logits` (B, K, h, w) on that of the
    network, calibrated, and, for a model with a detector, `ood_score` (B,).

    Args:
        model: of a method that can be exported.

    Raises:
        ConfigError: the method of the model takes several passes.
    """
    size, channels = model.config.data.size, model.config.model.channels
    networks = networks_of(model)
    graph = GraphBuilder()
    planes = graph.add("Transpose", ["image"], "planes", perm=[0, 3, 1, 2])
    module = DeployedNetwork(networks, calibrator=model.calibrator, features=model.shares_grid)
    inputs = normalized(graph, model, planes, "network", [size])
    exported = export_module(module, size, channels)
    found = graph.include(exported, "network/", {exported.graph.input[0].name: inputs})
    graph.add("Identity", found[:1], "logits")
    outputs = [*_maps(graph), described_output("logits", TensorProto.FLOAT, "bk", size)]
    features = found[1] if model.shares_grid else None
    if model.detector is not None and not model.shares_grid:
        encoder = DeployedEncoder(networks[0].get_submodule("encoder"))
        grids = dict.fromkeys((model.detector.band, model.detector.grid))
        described = export_module(encoder, model.detector.grid, channels)
        finer = normalized(graph, model, planes, "detector", list(grids))
        source = {described.graph.input[0].name: finer}
        features = graph.include(described, "detector/", source)[0]
    if features is not None:
        outputs.append(ood_score(graph, model, features))
    shape: list[str | int | None] = ["batch", "height", "width", channels]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, shape)
    return finished(graph, [image], outputs)


def finished(graph: GraphBuilder, inputs: Infos, outputs: Infos) -> onnx.ModelProto:
    """The whole model, checked."""
    constants = list(graph.constants.values())
    made = helper.make_graph(graph.nodes, "segconf", inputs, outputs, initializer=constants)
    opset = helper.make_opsetid("", OPSET)
    whole = helper.make_model(made, opset_imports=[opset], ir_version=IR_VERSION)
    onnx.checker.check_model(whole)
    return whole


def normalized(
    graph: GraphBuilder, model: TorchModel, planes: str, name: str, sizes: Sequence[Size]
) -> str:
    """Pixels as the encoder takes them: ``pixel / (255 std) - mean / std``.

    They are resized to some grids, one after the other.
    """
    for number, size in enumerate(sizes):
        step = f"{name}_{number}"
        sides = graph.constant(f"{step}_sides", np.array(size, np.int64))
        kept = graph.add("Shape", [planes], f"{step}_batch", start=0, end=2)
        shape = graph.add("Concat", [kept, sides], f"{step}_shape", axis=0)
        planes = graph.add(
            "Resize",
            [planes, "", "", shape],
            f"{step}_pixels",
            mode="linear",
            antialias=1,
            coordinate_transformation_mode="half_pixel",
            exclude_outside=1,
        )
    values = graph.add("Cast", [planes], f"{name}_floats", to=TensorProto.FLOAT)
    config = model.config.model
    mean, std = (
        np.array(numbers, np.float64)[:, None, None]
        for numbers in encoder_normalization(config.encoder, config.channels)
    )
    scale = graph.constant(f"{name}_scale", (1 / (255 * std)).astype(np.float32))
    offset = graph.constant(f"{name}_offset", (mean / std).astype(np.float32))
    scaled = graph.add("Mul", [values, scale], f"{name}_scaled")
    return graph.add("Sub", [scaled, offset], f"{name}_input")


def _maps(graph: GraphBuilder) -> list[onnx.ValueInfoProto]:
    """Probabilities, confidence and mask of the logits, on the grid of the input."""
    sides = graph.add("Shape", ["planes"], "image_sides", start=2, end=4)
    kept = graph.add("Shape", ["logits"], "logits_batch", start=0, end=2)
    shape = graph.add("Concat", [kept, sides], "logits_shape", axis=0)
    logits = graph.add(
        "Resize",
        ["logits", "", "", shape],
        "native_logits",
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    axis = graph.constant("class_axis", np.array([1], np.int64))
    graph.add("Softmax", [logits], "probabilities", axis=1)
    graph.add("ReduceMax", ["probabilities", axis], "confidence", keepdims=0)
    classes = graph.add("ArgMax", [logits], "classes", axis=1, keepdims=0)
    graph.add("Cast", [classes], "mask", to=TensorProto.UINT8)
    grid = ("height", "width")
    return [
        described_output("mask", TensorProto.UINT8, "b", grid),
        described_output("confidence", TensorProto.FLOAT, "b", grid),
        described_output("probabilities", TensorProto.FLOAT, "bk", grid),
    ]


def ood_score(graph: GraphBuilder, model: TorchModel, description: str) -> onnx.ValueInfoProto:
    """Mahalanobis distance ``|(f - mean) W|`` of log energies f, in double precision.

    The graph follows `ood.energies`, stage by stage of the description (B, F).
    """
    detector = model.detector
    if detector is None:
        raise ValueError("there is no detector")
    exact = graph.add("Cast", [description], "description", to=TensorProto.DOUBLE)
    parts, start = [], 0
    for number, directions in enumerate(detector.directions):
        stage = _Stage(graph, f"stage{number}", directions, exact, start)
        parts += stage.energies()
        start = stage.end
    energies = graph.add("Concat", parts, "energies", axis=1)
    tiny = graph.constant("tiny", np.array(LEAST_ENERGY))
    logarithms = graph.add("Log", [graph.add("Add", [energies, tiny], "no_zero")], "log_energies")
    mean = graph.constant("detector_mean", detector.mean.astype(np.float64))
    whitening = graph.constant("detector_whitening", detector.whitening.astype(np.float64))
    centred = graph.add("Sub", [logarithms, mean], "centred_energies")
    white = graph.add("MatMul", [centred, whitening], "white_energies")
    squares = graph.add("Mul", [white, white], "squared_energies")
    total = graph.add("ReduceSum", [squares, _axis(graph)], "squared_distance", keepdims=0)
    graph.add("Sqrt", [total], "ood_score")
    return helper.make_tensor_value_info("ood_score", TensorProto.DOUBLE, ["batch"])


def _axis(graph: GraphBuilder) -> str:
    return graph.constant("feature_axis", np.array([1], np.int64))


class _Stage:
    """Nodes that turn the part of a description about a stage into its energies."""

    def __init__(
        self, graph: GraphBuilder, name: str, directions: Directions, description: str, start: int
    ) -> None:
        """The part begins at a place of the description."""
        self._graph, self._name = graph, name
        self._description, self.end = description, start
        self._count = len(directions.mean)
        self._mean = graph.constant(f"{name}_mean", directions.mean.astype(np.float64))
        whitening = directions.whitening.astype(np.float64)
        self._whitening = graph.constant(f"{name}_whitening", whitening)

    def energies(self) -> list[str]:
        """Energies (B, C) of the pixels, and of their differences."""
        graph, name = self._graph, self._name
        mean = self._next("means", [self._count])
        centred = graph.add("Sub", [mean, self._mean], f"{name}_centred")
        off = graph.add("MatMul", [centred, self._whitening], f"{name}_off")
        squared = graph.add("Mul", [off, off], f"{name}_off_squared")
        within = self._in_directions("covariance")
        own = graph.add("Add", [within, squared], f"{name}_own")
        return [own, self._in_directions("difference")]

    def _next(self, kind: str, shape: list[int]) -> str:
        """The next numbers of the description, (B, *shape)."""
        graph, name = self._graph, f"{self._name}_{kind}"
        start, self.end = self.end, self.end + int(np.prod(shape))
        first, last = (
            graph.constant(f"{name}_{side}", np.array([place], np.int64))
            for side, place in (("start", start), ("end", self.end))
        )
        part = graph.add("Slice", [self._description, first, last, _axis(graph)], f"{name}_part")
        sides = graph.constant(f"{name}_sides", np.array([-1, *shape], np.int64))
        return graph.add("Reshape", [part, sides], name)

    def _in_directions(self, kind: str) -> str:
        """Values w' P w of the matrices P, for every column w; never negative."""
        graph, name = self._graph, f"{self._name}_{kind}"
        matrices = self._next(kind, [self._count, self._count])
        left = graph.add("MatMul", [matrices, self._whitening], f"{name}_left")
        both = graph.add("Mul", [left, self._whitening], f"{name}_both")
        total = graph.add("ReduceSum", [both, _axis(graph)], f"{name}_total", keepdims=0)
        zero = graph.constant("zero_energy", np.array(0.0))
        return graph.add("Max", [total, zero], f"{name}_energy")


def described_output(
    name: str, kind: int, leading: str, grid: tuple[int | str, int | str]
) -> onnx.ValueInfoProto:
    """An output with some leading axes on a grid."""
    axes = {"b": "batch", "k": "classes"}
    return helper.make_tensor_value_info(name, kind, [*(axes[one] for one in leading), *grid])


def export_module(module: nn.Module, size: Size, channels: int) -> onnx.ModelProto:
    """A module of images (B, C, h, w), of any batch size, by the exporter of PyTorch."""
    example = torch.zeros(2, channels, *size)
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the inside of the exporter
        program = torch.onnx.export(
            module.eval(),
            (example,),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=({0: batch},),
            verbose=False,
        )
    if program is None:
        raise RuntimeError("the exporter returned nothing")
    proto: onnx.ModelProto = program.model_proto
    return proto
