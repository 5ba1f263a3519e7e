"""Scores per case and for the whole set."""

from segconf.evaluation.cases import CaseScores, Tolerances
from segconf.evaluation.report import EvaluationReport
from segconf.evaluation.run import Evaluation, EvaluationOptions, evaluate

__all__ = [
    "CaseScores",
    "Evaluation",
    "EvaluationOptions",
    "EvaluationReport",
    "Tolerances",
    "evaluate",
]
