"""Chromium without a window, driven through its debugging pipe: clicks, keys, sizes and colours as users have them."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}


class Page:
    """A page that is open in the browser."""

    def __init__(self, send, receive):
        self._send, self._receive, self._session = send, receive, None
        self._numbers = itertools.count(1)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.messages = []
        for name in ("Page", "Runtime", "Log"):
            self.call(f"{name}.enable")

    def call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._send(message if self._session is None else {**message, "sessionId": self._session})
        while True:
            reply = self._receive()
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return reply["result"]
            if reply.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.messages.append(reply["params"])

    def look(self, width, *, is_dark=False, has_script=True):
        """Set the size of the window, the colour scheme, and whether scripts run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not has_script)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression):
        """Return the value of an expression; this works in pages whose own scripts are off, too."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression):
        until = time.monotonic() + 20
        while not self.run(expression):
            assert time.monotonic() < until, expression
            time.sleep(0.02)

    def fill(self, id_, text):
        self.run(f"document.getElementById({json.dumps(id_)}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector):
        """Click the middle of an element, and wait for the page that follows."""
        self.run("document.documentElement.dataset.old = 'yes'")
        place = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{place}.scrollIntoView({{block: 'center'}})")
        box = self.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({place}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        self.wait("document.readyState === 'complete' && !document.documentElement.dataset.old")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            code = _KEYS[key]
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def shot(self, path):
        """Save a picture of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(found["data"]))


def _moved(descriptor):
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


@contextmanager
def browsing(folder):
    """Start the browser; yield a page."""
    # Pipes with numbers above those that the browser uses: it reads from descriptor 3 and writes to 4.
    (read_by_browser, write), (read, written_by_browser) = (map(_moved, os.pipe()) for _ in range(2))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"]
    command = [BROWSER, *options, "--remote-debugging-pipe", "about:blank"]
    shell = f'exec "$@" 3<&{read_by_browser} 4>&{written_by_browser}'
    browser = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=(read_by_browser, written_by_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_by_browser)
    os.close(written_by_browser)
    rest = b""

    def send(message):
        os.write(write, json.dumps(message).encode() + b"\0")

    def receive():
        nonlocal rest
        while b"\0" not in rest:
            part = os.read(read, 65536)
            assert part, "the browser ended"
            rest += part
        message, rest = rest.split(b"\0", 1)
        return json.loads(message)

    try:
        yield Page(send, receive)
    finally:
        browser.terminate()
        browser.wait(30)
        os.close(write)
        os.close(read)
