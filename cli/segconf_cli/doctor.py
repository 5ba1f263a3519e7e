"""`segconf doctor`: check this machine, and say how to fix what is missing."""

from pathlib import Path

from segconf_cli.display import results
from segconf_cli.outcome import record


def doctor() -> None:
    """Check versions, devices, disk space, encoder weights and data.

    Example: segconf doctor
    """
    from rich.table import Table
    from rich.text import Text

    from segconf.doctor import examine

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    findings = list(examine(Path.cwd()))
    record(findings=findings)
    for finding in findings:
        sign = Text("!", "yellow") if finding.advice else Text("ok", "green")
        table.add_row(sign, finding.subject, finding.found)
        if finding.advice:
            table.add_row("", "", Text(f"-> {finding.advice}", "yellow"))
    results().print(table, highlight=False)
