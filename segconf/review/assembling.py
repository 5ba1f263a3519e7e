"""`cases.csv` and the review page, from the rows of whatever cases are finished."""

from segconf.files import write_text
from segconf.review.cases import CaseRow, table
from segconf.review.folder import PredictionFolder
from segconf.review.page import review_page


def assemble(folder: PredictionFolder) -> list[CaseRow]:
    """Write both files for all cases of a folder.

    Several processes may do this at once. Each looks again after it has written: whoever writes
    last has seen every row.
    """
    record = folder.record()
    while True:
        listed = _listed(folder)
        rows = folder.rows()
        write_text(folder.table_file, table(rows))
        write_text(folder.page_file, review_page(rows, record))
        if _listed(folder) == listed:
            return rows


def _listed(folder: PredictionFolder) -> list[tuple[str, int]]:
    return [(str(path), path.stat().st_mtime_ns) for path in folder.row_files()]
