"""Cases about settings: experiment files, `--set`, and odd values of every option."""

import typer

from segconf_cli.main import app
from tests.fuzz.fuzz_case import FuzzCase, undamaged
from tests.fuzz.material import TINY

YAML_TEXTS = {
    "aliases": "a: &a [1, 1]\n"
    + "".join(
        f"{new}: &{new} [*{old}, *{old}]\n"
        for old, new in zip("abcdefghij", "bcdefghijk", strict=True)
    ),
    "many-aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "recursive": "data: &a {size: *a}\n",
    "unknown-alias": "data: *nothing\n",
    "tag": "data: !!python/object/apply:os.system ['touch executed']\n",
    "own-tag": "data: !size [1, 2]\n",
    "tabs": "data:\n\tsize: [32, 32]\n",
    "twice-a-key": "data: {size: [32, 32]}\ndata: {size: [64, 64]}\n",
    "two-documents": "data: {}\n---\ndata: {}\n",
    "a-date": "training: {epochs: 2026-11-17}\n",
    "digits": f"training: {{epochs: {'9' * 5000}}}\n",
    "hexadecimal": "training: {epochs: 0xFFFFFFFFFFFFFFFFFF}\n",
    "sexagesimal": "training: {epochs: 1:30}\n",
    "not-a-number": "training: {learning_rate: .nan}\n",
    "infinite": "training: {learning_rate: .inf}\n",
    "nested-lists": f"data: {{size: {'[' * 3000}{']' * 3000}}}\n",
    "nested-maps": "".join(" " * depth + "a:\n" for depth in range(900)),
    "a-list": "- 1\n- 2\n",
    "a-word": "hello\n",
    "a-number": "42\n",
    "nothing": "# only a comment\n",
    "null-section": "data:\nmodel:\n",
    "word-for-section": "data: hello\n",
    "number-as-key": "1: {2: 3}\n",
    "list-as-key": "? [a, b]\n: c\n",
    "unknown-keys": "data: {sise: [32, 32]}\nmodle: {encoder: resnet18}\n",
    "binary": b"\x00\x01\x02\xff\xfe",
    "control-characters": "data: \x07\x08\n",
    "open-quote": 'data: {size: "32\n',
    "merge": "data: {<<: [1, 2]}\n",
    "a-timestamp": "data: {labeled: 2001-99-99}\n",
    "negative-size": "data: {size: [-32, 0]}\n",
    "huge-size": "data: {size: [1000000000, 1000000000]}\n",
    "three-sizes": "data: {size: [32, 32, 32]}\n",
    "odd-encoder": "model: {encoder: ../../etc/passwd}\n",
    "empty-encoder": "model: {encoder: ''}\n",
    "unknown-method": "training: {method: magic}\n",
}
"""Experiment files that are odd or wrong."""
KEYS = (
    *("data.size", "data.labeled", "data.validation_fraction", "data.intensity_window"),
    *("data.max_pixels", "model.encoder", "model.classes", "model.channels", "model.dropout"),
    *("training.epochs", "training.learning_rate", "training.seed", "training.method"),
    *("training.batch_labeled", "loss.pairs", "loss.consistency_weight", "augmentation.scale"),
    *("training.ema_decay", "training.workers", "inference.passes", "training.precision"),
)
VALUES = (
    *("", "x", "-1", "0", "nan", "inf", "1e999", "9" * 400, "[]", "[1]", "[-1,-1]", "{}", "null"),
    *("true", "[[1]]", "{a: 1}", "!!python/name:os.system", "*a", "[", "0x10", "1:30", "\u202e"),
)
ODD_SETTINGS = (
    *("", "=", "=1", "data", "data.size", "data.size=", ".size=1", "data..size=1", "data=1"),
    *("training=5", "a.b.c.d=1", "data.size=[32,32", "DATA.SIZE=[32,32]", "data.size==1"),
    *("data.size=\x00", "\u00e4.\u00f6=1", "--=1", "data.size=&a [*a]", " data.size = [32, 32]"),
)
OPTION_VALUES = (
    *("", " ", "x", "-1", "0", "1.5", "nan", "inf", "1e999", "9" * 40, "/dev/null", "."),
    *("no/such/folder", "\u00e4\u00f6\u00fc.png", "1/0", "0/1", "3/2", "1/1/1", "a" * 300),
    *("http://example.invalid/x", "-", "~", "*", "$HOME", "\n", "\u202e", "True", "1,2,,x", "[1]"),
)
"""Given to every option of every command but `--out`."""
FOLDERS = ("", ".", "file", "file/below", "/dev/null", "/dev/null/x", "run", "maps", "a" * 300)
"""Given to `--out`: none of them leaves the folder of the case."""
BASES = {
    "data": ("data", "@discs"),
    "models": ("models",),
    "train": ("train", "@discs", "--epochs", "1", "--out", "new", "--no-calibrate", *TINY),
    "evaluate": ("evaluate", "run", "--out", "new"),
    "calibrate": ("calibrate", "run"),
    "history": ("history", "run", "--out", "new"),
    "predict": ("predict", "@discs/test/images", "--out", "new", "--checkpoint", "run"),
    "review": ("review", "maps"),
    "export": ("export", "maps", "--out", "new"),
    "triage": ("triage", "run", "--out", "new"),
    "query": ("query", "run", "--budget", "1", "--out", "new/queue.csv"),
    "compare": ("compare", "run", "--out", "new"),
    "score": ("score", "maps", "@discs/test/masks", "--out", "new"),
    "surrogates": ("surrogates", "run", "--out", "new"),
    "demo": ("demo", "--quick"),
    "active": ("active", "@discs", "--config", "missing.yaml"),
    "benchmark": ("benchmark", "@discs", "--config", "missing.yaml"),
    "package": ("package", "run", "--format", "onnx", "--out", "new"),
}
"""A valid command to which an odd option is added. `active` and `benchmark` train for long, so they
get a missing experiment file; `demo` trains nothing, and its folders are those that it refuses."""
SKIPPED = {("data", "--download"), ("data", "--keep-archives"), ("train", "--resume")}
REFUSED_FOLDERS = ("/dev/null", "/dev/null/x", "file")
VALUES_EACH = 3


