"""`segconf compare`: evaluated runs in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import messages, results

if TYPE_CHECKING:
    from segconf.comparison.compare import Comparison


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
    """The table on the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.comparison.published import PAPER_COLUMNS
    from segconf.comparison.tables import cell, difference_cell, is_best
    from segconf.metrics.definitions import TITLES, heading

    table = Table(title=f"{comparison.split} images", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    for metric in PAPER_COLUMNS:
        table.add_column(heading(metric).replace(" ", "\n"), justify="right")
    for row in comparison.rows:
        cells = [
            f"[bold]{cell(row, m)}[/bold]" if is_best(comparison, row, m) else cell(row, m)
            for m in PAPER_COLUMNS
        ]
        table.add_row(row.name, *cells, style="dim" if row.is_published else "")
    results().print(table)
    results().print(
        "Best of our rows in bold; ± is the standard deviation over seeds.",
        style="dim",
        highlight=False,
    )
    for row in comparison.rows:
        if row.difference:
            differences = ", ".join(f"{TITLES[m]} {difference_cell(row, m)}" for m in PAPER_COLUMNS)
            results().print(
                f"{row.name} minus {comparison.baseline}, 95% intervals over images: {differences}",
                highlight=False,
            )
    _show_costs(comparison)


def _show_costs(comparison: Comparison) -> None:
    """A table of its own: numbers of a wider one would be cut off on a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.comparison.costs import COSTS, cost_cell

    if not comparison.costs:
        return
    table = Table(title="cost", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    for name in comparison.costs:
        table.add_column(COSTS[name].title, justify="right")
    for row in comparison.rows:
        if not row.is_published:
            table.add_row(row.name, *(cost_cell(row.costs, name) for name in comparison.costs))
    results().print(table)
