"""`segconf review`: the review page of a prediction folder, written, served, or taken back in."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counted, messages, results
from segconf_cli.options import MapsPath
from segconf_cli.outcome import outcome, record

if TYPE_CHECKING:
    from segconf.results.prediction_folder import PredictionFolder


def review(
    maps: MapsPath,
    *,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Open the page so that it saves into MAPS: decisions.csv, corrected/ (of labels: "
            "labels.csv).",
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the server.", show_default="0: any free one"),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    import_file: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Take corrections.json of the page, or the .zip of the page of a model.",
        ),
    ] = None,
) -> None:
    """Write cases.csv and review.html again, for all parts of a job that are done.

    In the page, masks are accepted, or corrected with a brush. Labels take a
    key: Enter accepts, 1 to 9 choose another class. `segconf train DATASET
    --corrections MAPS` trains on what was accepted and corrected.

    Example: segconf review maps/ --serve
    """
    from segconf.errors import ConfigError
    from segconf.results.prediction_folder import PredictionFolder
    from segconf.review.page import assemble

    if not serve and (port is not None or not browser):
        option = "--no-browser" if port is None else "--port"
        raise ConfigError(f"{option}: is about the server. Add --serve, or leave it out.")
    folder = PredictionFolder(maps)
    if import_file is not None:
        _import(folder, import_file)
    cases = assemble(folder)
    table = folder.labels_file if folder.record().class_names else folder.table_file
    record(folder=folder.path, review_page=folder.page_file, cases=cases)
    results().print(
        f"{counted(cases, 'case')} in {folder.page_file} and {table.name}.",
        highlight=False,
    )
    if serve:
        _serve(folder, port=port or 0, browser=browser)


def _import(folder: "PredictionFolder", path: Path) -> None:
    from segconf.review.page_archive import import_archive, is_archive
    from segconf.review.store import ReviewStore

    if is_archive(path):
        report = import_archive(folder, path)
    else:
        report = ReviewStore(folder).import_file(path)
    kind = "labels" if folder.record().class_names else "masks"
    record(decisions=report.cases, **{kind: report.corrected}, replaced=report.replaced)
    decided = counted(len(report.cases), "decision")
    corrected = counted(len(report.corrected), f"corrected {kind[:-1]}")
    text = f"{decided} and {corrected} taken."
    if report.replaced:
        text += f" Earlier decisions or {kind} were replaced: {', '.join(report.replaced)}."
    results().print(text, highlight=False)


def _serve(folder: "PredictionFolder", *, port: int, browser: bool) -> None:
    from segconf.review.server import ReviewServer

    with ReviewServer(folder, port=port) as server:
        record(address=server.address)
        # With --json, standard output is for the object, which comes when the server has ended.
        console = messages() if outcome.as_json else results()
        console.print(server.address, highlight=False)
        messages().print("The page saves into the folder. Ctrl-C ends the server.", highlight=False)
        if browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            messages().print("The server has ended.", highlight=False)
