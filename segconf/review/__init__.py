"""A prediction folder after the model is done: its table, its pictures and the review page."""

from segconf.review.assembling import assemble
from segconf.review.cases import CaseRow
from segconf.review.folder import PredictionFolder

__all__ = ["CaseRow", "PredictionFolder", "assemble"]
