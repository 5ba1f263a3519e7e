"""The steps of a benchmark in the process of the test: one that imports PyTorch takes seconds."""

from typer.testing import CliRunner

from segconf.comparison import launcher as execution
from segconf.errors import SegconfError
from segconf_cli.main import app


class Ended:
    """A process that has ended before it is looked at."""

    def __init__(self, code):
        self.code = code

    def poll(self):
        """Its exit code."""
        return self.code


def launch_here(monkeypatch):
    """Carry out commands here instead of starting processes; the list that they are added to."""
    monkeypatch.setattr(execution, "POLL_SECONDS", 0)
    commands = []

    def launcher(command):
        def launch(arguments, log, _environment):
            commands.append([*command, *arguments])
            result = CliRunner().invoke(app, list(arguments))
            code = 2 if isinstance(result.exception, SegconfError) else result.exit_code
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{result.output}\nerror: {result.exception}\n")
            return Ended(code)

        return launch

    monkeypatch.setattr(execution, "command_launcher", launcher)
    return commands
