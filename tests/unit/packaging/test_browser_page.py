"""The page of a model as text: complete, closed, and tied to what it carries."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from segconf.confidence import probabilities_of
from segconf.devices import resolve_device
from segconf.errors import ConfigError
from segconf.inference.onnx_model import graph_outputs
from segconf.inference.torch_model import TorchModel
from segconf.packaging import browser_page, grid_graph
from segconf.packaging.browser_page import AFTER, BEFORE, WORKER, package_page, page_of
from segconf.packaging.grid_graph import build_grid_graph, with_half_weights
from segconf.packaging.page_model import graph_inputs, page_model
from segconf.review import page as review
from segconf_cli.main import app
from tests.model_pages import NO_RUNTIME, small_run
from tests.tiny_models import disc

WEB = files("segconf.packaging").joinpath("web")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    run = small_run(tmp_path_factory.mktemp("page") / "run")
    return TorchModel(run, device=resolve_device("cpu"))


@pytest.fixture(scope="module")
def graph(model):
    """The graph of the model, exported once: that takes seconds."""
    return build_grid_graph(model)


@pytest.fixture(scope="module")
def inside(model, graph):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(grid_graph, "build_grid_graph", lambda _: graph)
        return page_model(model)


@pytest.fixture(scope="module")
def page(model, inside):
    return page_of(model, inside, NO_RUNTIME)


class Parts(HTMLParser):
    """Policy, scripts and blocks of a page."""

    def __init__(self, text):
        super().__init__()
        self.policy, self.scripts, self.blocks, self.links = "", [], {}, []
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        self.links += [values[name] for name in ("src", "href", "action") if values.get(name)]
        if tag == "script":
            self._open = values.get("id", "")

    def handle_data(self, data):
        if self._open is not None:
            if self._open.startswith("block-"):
                self.blocks[self._open.removeprefix("block-")] = base64.b64decode(data)
            else:
                self.scripts.append(data)
        self._open = None


def test_the_graph_on_the_grid_predicts_what_the_run_predicts(model, graph):
    inputs = graph_inputs(model, disc(70, 90))
    assert set(inputs) == {"image", "described"}  # the detector has a grid of its own
    assert not any(node.op_type == "Resize" for node in graph.graph.node[:3])
    own = model.grid_output(inputs["image"], inputs["described"])
    for content, limit in ((graph, 1e-5), (with_half_weights(graph), 5e-3)):
        found = graph_outputs(content.SerializeToString(), inputs)
        gap = probabilities_of(found["logits"][0]) - probabilities_of(own.logits[0])
        assert np.abs(gap).max() < limit
        assert found["ood_score"][0] == pytest.approx(own.ood_scores[0], rel=10 * limit)


def test_weights_take_half_the_space(graph):
    half = with_half_weights(graph)
    kinds = {tensor.data_type for tensor in half.graph.initializer if np.prod(tensor.dims) >= 256}
    assert onnx.TensorProto.FLOAT not in kinds
    assert half.ByteSize() < 0.75 * graph.ByteSize()


def test_the_probe_is_what_the_graph_says_of_its_picture(model, inside):
    import cv2

    content = base64.b64decode(inside.probe["image"])
    picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    assert hashlib.sha256(np.ascontiguousarray(picture)).hexdigest() == inside.probe["pixels"]
    logits = model.grid_logits(graph_inputs(model, picture)["image"])[0].reshape(-1)
    step = len(logits) // len(inside.probe["logits"])
    gap = np.abs(logits[::step][: len(inside.probe["logits"])] - inside.probe["logits"])
    assert gap.max() < inside.probe["tolerance"] / 2


def test_no_request_is_allowed_and_only_these_scripts_run(page):
    parts = Parts(page[0])
    rules = dict(rule.strip().split(" ", 1) for rule in parts.policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["img-src"] == "blob: data:"
    for script in parts.scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules["script-src"]
    assert rules["script-src"].count("sha256-") == len(parts.scripts) == 3
    assert "unsafe-inline" not in rules["script-src"]
    assert parts.links == ["data:,"]


def test_blocks_and_fingerprint_are_those_of_the_content(page, inside):
    parts = Parts(page[0])
    data = json.loads(parts.scripts[1].removeprefix("window.segconfData = ").removesuffix(";"))
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in parts.blocks.items()}
    assert data["blocks"] == hashes
    assert gzip.decompress(parts.blocks["model"]) == inside.content
    lines = [hashlib.sha256(script.encode()).hexdigest() for script in parts.scripts]
    expected = hashlib.sha256("\n".join([*lines, *hashes.values()]).encode()).hexdigest()
    assert page[1] == expected


def test_the_page_knows_the_model_but_not_where_it_lay(model, page):
    data = json.loads(Parts(page[0]).scripts[1].split(" = ", 1)[1].removesuffix(";"))
    assert data["record"]["model"]["sha256"] == model.weights_sha256
    assert data["settings"]["detector"] == {"band": [40, 60], "grid": [96, 128]}
    assert data["settings"]["flags"]["oodLimit"] == model.detector.threshold
    assert str(model.file.parent.parent) not in page[0]
    assert "Copyright (c) Microsoft Corporation" in page[0]
    assert "Model run: its licence is not stated" in page[0]


def test_what_is_no_page_of_pictures_is_refused(tmp_path, model, inside, monkeypatch):
    with pytest.raises(ConfigError, match=r"a page is called NAME\.html"):
        package_page(model.file.parent, tmp_path / "page.htm")
    arguments = ["package", "isic2017", "--out", "a.onnx", "--runtime", "a.tgz"]
    assert "--runtime: is for a page" in str(CliRunner().invoke(app, arguments).exception)
    monkeypatch.setattr(browser_page, "find_runtime", lambda _: NO_RUNTIME)
    monkeypatch.setattr(browser_page, "page_model", lambda _: inside)
    monkeypatch.setattr(browser_page, "LARGEST", 1000)
    with pytest.raises(ConfigError, match=r"more than 0 MB\. Use a smaller encoder"):
        package_page(model.file.parent, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def read(name):
    return WEB.joinpath(name).read_text(encoding="utf-8")


def test_every_language_has_the_words_that_the_page_asks_for():
    texts = json.loads(read("texts.json"))
    known = json.loads(review.part("texts.json"))
    assert texts.keys() == known.keys()
    scripts = "".join(read(f"{name}.js") for name in (*BEFORE, *AFTER))
    html = "".join(read(f"{name}.html") for name in ("intake", "about", "export"))
    asked = set(re.findall(r'data-(?:text|hint|label)="(\w+)"', html))
    asked |= set(re.findall(r'\bt\(\s*"(\w+)"', scripts))
    assert asked <= texts["en"].keys() | known["en"].keys()
    assert texts["en"].keys() <= asked | set(re.findall(r"\w+", scripts))
    for words in texts.values():
        assert words.keys() == texts["en"].keys()
        for key, text in words.items():
            places = [sorted(re.findall(r"\{(\w+)\}", one)) for one in (text, texts["en"][key])]
            assert places[0] == places[1], key


def test_every_script_says_what_it_holds():
    names = {path.name.removesuffix(".js") for path in WEB.iterdir() if path.name.endswith(".js")}
    assert names == {*BEFORE, *AFTER, *WORKER, "guard"}
    for name in names:
        assert read(f"{name}.js").startswith("// ")
        assert len(read(f"{name}.js").splitlines()) <= 300
