#!/usr/bin/env python3
"""The server when things go wrong: signals at random times, no descriptors left, clients that
stall, reset or leave half, allocations that fail. After each it answers as before and holds
nothing.

usage: tests/e2e/test_chaos.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import concurrent.futures
import contextlib
import http.client
import json
import mmap
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

from program import (LIMIT, PROGRAM, ROOT, Skip, at_best, environment, expect, is_sanitized,
                     main, sized)
from server import Server, need_server

CHAT = "/v1/chat/completions"
SEED = 20261122
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a small dog."}],
         "max_tokens": 24, "seed": 5}
LONG = {**STORY, "max_tokens": 900, "ignore_eos": True, "stream": True}
JSON = {"Content-Type": "application/json"}


def answer(server):
    status, _, body = server.ask("POST", CHAT, STORY)
    expect(status == 200, f"{status}: {body}")
    return body["choices"][0]["message"]["content"]


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def expect_as_before(server, text, files):
    """Nothing runs, nobody but us is connected, and the same question has the same answer."""
    server.wait_until(lambda: server.busy() == 0 and server.metric("carat_connections") <= 1)
    server.wait_until(lambda: descriptors(server) <= files)
    expect(server.metric("carat_kv_cells_used") == 0, "pages are held")
    expect(answer(server) == text, "another answer than before")


# ---- Signals ---------------------------------------------------------------------------------

def end_at_random(number, seed):
    """Starts a server, streams from it, and ends it at some time by this signal. Returns how long
    its end took."""
    draw = random.Random(seed)
    options = ["--port", "0", "--shutdown-timeout", "0.3"]
    process = subprocess.Popen([PROGRAM, "serve", "demo", *options], cwd=ROOT,
                               env=environment(CARAT_THREADS="1"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    try:
        port = None
        if draw.random() < 0.8:  # else while it starts
            for line in process.stderr:
                if "answers on http://127.0.0.1:" in line:
                    port = int(line.split("127.0.0.1:")[1].split()[0].rstrip("/"))
                    break
            expect(port, f"seed {seed}: it ended before it listened")
            connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
                           for _ in range(draw.randrange(4))]
            for connection in connections:
                connection.request("POST", CHAT, json.dumps(LONG), JSON)
        time.sleep(draw.random() * 0.15)
        begin = time.monotonic()
        process.send_signal(number)
        status = process.wait(LIMIT)
        seconds = time.monotonic() - begin
        allowed = {-number} if number == signal.SIGKILL else {0} if port else {0, 143, -number}
        expect(status in allowed, f"seed {seed}: status {status} after signal {number}")
        if port:
            check_ends(connections, number, seed)
        return seconds
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def check_ends(connections, number, seed):
    """After SIGTERM every stream that has begun says how it ended."""
    for connection in connections:
        try:
            reply = connection.getresponse()
            text = reply.read()
            is_told = b"[DONE]" in text or b'"error"' in text or reply.status == 503
            expect(is_told or number == signal.SIGKILL, f"seed {seed}: ends with {text[-200:]!r}")
        except (OSError, http.client.HTTPException) as error:
            # Not accepted yet, or cut by SIGKILL.
            is_unseen = isinstance(error, (http.client.RemoteDisconnected, ConnectionError))
            expect(is_unseen or number == signal.SIGKILL, f"seed {seed}: {error!r}")
        finally:
            connection.close()


def test_signals_at_random_times():
    need_server()
    many = int(os.environ.get("CARAT_CHAOS_ENDS", sized(60, 6)))
    numbers = [signal.SIGTERM if i % 2 else signal.SIGKILL for i in range(many)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        seconds = list(pool.map(end_at_random, numbers, range(SEED, SEED + many)))
    print(f"seeds {SEED} to {SEED + many - 1}; the longest end took {max(seconds):.2f} s")
    expect(statistics.median(seconds) < 5, f"half of the ends took {statistics.median(seconds)} s")


# ---- Descriptors -----------------------------------------------------------------------------

def processor_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text(encoding="ascii")
    return sum(map(int, fields.rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_no_descriptors_left():
    with Server("demo", "--parallel", "2") as server:
        text, files = answer(server), descriptors(server)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(server.socket())

            def used():
                before = processor_seconds(server)
                time.sleep(1)
                return processor_seconds(server) - before
            at_best(0.3, used, "seconds of processor a second while nobody can be accepted", 5)
            expect(server.process.poll() is None, "it has ended")
        expect_as_before(server, text, files)
        expect(server.stop() == 0, "a clean end")


# ---- Clients ---------------------------------------------------------------------------------

def reset(connection):
    """Closes so that the other side gets RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def misbehave(server, kind, draw):
    """A request that is left in one of many states, in one of three ways."""
    body = json.dumps(LONG)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = (head + body).encode()
    cut = {"head": draw.randrange(1, len(head)), "body": draw.randrange(len(head), len(whole)),
           "answer": len(whole)}[kind]
    connection = server.socket()
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        step = -(-cut // draw.randrange(1, 5))
        for at in range(0, cut, step):
            connection.sendall(whole[at:min(cut, at + step)])
        if kind == "answer":
            for _ in range(draw.randrange(4)):
                connection.recv(draw.randrange(1, 400))
        time.sleep(draw.random() * 0.05)
    way = draw.choice(("reset", "close", "half"))
    if way == "reset":
        reset(connection)
        return
    with contextlib.suppress(OSError):
        if way == "half":
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(0.05)
            connection.recv(10)
    connection.close()


def test_clients_that_reset_close_or_leave_half_in_every_state():
    with Server("demo", "--parallel", "4") as server:
        draw = random.Random(SEED)
        text, files = answer(server), descriptors(server)
        kinds = [draw.choice(("head", "body", "answer", "answer")) for _ in range(sized(150, 15))]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: misbehave(server, kinds[i], random.Random(SEED + i)),
                          range(len(kinds))))
        print(f"seed {SEED}")
        expect_as_before(server, text, files)
        expect(server.stop() == 0, "a clean end")


