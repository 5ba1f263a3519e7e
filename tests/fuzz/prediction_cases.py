"""Cases about prediction folders, lists and decisions: files that are read back."""

from functools import partial

from tests.fuzz.damage import BYTES, KINDS, TABLES, damaged_bytes, damaged_table, odd_json
from tests.fuzz.fuzz_case import FuzzCase
from tests.fuzz.material import TINY
from tests.fuzz.run_cases import ARRAYS, CPU, saved_array

PREDICT = ("predict", "@discs/test/images", "--out", "maps", "--checkpoint", "@run", *CPU)
COMMANDS = {
    "export": ("export", "maps", "--out", "new"),
    "review": ("review", "maps"),
    "again": PREDICT,
    "continue": (*PREDICT, "--skip-existing"),
    "score": ("score", "maps", "@discs/test/masks", "--out", "new"),
    "triage": ("triage", "@run", "maps", "--out", "new", *CPU),
}
READERS = {
    "run.json": ("export", "review", "again", "continue", "triage"),
    "cases.csv": ("export", "review", "continue", "triage"),
    "review/rows/case_200.json": ("export", "review", "continue", "triage"),
    "masks/case_200.png": ("export", "score", "triage", "continue"),
    "confidence/case_200.png": ("export", "score", "triage"),
    "review/structures/case_200.csv": ("review", "continue"),
}
"""Commands that read a file of a prediction folder; names of `COMMANDS`."""
TRAIN = ("train", "@discs", "--epochs", "1", "--out", "new", "--no-calibrate", *TINY)
QUERY = ("query", "@run", "--budget", "1", "--pool", "@discs/test/images", "--out", "new/queue.csv")
LISTS = {
    "ids.txt": (*TRAIN, "--labeled-list", "ids.txt"),
    "ids.csv": (*TRAIN, "--labeled-list", "ids.csv"),
    "ids.json": (*TRAIN, "--labeled-list", "ids.json"),
    "ids.npy": (*TRAIN, "--labeled-list", "ids.npy"),
    "queue.csv": (*TRAIN, "--labels-from-query", "queue.csv"),
    "paths.txt": ("predict", "paths.txt", "--out", "new", "--checkpoint", "@run", *CPU),
    "decisions.csv": (*QUERY, "--decisions", "decisions.csv", *CPU),
    "decisions.json": (*QUERY, "--decisions", "decisions.json", *CPU),
}
"""Commands that read a list; the list lies beside the folder of the case."""
LISTED = {"paths.txt": ("no such file", "unknown image format")}
"""Answers that name what a list holds instead of the list."""


def prediction_cases():
    """Every file that `predict` wrote, and every list, damaged in every way that fits it."""
    turn = 0
    for file, readers in READERS.items():
        for way, damage, names in _ways(file):
            reader = readers[turn % len(readers)]
            turn += 1
            yield FuzzCase(
                f"maps/{file}/{way}/{reader}",
                ("maps",),
                lambda folder, chance, file=file, damage=damage: damage(
                    folder / "maps" / file, chance
                ),
                COMMANDS[reader],
                names,
                ("new", "maps"),
            )
    for file, arguments in LISTS.items():
        for way, damage, names in _ways(file):
            yield FuzzCase(
                f"list/{file}/{way}",
                (file,),
                lambda folder, chance, file=file, damage=damage: damage(folder / file, chance),
                arguments,
                (*names, *LISTED.get(file, ())),
            )


def _ways(file):
    name = file.rpartition("/")[2]
    for way in BYTES:
        yield way, partial(damaged_bytes, way), (name, name.partition(".")[0])
    for kind, make in KINDS.items():
        yield kind, lambda path, _chance, make=make: make(path), (name, "maps", "case_200")
    match name.rpartition(".")[2]:
        case "json":
            yield from ((f"odd-{number}", odd_json, (name,)) for number in range(16))
        case "csv":
            yield from ((way, partial(damaged_table, way), (name,)) for way in TABLES)
        case "npy":
            yield from ((way, partial(saved_array, way), (name,)) for way in ARRAYS)
