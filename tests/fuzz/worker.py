"""A process that runs commands one after another, and the handle by which tests use it.

Commands share a process because starting one takes longer than most of them. A command that hangs,
or that takes the process down, costs that process and no more: the next command gets a new one.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 120
"""Seconds after which a command counts as hanging; all of them take less than a few."""
MOST_MEMORY = 12 << 30
"""Address space of the process: an allocation of what a damaged file claims fails in it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; the code is None when it had to be killed."""

    code: int | None
    out: str
    err: str


class Worker:
    """A process that is started when it is needed."""

    def __init__(self, folder):
        """Keep what commands print in a folder."""
        self._streams = [folder / "out", folder / "err"]
        self._process = None

    def run(self, arguments, *, folder):
        """Run `segconf ARGUMENTS` in a folder."""
        if self._process is None:
            self._process = self._started()
        asked = {"arguments": list(arguments), "folder": str(folder)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        killer = threading.Timer(PATIENCE, self._process.kill)
        killer.start()
        answer = self._process.stdout.readline()
        killer.cancel()
        code = json.loads(answer) if answer else None
        if code is None:
            self.close()
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in self._streams)
        return Ended(code, out, err)

    def _started(self):
        root = Path(__file__).resolve().parents[2]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", *map(str, self._streams)],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self):
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def serve(out, err):
    """Run the commands that come in as lines of JSON, and answer with their exit codes."""
    from segconf_cli import display, main

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        asked = json.loads(line)
        for path, stream in ((out, 1), (err, 2)):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, stream)
            os.close(handle)
        os.chdir(asked["folder"])
        os.environ["SEGCONF_CACHE"] = str(Path(asked["folder"]) / "cache")
        sys.argv = ["segconf", *asked["arguments"]]
        display.messages.cache_clear()
        display.results.cache_clear()
        code = _exit_code(main.main)
        sys.stdout.flush()
        sys.stderr.flush()
        answers.write(f"{json.dumps(code)}\n")
        answers.flush()


def _exit_code(command):
    try:
        command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - a bug, which the test reports
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(*sys.argv[1:])
