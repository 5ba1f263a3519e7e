"""segmentation-models-pytorch and timm, imported without the compiler of PyTorch.

Both only build networks here. Yet torchvision, which timm imports, and decorators in timm load
`torch._dynamo` and sympy on the way: more than the network itself takes to load. While the
libraries are imported, stand-ins take their place, which load the compiler when they are called.
"""

import functools
import importlib
import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_UTILITIES = "torch._dynamo.utils"
_DRAWING = frozenset(
    ("normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_")
)


class _LazyModule(types.ModuleType):
    """The utilities of the compiler, loaded when one is needed."""

    def __getattr__(self, name: str) -> Any:
        """`is_compile_supported` as a function that loads it later; all else from the module."""
        if name == "is_compile_supported":
            return _is_compile_supported
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real_utilities(), name)


def _real_utilities() -> types.ModuleType:
    if isinstance(sys.modules.get(_UTILITIES), _LazyModule):
        del sys.modules[_UTILITIES]
    return importlib.import_module(_UTILITIES)


def _is_compile_supported(device_type: str) -> bool:
    return bool(_real_utilities().is_compile_supported(device_type))


def _lazily(disable: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compiler.disable` that wraps a function only where the compiler is in use."""

    def lazy(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(lazy, **options)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if "torch._dynamo" in sys.modules:
                return disable(function, **options)(*args, **kwargs)
            return function(*args, **kwargs)

        return call

    return lazy


@contextmanager
def _compiler_postponed() -> Iterator[None]:
    if "torch._dynamo" in sys.modules:
        yield
        return
    disable = torch.compiler.disable
    sys.modules[_UTILITIES] = _LazyModule(_UTILITIES)
    torch.compiler.disable = _lazily(disable)
    try:
        yield
    finally:
        torch.compiler.disable = disable
        if isinstance(sys.modules.get(_UTILITIES), _LazyModule):
            del sys.modules[_UTILITIES]


with _compiler_postponed():
    import segmentation_models_pytorch as smp
    import timm
    from timm.models import get_pretrained_cfg

__all__ = ["NoMetaValues", "get_pretrained_cfg", "quiet", "smp", "timm"]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the libraries' remarks about names and retries: our errors say what matters."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        hub.setLevel(level)


class NoMetaValues(TorchFunctionMode):
    """Does not initialise tensors of the meta device, which have no values.

    segmentation-models-pytorch builds timm's encoders on that device first, to see their shapes,
    and drawing values there loads the compiler.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        _types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Leave out the functions of `torch.nn.init` and of tensors that only draw values."""
        first = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(first, Tensor) and first.is_meta and func.__name__ in _DRAWING:
            return first
        return func(*args, **(kwargs or {}))
