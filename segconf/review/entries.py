"""What the page says about a case, checked against the prediction that it is about."""

from dataclasses import dataclass, replace
from typing import Any

from segconf.data.decisions import DECISIONS, LABELED, Decision
from segconf.data.label_tables import listed_classes
from segconf.errors import DataError
from segconf.images.run_length import decode_runs
from segconf.images.types import ByteArray
from segconf.results.label_rows import LabelRow
from segconf.results.rows import CaseRow
from segconf.results.run_record import RunRecord

LONGEST_NOTE = 10_000
_LONGEST_TIME = 40
_LONGEST_SHOWN = 40
_SHOWN_HASH = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """What the page says about a case, after all checks.

    Attributes:
        decision: to be kept; without decision and note it is removed.
        mask: (H, W) corrected mask; None to leave what is there.
        removes_mask: go back to the predicted mask.
    """

    decision: Decision
    mask: ByteArray | None = None
    removes_mask: bool = False


def checked_entry(
    row: CaseRow | LabelRow, values: Any, record: RunRecord, model: str | None
) -> Entry:
    """An entry from what the page sent.

    Args:
        row: the case.
        values: what was sent.
        record: of the prediction folder.
        model: SHA-256 of the weights that the page is about.

    Raises:
        DataError: it is about another model, image or prediction, or is no entry at all.
    """
    if not isinstance(values, dict):
        raise DataError(f"{row.case}: not an entry of a review, but {type(values).__name__}.")
    _check_prediction(row, values, record, model)
    texts = [values.get(name) or "" for name in ("decision", "note", "decided_at")]
    limits = (max(map(len, DECISIONS)), LONGEST_NOTE, _LONGEST_TIME)
    for text, limit in zip(texts, limits, strict=True):
        if not isinstance(text, str) or len(text) > limit:
            raise DataError(f"{row.case}: expected text of at most {limit} characters.")
    if texts[0] and texts[0] not in DECISIONS:
        raise DataError(
            f"{row.case}: unknown decision '{texts[0]}'. Expected {', '.join(DECISIONS)}."
        )
    decision = Decision(row.case, row.file, texts[0], texts[1], texts[2], row.image_sha256)
    if isinstance(row, LabelRow):
        return Entry(_labeled(decision, row, values, record.class_names))
    given = values.get("mask")
    mask = None if given is None else _mask(row, given, record.scale.classes)
    # Accepted without a mask: the predicted one is right.
    removes = given is None and ("mask" in values or decision.decision == "accept")
    return Entry(decision, mask, removes_mask=removes)


def _check_prediction(
    row: CaseRow | LabelRow, values: dict[str, Any], record: RunRecord, model: str | None
) -> None:
    """Refuse what is about another model, image, mask or label."""
    way_out = "Give corrections of this folder."
    expected = {
        "model": (str(record.values["model"]["sha256"]), model),
        "image": (row.image_sha256, values.get("image_sha256")),
    }
    if isinstance(row, CaseRow):
        expected["predicted mask"] = (row.mask_sha256, values.get("mask_sha256"))
    for word, (here, given) in expected.items():
        if here != given:
            raise DataError(
                f"{row.case}: belongs to another {word} (SHA-256 {str(given)[:_SHOWN_HASH]}, "
                f"here {here[:_SHOWN_HASH]}). {way_out}"
            )
    if isinstance(row, LabelRow) and values.get("predicted", "") != row.label:
        given = str(values.get("predicted"))[:_LONGEST_SHOWN]
        raise DataError(
            f"{row.case}: belongs to another predicted label ({given}, here {row.label}). {way_out}"
        )


def _labeled(
    decision: Decision, row: LabelRow, values: dict[str, Any], class_names: tuple[str, ...]
) -> Decision:
    """The decision with the class that it gives to the image."""
    if values.get("mask") is not None:
        raise DataError(f"{row.case}: a mask, but this folder holds labels.")
    if decision.decision not in LABELED:
        return decision
    if row.error:
        raise DataError(f"{row.case}: {decision.decision}, but the image was not predicted.")
    given = values.get("label")
    if given not in class_names:
        shown = f"'{str(given)[:_LONGEST_SHOWN]}'" if given else "no class"
        raise DataError(
            f"{row.case}: {decision.decision} as {shown}. The classes of this model are "
            f"{listed_classes(class_names)}."
        )
    if decision.decision == "accept" and given != row.label:
        raise DataError(f"{row.case}: accepted as '{given}', but '{row.label}' was predicted.")
    return replace(decision, label=given)


def _mask(row: CaseRow, given: Any, classes: int) -> ByteArray:
    try:
        if list(given["size"]) != [row.height, row.width]:
            raise ValueError(f"its size is {given['size']}")  # noqa: TRY301 - one message
        mask = decode_runs(given["runs"], (row.height, row.width))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{row.case}: not a mask of {row.height} x {row.width} pixels ({error})."
        ) from None
    if row.error or int(mask.max(initial=0)) >= classes:
        raise DataError(f"{row.case}: its mask has more than {classes} classes.")
    return mask
