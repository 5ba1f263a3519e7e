"""Pages of small models, the browsers that run them, and where ONNX Runtime Web lies for tests."""

import base64
import json

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


EXPORT = """
new Promise((resolve) => {
  const make = URL.createObjectURL;
  URL.createObjectURL = (blob) => {
    if (blob.type !== 'application/zip') return make.call(URL, blob);
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(',')[1]);
    reader.readAsDataURL(blob);
    return '#';
  };
  document.getElementById('export-zip').click();
})
"""


class ChromiumTab:
    """Chromium with the words of `tests.firefox.Firefox`."""

    def __init__(self, driver):
        """Take a driver."""
        self.driver = driver
        driver.set_script_timeout(120)

    def open(self, address):
        """Load a page."""
        self.driver.get(address)

    def reload(self):
        """Load the page again."""
        self.driver.refresh()

    def run(self, script):
        """Value of an expression; promises are waited for."""
        code = "const done = arguments[0]; Promise.resolve(%s).then(done)"
        return self.driver.execute_async_script(code % script)

    def wait_for(self, script):
        """Wait until an expression is true."""
        from tests.browsers import wait_for

        wait_for(self.driver, lambda _: self.run(f"Boolean({script})"))

    def give_files(self, element, files):
        """Choose files as a person does."""
        self.driver.find_element("id", element).send_keys("\n".join(map(str, files)))

    def press(self, *keys):
        """Press keys one after the other."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)


def start_page(tab, path):
    """Open a page and wait until its model has started."""
    tab.open(path.as_uri())
    tab.wait_for("document.body.dataset.ready")


def export_zip(tab, path):
    """Press the button that exports everything, and keep the file."""
    path.write_bytes(base64.b64decode(tab.run(EXPORT)))
    return path


def names_of(tab):
    """Cases in the list."""
    script = (
        "JSON.stringify([...document.querySelectorAll('#list .name')].map((e) => e.textContent))"
    )
    return sorted(json.loads(tab.run(script)))
