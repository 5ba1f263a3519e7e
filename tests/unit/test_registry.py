"""Implementations by name: known without an import, named in messages when they are not there."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from segconf import registry as module
from segconf.errors import ConfigError
from segconf.registry import Registry

METHODS = (
    *("aes", "aleatoric", "cape", "consistency", "crl", "distillation", "ensemble", "mcdropout"),
    *("mmce", "softmax"),
)


def test_names_are_known_without_importing_anything():
    code = (
        "import sys\n"
        "from segconf.registry import DATASETS, METHODS\n"
        "print(*METHODS.names())\n"
        "print(*DATASETS.names())\n"
        "assert 'torch' not in sys.modules\n"
        "assert not any(name.startswith('segconf.methods.') for name in sys.modules)\n"
        "assert not any(name.startswith('segconf.data.datasets.') for name in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    methods, datasets = run.stdout.splitlines()
    assert tuple(methods.split()) == METHODS
    assert datasets.split() == [
        *("cifar10", "cifar100", "class_folders", "demo", "feature_table", "folder", "isic"),
        "label_folder",
    ]


def test_every_method_is_what_its_file_is_called():
    for name in METHODS:
        method = module.METHODS.get(name)
        assert method.name == name
        assert type(method).__module__ == f"segconf.methods.{name}"
        assert method.summary()


def fresh(monkeypatch, **entries):
    """A registry of methods with entry points of other packages."""
    points = [EntryPoint(name, value, "segconf.methods") for name, value in entries.items()]
    monkeypatch.setattr(module, "entry_points", lambda *, group: points if group else [])
    return Registry(
        "method", package="segconf.methods", interface="method", group="segconf.methods"
    )


def test_an_unknown_name_is_refused_with_the_known_ones(monkeypatch):
    with pytest.raises(ConfigError, match=r"method majority: unknown. Known are aes, aleatoric, "):
        fresh(monkeypatch).get("majority")


@pytest.mark.parametrize("value", ["no_such_package:Method", "segconf.errors:NoSuchClass"])
def test_a_broken_package_is_named_and_harms_no_other(monkeypatch, value):
    registry = fresh(monkeypatch, broken=value, counter="collections:Counter")
    assert registry.names() == (
        "aes",
        "aleatoric",
        "broken",
        *METHODS[2:4],
        "counter",
        *METHODS[4:],
    )
    with pytest.raises(ConfigError) as refusal:
        registry.get("broken")
    assert str(refusal.value).startswith(f"method broken: {value} cannot be imported (")
    assert "Reinstall or remove the package" in str(refusal.value)
    assert registry.get("counter") == {}


class Named:
    name = "named"


class Anonymous:
    pass


def test_a_class_needs_a_name_of_its_own(monkeypatch):
    registry = fresh(monkeypatch)
    assert registry.register(Named) is Named
    assert "named" in registry.names()
    assert isinstance(registry.get("named"), Named)
    rival = type("Rival", (), {"name": "named", "__module__": "another.package"})
    for refused in (Anonymous, rival):
        with pytest.raises(ValueError, match="method without a name of its own"):
            registry.register(refused)
    assert isinstance(registry.get("named"), Named)
