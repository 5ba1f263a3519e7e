"""Every file of configs/ loads; every mistake of a bad file is reported at once."""

import math
from pathlib import Path

import pytest

from segconf.config.differences import setting_differences
from segconf.config.loading import RENAMED, load_config, save_config
from segconf.config.protocol import load_protocol
from segconf.config.schema import ExperimentConfig
from segconf.errors import ConfigError
from segconf.methods.method import method_of
from segconf.registry import METHODS

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
PROTOCOLS = sorted((Path(__file__).parents[1] / "configs/protocols").glob("*.yaml"))


def write(tmp_path, text):
    path = tmp_path / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_file_loads(path):
    assert isinstance(load_config(path), ExperimentConfig)


def experiment_of(protocol):
    """The experiment file of a protocol: of its own name, or that of segmentation."""
    own = protocol.parents[1] / protocol.name
    return own if own.is_file() else protocol.parents[1] / "isic2017_cpu.yaml"


@pytest.mark.parametrize("path", PROTOCOLS, ids=lambda path: path.name)
def test_every_protocol_fits_its_experiment_file(path):
    protocol = load_protocol(path)
    assert set(protocol.methods) == set(METHODS.names())
    for method, described in protocol.methods.items():
        for labels in described.labels or [20]:
            settings = protocol.settings_of(method, labels) | {"training.method": method}
            config = load_config(experiment_of(path), flags=settings)
            method_of(config).check(config)


@pytest.mark.parametrize(
    ("name", "training_images", "labels"),
    [
        ("isic2017_equal_cost.yaml", 1389, 125),
        ("isic2017_equal_cost.yaml", 1389, 250),
        ("isic2017_cpu.yaml", 220, 20),
        ("cifar10_cpu.yaml", 18_000, 1000),
        ("isic2017_diagnosis_cpu.yaml", 1389, 278),
    ],
)
def test_equal_cost_is_equal(name, training_images, labels):
    """Images forward and backward, by hand; one that only goes forward counts a third."""
    protocol = load_protocol(PROTOCOLS[0].parent / name)
    cpu = experiment_of(PROTOCOLS[0].parent / name)
    costs = {}
    for method in METHODS.names():
        settings = protocol.settings_of(method, labels) | {"training.method": method}
        training = load_config(cpu, flags=settings).training
        found = method_of(load_config(cpu, flags=settings))
        batch, steps = training.batch_labeled, labels / training.batch_labeled
        plain = batch if found.uses_history else 0
        if found.uses_unlabeled:
            steps = math.ceil((training_images - labels) / training.batch_unlabeled)
            plain += training.batch_unlabeled
        recorded = training.ranking_warmup - training.history_start
        ranked = training.epochs - training.ranking_warmup
        passes = training.epochs * batch + (recorded / 3 + ranked) * plain
        if method == "cape":  # forward, before one of four epochs in the second half
            passes += training.epochs / 2 / 4 * batch / 3
        costs[method] = steps * passes * (training.members if method == "ensemble" else 1)
    assert max(costs.values()) < 1.03 * min(costs.values()), costs


def test_the_three_protocols_are_there():
    assert {path.name for path in CONFIGS} >= {"isic2017.yaml", "isic2017_cpu.yaml", "demo.yaml"}


def test_protocol_of_the_paper():
    config = load_config(next(path for path in CONFIGS if path.name == "isic2017.yaml"))
    assert config.model.encoder == "resnet34"
    assert config.model.encoder_weights == "imagenet"
    assert config.data.size == (192, 256)
    assert (config.training.batch_labeled, config.training.batch_unlabeled) == (32, 64)
    assert config.training.epochs == 200
    assert config.training.learning_rate == pytest.approx(1e-4, rel=0, abs=0)
    assert (config.loss.correctness_weight, config.loss.consistency_weight) == (0.5, 0.15)
    assert config.augmentation.scale == (0.7, 1.5)
    assert config.loss.pairs == "all"


