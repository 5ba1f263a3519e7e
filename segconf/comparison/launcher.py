"""Run the steps of a benchmark: several runs at once, each step in a process of its own."""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from segconf.comparison.benchmark import CALIBRATED, BenchmarkRequest, PlannedRun, Step
from segconf.config.loading import save_config
from segconf.devices import usable_processors
from segconf.files import make_folder, replacing
from segconf.locks import locked

POLL_SECONDS = 0.3
GRACE_SECONDS = 30.0
PLAIN = "--no-calibrate"  # methods are compared as trained; temperature is a step of its own

State = Literal["waiting", "training", "evaluating", "calibrating", "finished", "failed"]
STATES: dict[Step, State] = {
    "training": "training",
    "evaluating": "evaluating",
    "calibrating": "calibrating",
    "evaluating calibrated": "evaluating",
}


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run is; `reason` says why it failed."""

    name: str
    state: State
    epoch: int
    epochs: int
    reason: str = ""

    @property
    def fraction(self) -> float:
        """Of the work that is done; what follows the training counts as two epochs."""
        if self.state in {"finished", "failed"}:
            return 1.0
        return self.epoch / (self.epochs + 2)


class Process(Protocol):
    """The part of `subprocess.Popen` that is needed here."""

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, waited for."""

    def send_signal(self, sig: int) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """End it at once."""


Launch = Callable[[Sequence[str], Path, Mapping[str, str]], Process]
"""Start `segconf` with arguments, a log file to add to, and an environment."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How runs are carried out: how many at once, and how a process is started."""

    launch: Launch
    jobs: int = 1

    def environment(self) -> dict[str, str]:
        """That of this process, with its fraction of the processors."""
        given = os.environ.get("OMP_NUM_THREADS", "")
        cores = int(given) if given.isdigit() else usable_processors()
        return {**os.environ, "OMP_NUM_THREADS": str(max(1, cores // self.jobs))}


def command_launcher(command: Sequence[str]) -> Launch:
    """Start processes by a command such as `python -m segconf_cli`."""

    def launch(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
        with log.open("a", encoding="utf-8") as file:
            # A session of its own: Ctrl-C reaches this process only, which then stops the others.
            return subprocess.Popen(  # noqa: S603 - the caller's command, without a shell
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    return launch


def carry_out(
    runs: Sequence[PlannedRun],
    request: BenchmarkRequest,
    launcher: Launcher,
    on_change: Callable[[Status], None],
) -> tuple[Status, ...]:
    """Do what is missing of every run; a run that fails does not stop the others.

    An interruption stops all processes, which keep their checkpoints: the same call goes on.

    Args:
        runs: see `plan_runs`.
        request: what they were planned for.
        launcher: how many at once, and how.
        on_change: called with the status of a run whenever it changes.

    Returns:
        The status of every run, all of them finished or failed.
    """
    with locked(request.out, wait=False, task="runs a benchmark in it"):
        make_folder(request.out / "logs")
        make_folder(request.out / "configs")
        return _carried_out([_Job(run, request, launcher, on_change) for run in runs], launcher)


def _carried_out(jobs: Sequence["_Job"], launcher: Launcher) -> tuple[Status, ...]:
    waiting = deque(jobs)
    active: list[_Job] = []
    try:
        while waiting or active:
            while waiting and len(active) < launcher.jobs:
                active.append(waiting.popleft())
                active[-1].start()
            active = [job for job in active if not job.advance()]
            if active and (len(active) == launcher.jobs or not waiting):
                time.sleep(POLL_SECONDS)
    finally:
        stop_all([job.process for job in active if job.process is not None])
    return tuple(job.status for job in jobs)


@dataclass(slots=True)
class _Job:
    """A run on its way."""

    run: PlannedRun
    request: BenchmarkRequest
    launcher: Launcher
    on_change: Callable[[Status], None]
    process: Process | None = None
    steps: deque[Step] = field(default_factory=deque)
    status: Status = field(init=False)
    _log_start: int = 0

    def __post_init__(self) -> None:
        self.status = Status(self.run.name, "waiting", self.run.finished_epochs, self.run.epochs)
        if not self.run.missing_steps:
            self.status = replace(self.status, state="finished")
        self.on_change(self.status)

    @property
    def log(self) -> Path:
        return self.request.out / "logs" / f"{self.run.name}.log"

    def start(self) -> None:
        """Begin with what is missing."""
        self.steps = deque(self.run.missing_steps)
        if self.steps:
            self._launch()

    def advance(self) -> bool:
        """Look at the process, and go on to the next step; True when there is none."""
        code = None if self.process is None else self.process.poll()
        epoch = min(self.run.finished_epochs, self.run.epochs)
        if epoch != self.status.epoch:
            self._change(self.status.state, epoch=epoch)
        if self.process is None:
            return True
        if code is None:
            return False
        self.process = None
        if code != 0:
            self._change("failed", reason=f"{self._last_words(code)} (log: {self.log})")
            return True
        self.steps.popleft()
        if self.steps:
            self._launch()
            return False
        left = self.run.missing_steps
        if left:
            self._change("failed", reason=f"{left[0]} left no result (log: {self.log})")
        else:
            self._change("finished")
        return True

    def _launch(self) -> None:
        arguments = self._arguments(self.steps[0])
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"$ segconf {' '.join(arguments)}\n")
        self._log_start = self.log.stat().st_size
        self._change(STATES[self.steps[0]])
        self.process = self.launcher.launch(arguments, self.log, self.launcher.environment())

    def _arguments(self, step: Step) -> list[str]:
        folder = str(self.run.folder)
        data = [] if self.request.data is None else ["--data", str(self.request.data)]
        device = ["--device", self.run.config.training.device]
        match step:
            case "training" if self.run.has_begun:
                return ["train", "--resume", folder, PLAIN, *device, *data]
            case "training":
                config = self.request.out / "configs" / f"{self.run.name}.yaml"
                with replacing(config) as temporary:
                    save_config(self.run.config, temporary, given_only=True)
                settings = ["--config", str(config), "--out", folder]
                return ["train", self.request.dataset, PLAIN, *settings, *data]
            case "calibrating":
                return ["calibrate", folder, *device, *data]
            case "evaluating":
                return ["evaluate", folder, *device, *data]
            case "evaluating calibrated":
                out = str(self.run.folder / "evaluation" / CALIBRATED)
                return ["evaluate", folder, "--out", out, *device, *data]

    def _last_words(self, code: int) -> str:
        """The error that a process ended with, in one line."""
        if code < 0:
            return f"ended by signal {-code}"
        text = self.log.read_bytes()[self._log_start :].decode("utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or [f"exit code {code}"])[-1].removeprefix("error: ")

    def _change(self, state: State, *, epoch: int | None = None, reason: str = "") -> None:
        epoch = self.status.epoch if epoch is None else epoch
        self.status = replace(self.status, state=state, epoch=epoch, reason=reason)
        self.on_change(self.status)


def stop_all(processes: Sequence[Process]) -> None:
    """Ask processes to end, as Ctrl-C does; end those that do not within half a minute."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM if os.name == "nt" else signal.SIGINT)
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        for process in processes:
            process.wait(timeout=max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        pass
    finally:  # also when the user presses Ctrl-C once more
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
