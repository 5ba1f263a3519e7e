"""Cases about run folders: every file of a run, damaged, and every command that reads it."""

import io
import json
import pickle
import struct
import zipfile
from functools import partial

import numpy as np
import torch

from tests.fuzz.damage import BYTES, KINDS, TABLES, damaged_bytes, damaged_table, odd_json, swapped
from tests.fuzz.fuzz_case import FuzzCase
from tests.fuzz.settings_cases import YAML_TEXTS

CPU = ("--device", "cpu")
COMMANDS = {
    "predict": ("predict", "@discs/test/images", "--out", "new", "--checkpoint", "run", *CPU),
    "evaluate": ("evaluate", "run", "--out", "new", *CPU),
    "native": ("evaluate", "run", "--out", "new", "--native", *CPU),
    "calibrate": ("calibrate", "run", *CPU),
    "history": ("history", "run", "--out", "new"),
    "query": ("query", "run", "--budget", "1", "--out", "new/queue.csv", *CPU),
    "consistency": (
        *("query", "run", "--budget", "1", "--strategy", "consistency", "--out", "new/queue.csv"),
        *CPU,
    ),
    "resume": ("train", "--resume", "run", "--epochs", "3", "--no-calibrate"),
    "triage": ("triage", "run", "--out", "new", *CPU),
    "compare": ("compare", "run", "--out", "new"),
}
EVERYTHING = ("evaluate", "query", "history", "resume", "calibrate", "triage")
HISTORY = ("resume", "history", "consistency")
WEIGHTS = ("predict", "evaluate", "native", "calibrate", "query", "triage")
READERS = {
    "config.yaml": EVERYTHING,
    "split.json": (*EVERYTHING, "compare"),
    "epochs.csv": ("resume", "history", "compare"),
    "timing.csv": ("evaluate", "compare", "resume"),
    "environment.json": ("compare", "evaluate"),
    "best.safetensors": WEIGHTS,
    "calibration.json": ("predict", "evaluate", "triage", "calibrate"),
    "ood.safetensors": ("predict", "evaluate"),
    "last.ckpt": ("resume",),
    "history/agreements-0002.npy": HISTORY,
    "history/last_prediction-0002.npy": HISTORY,
    "history/correct-0002.npy": HISTORY,
    "history/epoch-0002.json": HISTORY,
    "evaluation/test/metrics.json": ("compare",),
    "evaluation/test/images.npz": ("compare",),
    "evaluation/test/cases.csv": ("compare", "evaluate"),
}
"""Commands that read a file of a run; names of `COMMANDS`."""


def run_cases():
    """Every file, damaged in every way that fits it; the commands take turns."""
    turn = 0
    for file, readers in READERS.items():
        for way, damage, names in _ways(file):
            reader = readers[turn % len(readers)]
            turn += 1
            yield _case(file, way, reader, damage, names)


def _case(file, way, reader, damage, names):
    resumes = reader == "resume"
    changed = ("run",) if resumes else ("new", "run/calibration.json", "run/best.safetensors")
    return FuzzCase(
        f"run/{file}/{way}/{reader}",
        ("run", "state") if resumes else ("run",),
        lambda folder, chance: damage(folder / "run" / file, chance),
        COMMANDS[reader],
        (*names, "would not be the same run", "the prediction history contradicts itself"),
        changed,
    )


def _ways(file):
    """Name, function and what a refusal names, for all ways to damage a file."""
    name = file.rpartition("/")[2]
    for way in BYTES:
        yield way, partial(damaged_bytes, way), (name,)
    for kind, make in KINDS.items():
        yield kind, lambda path, _chance, make=make: make(path), (name, "run")
    yield "swapped", lambda path, _chance: swapped(path, _other(path)), (name, _other_name(name))
    match name.rpartition(".")[2]:
        case "json":
            yield from ((f"odd-{number}", odd_json, (name,)) for number in range(16))
        case "csv":
            yield from ((way, partial(damaged_table, way), (name,)) for way in TABLES)
        case "yaml":
            yield from (
                (way, partial(_replaced, text), (name,)) for way, text in YAML_TEXTS.items()
            )
        case "npy":
            yield from ((way, partial(saved_array, way), (name,)) for way in ARRAYS)
        case "safetensors":
            yield from ((way, partial(_rewritten, way), (name,)) for way in TENSORS)
        case "ckpt":
            yield from ((way, partial(_pickled, way), (name,)) for way in PICKLES)
        case "npz":
            yield from ((way, partial(_archived, way), (name,)) for way in ARRAYS)


def _other_name(name):
    return "split.json" if name != "split.json" else "calibration.json"


def _other(path):
    root = path if path.name == "run" else path.parent
    while root.name != "run":
        root = root.parent
    return root / _other_name(path.name)


