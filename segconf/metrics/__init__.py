"""Metrics of masks and confidence maps, from streams of any length."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segconf.metrics.streaming import ConfidenceMetrics as ConfidenceMetrics

__all__ = ["ConfidenceMetrics"]


def __getattr__(name: str) -> Any:
    """Import the metrics when they are asked for: they need torch, `overlap` does not."""
    if name == "ConfidenceMetrics":
        from segconf.metrics.streaming import ConfidenceMetrics

        return ConfidenceMetrics
    raise AttributeError(f"module 'segconf.metrics' has no attribute {name!r}")
