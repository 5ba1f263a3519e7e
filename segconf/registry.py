"""Implementations by name: files of a segconf package, and entry points of other packages."""

import importlib
import pkgutil
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from segconf.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes that share an interface.

    Built-in implementations are the modules of a package: a module called `NAME` registers the
    class whose `name` is `NAME`. Other packages add theirs through an entry-point group. Names are
    known without importing any implementation, so that `--help` and the check of a configuration
    stay fast.
    """

    def __init__(
        self, kind: str, *, package: str, group: str, interface: str | None = None
    ) -> None:
        """Describe where implementations are found; nothing is imported yet.

        Args:
            kind: what an implementation is called in messages, such as `method`.
            package: package whose modules are the built-in implementations.
            group: entry-point group of other packages.
            interface: module of that package that holds the interface, where it lies there.
        """
        self.kind = kind
        self.group = group
        self._package = package
        self._interface = interface
        self._classes: dict[str, type[T]] = {}

    def register(self, implementation: type[T]) -> type[T]:
        """Add a class under its `name`; a class decorator."""
        name = str(getattr(implementation, "name", ""))
        known = self._classes.get(name)
        if not name or (known is not None and known.__module__ != implementation.__module__):
            raise ValueError(f"{implementation.__module__}: {self.kind} without a name of its own")
        self._classes[name] = implementation
        self.__dict__.pop("_all", None)
        return implementation

    def names(self) -> tuple[str, ...]:
        """All names in alphabetical order."""
        return tuple(sorted({*self._modules, *self._entry_points, *self._classes}))

    def get(self, name: str) -> T:
        """The implementation of that name.

        Raises:
            ConfigError: the name is unknown, or the package that provides it cannot be imported.
        """
        if name not in self._classes:
            self._load(name)
        return self._classes[name]()

    def implementations(self) -> tuple[T, ...]:
        """One object of each implementation in the order of `names`; all of them are imported."""
        return self._all

    def refresh(self) -> None:
        """Look for packages again, as after one was installed or removed in a running program."""
        for name in set(self._entry_points) - self._modules:
            self._classes.pop(name, None)
        for cached in ("_modules", "_entry_points", "_all"):
            self.__dict__.pop(cached, None)
        importlib.invalidate_caches()

    def _load(self, name: str) -> None:
        if name in self._modules:
            importlib.import_module(f"{self._package}.{name}")
        elif name in self._entry_points:
            self._classes[name] = self._imported(self._entry_points[name])
        else:
            known = ", ".join(self.names())
            raise ConfigError(f"{self.kind} {name}: unknown. Known are {known}.")

    def _imported(self, entry: EntryPoint) -> type[T]:
        try:
            implementation: type[T] = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{self.kind} {entry.name}: {entry.value} cannot be imported ({error}). Reinstall "
                "or remove the package that provides it."
            ) from error
        return implementation

    @cached_property
    def _modules(self) -> frozenset[str]:
        package = importlib.import_module(self._package)
        names = (module.name for module in pkgutil.iter_modules(package.__path__))
        return frozenset(name for name in names if name != self._interface)

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}

    @cached_property
    def _all(self) -> tuple[T, ...]:
        return tuple(self.get(name) for name in self.names())


METHODS: Registry[Any] = Registry(
    "method", package="segconf.methods", interface="method", group="segconf.methods"
)
DATASETS: Registry[Any] = Registry(
    "data set", package="segconf.data.datasets", interface="dataset", group="segconf.datasets"
)
FORMATS: Registry[Any] = Registry(
    "image format", package="segconf.images.formats", group="segconf.formats"
)
