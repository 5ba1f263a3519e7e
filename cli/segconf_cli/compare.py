"""`segconf compare`: evaluated runs in one table."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.text import Text

from segconf_cli.display import messages, results
from segconf_cli.options import Split
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segconf.comparison.compare import Comparison, Row

PADDING = 3  # blanks beside a cell and between columns


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Evaluated run folders.")],
    split: Annotated[Split, typer.Option(help="Images that were measured.")] = Split.TEST,
    baseline: Annotated[
        str | None, typer.Option(help="Method to compare with.", show_default="softmax")
    ] = None,
    paper: Annotated[
        int | None, typer.Option(help="Add the published numbers for so many labels, such as 250.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for table.md, .csv, .tex and curves.png.")
    ] = None,
) -> None:
    """Put runs side by side: means over seeds, best in bold, paired differences.

    Example: segconf compare runs/* --paper 250 --out comparison
    """
    from segconf.comparison.compare import compare as put_together
    from segconf.comparison.tables import FILES, write_comparison
    from segconf.outputs import check_output

    if out is not None:
        check_output(out, inputs=runs, known=FILES)
    comparison = put_together(runs, split=split.value, baseline=baseline, paper=paper)
    show_comparison(comparison)
    record(comparison=facts(comparison), folder=out)
    if out is not None:
        write_comparison(comparison, out)
        messages().print(f"Tables and curves: {out}", highlight=False)


def facts(comparison: Comparison) -> dict[str, object]:
    """The rows of a comparison, raw: mean, standard deviation, interval of the difference."""
    return {
        "split": comparison.split,
        "baseline": comparison.baseline,
        "resampled": comparison.resampled,
        "rows": [
            {
                "name": row.name,
                "runs": [run.path for run in row.runs],
                "values": row.values,
                "spread": row.spread,
                "difference": row.difference,
            }
            for row in comparison.rows
        ],
    }


def show_comparison(comparison: Comparison) -> None:
    """The tables on the terminal: values, differences to the baseline, costs."""
    from segconf.comparison.tables import (
        BAND,
        COSTS,
        band_cell,
        band_title,
        cost_cell,
        difference_cell,
        effect_cell,
        known_bands,
        known_costs,
    )

    labels = _common_labels(comparison)
    title = f"{comparison.split} images" + (f", {labels}" if labels else "")
    _show_values(comparison, title, labels)
    compared = [row for row in comparison.rows if row.difference]
    if compared:
        short = _short_name(comparison.baseline, labels)
        over = f"95% intervals over {comparison.resampled}"
        for title, head, shown in (
            (f"minus {short}, {over}", _head, difference_cell),
            (f"the same in percent of {short}", _title, effect_cell),
        ):
            columns = [
                Column(head(m), [shown(row, m) for row in compared]) for m in comparison.metrics
            ]
            _show_tables(title, _names(compared, labels), columns)
    ours = [row for row in comparison.rows if not row.is_published]
    bands = known_bands(comparison)
    if bands:
        columns = [Column(band_title(a), [band_cell(row, a) for row in ours]) for a in bands]
        _show_tables("between the contours", _names(ours, labels), columns)
        results().print(BAND, style="dim", highlight=False)
    columns = [
        Column(COSTS[name].title, [cost_cell(row, name) for row in ours])
        for name in known_costs(comparison)
    ]
    _show_tables("cost", _names(ours, labels), columns)


def _show_values(comparison: Comparison, title: str, labels: str) -> None:
    """Means and standard deviations, in one table where it has room and else in two."""
    from segconf.comparison.tables import cell, is_best
    from segconf.metrics.definitions import scaled

    rows = comparison.rows
    names, dim = _names(rows, labels), [row.is_published for row in rows]
    spread = [row for row in rows if row.spread]

    def columns(*, with_spread: bool) -> list[Column]:
        found = []
        for m in comparison.metrics:
            cells = [cell(row, m, with_spread=with_spread) for row in rows]
            best = [is_best(comparison, row, m) for row in rows]
            marked = [Text(c, "bold" if b else "") for c, b in zip(cells, best, strict=True)]
            found.append(Column(_head(m), marked))
        return found

    wide = columns(with_spread=True)
    in_one = not spread or _fitting(names, wide) == len(wide)
    _show_tables(title, names, wide if in_one else columns(with_spread=False), dim=dim)
    note = "; ± is the standard deviation over seeds" if spread and in_one else ""
    results().print(f"Best of our rows in bold{note}.", style="dim", highlight=False)
    if not in_one:
        deviations = [
            Column(_head(m), [scaled(row.spread[m], m) for row in spread])
            for m in comparison.metrics
        ]
        _show_tables("standard deviation over seeds", _names(spread, labels), deviations)


def _head(metric: str) -> str:
    from segconf.metrics.definitions import heading

    return heading(metric).replace(" ", "\n")


def _title(metric: str) -> str:
    from segconf.metrics.definitions import METRICS

    return METRICS[metric].title


def _names(rows: Sequence[Row], labels: str) -> list[str]:
    return [_short_name(row.name, labels) for row in rows]


def _common_labels(comparison: Comparison) -> str:
    """`250 labels` where all rows have them, for the title instead of every name; else nothing."""
    found = {tuple(re.findall(r"\((\d+ labels)\b", row.name)) for row in comparison.rows}
    return found.pop()[0] if len(found) == 1 and () not in found else ""


def _short_name(name: str, labels: str) -> str:
    """The name of a row without what the title says."""
    if not labels:
        return name
    name = name.replace(f" ({labels})", "")
    return re.sub(rf" \({labels}, (.*)\)$", r", \1", name)


class Column(NamedTuple):
    """A heading and a cell per row."""

    heading: str
    cells: Sequence[str | Text]


def _show_tables(
    title: str, names: list[str], columns: list[Column], *, dim: list[bool] | None = None
) -> None:
    """Print as many columns side by side as the terminal has room for, the others below.

    Neither names nor numbers are ever cut or wrapped.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    while columns:
        count = _fitting(names, columns)
        shown, columns = columns[:count], columns[count:]
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for column in shown:
            table.add_column(column.heading, justify="right", no_wrap=True)
        for number, name in enumerate(names):
            style = "dim" if dim and dim[number] else ""
            table.add_row(name, *(column.cells[number] for column in shown), style=style)
        results().print(table)
        title = ""


def _fitting(names: list[str], columns: list[Column]) -> int:
    """How many columns have room beside the names; one at least."""

    def width(texts: Sequence[str | Text]) -> int:
        lines = [line for text in texts for line in str(text).split("\n")]
        return max(map(len, lines)) + PADDING

    room = results().width - width(names) - 1
    ends = accumulate(width([column.heading, *column.cells]) for column in columns)
    return max(1, sum(end <= room for end in ends))
