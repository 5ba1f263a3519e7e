"""Pages of small models, and where ONNX Runtime Web lies for tests."""

from segconf.packaging.browser_page import package_page
from segconf.packaging.web_runtime import FILES, cache_file
from tests.packaged_runs import calibrated_run

RUNTIME = cache_file()
"""Looked up before a test gets a cache of its own; `.ci/run` fills it."""
REASON = f"{RUNTIME.name} is not in the cache: run `segconf package --format page` once"
NO_RUNTIME = {name: file.encode() for name, file in FILES.items()}
"""In the place of the runtime, for what never runs."""


def small_run(folder, **options):
    """A run with random weights of a tiny encoder."""
    return calibrated_run(folder, encoder="tu-test_efficientnet", **options)


def write_page(folder, **options):
    """The page of such a run, with the real runtime."""
    run = small_run(folder / "run", **options)
    return run, package_page(run, folder / "segconf.html", runtime=RUNTIME).path
