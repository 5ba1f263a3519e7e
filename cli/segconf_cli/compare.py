"""`segconf compare`: evaluated runs in one table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from segconf_cli.display import messages, results

if TYPE_CHECKING:
    from segconf.comparison.compare import Comparison, Row

PADDING = 3  # blanks beside a cell and between columns


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Evaluated run folders.")],
    split: Annotated[str, typer.Option(help="test or val.")] = "test",
    baseline: Annotated[
        str | None, typer.Option(help="Method to compare with.", show_default="softmax")
    ] = None,
    paper: Annotated[
        int | None, typer.Option(help="Add the published numbers for 125, 250, 500 or 2000 labels.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for table.md, .csv, .tex and curves.png.")
    ] = None,
) -> None:
    """Put runs side by side: means over seeds, best in bold, paired differences.

    Example: segconf compare runs/* --paper 250 --out comparison
    """
    from segconf.comparison.compare import compare as put_together
    from segconf.comparison.tables import write_comparison

    comparison = put_together(runs, split=split, baseline=baseline, paper=paper)
    show_comparison(comparison)
    if out is not None:
        write_comparison(comparison, out)
        messages().print(f"Tables and curves: {out}", highlight=False, markup=False)


def show_comparison(comparison: Comparison) -> None:
    """The tables on the terminal: values, differences to the baseline, costs."""
    from segconf.comparison.tables import (
        COSTS,
        cell,
        cost_cell,
        difference_cell,
        is_best,
        known_costs,
    )
    from segconf.metrics.definitions import heading

    def marked(row: Row, metric: str) -> str:
        text = cell(row, metric)
        return f"[bold]{text}[/bold]" if is_best(comparison, row, metric) else text

    rows, labels = comparison.rows, _common_labels(comparison)
    names = {row.name: _short_name(row.name, labels) for row in rows}
    heads = {metric: heading(metric).replace(" ", "\n") for metric in comparison.metrics}
    columns = [Column(heads[m], [marked(row, m) for row in rows]) for m in heads]
    title = f"{comparison.split} images" + (f", {labels}" if labels else "")
    dim = [row.is_published for row in rows]
    _show_tables(title, [names[row.name] for row in rows], columns, dim=dim)
    note = "Best of our rows in bold"
    if any(row.spread for row in rows):
        note += "; ± is the standard deviation over seeds"
    results().print(f"{note}.", style="dim", highlight=False)
    compared = [row for row in rows if row.difference]
    if compared:
        columns = [Column(heads[m], [difference_cell(row, m) for row in compared]) for m in heads]
        title = f"minus {names[comparison.baseline]}, 95% intervals over images"
        _show_tables(title, [names[row.name] for row in compared], columns)
    ours = [row for row in rows if not row.is_published]
    columns = [
        Column(COSTS[name].title, [cost_cell(row, name) for row in ours])
        for name in known_costs(comparison)
    ]
    if columns:
        _show_tables("cost", [names[row.name] for row in ours], columns)


def _common_labels(comparison: Comparison) -> str:
    """`250 labels` where all rows have them, for the title instead of every name; else nothing."""
    found = {tuple(re.findall(r"\((\d+ labels)\b", row.name)) for row in comparison.rows}
    return found.pop()[0] if len(found) == 1 and () not in found else ""


def _short_name(name: str, labels: str) -> str:
    """The name of a row without what the title says."""
    if not labels:
        return name
    return name.replace(f" ({labels}, published)", ", published").replace(f" ({labels})", "")


class Column(NamedTuple):
    """A heading and a cell per row."""

    heading: str
    cells: list[str]


def _show_tables(
    title: str, names: list[str], columns: list[Column], *, dim: list[bool] | None = None
) -> None:
    """Print as many columns side by side as the terminal has room for, the others below.

    Neither names nor numbers are ever cut or wrapped.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    def width(texts: list[str]) -> int:
        lines = [line for text in texts for line in Text.from_markup(text).plain.split("\n")]
        return max(map(len, lines)) + PADDING

    room = results().width - width(names) - 1
    while columns:
        used, count = 0, 0
        for column in columns:
            used += width([column.heading, *column.cells])
            if used > room and count > 0:
                break
            count += 1
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
