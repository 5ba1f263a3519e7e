"""Figures: the only package that imports matplotlib."""

from segconf.plots.active import LabelCurve, label_curves
from segconf.plots.curves import comparison_plot, reliability_diagram, risk_coverage_plot
from segconf.plots.examples import Example, example_figure
from segconf.plots.history import history_picture
from segconf.plots.surrogates import surrogate_curves
from segconf.plots.training import training_curves
from segconf.plots.triage import stranger_plot, triage_plot

__all__ = [
    "Example",
    "LabelCurve",
    "comparison_plot",
    "example_figure",
    "history_picture",
    "label_curves",
    "reliability_diagram",
    "risk_coverage_plot",
    "stranger_plot",
    "surrogate_curves",
    "training_curves",
    "triage_plot",
]
