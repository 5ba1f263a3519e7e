"""Scripts of the pages, run by node without a browser."""

import json
import shutil
import subprocess
from importlib.resources import files

from segconf.review import page

NODE = shutil.which("node")
PARTS = ("resizing", "native", "summary", "tiff", "lossless", "pictures", "png")


def run_scripts(expression, **values):
    """Value of an expression in which `given` holds some values; arrays are lists."""
    web = files("segconf.packaging").joinpath("web")
    parts = [web.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in PARTS]
    code = "\n".join(
        [
            '"use strict";',
            page.part("masks.js"),
            page.part("export.js"),
            *parts,
            'const given = JSON.parse(require("fs").readFileSync(0, "utf8"));',
            f"(async () => process.stdout.write(JSON.stringify(await ({expression}))))();",
        ]
    )
    found = subprocess.run(
        [NODE, "--input-type=commonjs", "-e", code],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)