def settings_cases():
    """Experiment files, settings, and odd values of the options, some for each option."""
    train = ("train", "@discs", "--out", "new", "--no-calibrate")
    for way, text in YAML_TEXTS.items():
        yield FuzzCase(
            f"settings/file/{way}",
            ("settings.yaml",),
            lambda folder, _chance, text=text: _written(folder / "settings.yaml", text),
            (*train, "--config", "settings.yaml"),
            ("settings.yaml",),
        )
    given = (*train, "--config", "settings.yaml")
    for number, key in enumerate(KEYS):
        for value in VALUES[number % 4 :: 4]:
            yield _given(f"settings/set/{key}={value[:20]}", (*given, "--set", f"{key}={value}"))
    for setting in ODD_SETTINGS:
        yield _given(f"settings/odd/{setting}", (*given, "--set", setting))
    yield from _option_cases()
    for option in ("--batch-size", "--workers"):
        yield _with_option("predict", BASES["predict"], (option, "9" * 11))


def _written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def _given(identity, arguments):
    return FuzzCase(identity, ("settings.yaml",), undamaged, arguments)


def _option_cases():
    """Each option of each command with some of the values, which take turns."""
    turn = 0
    for command, parsed in sorted(typer.main.get_command(app).commands.items()):
        base = BASES.get(command)
        if base is None:
            continue
        for parameter in parsed.params:
            option = parameter.opts[0]
            if not option.startswith("--") or (command, option) in SKIPPED:
                continue
            values = FOLDERS if option == "--out" else _some_values(turn)
            turn += VALUES_EACH
            if command == "demo":
                values = REFUSED_FOLDERS
            if getattr(parameter, "is_flag", False):
                yield _with_option(command, base, (option,))
            else:
                yield from (_with_option(command, base, (option, value)) for value in values)


def _some_values(turn):
    return [OPTION_VALUES[(turn + step) % len(OPTION_VALUES)] for step in range(VALUES_EACH)]


def _with_option(command, base, extra):
    needs = tuple(name for name in ("run", "maps") if name in base)
    changed = ("new", "run/calibration.json", "run/best.safetensors", "maps")
    identity = f"option/{command}/{' '.join(extra)[:60]}"
    return FuzzCase(identity, needs, _with_a_file, (*base, *extra), writes=changed)


def _with_a_file(folder, _chance):
    (folder / "file").write_text("not a folder", encoding="utf-8")
