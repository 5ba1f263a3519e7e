"""`segconf review`: the table and the review page of a prediction folder, once more."""

from segconf_cli.display import results
from segconf_cli.options import MapsPath


def review(
    maps: MapsPath,
) -> None:
    """Write cases.csv and review.html again, for all parts of a job that are done.

    Example: segconf review maps/
    """
    from segconf.results.prediction_folder import PredictionFolder
    from segconf.review.page import assemble

    folder = PredictionFolder(maps)
    rows = assemble(folder)
    results().print(
        f"{len(rows)} cases in {folder.page_file} and {folder.table_file.name}.",
        highlight=False,
        markup=False,
    )
