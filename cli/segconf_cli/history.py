"""`segconf history`: consistency and correctness of training pixels, as pictures and arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, results
from segconf_cli.options import RunDataFolder, RunPath
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from segconf.training.history_maps import HistoryMaps

RECORD = "history.json"
"""Says of which run the maps of a folder are."""


def history(
    run: RunPath,
    out: Annotated[Path, typer.Option(help="Folder for pictures/, consistency/, correctness/.")],
    data: RunDataFolder = None,
) -> None:
    """Write the consistency of every training pixel, and the correctness of labeled ones.

    Example: segconf history runs/demo-consistency-24-seed0 --out maps
    """
    from segconf.files import write_text
    from segconf.runs.run_cases import check_report
    from segconf.runs.run_folder import RunFolder
    from segconf.training.history_maps import history_maps

    epochs = 0
    check_report(out, RunFolder(run), data=data, mark=RECORD)
    with counting() as progress:
        total, maps = history_maps(run, data=data, on_prepare=progress)
        write_text(out / RECORD, json.dumps({"run": run.name, "images": total}, indent=1) + "\n")
        for done, image_maps in enumerate(maps, start=1):
            _write(image_maps, out)
            progress("history", done, total)
            epochs = image_maps.epochs
    record(folder=out, images=total, epochs=epochs)
    results().print(
        f"History of {total} images after {epochs} epochs, brightest = always the same (1):\n"
        f"  {out}/pictures      the image beside its maps\n"
        f"  {out}/consistency   arrays (H, W), fraction of successive predictions that agree\n"
        f"  {out}/correctness   arrays (H, W), fraction of predictions that are right, if labeled",
        highlight=False,
    )


def _write(maps: HistoryMaps, out: Path) -> None:
    import numpy as np

    from segconf.files import make_folder, replacing
    from segconf.plots.examples import history_picture

    named = {"consistency": maps.consistency}
    if maps.correctness is not None:
        named["correctness"] = maps.correctness
    for name, values in named.items():
        path = out / name / f"{maps.id}.npy"
        make_folder(path.parent)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, values)
    picture = out / "pictures" / f"{maps.id}.png"
    make_folder(picture.parent)
    history_picture(picture, maps.id, maps.image, named)
