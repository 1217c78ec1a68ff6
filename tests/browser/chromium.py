"""A page in chromium, and checks that print what holds."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars""".split()


def skip_without_chromium():
    if not shutil.which("chromedriver") or not shutil.which("chromium"):
        print("skipped: chromium and chromium-driver are not installed")
        sys.exit(0)


def must(holds, what):
    """Checks one condition."""
    if not holds:
        sys.exit(f"not so: {what}")
    print(f"ok: {what}")


class Browser:
    """A page in chromium, by the WebDriver protocol."""

    def __init__(self, folder, size, screenshots=None):
        self.screenshots = screenshots
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.root = f"http://127.0.0.1:{port}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], **quiet)
        options = {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, f"--user-data-dir={folder}", f"--window-size={size}"],
        }
        asked = {"browserName": "chrome", "goog:chromeOptions": options}
        asked["goog:loggingPrefs"] = {"browser": "ALL"}
        for _ in range(100):
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
                self.root += f"/session/{made['sessionId']}"
                return
            time.sleep(0.1)
        self.close()
        sys.exit("chromedriver does not start")

    def ask(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.root + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as e:
            sys.exit(f"{method} {path}: {e.read().decode()}")

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script):
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def console(self):
        return self.ask("POST", "/se/log", {"type": "browser"})

    def picture(self, name):
        if self.screenshots:
            self.screenshots.mkdir(parents=True, exist_ok=True)
            bytes = base64.b64decode(self.ask("GET", "/screenshot"))
            (self.screenshots / f"{name}.png").write_bytes(bytes)

    def close(self):
        with contextlib.suppress(Exception):
            self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait()

    def check_static(self, page, name):
        """Checks that a page runs nothing, loads nothing from elsewhere, and fits wide and narrow
        windows."""
        for size, width in (("wide", 1200), ("narrow", 420)):
            self.ask("POST", "/window/rect", {"width": width, "height": 1000})
            self.open(page)
            self.picture(f"{name}-{size}")
            fits = "return document.documentElement.scrollWidth <= window.innerWidth"
            must(self.run(fits), f"{name} fits a {size} window")
        must(self.run("return document.querySelectorAll('script').length") == 0, "nothing runs")
        loaded = self.run("return performance.getEntriesByType('resource').map(of => of.name)")
        loaded = [name for name in loaded if not name.startswith("data:")]
        must(not loaded, f"nothing is loaded from elsewhere {loaded or ''}")
        said = [entry["message"] for entry in self.console()]
        must(not said, f"the console is empty {said or ''}")