def test_clients_that_stall_hold_up_nobody():
    with Server("demo", "--parallel", "8") as server, contextlib.ExitStack() as stack:
        text, files = answer(server), descriptors(server)
        body = json.dumps({**LONG, "n": 2, "logprobs": True, "top_logprobs": 20})
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        stalled = []
        for data in (b"", b"POST", head[:40].encode(), head.encode(), (head + body[:20]).encode(),
                     (head + body).encode(), (head + body).encode()):
            connection = stack.enter_context(server.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(data)
            stalled.append(connection)
        for _ in range(20):  # they are there, and others are served
            expect(server.ask("GET", "/health")[0] == 200, "health")
            time.sleep(0.05)
        expect(answer(server) == text, "another answer beside stalled ones")
        for connection in stalled:
            connection.close()
        expect_as_before(server, text, files)


# ---- Memory ----------------------------------------------------------------------------------

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Shared with the test: the call that fails, counted down; 0: none. How many have failed. */
static volatile struct { int64_t countdown, failed; } *control;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *block, size_t n);

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("FAILING_MALLOC");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) control = at;
}

static int fails(void)
{
    if (!control || control->countdown <= 0) return 0;
    if (__atomic_sub_fetch(&control->countdown, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    return 1;
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t count, size_t n) { return fails() ? NULL : __libc_calloc(count, n); }
void *realloc(void *block, size_t n) { return fails() ? NULL : __libc_realloc(block, n); }
"""


class FailingMalloc:
    """A library that makes one allocation of a process fail, by its number from now on."""

    def __init__(self, folder):
        if not shutil.which("cc"):
            raise Skip("no C compiler")
        if is_sanitized():
            raise Skip("sanitizers have an allocator of their own")
        source, self.shim = folder + "/shim.c", folder + "/shim.so"
        self.path = folder + "/control"
        pathlib.Path(source).write_text(SHIM, encoding="utf-8")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", self.shim], check=True)
        pathlib.Path(self.path).write_bytes(bytes(16))
        with open(self.path, "r+b") as file:
            self.control = mmap.mmap(file.fileno(), 16)

    def environment(self):
        return environment(LD_PRELOAD=self.shim, FAILING_MALLOC=self.path)

    def fail(self, n):
        self.control[:8] = struct.pack("q", n)

    def failed(self):
        return struct.unpack("q", self.control[8:])[0]


REQUESTS = [
    ("POST", CHAT, {**STORY, "max_tokens": 3, "stop": ["x"], "logprobs": True, "top_logprobs": 2}),
    ("POST", CHAT, {**STORY, "max_tokens": 3, "stream": True,
                    "response_format": {"type": "json_object"}}),
    ("POST", CHAT, {**STORY, "max_tokens": 3, "tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]}),
    ("POST", "/v1/messages", {"model": "m", "max_tokens": 3, "messages": STORY["messages"]}),
    ("POST", "/v1/responses", {"model": "m", "max_output_tokens": 3, "input": "Hello"}),
    ("POST", "/api/chat", {"model": "m", "messages": STORY["messages"],
                           "options": {"num_predict": 3}}),
    ("POST", "/tokenize", {"content": "Hello"}),
    ("GET", "/v1/models", None), ("GET", "/metrics", None), ("GET", "/", None),
]


def fail_each(server, shim, request, most):
    """The request with its n-th allocation failing, for a row of n; how many have failed."""
    before = shim.failed()
    for n in range(1, most):
        seen = shim.failed()
        shim.fail(n)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            server.ask(request[0], request[1], request[2])  # any status, or a cut connection
        shim.fail(0)
        expect(server.process.poll() is None, f"{request[:2]}: ended, allocation {n} failed")
        if shim.failed() == seen and n > 400:
            break  # beyond the last one
    return shim.failed() - before


def test_an_allocation_that_fails_costs_its_own_request_alone():
    need_server()
    with tempfile.TemporaryDirectory() as folder:
        shim = FailingMalloc(folder)
        with Server("demo", "--parallel", "2", env=shim.environment()) as server:
            text, files = answer(server), descriptors(server)
            for request in REQUESTS:
                failed = fail_each(server, shim, request, 120)
                print(f"{request[0]} {request[1]}: {failed} allocations failed")
                expect(failed > 5, f"only {failed} have failed")
                expect(answer(server) == text, f"another answer after {request[1]}")
            expect_as_before(server, text, files)
            expect(server.stop() == 0, "a clean end")


if __name__ == "__main__":
    main(globals())