def _replaced(text, path, _chance):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def _huge_header():
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 1 << 20)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


ARRAYS = {
    "wrong-type": lambda array: array.astype(np.float32),
    "wrong-shape": lambda array: array[:1],
    "more-axes": lambda array: array[None],
    "no-axes": lambda _array: np.uint8(3),
    "no-rows": lambda array: array[:0],
    "other-order": np.asfortranarray,
    "objects": lambda _array: np.array([{}], dtype=object),
    "words": lambda _array: np.array(["a", "b"]),
    "not-finite": lambda array: np.full(array.shape, np.nan),
    "largest": lambda array: np.full(array.shape, 255, array.dtype),
}
"""Functions that give another array."""


def saved_array(way, path, chance):
    array = ARRAYS[way](np.load(path))
    np.save(path, array, allow_pickle=True)
    if chance.random() < 0.1:  # now and then a size that no machine has
        path.write_bytes(_huge_header())


def _archived(way, path, chance):
    with np.load(path) as file:
        arrays = dict(file)
    chosen = chance.choice(sorted(arrays))
    arrays[chosen] = ARRAYS[way](arrays[chosen])
    np.savez(path, **arrays, allow_pickle=True)


def _split_header(content):
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _joined(header, body):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _without_metadata(header, _chance):
    header.pop("__metadata__")


def _without_tensor(header, chance):
    header.pop(chance.choice(_tensors(header)))


def _renamed_tensor(header, chance):
    name = chance.choice(_tensors(header))
    header[f"{name}.other"] = header.pop(name)


def _reshaped(header, chance):
    one = header[chance.choice(_tensors(header))]
    one["shape"] = [1, *one["shape"]]


def _retyped(header, chance):
    header[chance.choice(_tensors(header))]["dtype"] = chance.choice(["F16", "I64", "Q9", ""])


def _moved(header, chance):
    header[chance.choice(_tensors(header))]["data_offsets"] = [0, 1 << 50]


def _odd_metadata(header, chance):
    metadata = header["__metadata__"]
    odd = ["", "{}", "[]", "null", "[" * 5000, "1e999", "nan", "x" * 100_000, "-1"]
    metadata[chance.choice(sorted(metadata))] = chance.choice(odd)


def _tensors(header):
    return sorted(name for name in header if name != "__metadata__")


TENSORS = {
    "no-metadata": _without_metadata,
    "tensor-missing": _without_tensor,
    "tensor-renamed": _renamed_tensor,
    "tensor-reshaped": _reshaped,
    "tensor-retyped": _retyped,
    "tensor-elsewhere": _moved,
    **{f"odd-metadata-{number}": _odd_metadata for number in range(6)},
    "not-finite": None,
    "long-header": None,
    "negative-header": None,
}
"""Functions that change the header; None where the bytes after it, or its length, change."""


def _rewritten(way, path, chance):
    content = path.read_bytes()
    header, body = _split_header(content)
    match way:
        case "not-finite":
            path.write_bytes(_joined(header, b"\xff" * len(body)))
        case "long-header":
            path.write_bytes(struct.pack("<Q", 1 << 40) + content[8:])
        case "negative-header":
            path.write_bytes(struct.pack("<q", -1) + content[8:])
        case _:
            TENSORS[way](header, chance)
            path.write_bytes(_joined(header, body))


class _Foreign:
    """What a hostile file would run."""

    def __reduce__(self):
        return (open, ("executed", "w"))


def _without(key):
    def change(state):
        state.pop(key, None)
        return state

    return change


PICKLES = {
    "foreign-code": lambda _state: _Foreign(),
    "a-list": lambda _state: [1, 2, 3],
    "a-tensor": lambda _state: torch.zeros(3),
    "no-keys": lambda _state: {},
    "no-model": _without("model"),
    "no-optimizer": _without("optimizer"),
    "no-epoch": _without("epoch"),
    "epoch-in-words": lambda state: state | {"epoch": "three"},
    "epoch-too-late": lambda state: state | {"epoch": 10**9},
    "epoch-negative": lambda state: state | {"epoch": -4},
    "model-in-words": lambda state: state | {"model": "weights"},
    "no-history": _without("history"),
    "odd-history": lambda state: state | {"history": [None]},
    "odd-generators": lambda state: {key: 0 if "rng" in key else of for key, of in state.items()},
    "other-zip": None,
    "old-pickle": None,
}
"""Functions that give another state; None where it is another kind of file."""


def _pickled(way, path, _chance):
    if way == "other-zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "nothing")
    elif way == "old-pickle":
        path.write_bytes(pickle.dumps({"a": 1}))
    else:
        torch.save(PICKLES[way](torch.load(path, weights_only=True)), path)
