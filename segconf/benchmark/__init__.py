"""Every method under one protocol: which runs, how they are carried out, and their tables."""

from segconf.benchmark.plan import BenchmarkRequest, PlannedRun, check_runs, plan_runs
from segconf.benchmark.report import BenchmarkTable, build_tables, write_tables
from segconf.benchmark.running import Crew, Status, carry_out

__all__ = [
    "BenchmarkRequest",
    "BenchmarkTable",
    "Crew",
    "PlannedRun",
    "Status",
    "build_tables",
    "carry_out",
    "check_runs",
    "plan_runs",
    "write_tables",
]
