"""`segconf active`: simulate active learning on a labeled data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.data import prepare
from segconf_cli.display import messages, results
from segconf_cli.options import ConfigFile, DataFolder, DatasetName, Settings, Strategy
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segconf.active.simulation_results import Point
    from segconf.active.strategies import Strategy as StrategyName


def active(
    dataset: DatasetName,
    rounds: Annotated[
        int,
        typer.Option(
            help="Rounds of query and training after the start.", rich_help_panel="Protocol"
        ),
    ] = 4,
    budget: Annotated[
        int, typer.Option(help="Labels revealed in a round.", rich_help_panel="Protocol")
    ] = 20,
    strategies: Annotated[
        str,
        typer.Option(
            help="Compared with each other, with commas between; see segconf query.",
            rich_help_panel="Protocol",
        ),
    ] = "confidence,random",
    seeds: Annotated[
        int,
        typer.Option(help="Number of repetitions.", rich_help_panel="Protocol"),
    ] = 1,
    start: Annotated[
        int | None,
        typer.Option(
            help="Labeled images of the first training.",
            show_default="the budget",
            rich_help_panel="Protocol",
        ),
    ] = None,
    config: ConfigFile = None,
    settings: Settings = None,
    data: DataFolder = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for everything; the same one continues.",
            rich_help_panel="Data and results",
        ),
    ] = Path("active"),
) -> None:
    """Simulate active learning: train, query, reveal masks or labels, repeat.

    All strategies of a seed share the first training. Finished rounds are kept: the same command
    continues after an interruption, and more rounds, strategies or seeds can be added.

    Example: segconf active isic --rounds 4 --budget 50 --strategies confidence,random --seeds 2
    """
    from segconf.active.simulation import Simulation, simulate
    from segconf.config.loading import load_config
    from segconf_cli.live import live_view

    names = dict.fromkeys(name.strip() for name in strategies.split(","))
    plan = Simulation(
        dataset=dataset,
        data=data,
        config=load_config(config, overrides=settings or []),
        strategies=tuple(_strategy(name) for name in names),
        rounds=rounds,
        budget=budget,
        start=budget if start is None else start,
        seeds=seeds,
    )
    prepare(dataset, data)
    try:
        with live_view() as listener:

            def report(point: Point, done: int, total: int) -> None:
                messages().print(_line(point), highlight=False)
                listener.on_total("trainings", done, total)

            points = simulate(
                plan, out, listener=listener, on_progress=listener.on_prepare, on_point=report
            )
    except KeyboardInterrupt:
        messages().print("the same command continues from here", highlight=False)
        raise
    _show(points, out)
    record(folder=out, points=[_flat(point) for point in points])


def _strategy(name: str) -> StrategyName:
    from segconf.errors import ConfigError

    if name not in list(Strategy):
        raise ConfigError(f"strategies = {name}: expected some of {', '.join(Strategy)}.")
    return Strategy(name).value


def _flat(point: Point) -> dict[str, object]:
    where = {"strategy": point.strategy, "seed": point.seed, "round": point.round}
    return {**where, "labels": point.labels, **point.scores}


def _line(point: Point) -> str:
    from segconf.metrics.definitions import heading, scaled

    what = f"{point.strategy}, round {point.round}" if point.round else "start"
    scores = (f"{heading(name)} {scaled(value, name)}" for name, value in point.scores.items())
    return f"seed {point.seed}, {what}: {point.labels} labels, test {', '.join(scores)}"


def _show(points: Sequence[Point], out: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.active.simulation_results import means
    from segconf.metrics.definitions import heading

    found = means(points)
    for metric in dict.fromkeys(mean.metric for mean in found):
        own = [mean for mean in found if mean.metric == metric]
        table = Table(title=f"test {heading(metric)}", title_justify="left", box=SIMPLE_HEAD)
        table.add_column("labels", justify="right")
        strategies = tuple(dict.fromkeys(mean.strategy for mean in own))
        for strategy in strategies:
            table.add_column(strategy, justify="right")
        cells = {(mean.labels, mean.strategy): mean.cell() for mean in own}
        for count in sorted({mean.labels for mean in own}):
            table.add_row(str(count), *(cells[count, strategy] for strategy in strategies))
        results().print(table)
    results().print("± is the standard deviation over seeds.", style="dim", highlight=False)
    results().print(
        f"{out / 'active.csv'} has every training, {out / 'active.png'} the curves.",
        highlight=False,
    )
