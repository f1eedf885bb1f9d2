"""What scripts share that ask `carat serve`: the server as a process, requests, streams.

    with Server("demo", "--parallel", "2") as server:
        status, headers, body = server.ask("POST", "/tokenize", {"content": "Hi"})
        for event in server.stream("/v1/chat/completions", {..., "stream": True}):
"""
import http.client
import json
import queue
import re
import signal
import socket
import subprocess
import threading
import time

from program import (LIMIT, PROGRAM, ROOT, Skip, environment, libraries, need_demo,
                     wait_until)

ADDRESS = r"answers on (?:https?://(?:\[([^\]]+)\]|([^:]+)):(\d+)|(/.+))"


def need_server():
    for library in ("libmicrohttpd", "jansson"):
        if library not in libraries():
            raise Skip(f"built without {library}")
    need_demo()


class Server:
    """`carat serve` on a free port of this machine."""

    def __init__(self, model="demo", *options, env=None, port="0"):
        need_server()
        self.process = subprocess.Popen(
            [PROGRAM, "serve", model, "--port", port, *map(str, options)], cwd=ROOT,
            env=env or environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace")
        self.lines = queue.Queue()
        self.log = []  # lines of standard error so far
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.host = self.port = self.path = None
        self.find_address()

    def read(self):
        for line in self.process.stderr:
            self.lines.put(line)
        self.lines.put(None)

    def wait_for_line(self, pattern, seconds=LIMIT):
        """The match of the first line that comes from now on and has the pattern."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{pattern!r} did not come: {self.log[-5:]}") from None
            if line is None:
                raise AssertionError(f"ended before {pattern!r}: {self.log[-5:]}")
            self.log.append(line)
            match = re.search(pattern, line)
            if match:
                return match

    def find_address(self):
        try:
            match = self.wait_for_line(ADDRESS)
        except AssertionError:
            self.kill()
            raise
        self.path = match.group(4)
        if not self.path:
            self.host, self.port = match.group(1) or match.group(2), int(match.group(3))

    def whole_log(self):
        """All of standard error, once the process has ended."""
        self.reader.join(LIMIT)
        while not self.lines.empty():
            line = self.lines.get()
            if line:
                self.log.append(line)
        return "".join(self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self.process.stdout.close()

    def stop(self, number=signal.SIGTERM):
        """Ends it in order; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(LIMIT)
        finally:
            self.kill()

    # ---- Requests

    def connect(self):
        connection = http.client.HTTPConnection(self.host or "localhost", self.port, timeout=LIMIT)
        if self.path:
            connection.sock = self.socket()
        return connection

    def socket(self):
        if not self.path:
            return socket.create_connection((self.host, self.port), timeout=LIMIT)
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(LIMIT)
        one.connect(self.path)
        return one

    def listens(self):
        try:
            self.socket().close()
            return True
        except ConnectionRefusedError:
            return False

    def ask(self, method, path, body=None, headers=None):
        """Status, headers, and the body: JSON as a value, anything else as text."""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            reply = connection.getresponse()
            text = reply.read().decode()
            is_json = (reply.getheader("Content-Type") or "").startswith("application/json")
            return reply.status, reply.headers, json.loads(text) if is_json and text else text
        finally:
            connection.close()

    def chat(self, prompt, headers=None, **more):
        """Status and body of one answer."""
        request = {"messages": [{"role": "user", "content": prompt}], **more}
        status, _, body = self.ask("POST", "/v1/chat/completions", request, headers)
        return status, body

    def open(self, path, body, headers=None):
        """A stream that goes on until it is closed."""
        return Stream(self, path, body, headers)

    def stream(self, path, body, headers=None):
        """The events of a whole stream: the JSON of each, and "[DONE]"."""
        with self.open(path, body, headers) as stream:
            return list(stream)

    def metric(self, name, **labels):
        """The sum of a metric's series that have these labels."""
        total, found = 0.0, False
        for line in self.ask("GET", "/metrics")[2].splitlines():
            match = re.fullmatch(r"([^ {]+)(\{.*\})? (\S+)", line)
            wanted = all(f'{k}="{v}"' in (match.group(2) or "") for k, v in labels.items()) \
                if match else False
            if match and match.group(1) == name and wanted:
                total, found = total + float(match.group(3)), True
        if not found:
            raise AssertionError(f"no metric {name} {labels}")
        return total

    def busy(self):
        """Sequences at work."""
        return sum(slot["is_processing"] for slot in self.ask("GET", "/slots")[2])

    def wait_until(self, is_true, seconds=LIMIT):
        """How long it took; fails when it does not come true."""
        return wait_until(is_true, f"of {self.log[-3:]}", seconds)


class Stream:
    """The reply to a request, event by event. Comments are in `comments`."""

    def __init__(self, server, path, body, headers=None):
        self.connection = server.connect()
        self.connection.request("POST", path, json.dumps(body), headers or {})
        self.reply = self.connection.getresponse()
        self.status = self.reply.status
        self.comments = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.reply.close()
        self.connection.close()

    def __iter__(self):
        for line in self.reply:
            text = line.decode().rstrip("\r\n")
            if text.startswith(":"):
                self.comments.append(text)
            if text.startswith("data: "):
                data = text[len("data: "):]
                yield data if data == "[DONE]" else json.loads(data)


def text_of(events):
    """The text of a stream of chat completions."""
    return "".join(choice["delta"].get("content") or "" for event in events
                   if event != "[DONE]" for choice in event.get("choices", []))


