#!/usr/bin/env python3
"""Three servers with the demo model behind HAProxy, as deploy/haproxy.cfg says: conversations stay
with their server, what many ask spreads, servers end, and no request is taken for two.

usage: tests/e2e/test_fleet.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from program import LIMIT, ROOT, Skip, environment, expect, is_sanitized, main, sized, wait_until
from server import Server, need_server

CHAT = "/v1/chat/completions"
KEY = "a-key-of-this-test"
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


def slow():
    """Options with which an answer of the demo model takes a second or more."""
    return () if is_sanitized() else ("--backend", "ref")  # sanitizers are slow enough


class Fleet:
    """The servers, and HAProxy with the project's file, in which only ports are others. Replies get
    a header with the name of their server."""

    def __init__(self, *options):
        if not shutil.which("haproxy"):
            raise Skip("haproxy is not installed")
        need_server()
        self.folder = tempfile.TemporaryDirectory()
        # Who connects before the proxy runs waits.
        self.front = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port, self.servers, self.log = self.front.getsockname()[1], [], []
        keys = os.path.join(self.folder.name, "keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write(KEY + "\n")
        for _ in range(3):
            self.servers.append(Server("demo", "--parallel", 4, "--api-key-file", keys, *options,
                                       env=environment(CARAT_THREADS="1")))
        path = os.path.join(self.folder.name, "haproxy.cfg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.configuration())
        self.proxy = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True,
                                      pass_fds=[self.front.fileno()])
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        wait_until(lambda: self.ask("GET", "/health/ready")[0] == 200, "HAProxy answers")

    def configuration(self):
        text = (ROOT / "deploy/haproxy.cfg").read_text(encoding="utf-8")
        text, n = re.subn(r"bind 127\.0\.0\.1:8000", f"bind fd@{self.front.fileno()}\n"
                          "    http-response set-header x-server %s", text)
        expect(n == 1, "the frontend's port")
        # On a busy machine a check of a healthy server may take longer than a second.
        text, n = re.subn("timeout connect 3s", "timeout connect 60s\n    timeout check 60s", text)
        expect(n == 1, "the time limit of connections")
        for i, server in enumerate(self.servers):
            text, n = re.subn(rf"(server carat{i + 1}) 127\.0\.0\.1:\d+",
                              rf"\1 127.0.0.1:{server.port}", text)
            expect(n == 2, f"server {i + 1}")
        return text

    def read(self):
        for line in self.proxy.stdout:
            self.log.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proxy.kill()
        self.proxy.wait(LIMIT)
        self.reader.join(LIMIT)
        self.proxy.stdout.close()
        self.front.close()
        for server in self.servers:
            server.kill()
        self.folder.cleanup()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def ask(self, method, path, body=None, headers=None):
        """Status, server and body."""
        connection = self.connect()
        try:
            connection.request(method, path, json.dumps(body) if body else None,
                               {**HEADERS, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, reply.getheader("x-server"), reply.read().decode()
        finally:
            connection.close()

    def stream(self, key, **more):
        messages = [{"role": "user", "content": "Tell me a story."}]
        return Stream(self.connect(), {"messages": messages, "prompt_cache_key": key,
                                       "stream": True, **more})

    def of(self, name):
        return self.servers[int(name.removeprefix("carat")) - 1]


class Stream:
    """A streamed answer; `server` is known once it has begun."""

    def __init__(self, connection, body):
        self.connection = connection
        connection.request("POST", CHAT, json.dumps(body), HEADERS)
        self.reply = connection.getresponse()
        self.status, self.server = self.reply.status, self.reply.getheader("x-server")

    def is_whole(self):
        """Reads the rest; whether it came to its end."""
        try:
            return b"data: [DONE]" in self.reply.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            self.connection.close()


# ---- Who gets what ---------------------------------------------------------------------------

def converse(fleet, number, kind):
    """The servers of the four turns of a conversation that is named in one of four ways."""
    messages, body, headers, servers = [], {"max_tokens": 2}, {}, []
    if kind == "header":
        headers["x-session-id"] = f"session {number}"
    elif kind == "key":
        body["prompt_cache_key"] = f"key {number}"
    elif kind == "user":
        body["metadata"] = {"user_id": f"user {number}"}
    else:
        messages.append({"role": "system", "content": "You tell stories."})
    for turn in range(4):
        messages.append({"role": "user", "content": f"{number}: a story, part {turn}."})
        status, server, text = fleet.ask("POST", CHAT, {**body, "messages": messages}, headers)
        expect(status == 200, f"{status}: {text}")
        servers.append(server)
        messages.append({"role": "assistant",
                         "content": json.loads(text)["choices"][0]["message"]["content"] or "."})
    return servers


def test_conversations_stay_and_what_many_ask_spreads():
    with Fleet() as fleet:
        kinds = ["header", "key", "user", "messages"] * sized(5, 3)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i: converse(fleet, i, kinds[i]), range(len(kinds))))
        for kind in sorted(set(kinds)):
            later = [server == servers[0] for k, servers in zip(kinds, found) if k == kind
                     for server in servers[1:]]
            print(f"{kind}: {sum(later)} of {len(later)} later turns at their server")
        stayed = sum(server == servers[0] for servers in found for server in servers[1:])
        expect(stayed >= 0.95 * 3 * len(found), f"{stayed} of {3 * len(found)} turns stayed")
        firsts = collections.Counter(servers[0] for servers in found)
        expect(len(firsts) == 3, f"conversations are not shared out: {firsts}")

        body = {"messages": [{"role": "user", "content": "What everybody asks"}], "max_tokens": 16,
                "prompt_cache_key": "hot"}
        with concurrent.futures.ThreadPoolExecutor(60) as pool:
            replies = list(pool.map(lambda _: fleet.ask("POST", CHAT, body), range(60)))
        expect(all(status == 200 for status, _, _ in replies), f"{[r[0] for r in replies]}")
        hot = collections.Counter(server for _, server, _ in replies)
        print(f"one key, 60 requests: {dict(hot)}")
        expect(len(hot) > 1 and max(hot.values()) <= 45, f"a hot prefix does not spread: {hot}")


# ---- Servers that end ------------------------------------------------------------------------

def test_a_killed_server_loses_its_own_streams_alone():
    with Fleet(*slow()) as fleet:
        streams = []
        while len({s.server for s in streams}) < 3 or len(streams) < 6:
            expect(len(streams) < 24, f"all at {({s.server for s in streams})}")
            streams.append(fleet.stream(f"key {len(streams)}", max_tokens=sized(500, 200),
                                        ignore_eos=True))
        victim = streams[-1].server  # its newest stream has just begun
        fleet.of(victim).process.send_signal(signal.SIGKILL)
        new = [fleet.ask("POST", "/tokenize", {"content": "Hi"}, {"x-session-id": f"{i}"})
               for i in range(30)]  # at once: before the next check of its health
        expect(all(status == 200 and server != victim for status, server, _ in new),
               f"requests after it: {[(status, server) for status, server, _ in new]}")
        wholes = [stream.is_whole() for stream in streams]
        expect(not wholes[-1], "a stream of the killed server came to its end")
        ends = [(stream.server, is_whole) for stream, is_whole in zip(streams, wholes)]
        expect(all(is_whole or server == victim for server, is_whole in ends),
               f"{victim} is killed: {ends}")
        print(f"{len(streams) - sum(wholes)} of {len(streams)} streams were lost")


def test_a_draining_server_ends_its_streams_and_gets_no_new_work():
    with Fleet(*slow()) as fleet:
        stream = fleet.stream("key", max_tokens=200, ignore_eos=True)
        leaving = fleet.of(stream.server)
        status, _, body = leaving.ask("POST", "/drain", headers=HEADERS)
        expect(status == 200, f"/drain: {status} {body}")
        for i in range(40):  # some of them before the next check of its health
            status, server, text = fleet.ask("POST", "/tokenize", {"content": "Hi"},
                                             {"x-session-id": f"{i}"})
            expect(status == 200 and server != stream.server, f"{status} {server} {text}")
            time.sleep(0.03)
        expect(stream.is_whole(), "its stream was cut")


def test_clients_reach_neither_metrics_nor_drain():
    """However they write them, and with a key."""
    with Fleet() as fleet:
        for method, name in ("GET", "metrics"), ("POST", "drain"):
            coded = f"%{ord(name[0]):02x}{name[1:]}"
            for path in (f"/{name}", f"/{name}?a=1", f"/{coded}", f"/{name.upper()}",
                         f"/{name[:-1]}%{ord(name[-1]):02X}", f"http://localhost/{coded}"):
                status, server, body = fleet.ask(method, path)
                expect(status == 404, f"{method} {path}: {status} of {server}: {body[:80]}")
        for server in fleet.servers:
            expect(server.ask("GET", "/health/ready")[0] == 200, "none drains")


# ---- Smuggling -------------------------------------------------------------------------------

POST = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
HIDDEN = (f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
          "X-Hidden: 1\r\n\r\n")
CHUNKED = "Transfer-Encoding: chunked\r\n"
BODY = '{"content": "Hi"}'
ONE = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"

# Each is sent with a second request right after it, which one side may take for part of a body.
PAIRS = {
    "length, then chunks": f"{POST}Content-Length: 5\r\n{CHUNKED}\r\n0\r\n\r\n",
    "chunks, then length": f"{POST}{CHUNKED}Content-Length: {len(BODY)}\r\n\r\n{ONE}",
    "long length and chunks": f"{POST}Content-Length: 400\r\n{CHUNKED}\r\n0\r\n\r\n",
    "two lengths": f"{POST}Content-Length: {len(BODY)}\r\nContent-Length: 0\r\n\r\n{BODY}",
    "two equal lengths": f"{POST}Content-Length: {len(BODY)}\r\n"
                         f"Content-Length: {len(BODY)}\r\n\r\n{BODY}",
    "a list of lengths": f"{POST}Content-Length: {len(BODY)}, 0\r\n\r\n{BODY}",
    "length with a sign": f"{POST}Content-Length: +{len(BODY)}\r\n\r\n{BODY}",
    "length in hexadecimal": f"{POST}Content-Length: 0x11\r\n\r\n{BODY}",
    "negative length": f"{POST}Content-Length: -1\r\n\r\n",
    "length with a blank before the colon": f"{POST}Content-Length : {len(BODY)}\r\n\r\n{BODY}",
    "folded encoding": f"{POST}Transfer-Encoding:\r\n chunked\r\n\r\n{ONE}",
    "folded length": f"{POST}Content-Length:\r\n {len(BODY)}\r\n\r\n{BODY}",
    "folded other header": f"{POST}X-Other: a\r\n b\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}",
    "encoding with a blank before the colon": f"{POST}Transfer-Encoding : chunked\r\n\r\n{ONE}",
    "encoding after a tab": f"{POST}Transfer-Encoding:\tchunked\r\n\r\n{ONE}",
    "encoding after a vertical tab": f"{POST}Transfer-Encoding:\x0bchunked\r\n\r\n{ONE}",
    "encoding of another name": f"{POST}Transfer-Encoding: xchunked\r\n\r\n{ONE}",
    "encoding twice": f"{POST}{CHUNKED}{CHUNKED}\r\n{ONE}",
    "encoding, then identity": f"{POST}Transfer-Encoding: chunked, identity\r\n\r\n{ONE}",
    "identity and length": f"{POST}Transfer-Encoding: identity\r\nContent-Length: {len(BODY)}\r\n"
                           f"\r\n{BODY}",
    "underscore": f"{POST}Transfer_Encoding: chunked\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}",
    "chunks by HTTP/1.0": POST.replace("1.1", "1.0", 1) + f"{CHUNKED}\r\n{ONE}",
    "chunk extension": f"{POST}{CHUNKED}\r\n{len(BODY):x};a=b\r\n{BODY}\r\n0\r\n\r\n",
    "chunk extension with line feed": f"{POST}{CHUNKED}\r\n2;\nxx\r\n{ONE}",
    "chunk size with prefix": f"{POST}{CHUNKED}\r\n0x11\r\n{BODY}\r\n0\r\n\r\n",
    "chunk size with sign": f"{POST}{CHUNKED}\r\n+11\r\n{BODY}\r\n0\r\n\r\n",
    "huge chunk size": f"{POST}{CHUNKED}\r\nfffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n",
    "line feeds alone in chunks": f"{POST}{CHUNKED}\r\n{len(BODY):x}\n{BODY}\n0\n\n",
    "trailer with a length": f"{POST}{CHUNKED}\r\n{len(BODY):x}\r\n{BODY}\r\n0\r\n"
                             "Content-Length: 300\r\n\r\n",
    "line feeds alone": f"{POST}Content-Length: {len(BODY)}\r\n\r\n{BODY}".replace("\r\n", "\n"),
    "carriage return in a header": f"{POST}X-Other: a\rContent-Length: 0\r\n"
                                   f"Content-Length: {len(BODY)}\r\n\r\n{BODY}",
    "NUL in a header": f"{POST}X-Other: a\0b\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}",
    "body of a GET": f"{HIDDEN[:-2]}Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "upgrade": f"{POST}Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: {len(BODY)}\r\n\r\n"
               f"{BODY}",
    "expectation": f"{POST}Expect: 100-continue\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}",
}


def send_raw(fleet, text):
    """All that comes back until the connection ends or is silent."""
    got = b""
    with socket.create_connection(("127.0.0.1", fleet.port), timeout=LIMIT) as s:
        s.settimeout(0.3)
        with contextlib.suppress(OSError):
            s.sendall(text.encode("latin-1"))
            while True:
                data = s.recv(65536)
                if not data:
                    break
                got += data
    return got


def forwarded(fleet):
    """Requests that HAProxy has passed on to a server, but for health."""
    return sum(bool(re.search(r"(servers|spread)/carat\d", line)) and "/health/ready" not in line
               for line in fleet.log)


def answered(fleet):
    """Replies of all servers, refusals too, but for health and this question."""
    total = 0
    for server in fleet.servers:
        for line in server.ask("GET", "/metrics", headers=HEADERS)[2].splitlines():
            match = re.fullmatch(r'carat_requests_total\{.*route="(.*)",status="\d+"\} (\d+)', line)
            if match and match.group(1) not in ("/health/ready", "/metrics"):
                total += int(match.group(2))
    return total


def check_pair(fleet, name, text):
    """HAProxy and the servers have counted the same requests, and the next client gets its own
    answer."""
    before = forwarded(fleet) - answered(fleet)
    got = send_raw(fleet, text + HIDDEN)
    expect(got.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")) or not got, f"{name}: {got[:80]!r}")
    for i in range(3):
        words = f"canary {name} {i}"
        status, _, body = fleet.ask("POST", "/tokenize", {"content": words, "with_pieces": True})
        tokens = json.loads(body)["tokens"] if status == 200 else []
        pieces = "".join(token["piece"] for token in tokens)
        expect(pieces == words, f"after {name}: {status} {body[:200]}")
    # Lines of the log come a little later.
    wait_until(lambda: forwarded(fleet) - answered(fleet) == before,
               f"{name}: HAProxy passed on as many requests as the servers answered; {got[:200]!r}")


def test_no_request_is_taken_for_two():
    with Fleet() as fleet:
        for name, text in PAIRS.items():
            check_pair(fleet, name, text)
        print(f"{len(PAIRS)} pairs")


if __name__ == "__main__":
    main(globals())
