"""What the scripts of this folder share: a server as a process, requests as raw bytes, running.

A script defines functions test_NAME(server) and ends with `harness.main(globals(), start)`; the
server is started once for all of them. Words after the program choose tests by name.
"""
import contextlib
import pathlib
import queue
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from program import PROGRAM, Skip, at_best, expect, is_sanitized, wait_until

HOST = b"Host: localhost\r\n"
LIMIT = 60  # seconds for what comes at once, unless the machine is very busy


class Server:
    """The program; what it prints is kept with the time at which it came."""

    def __init__(self, *options, **more):
        self.process = subprocess.Popen([PROGRAM, *options], stdout=subprocess.PIPE, **more)
        self.lines = []
        self.news = queue.Queue()
        first = self.process.stdout.readline().decode()
        expect(first.startswith("port "), f"the server did not start: {first}")
        self.port = int(first.split()[1])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.decode().strip()))
            self.news.put(None)

    def line(self, beginning, limit=LIMIT):
        """Waits for a line that begins so; returns when it came, and the line."""
        end = time.monotonic() + limit
        while True:
            for when, line in list(self.lines):
                if line.startswith(beginning):
                    return when, line
            left = end - time.monotonic()
            expect(left > 0, f"no line {beginning!r} in {limit} s: {self.lines[-5:]}")
            with contextlib.suppress(queue.Empty):
                self.news.get(timeout=min(left, 0.1))

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024

    def connect(self, limit=LIMIT):
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(limit)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(timeout=LIMIT)
        finally:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Reply:
    """One reply, read from a socket. `rest`: bytes after it that were read, too."""

    def __init__(self, s, before=b"", is_head=False):
        data = before
        while b"\r\n\r\n" not in data:
            data += self._more(s)
        head, data = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.fields = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            self.fields[name.lower()] = value
        if self.status == 100:
            self.body, self.rest = b"", data
        elif is_head or self.status in (204, 304):
            self.body, self.rest = b"", data
        elif self.fields.get("transfer-encoding") == "chunked":
            self.body, self.rest = self._chunks(s, data)
        elif "content-length" in self.fields:
            length = int(self.fields["content-length"])
            while len(data) < length:
                data += self._more(s)
            self.body, self.rest = data[:length], data[length:]
        else:
            while piece := s.recv(65536):
                data += piece
            self.body, self.rest = data, b""

    @staticmethod
    def _more(s):
        piece = s.recv(65536)
        expect(piece, "the connection ended within a reply")
        return piece

    def _chunks(self, s, data):
        body = b""
        while True:
            while b"\r\n" not in data:
                data += self._more(s)
            size, data = data.split(b"\r\n", 1)
            size = int(size, 16)
            while len(data) < size + 2:
                data += self._more(s)
            expect(data[size:size + 2] == b"\r\n", "a chunk does not end with CRLF")
            body += data[:size]
            data = data[size + 2:]
            if size == 0:
                return body, data


def canary(server):
    reply, _ = ask(server, get(b"/echo"))
    expect(reply.status == 200 and reply.body.startswith(b"GET /echo 0"), "the server is not well")


def get(path, *fields, method=b"GET", body=b"", version=b"HTTP/1.1", host=HOST):
    """The bytes of a request."""
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    extra = b"".join(f + b"\r\n" for f in fields)
    return method + b" " + path + b" " + version + b"\r\n" + host + extra + length + b"\r\n" + body


def ask(server, request, limit=LIMIT):
    """Sends these bytes on a new connection; the first reply, whether the connection ended."""
    with server.connect(limit) as s:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.sendall(request)
        reply = Reply(s, is_head=request.startswith(b"HEAD "))
        while reply.status == 100:
            reply = Reply(s, reply.rest, is_head=request.startswith(b"HEAD "))
        return reply, not goes_on(s)


def goes_on(s):
    """Whether another request on this connection is answered."""
    try:
        s.sendall(get(b"/echo"))
        return Reply(s).body.startswith(b"GET /echo 0") or not has_ended(s)
    except TimeoutError:
        raise
    except (OSError, AssertionError):
        return False


def has_ended(s, seconds=LIMIT):
    """Whether the other side closes in this time."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except (TimeoutError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def reset(s):
    """Closes with a reset."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def main(names, start):
    """Runs the functions test_* of `names` on one server, and exits: 1 if one of them failed."""
    words = sys.argv[2:]
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    with start() as server:
        for name, test in list(names.items()):
            if not name.startswith("test_") or (words and not any(w in name for w in words)):
                continue
            begin, result, why = time.monotonic(), "ok", ""
            try:
                test(server)
            except Skip as reason:
                result, why = "skip", f": {reason}"
            except Exception as error:  # whatever it is, the others are run
                result, why = "FAIL", f": {type(error).__name__}: {error}"
            counts[result] += 1
            print(f"{result:4} {name[5:].replace('_', ' ')} "
                  f"({time.monotonic() - begin:.1f} s){why}", flush=True)
        status = server.stop()
    if status != 0:
        counts["FAIL"] += 1
        print(f"FAIL the server ended with {status}")
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    sys.exit(1 if counts["FAIL"] else 0)
