"""Opens pages in a headless Chromium over its DevTools protocol (--remote-debugging-pipe), which needs no library.

The protocol's messages are JSON, each ended by a NUL byte, on file descriptors 3 and 4 of the browser.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECONDS = 60.0
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium (apt-get install chromium)")


class Browser:
    """One page of a browser. `complaints`: console errors, exceptions and refusals; `requests`: addresses asked for."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._rest, self._number = b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol; events that come meanwhile are taken in."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._take(answer)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        limit = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            assert select.select([self._out], [], [], max(0.0, limit - time.monotonic()))[0], "the browser is silent"
            piece = os.read(self._out, 1 << 20)
            assert piece, "the browser ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _take(self, event: dict[str, Any]) -> None:
        what, said = event.get("method"), event.get("params", {})
        if what == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"])[:2000])
        elif what == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif what == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.complaints.append(json.dumps(said["args"])[:2000])
        elif what == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(self, page: Path, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a page at this size in pixels and scheme, until its scripts have run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.scheme(dark=dark)
        self.call("Page.navigate", url=page.absolute().as_uri())
        self.wait("document.readyState === 'complete'")

    def scheme(self, *, dark: bool) -> None:
        """Choose the light or the dark scheme."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def value(self, script: str) -> Any:
        """What an expression of JavaScript results in, as JSON."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Return once an expression is true; fails the test where it does not become so."""
        limit = time.monotonic() + SECONDS
        while not self.value(script):
            assert time.monotonic() < limit, f"gave up waiting for {script}"
            time.sleep(0.02)

    def draw_all(self) -> int:
        """Scroll to each chart in turn until it is drawn; returns how many there are."""
        charts = int(self.value("document.querySelectorAll('figure.chart').length"))
        for at in range(charts):
            chart = f"document.querySelectorAll('figure.chart')[{at}]"
            self.value(f"{{ const f = {chart}; f.closest('details')?.setAttribute('open', ''); f.scrollIntoView(); }}")
            self.wait(f"Boolean({chart}.dataset.drawn)")
        self.value("scrollTo(0, 0)")
        return charts

    def press(self, key: str) -> None:
        """Press and release a key, named as in KeyboardEvent.key."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], text=text)

    def screenshot(self) -> bytes:
        """What is on the screen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=False)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, **size)["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    assert PROGRAM is not None
    to_read, into = os.pipe()
    out, to_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        # The pipe's ends are 3 and 4 by definition: the shell puts them there.
        moved = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write} 2>/dev/null'
        process = subprocess.Popen(
            ["bash", "-c", moved, PROGRAM, *options, f"--user-data-dir={profile}"], pass_fds=(to_read, to_write)
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield Browser(into, out)
        finally:
            os.close(into)
            process.terminate()
            process.wait(SECONDS)
            os.close(out)
