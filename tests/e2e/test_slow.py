#!/usr/bin/env python3
"""Clients that send or read a byte now and then, or stop, in every state of a request: head, body,
prompt, answer, TLS handshake. Others go on beside them, memory stays, and nothing is left of them.

usage: tests/e2e/test_slow.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import contextlib
import json
import os
import socket
import ssl
import struct
import threading

from program import LIMIT, expect, main
from server import Server
from test_tls import Secure, certificates, need_tls

# AddressSanitizer keeps what was freed; here only a little of it, as memory is looked at.
KEPT = "quarantine_size_mb=1:thread_local_quarantine_size_kb=16"
os.environ["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), KEPT]))
CHAT = "/v1/chat/completions"
EACH = 12  # clients of a kind; of those that hold a sequence one, so that some are free
GROWTH = 64e6  # bytes; a client has some 100 KB of buffers here, the system's not counted
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a small dog."}],
         "max_tokens": 12, "seed": 5}


def request(path, body):
    text = json.dumps(body)
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
            f"{text}").encode()


LONG = request(CHAT, {**STORY, "max_tokens": 900, "ignore_eos": True, "stream": True,
                      "logprobs": True, "top_logprobs": 20})
PROMPT = request(CHAT, {**STORY, "messages": [{"role": "user", "content": "a b " * 300}]})
HEAD_END = LONG.index(b"\r\n\r\n") + 4

# What comes at once, what comes byte by byte after it, and whether answers are read byte by byte.
KINDS = {
    "head by bytes": (b"", LONG[:HEAD_END - 4], False),
    "head that stops": (LONG[:20], b"", False),
    "body by bytes": (LONG[:HEAD_END], LONG[HEAD_END:-1], False),
    "body that stops": (LONG[:-5], b"", False),
    "chunks by bytes": (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                        b"1\r\n{\r\n" * 200, False),
    "prompt, nothing is read": (PROMPT, b"", False),
    "answer, nothing is read": (LONG, b"", False),
    "answer by bytes": (LONG, b"", True),
}


class Crowd:
    """Clients of all kinds, driven by a thread until it is closed."""

    def __init__(self, connect, kinds):
        self.is_over = threading.Event()
        self.clients = []
        for kind, (first, rest, reads) in kinds.items():
            for _ in range(1 if first is LONG else EACH):
                s = connect()
                s.setblocking(False)
                with contextlib.suppress(OSError):
                    s.send(first)
                self.clients.append([s, kind, rest, reads])
        self.thread = threading.Thread(target=self.drive)
        self.thread.start()

    def drive(self):
        while not self.is_over.wait(0.05):
            for client in self.clients:
                s, _, rest, reads = client
                with contextlib.suppress(OSError):
                    if rest:
                        s.send(rest[:1])
                        client[2] = rest[1:]
                    elif reads:
                        s.recv(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """They leave, each in one of three ways."""
        self.is_over.set()
        self.thread.join()
        for i, (s, *_) in enumerate(self.clients):
            with contextlib.suppress(OSError):
                if i % 3 == 0:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if i % 3 == 1:
                    s.shutdown(socket.SHUT_WR)
            s.close()


def answer(server):
    status, _, body = server.ask("POST", CHAT, STORY)
    expect(status == 200, f"{status}: {body}")
    return body["choices"][0]["message"]["content"]


def memory(server):
    return server.metric("process_resident_memory_bytes")


def expect_nothing_left(server, text, before):
    server.wait_until(lambda: server.busy() == 0 and server.metric("carat_connections") == 1, LIMIT)
    expect(server.metric("carat_kv_cells_used") == 0, "pages are held")
    expect(answer(server) == text, "another answer than before")
    grown = memory(server) - before
    expect(grown < GROWTH, f"{grown / 1e6:.0f} MB more")


def small_socket(server):
    s = server.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return s


def test_slow_clients_in_every_state_hold_up_nobody():
    options = ("--parallel", "4", "--max-queue", "400", "-c", "1024")
    with Server("demo", *options) as server:
        text = answer(server)
        before = memory(server)
        readers = {k: v for k, v in KINDS.items() if "answer" in k}
        senders = {k: v for k, v in KINDS.items() if k not in readers}
        with Crowd(lambda: small_socket(server), senders):
            # At once: later, on a busy machine, some are cut already.
            server.wait_until(lambda: server.metric("carat_connections", state="reading") >= EACH)
            for _ in range(8):
                expect(answer(server) == text, "beside slow senders")
                expect(server.ask("GET", "/health")[0] == 200, "health")
            expect(memory(server) - before < GROWTH, "memory beside slow senders")
        expect_nothing_left(server, text, before)
        with Crowd(lambda: small_socket(server), readers):
            for _ in range(8):
                expect(answer(server) == text, "beside slow readers")
                expect(server.ask("GET", "/health")[0] == 200, "health")
            expect(memory(server) - before < GROWTH, "memory beside slow readers")
        expect_nothing_left(server, text, before)
        expect(server.stop() == 0, "a clean end")


def hello():
    """The first flight of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def test_slow_handshakes_hold_up_nobody():
    need_tls()
    with certificates("a") as path, \
            Secure("demo", "--tls-cert", path("a.crt"), "--tls-key", path("a.key")) as server:
        text = answer(server)
        before = memory(server)
        first = hello()
        kinds = {"nothing": (b"", b"", False), "a byte": (first[:1], b"", False),
                 "hello by bytes": (b"", first, True), "half of hello": (first[:100], b"", False),
                 "after hello": (first, b"", False), "hello and bytes": (first, b"\x17" * 50, True),
                 "garbage by bytes": (first[:5], bytes(100), False)}
        with Crowd(lambda: socket.create_connection((server.host, server.port)), kinds):
            for _ in range(6):
                expect(answer(server) == text, "beside slow handshakes")
                expect(server.name() == "a", "new handshakes")
            expect(memory(server) - before < GROWTH, "memory beside slow handshakes")
        expect_nothing_left(server, text, before)
        expect(server.metric("carat_connections_failed_total") > 0, "they are counted")
        expect(server.stop() == 0, "a clean end")


if __name__ == "__main__":
    main(globals())
