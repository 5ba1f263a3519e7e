"""Everything that a predicted case has on disk: maps, pictures, and the row last."""

from segconf.images.types import Image
from segconf.overlays.layers import Scale
from segconf.overlays.overlay import Style
from segconf.results.maps import Maps, with_slices
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.results.writing import prepare_folders, write_maps, write_row
from segconf.review.pictures import write_overlay, write_page_files


def write_case(
    folder: PredictionFolder, row: CaseRow, image: Image, maps: Maps, *, scale: Scale, style: Style
) -> None:
    """Write the files of a case; of a volume, pictures show the slice that its row names."""
    prepare_folders(folder, row)
    write_maps(folder, row, image, maps)
    pixels = with_slices(image.pixels)[:, row.slice]  # (C, H, W)
    mask, levels = maps.mask[row.slice], maps.levels[row.slice]
    write_overlay(folder.overlay(row.case), pixels, mask, levels, style=style, scale=scale)
    write_page_files(folder, row.case, pixels, (mask, levels), scale)
    write_row(folder, row)
