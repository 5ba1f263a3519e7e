"""`segconf query`: which images to annotate next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, messages, results
from segconf_cli.options import Device, RunDataFolder, RunPath, Strategy
from segconf_cli.outcome import next_step, record

if TYPE_CHECKING:
    from segconf.active.queue import Queue

SHOWN = 10


def query(
    run: RunPath,
    budget: Annotated[
        int, typer.Option(help="How many images (or groups) can be annotated.", show_default=False)
    ],
    strategy: Annotated[
        Strategy, typer.Option(help="What images are ranked by.", rich_help_panel="Choice")
    ] = Strategy.CONFIDENCE,
    pool: Annotated[
        Path | None,
        typer.Option(
            help="Folder of images.",
            show_default="the unlabeled images of the run",
            rich_help_panel="Images",
        ),
    ] = None,
    decisions: Annotated[
        Path | None,
        typer.Option(
            help="File of the review page: rejected images first, then edited, no accepted ones.",
            show_default="none",
            rich_help_panel="Images",
        ),
    ] = None,
    diverse: Annotated[
        bool,
        typer.Option(
            "--diverse",
            help="Spread the choice: k-center on encoder features among the best 4 x budget.",
            rich_help_panel="Choice",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="List to write; a contact sheet (.png) comes beside it.")
    ] = Path("next.csv"),
    data: RunDataFolder = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the strategy random.", show_default="0", rich_help_panel="Choice"),
    ] = None,
    device: Device = "auto",
) -> None:
    """Rank unlabeled images by how much they should be annotated next.

    Example: segconf query runs/isic-consistency-250-seed0 --budget 50
    """
    from segconf.active.query import Query
    from segconf.active.query import query as rank
    from segconf.active.queue import check_queue, write_contact_sheet, write_queue
    from segconf.errors import ConfigError

    if out.suffix.lower() != ".csv":
        raise ConfigError(f"--out {out}: expected a name that ends in .csv.")
    if seed is not None and strategy is not Strategy.RANDOM:
        raise ConfigError(
            f"--seed {seed}: is for the strategy random; {strategy.value} draws nothing. "
            "Leave it out."
        )
    asked = Query(
        budget, strategy.value, pool, decisions, diverse, data=data, seed=seed or 0, device=device
    )
    sheet = out.with_suffix(".png")
    check_queue(out, run, inputs=[path for path in (pool, decisions) if path is not None])
    with counting() as progress:
        queue = rank(run, asked, on_progress=progress)
        write_queue(queue, out)
        has_sheet = write_contact_sheet(queue, sheet, on_progress=progress)
    _show(queue, out, sheet if has_sheet else None)


def _show(queue: Queue, out: Path, sheet: Path | None) -> None:
    for note in queue.notes:
        messages().print(f"note: {note}", highlight=False)
    lines = [f"{rank:4}  {c.id}  {c.reason}" for rank, c in enumerate(queue.choices[:SHOWN], 1)]
    if len(queue.choices) > SHOWN:
        lines.append(f"      and {len(queue.choices) - SHOWN} more")
    kind = "labels" if queue.has_labels else "masks"
    place = "" if sheet is None else f", contact sheet: {sheet}"
    lines += [f"List: {out}{place}. When these images have {kind}:"]
    results().print("\n".join(lines), highlight=False)
    record(
        list=out,
        contact_sheet=sheet,
        choices=[{"id": one.id, "reason": one.reason} for one in queue.choices],
    )
    next_step(f"segconf train DATASET --labels-from-query {shlex.quote(str(out))}")