@pytest.mark.parametrize(
    ("name", "encoder"), [("cifar10", "preact_resnet110"), ("cifar100", "densenet_bc_100_12")]
)
def test_protocol_of_the_paper_for_labels(name, encoder):
    config = load_config(next(path for path in CONFIGS if path.name == f"{name}.yaml"))
    training = config.training
    assert (config.data.task, config.output_size) == ("classification", (1, 1))
    assert config.model.encoder == encoder
    assert (training.epochs, training.batch_labeled, training.batch_unlabeled) == (300, 64, 128)
    assert (training.optimizer, training.momentum, training.schedule) == ("sgd", 0.9, "steps")
    assert (training.learning_rate, training.weight_decay) == (0.1, 0.0001)
    assert (config.loss.correctness_weight, config.loss.consistency_weight) == (0.5, 0.5)
    assert (config.augmentation.padding, config.augmentation.vertical_flip) == (4, 0)


def test_labels_may_have_any_grid_and_masks_may_not():
    overrides = ["data.size=[28, 30]", "data.task=classification"]
    assert load_config(overrides=overrides).data.size == (28, 30)
    with pytest.raises(ConfigError, match=r"data\.size = 28: must be divisible by 32") as caught:
        load_config(overrides=overrides[:1])
    assert "For labels any size will do, with data.task = classification" in str(caught.value)


def test_later_sources_win(tmp_path):
    path = write(tmp_path, "training: {epochs: 7, seed: 7, batch_labeled: 7}")
    config = load_config(
        path,
        overrides=["training.epochs=8", "training.seed=8"],
        flags={"training.epochs": 9, "training.seed": None},
    )
    assert config.training.epochs == 9  # flag over --set over file
    assert config.training.seed == 8  # a flag that was not given does not count
    assert config.training.batch_labeled == 7
    assert config.training.batch_unlabeled == 64  # default


def test_every_mistake_is_reported_at_once(tmp_path):
    path = write(
        tmp_path,
        """
        data: {size: [100, 128], labelled: 3}
        loss: {consistency_weight: -1, pairs: many}
        training: {epochs: true, unaugmented_bn_mode: test}
        trianing: {}
        """,
    )
    with pytest.raises(ConfigError) as caught:
        load_config(
            path, overrides=["training.batch_labeled=0", "seed"], flags={"model.classes": 1}
        )
    lines = str(caught.value).splitlines()
    expected = [
        "set seed: expected section.key=value",
        f"{path}: data.size = 100: must be divisible by 32",
        f"{path}: data.labelled: unknown key; did you mean data.labeled?",
        f"{path}: loss.consistency_weight = -1: expected a number >= 0",
        f"{path}: loss.pairs = 'many': expected all or a whole number >= 1",
        f"{path}: training.epochs = True: expected a whole number >= 1",
        f"{path}: training.unaugmented_bn_mode = 'test': expected one of train, eval",
        f"{path}: trianing: unknown key; did you mean training?",
        "set: training.batch_labeled = 0: expected a whole number >= 1",
        "command line: model.classes = 1: expected a whole number >= 2 and <= 255",
    ]
    for start in expected:
        assert [line for line in lines if line.startswith(start)], (start, lines)
    assert len(lines) == len(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: [", "not valid YAML: line 1"),
        ("training: {seed: 1, seed: 2}", "key 'seed' is given twice"),
        ("just a text", "expected sections"),
        ("training: 5", "training = 5: expected a section with keys"),
        ("data: {size: [96]}", "data.size"),
        ("data: {validation_fraction: 0.6, test_fraction: 0.5}", "leave no image for training"),
        ("data: {labeled: 3, labeled_list: ids.txt}", "exclude each other"),
        ("data: {intensity_window: [5, 1]}", "low < high"),
        ("augmentation: {scale: [1.5, 0.7]}", "smallest <= largest"),
        ("training: {learning_rate: .nan}", "training.learning_rate"),
        (
            "training: {device: gpu}",
            "training.device = 'gpu': expected auto, cpu, cuda, cuda:N or mps",
        ),
        (
            "augmentation: {color_jitter: 0.1}\nmodel: {channels: 2}",
            "experiment.yaml: augmentation.color_jitter = 0.1: changes grey or RGB images, but "
            "model.channels = 2",
        ),
    ],
)
def test_mistakes_of_a_file(tmp_path, text, message):
    with pytest.raises(ConfigError, match=r"experiment\.yaml") as caught:
        load_config(write(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("data.validation_share", "data.validation_fraction"),
        ("data.test_share", "data.test_fraction"),
        ("data.resume_labels", "data.labels_from_query"),
        ("data.accept_as_labels", "data.corrections"),
        ("data.maps", "data.corrections"),
        ("data.pseudo_labels", "data.corrections"),
        ("data.pseudo_labels_folder", "data.corrections"),
        ("training.average_decay", "training.ema_decay"),
        ("training.plain_pass", "training.unaugmented_bn_mode"),
        ("training.features", "training.ood_detector"),
    ],
)
def test_keys_of_the_version_before_are_refused_with_their_new_name(tmp_path, old, new):
    section, key = old.split(".")
    path = write(tmp_path, f"{section}: {{{key}: 1}}")
    refused = f"{old}: is called {new} since version 0.2"
    with pytest.raises(ConfigError) as by_file:
        load_config(path)
    assert str(by_file.value) == f"{path}: {refused}"
    with pytest.raises(ConfigError) as by_option:
        load_config(overrides=[f"{old}=1"])
    assert str(by_option.value) == f"set: {refused}"
    section, key = new.split(".")
    assert key in ExperimentConfig.model_fields[section].annotation.model_fields
    assert RENAMED[old] == new


