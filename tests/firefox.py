"""Firefox over WebDriver BiDi, which it speaks without a driver program."""

import itertools
import json
import re
import shutil
import subprocess
from contextlib import closing, contextmanager

import websocket

FIREFOX = shutil.which("firefox")
QUIET = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}


class Firefox:
    """One tab."""

    def __init__(self, address):
        """Begin a session in the first tab."""
        self._socket = websocket.create_connection(
            f"{address}/session", timeout=60, suppress_origin=True
        )
        self._numbers = itertools.count(1)
        self.ask("session.new", capabilities={})
        self.tab = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def close(self):
        """End the session."""
        self._socket.close()

    def ask(self, method, **params):
        """Send a command and wait for its answer; events in between are left out."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(self._socket.recv())).get("id") != number:
            pass
        assert answer["type"] == "success", answer
        return answer["result"]

    def open(self, address):
        """Load a page."""
        self.ask("browsingContext.navigate", context=self.tab, url=address, wait="complete")

    def run(self, script):
        """Value of an expression: text, a number or a boolean; promises are waited for."""
        answer = self.ask(
            "script.evaluate", expression=script, target={"context": self.tab}, awaitPromise=True
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return answer["result"].get("value")

    def wait_for(self, script):
        """Wait until an expression is true, looking every 50 ms for 30 s."""
        loop = (
            f"new Promise((resolve) => {{ const end = Date.now() + 30000; const look = () => "
            f"{{ if ({script}) resolve(true); else if (Date.now() > end) resolve(false); "
            f"else setTimeout(look, 50); }}; look(); }})"
        )
        assert self.run(loop), script

    def reload(self):
        """Load the page again."""
        self.ask("browsingContext.reload", context=self.tab, wait="complete")

    def give_files(self, element, files):
        """Choose files as a person does."""
        answer = self.ask(
            "script.evaluate",
            expression=f"document.getElementById('{element}')",
            target={"context": self.tab},
            awaitPromise=False,
        )
        chosen = {"sharedId": answer["result"]["sharedId"]}
        self.ask("input.setFiles", context=self.tab, element=chosen, files=list(map(str, files)))

    def drag(self, *points, kind="mouse"):
        """Press at the first place of the window, move along the others, release."""
        moves = [{"type": "pointerMove", "x": x, "y": y, "duration": 20} for x, y in points]
        actions = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:]]
        pointer = {
            "type": "pointer",
            "id": kind,
            "parameters": {"pointerType": kind},
            "actions": [*actions, {"type": "pointerUp", "button": 0}],
        }
        self.ask("input.performActions", context=self.tab, actions=[pointer])

    def press(self, *keys):
        """Press keys one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keys", "actions": actions}
        self.ask("input.performActions", context=self.tab, actions=[source])


@contextmanager
def firefox(profile):
    """Firefox without a window, with a profile of its own."""
    lines = [f'user_pref("{name}", {json.dumps(value)});' for name, value in QUIET.items()]
    (profile / "user.js").write_text("\n".join(lines), encoding="utf-8")
    command = [FIREFOX, "--headless", "--no-remote", "--remote-debugging-port", "0"]
    with subprocess.Popen(
        [*command, "--profile", str(profile)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr:
                if found := re.search(r"WebDriver BiDi listening on (ws://\S+)", line):
                    break
            else:
                raise AssertionError("Firefox does not speak WebDriver BiDi")
            with closing(Firefox(found[1])) as tab:
                yield tab
        finally:
            process.terminate()
