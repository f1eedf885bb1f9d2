"""A server that says what a script tells it, with the page of src/server/page.

A script is a list of steps: a dictionary is sent as the delta of a chunk, a number waits this many
seconds, an Event waits until it is set, a string is sent as it is, and a Step does something else.
"""
import enum
import http.server
import json
import re
import threading
import time

from program import LIMIT, ROOT

PAGE = ROOT / "src/server/page"
FILES = {"/": ("index.html", "text/html"), "/ui/app.js": ("app.js", "text/javascript"),
         "/ui/style.css": ("style.css", "text/css"), "/ui/icon.svg": ("icon.svg", "image/svg+xml")}


class Step(enum.Enum):
    CUT = "the connection ends in the middle"
    STOP = "the end of an answer"
    LENGTH = "an answer that was too long"
    CALLS = "an answer that calls tools"
    FOR_EVER = "tokens until the client leaves"


USAGE = {"prompt_tokens": 1234, "completion_tokens": 56, "total_tokens": 1290,
         "prompt_tokens_details": {"cached_tokens": 1000}}
TIMINGS = {"cache_n": 1000, "prompt_n": 234, "prompt_ms": 20.0, "predicted_n": 56,
           "predicted_ms": 560.0, "predicted_per_second": 100.0}
ENDS = {Step.STOP: "stop", Step.LENGTH: "length", Step.CALLS: "tool_calls"}


def policy():
    text = (PAGE.parent / "page.h").read_text(encoding="utf-8")
    return re.search(r'#define PAGE_POLICY[\s\\]*"([^"]*)"', text)[1]


def text(*pieces):
    """Steps of an answer of these pieces."""
    return [{"content": piece} for piece in pieces] + [Step.STOP]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body, **fields):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **fields}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, value, status=200, **fields):
        self.reply(status, "application/json", json.dumps(value).encode(), **fields)

    def is_allowed(self):
        key = self.server.mock.key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.reply_json({"error": {"message": "an API key is needed",
                                   "type": "authentication_error"}}, 401)
        return False

    def do_GET(self):
        if self.path in FILES:
            name, kind = FILES[self.path]
            fields = {"Content_Security_Policy": policy()}
            self.reply(200, kind, (PAGE / name).read_bytes(), **fields)
        elif not self.is_allowed():
            pass
        elif self.path == "/v1/models":
            self.reply_json({"data": [{"id": "mock-model", "meta": {"n_ctx": 32768}}]})
        elif self.path == "/props":
            self.reply_json({"default_generation_settings": {"params": {
                "temperature": 1.0, "top_p": 0.95, "top_k": 64, "min_p": 0.0}}})
        else:
            self.reply_json({"error": {"message": "no such route"}}, 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_allowed():
            return
        mock = self.server.mock
        mock.requests.append(body)
        script = mock.scripts.pop(0) if mock.scripts else text("Nothing was planned.")
        if isinstance(script, tuple):  # a status and an error
            self.reply_json({"error": {"message": script[1]}}, script[0], Retry_After=2)
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for step in script:
                self.take(step)
            if script[-1] is not Step.CUT:
                self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            mock.departed.set()

    def take(self, step):
        if isinstance(step, (int, float)):
            time.sleep(step)
        elif isinstance(step, threading.Event):
            step.wait(LIMIT)
        elif isinstance(step, str):
            self.wfile.write(step.encode())
        elif isinstance(step, dict):
            self.chunk(choices=[{"index": 0, "delta": step, "finish_reason": None}])
        elif step is Step.FOR_EVER:
            while True:
                self.take({"content": "more "})
                time.sleep(0.02)
        elif step in ENDS:
            self.chunk(choices=[{"index": 0, "delta": {}, "finish_reason": ENDS[step]}])
            self.chunk(choices=[], usage=USAGE, timings=TIMINGS)

    def chunk(self, **members):
        self.wfile.write(f"data: {json.dumps(members)}\n\n".encode())


class Mock:
    """`scripts` are played one for each request; `requests` has the bodies that came."""

    def __init__(self, *scripts, key=None):
        self.scripts, self.requests, self.key = list(scripts), [], key
        self.departed = threading.Event()  # a client has left in the middle
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.mock = self
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
