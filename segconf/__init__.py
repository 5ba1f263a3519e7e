"""Medical image segmentation whose confidence map can be trusted."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segconf.inference.model import load_model

__all__ = ["__version__", "load_model"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `load_model` when it is asked for, so that `import segconf` stays instant."""
    if name == "load_model":
        from segconf.inference.model import load_model

        return load_model
    raise AttributeError(f"module 'segconf' has no attribute {name!r}")
