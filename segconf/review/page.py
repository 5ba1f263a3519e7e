"""The review page: one HTML file that holds its style, its script and the table of cases."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np

from segconf.errors import DataError
from segconf.files import text_writer, write_text
from segconf.locks import locked
from segconf.overlays.contours import shown_contours
from segconf.overlays.overlay import NOTICE
from segconf.results.label_rows import LabelRow
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import OUT_OF_DISTRIBUTION, TABLE_HEAD, CaseRow, case_line
from segconf.results.run_record import RunRecord
from segconf.results.structures import STRUCTURES_HEAD, structure_lines
from segconf.review.page_maps import page_confidence, page_level, script_safe
from segconf.review.pictures import is_small

SCRIPTS = (
    *("text", "source", "masks", "storage", "state", "queue", "drawing", "editing"),
    *("labels", "pointer", "case", "export", "main"),
)
"""Parts of the script in the order in which they run; the first line of each says what it holds."""


FILE_POLICY = "img-src 'self' file: data:; script-src 'self' file: 'unsafe-inline'"
"""What the page may load: pictures and maps beside it."""
SLOTS = ("GUARD", "INTAKE", "EXPORT", "ABOUT", "BLOCKS")
"""Places of the template that the page of a model fills."""
_DIGITS = 6


_LEVELS = 256
_LEGEND_COLOURS = 5


def review_page(
    rows: Sequence[CaseRow | LabelRow], record: RunRecord, *, served: bool = False
) -> str:
    """The whole page as text; it loads pictures and maps from `review/` beside it.

    Args:
        rows: the cases.
        record: of the prediction.
        served: let the page speak with the server that it came from, and save there.
    """
    before, after = _around_cases(record, served=served)
    return before + ",\n".join(map(_case_data, rows)) + after


def _around_cases(record: RunRecord, *, served: bool) -> tuple[str, str]:
    """The page before and after its cases, which are many."""
    values = {**page_data(record), "served": served, "texts": json.loads(part("texts.json"))}
    data = data_script({**values, "cases": []})
    policy = f"connect-src 'self'; {FILE_POLICY}" if served else FILE_POLICY
    script = one_scope(part(f"{name}.js") for name in SCRIPTS)
    before, after = page_around(policy=policy, script=script)
    end = "]};"  # of the cases and the data
    return f"{before}{data.removesuffix(end)}", f"{end}{after}"


def page_around(
    *, policy: str, script: str, slots: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """The page before and after its data: the template with its style and its script.

    Args:
        policy: what the page may load, as a Content-Security-Policy says it.
        script: all of it.
        slots: further parts by the name of their place in the template; `STYLE` is added.
    """
    given = slots or {}
    text = part("page.html")
    for name in SLOTS:
        text = text.replace(f"<!--{name}-->", given.get(name, ""))
    before, after = (
        text.replace("/*POLICY*/", policy)
        .replace("/*STYLE*/", part("page.css") + given.get("STYLE", ""))
        .replace("/*SCRIPT*/", script)
        .split("/*DATA*/")
    )
    return before, after


def data_script(values: dict[str, Any]) -> str:
    """The script that hands the page its data."""
    return f"window.segconfData = {script_safe(values)};"


def one_scope(parts: Iterable[str]) -> str:
    """All scripts in one scope of their own."""
    joined = "\n".join(parts)
    return f'"use strict";\n(() => {{\n{joined}}})();'


def part(name: str) -> str:
    """A file of the page."""
    return files("segconf.review").joinpath("web", name).read_text(encoding="utf-8")


def _case_data(row: CaseRow | LabelRow) -> str:
    """A case as the script reads it."""
    values = {name: _rounded(value) for name, value in row.plain().items()}
    if isinstance(row, LabelRow):
        values["small"] = is_small(row)
    return script_safe(values)


def _rounded(value: object) -> object:
    if isinstance(value, tuple):
        return [_rounded(one) for one in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def page_data(record: RunRecord) -> dict[str, Any]:
    """What the page knows of the model and its scale."""
    scale = record.scale
    every = page_confidence(np.arange(_LEVELS), scale.lowest)[None]  # (1, 256)
    legend = np.linspace(scale.lowest, 1, _LEGEND_COLOURS, dtype=np.float32)[None]
    steps = np.array([step.confidence for step in scale.steps])
    # Pixels of a lower level than this are below the step.
    levels = page_level(steps, scale.lowest).tolist()
    return {
        "run": {
            "id": record.id,
            "model": record.values["model"]["sha256"],
            "notice": NOTICE,
            "model_name": record.model_name,
            "order": "confidence" if record.class_names else record.order,
            "measured": scale.measured,
            "classes": scale.classes,
            "class_names": record.class_names,
            "steps": [
                {"times": step.times, "confidence": step.confidence, "level": level}
                for step, level in zip(scale.steps, levels, strict=True)
            ],
            "shaded": [step.times for step in scale.steps].index(scale.shaded_times),
            "ramp": scale.colours(every)[0].tolist(),
            "legend": scale.colours(legend)[0].tolist(),
            "contours": [asdict(contour) for contour in shown_contours(scale.contours)],
            "ood_flag": OUT_OF_DISTRIBUTION,
        },
    }


def assemble(folder: PredictionFolder) -> int:
    """Write both tables and the page for all cases of a folder; returns their number.

    Where labels were predicted, the page alone: their table is written while they are.

    Shards may do this at once: one waits for the other, so that the last one has seen every row.
    One case after another is read and written, so that the memory does not grow with the folder.
    """
    record = folder.record()
    if record.class_names:
        return _assemble_labels(folder, record)
    with locked(folder.path, wait=True):
        names = folder.cases()
        before, after = _around_cases(record, served=False)
        with (
            text_writer(folder.table_file) as cases,
            text_writer(folder.structures_file) as structures,
            text_writer(folder.page_file) as page,
        ):
            cases.write(TABLE_HEAD)
            structures.write(STRUCTURES_HEAD)
            page.write(before)
            for number, row in enumerate(folder.read_rows(names)):
                cases.write(case_line(row))
                structures.writelines(structure_lines(folder, row))
                page.write((",\n" if number else "") + _case_data(row))
            page.write(after)
    return len(names)


def _assemble_labels(folder: PredictionFolder, record: RunRecord) -> int:
    with locked(folder.path, wait=True):
        rows = folder.label_rows()
        if any(not row.error and not row.width for row in rows):
            raise DataError(
                f"{folder.path}: holds labels of the rows of a table. The review page shows images."
            )
        write_text(folder.page_file, review_page(rows, record))
    return len(rows)
