"""A browser that is driven: Chromium by its WebDriver, over HTTP from the standard library.

    with Browser() as browser:
        browser.go("http://127.0.0.1:8080/")
        browser.find("#input").type("Hello", ENTER)
"""
import atexit
import base64
import functools
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from program import LIMIT, Skip, expect

ENTER, ESCAPE, TAB, SHIFT, CONTROL = "\ue007", "\ue00c", "\ue004", "\ue008", "\ue009"
BACKSPACE = "\ue003"
NAME = "element-6066-11e4-a52e-4f735466cecf"  # what WebDriver calls an element in JSON


class Element:
    def __init__(self, browser, name):
        self.browser, self.name = browser, name

    def call(self, method, path, **body):
        return self.browser.call(method, f"/element/{self.name}{path}", **body)

    def click(self):
        self.call("POST", "/click")

    def type(self, *texts):
        self.call("POST", "/value", text="".join(texts))

    def clear(self):
        self.call("POST", "/clear")


class Browser:
    def __init__(self, size=(1280, 800)):
        driver = shutil.which("chromedriver")
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        if not driver or not chromium:
            raise Skip("chromium and chromedriver are not both installed")
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
        for line in self.driver.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                break
        else:
            raise AssertionError("chromedriver has ended before it named its port")
        self.port = int(found[1])
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--no-first-run", "--force-device-scale-factor=1", "--hide-scrollbars",
                     f"--user-data-dir={self.folder.name}", f"--window-size={size[0]},{size[1]}"]
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"binary": chromium, "args": arguments}}
        self.session = None
        self.session = "/session/" + self.call(
            "POST", "/session", capabilities={"alwaysMatch": wanted})["sessionId"]
        self.resize(*size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", "")
        except OSError:
            pass
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.driver.stdout.close()
        self.folder.cleanup()

    def call(self, method, path, **body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        text = json.dumps(body) if method == "POST" else None
        connection.request(method, (self.session or "") + path, text,
                           {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(value, dict) and "error" in value:
            raise ValueError(f"{path}: {value['error']}: {value['message'].splitlines()[0]}")
        return value

    def go(self, url):
        self.call("POST", "/url", url=url)

    def reload(self):
        self.call("POST", "/refresh")

    def find(self, selector):
        found = self.call("POST", "/element", using="css selector", value=selector)
        return Element(self, found[NAME])

    def focused(self):
        return Element(self, self.call("GET", "/element/active")[NAME])

    def run(self, script, *arguments):
        """What the JavaScript returns."""
        return self.call("POST", "/execute/sync", script=script, args=list(arguments))

    def wait(self, script, *arguments, seconds=LIMIT):
        """Waits until the expression is true; returns its value."""
        end = time.monotonic() + seconds
        while not (value := self.run(f"return {script}", *arguments)):
            expect(time.monotonic() < end,
                   f"never true: {script}; the page says {self.text('body')[-600:]!r}")
            time.sleep(0.02)
        return value

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])]"
                        ".map((one) => one.innerText)", selector)

    def keys(self, *keys):
        """Presses keys where the focus is: all of them, then lets them go."""
        actions = [{"type": "keyDown", "value": key} for key in keys]
        actions += [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.call("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def resize(self, width, height):
        """The size of the page itself, also below what a window can have."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=False)

    def colours(self, name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def log(self):
        """What the browser has complained about since the last call."""
        return [entry["message"] for entry in self.call("POST", "/se/log", type="browser")]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))


@functools.cache
def _only_browser():
    browser = Browser()
    atexit.register(browser.__exit__)
    return browser


def browser_at(url, size=(1280, 800)):
    """The one browser of a script, at this page. What pages keep, they keep by their port, and each
    server has another one: no test sees what one before it has left."""
    browser = _only_browser()
    browser.resize(*size)
    browser.devtools("Emulation.setEmulatedMedia", features=[])
    browser.log()
    browser.go(url)
    return browser