@pytest.mark.parametrize("model", ["channels: 1", "channels: 3", "channels: 7, encoder: mlp"])
def test_colours_of_grey_and_rgb_images_may_change(tmp_path, model):
    text = f"augmentation: {{color_jitter: 0.1}}\nmodel: {{{model}}}"
    assert load_config(write(tmp_path, text)).augmentation.color_jitter == 0.1


def test_missing_file():
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load_config(Path("nowhere.yaml"))


def test_labeled_flag_replaces_the_list_of_the_file(tmp_path):
    path = write(tmp_path, "data: {labeled_list: ids.txt}")
    config = load_config(path, flags={"data.labeled": 5})
    assert (config.data.labeled, config.data.labeled_list) == (5, None)


def test_numbers_may_be_written_with_an_exponent(tmp_path):
    path = write(tmp_path, "training: {learning_rate: 1e-4}")
    assert load_config(path).training.learning_rate == 0.0001
    assert load_config(overrides=["training.learning_rate=3E-4"]).training.learning_rate == 0.0003


def test_a_saved_configuration_is_complete_and_comes_back(tmp_path):
    config = load_config(overrides=["data.size=[96, 128]", "data.labeled_list=ids.txt"])
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config
    text = (tmp_path / "config.yaml").read_text()
    keys = ExperimentConfig.model_json_schema()["$defs"]
    for section in keys.values():
        for key in section["properties"]:
            assert f"  {key}:" in text


def test_what_was_not_given_is_left_to_a_data_set_of_labels(tmp_path):
    planned = load_config(overrides=["training.epochs=3", "data.task=classification"])
    save_config(planned, tmp_path / "planned.yaml", given_only=True)
    assert "classes" not in (tmp_path / "planned.yaml").read_text()
    again = load_config(tmp_path / "planned.yaml")
    assert again == planned
    assert again.model.model_fields_set == set()
    decided = ["data.class_names=[a, b, c]", "model.classes=3", "data.size=[8, 8]"]
    begun = load_config(tmp_path / "planned.yaml", overrides=decided)
    assert setting_differences(begun, planned) == {}
    other = load_config(overrides=["data.task=classification", "model.classes=4"])
    assert set(setting_differences(begun, other)) == {"model.classes", "training.epochs"}


def test_a_run_that_does_not_know_its_columns_can_be_continued():
    unknown, one, other = (
        load_config(overrides=[f"data.columns=[{names}]"]) for names in ("", "a, b", "b, a")
    )
    assert setting_differences(unknown, one) == {}
    assert set(setting_differences(one, other)) == {"data.columns"}


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        load_config().training.epochs = 3


def test_a_whole_section_is_not_replaced_by_a_value():
    with pytest.raises(ConfigError, match=r"set training=5: expected section\.key=value"):
        load_config(overrides=["training=5"], flags={"training.epochs": 3})


def test_two_ways_to_choose_labels_on_one_command_line_exclude_each_other(tmp_path):
    flags = {"data.labeled": 250, "data.labeled_list": str(tmp_path / "ids.txt")}
    with pytest.raises(ConfigError, match="labeled and labeled_list exclude each other"):
        load_config(flags=flags)
    assert load_config(overrides=["data.labeled=5"], flags={"data.labeled": 7}).data.labeled == 7
