"""Headless Chromium, driven over a pipe by its DevTools protocol: no driver program and no package beside it."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root may not use it
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 60.0


def find_browser() -> str | None:
    """The program; None where there is none. GROUPWISE_CHROMIUM names another."""
    named = os.environ.get("GROUPWISE_CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


class BrowserError(AssertionError):
    """The browser or a script in the page failed."""


class Tab:
    """One page and everything that it complained of or asked for.

    Attributes:
        complaints: errors and warnings of the console, exceptions, and what the security policy refused.
        requests: addresses that were asked for, the document itself aside.
    """

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def take_pipes() -> None:
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        # Ends well above 3 and 4, so that neither is overwritten while the other is being put there.
        to_browser, from_browser = (_moved(fd) for fd in (to_browser, from_browser))
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=take_pipes,
            close_fds=False,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.address = ""
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path) -> None:
        """Load a file and wait until its scripts have run."""
        self.address = path.absolute().as_uri()
        self._events.clear()
        self.call("Page.navigate", url=self.address)
        deadline = time.monotonic() + _SECONDS
        while "Page.loadEventFired" not in self._events:
            if time.monotonic() > deadline:
                raise BrowserError(f"{path} did not finish loading")
            self.call("Runtime.evaluate", expression="0")
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression as soon as it is true."""
        deadline = time.monotonic() + _SECONDS
        while not (value := self.run(script)):
            if time.monotonic() > deadline:
                raise BrowserError(f"it never came to pass: {script}")
            time.sleep(0.02)
        return value

    def each(self, selector: str, expression: str) -> list[Any]:
        """An expression in `e` for every element of a selector."""
        found: list[Any] = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => {expression})"
        )
        return found

    def texts(self, selector: str) -> list[str]:
        """The text of every element of a selector."""
        return self.each(selector, "e.textContent")

    def press(self, key: str) -> None:
        """One key, as a person presses it."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}.get(key, 0)
        text = "\r" if key == "Enter" else key if len(key) == 1 else None
        down = {"type": "keyDown" if text else "rawKeyDown", "key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", **down, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def click(self, selector: str) -> None:
        """The middle of an element, as a person clicks it."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getClientRects()[0];"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def window(self, width: int, height: int, *, dark: bool = False) -> None:
        """Size and preferred colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {
                "name": "prefers-reduced-motion",
                "value": "reduce",
            },  # else a click may come while the page scrolls
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is seen, or of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(BrowserError, OSError):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], _SECONDS)
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser does not answer")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, said: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(
                said["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{said['type']}: {[a.get('value') for a in said['args']]}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{said['entry']['level']}: {said['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {said['message']}")
            self._dismiss()
        elif method == "Network.requestWillBeSent" and said["request"]["url"] != self.address:
            self.requests.append(said["request"]["url"])

    def _dismiss(self) -> None:
        self._count += 1
        message = {
            "id": -self._count,
            "method": "Page.handleJavaScriptDialog",
            "params": {"accept": False},
            "sessionId": self._session,
        }
        os.write(self._write, json.dumps(message).encode() + b"\0")


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A tab of a browser of its own, ended with the block."""
    program = find_browser()
    assert program is not None
    tab = Tab(program, profile)
    try:
        yield tab
    finally:
        tab.close()


def _moved(fd: int) -> int:
    new = fcntl.fcntl(fd, fcntl.F_DUPFD, 20)
    os.close(fd)
    return new
