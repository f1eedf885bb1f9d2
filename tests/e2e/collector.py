"""A collector of OpenTelemetry for tests: takes OTLP over HTTP in JSON, as strictly as the
mapping is written, or does not answer as it should."""
import contextlib
import http.server
import json
import re
import ssl
import threading
import time

from program import expect, wait_until

VALUES = {"stringValue": str, "intValue": str, "doubleValue": (int, float), "arrayValue": dict}


def read_value(value):
    expect(len(value) == 1 and set(value) <= set(VALUES), f"value {value}")
    kind, inner = next(iter(value.items()))
    expect(isinstance(inner, VALUES[kind]) and not isinstance(inner, bool), f"value {value}")
    if kind == "intValue":
        expect(re.fullmatch(r"0|-?[1-9]\d{0,18}", inner), f"value {value}")
        return int(inner)
    if kind == "arrayValue":
        expect(set(inner) == {"values"}, f"value {value}")
        return [read_value(one) for one in inner["values"]]
    return inner


def read_attributes(items):
    found = {}
    for item in items:
        expect(set(item) == {"key", "value"} and item["key"] not in found, f"attribute {item}")
        found[item["key"]] = read_value(item["value"])
    return found


def read_nanoseconds(text):
    expect(isinstance(text, str) and re.fullmatch(r"[1-9]\d{17,19}", text), f"time {text!r}")
    return int(text)


class Span:
    """One that was sent. Fails at what the mapping does not have."""

    def __init__(self, data, resource):
        must = {"traceId", "spanId", "flags", "name", "kind", "startTimeUnixNano",
                "endTimeUnixNano", "attributes", "status"}
        expect(must <= set(data) <= must | {"parentSpanId"}, f"members {sorted(data)}")
        self.trace, self.id, self.parent = data["traceId"], data["spanId"], \
            data.get("parentSpanId")
        for text, digits in (self.trace, 32), (self.id, 16), (self.parent, 16):
            expect(text is None or re.fullmatch(r"[0-9a-f]{%d}" % digits, text)
                   and text.strip("0"), f"id {text!r}")
        expect(data["kind"] == 2, f"kind {data['kind']!r}")
        expect(data["flags"] == (0x301 if self.parent else 0x101), f"flags {data['flags']!r}")
        expect(set(data["status"]) <= {"code"}, f"status {data['status']}")
        self.is_error = data["status"].get("code", 0) == 2
        self.begin = read_nanoseconds(data["startTimeUnixNano"])
        self.end = read_nanoseconds(data["endTimeUnixNano"])
        expect(self.begin <= self.end, f"{self.begin} to {self.end}")
        self.name, self.resource = data["name"], resource
        self.attributes = read_attributes(data["attributes"])

    def __getitem__(self, name):
        return self.attributes.get(name)


def read_spans(body):
    data = json.loads(body)
    expect(set(data) == {"resourceSpans"} and len(data["resourceSpans"]) == 1, f"{sorted(data)}")
    one = data["resourceSpans"][0]
    expect(set(one) == {"resource", "scopeSpans"} and set(one["resource"]) == {"attributes"},
           f"{sorted(one)}")
    resource = read_attributes(one["resource"]["attributes"])
    expect(len(one["scopeSpans"]) == 1, "scopes")
    scope = one["scopeSpans"][0]
    expect(set(scope) == {"scope", "spans"} and set(scope["scope"]) == {"name", "version"},
           f"{sorted(scope)}")
    return [Span(span, resource) for span in scope["spans"]]


class Collector:
    """Takes what comes to 127.0.0.1. `behave` gets the number of a request and says how it is
    answered: by a status, or by a function of the handler."""

    def __init__(self, behave=lambda number: 200, certificate=None):
        self.behave = behave
        self.bodies, self.heads, self.paths = [], [], []
        self.taken = []  # bodies that were answered with 200
        self.lock = threading.Lock()
        self.is_over = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
        self.url = f"{self.scheme}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handler(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                with collector.lock:
                    collector.paths.append(f"GET {self.path}")
                self.send_error(405)

            def do_POST(self):
                collector.take(self)

        return Handler

    def take(self, handler):
        with contextlib.suppress(OSError):
            body = handler.rfile.read(int(handler.headers["Content-Length"]))
            with self.lock:
                number = len(self.bodies)
                self.bodies.append(body)
                self.heads.append(handler.headers)
                self.paths.append(handler.path)
            answer = self.behave(number)
            if callable(answer):
                handler.close_connection = True
                answer(handler)
                return
            if answer == 200:
                with self.lock:
                    self.taken.append(body)
            text = b"{}"
            handler.send_response(answer)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)

    def spans(self):
        with self.lock:
            bodies = list(self.taken)
        return [span for body in bodies for span in read_spans(body)]

    def wait_for(self, n):
        """All spans, once there are n."""
        wait_until(lambda: len(self.spans()) >= n, f"{n} spans")
        return self.spans()

    def hang(self, _):
        """An answer that does not come as long as the collector is there."""
        self.is_over.wait()

    def pour(self, handler, first, piece):
        """One that does not end."""
        handler.wfile.write(first)
        while not self.is_over.is_set():
            handler.wfile.write(piece)
            time.sleep(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.server.shutdown()
        self.server.server_close()
