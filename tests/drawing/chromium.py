"""A headless Chromium, spoken to by its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MOVE = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_SECONDS = 60  # for an answer; Chromium starts slowly on a busy machine


def program() -> str | None:
    """The path of Chromium; None where it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def running(folder: Path) -> Iterator[Chromium]:
    """Start Chromium with its profile in ``folder``, and end it afterwards."""
    chromium = program()
    assert chromium
    to_read, to_write = os.pipe(), os.pipe()
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--remote-debugging-pipe",
    )
    # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
    ends = [str(to_read[0]), str(to_write[1])]
    words = [sys.executable, "-c", _MOVE, *ends, chromium, *flags, "--remote-debugging-pipe"]
    words += [f"--user-data-dir={folder}", "about:blank"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, pass_fds=(to_read[0], to_write[1]), **quiet) as process:  # type: ignore[call-overload]
        os.close(to_read[0])
        os.close(to_write[1])
        try:
            yield Chromium(to_read[1], to_write[0])
        finally:
            process.terminate()
            os.close(to_read[1])
            os.close(to_write[0])


class Chromium:
    """The browser, with one page. ``errors`` collects what the page's scripts raised or logged as errors."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._numbers = itertools.count(1)
        self._pending = b""
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Send one command; returns the answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _wait_for(self, event: str) -> None:
        while self._read().get("method") != event:
            pass

    def _read(self) -> dict[str, Any]:
        limit = time.monotonic() + _SECONDS
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, limit - time.monotonic()))
            data = os.read(self._answers, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._pending += data
        first, self._pending = self._pending.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        self._note_errors(message)
        return message

    def _note_errors(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])

    def open(self, path: Path, *, dark: bool = False, size: tuple[int, int] = (1000, 800)) -> None:
        """Open a file, and wait until it is loaded."""
        self.errors.clear()
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=theme)
        width, height = size
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send("Page.navigate", url=path.as_uri())
        self._wait_for("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """What the page shows, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot")["data"])
