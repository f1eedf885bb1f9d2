#!/usr/bin/env python3
"""server/http.h through raw sockets: framing, departures, deadlines, streams, many connections.

http_echo.c says what each path does.
"""
import time

import harness
from harness import ask, expect, get, reset, Reply


def start():
    return harness.Server()


def canary(server):
    reply, _ = ask(server, get(b"/echo"))
    expect(reply.status == 200 and reply.body.startswith(b"GET /echo 0"), "the server is not well")


# --- requests that are fine ---

def test_methods_and_bodies_arrive_whole(server):
    reply, ended = ask(server, get(b"/echo", method=b"POST", body=b"x" * 5))
    expect(reply.status == 200 and reply.body.startswith(b"POST /echo 5 127.0.0.1"), reply.body)
    expect(not ended, "the connection goes on")
    chunks = b"5;extension=1\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n"
    request = get(b"/echo", b"Transfer-Encoding: chunked", method=b"POST") + chunks
    expect(ask(server, request)[0].body.startswith(b"POST /echo 8"), "chunks are put together")
    reply, _ = ask(server, get(b"/echo", method=b"POST", body=b"x" * (1 << 20)))
    expect(reply.body.startswith(b"POST /echo 1048576"), "the longest body that is allowed")


def test_head_has_no_body_and_the_connection_goes_on(server):
    for path in b"/echo", b"/stream?n=3", b"/big?size=100000":
        with server.connect() as s:
            s.sendall(get(path, method=b"HEAD") + get(b"/echo"))
            head = Reply(s, is_head=True)
            expect(head.status == 200, path)
            expect(Reply(s, head.rest).body.startswith(b"GET /echo"), path)


def test_pipelined_requests_are_answered_in_order(server):
    for path in b"/echo", b"/later?ms=1":
        with server.connect() as s:
            s.sendall(get(path) * 3 + get(b"/echo?last"))
            rest = b""
            for _ in range(3):
                reply = Reply(s, rest)
                expect(reply.status == 200, reply.body)
                rest = reply.rest
            expect(Reply(s, rest).body.startswith(b"GET /echo"), "the last one")


# --- departures ---

def leave(server, name, path, how):
    s = server.connect()
    s.sendall(get(path + b"&tag=" + name))
    time.sleep(0.1)
    began = time.monotonic()
    how(s)
    when, line = server.line(f"closed {name.decode()} ")
    s.close()
    expect(line.endswith(" cut"), line)
    expect(when - began < 0.1, f"{name}: noticed after {when - began:.3f} s")


def test_departed_clients_are_noticed_in_every_state(server):
    ways = {"close": lambda s: s.close(), "reset": reset, "half": lambda s: s.shutdown(1)}
    for way, how in ways.items():
        leave(server, f"waits-{way}".encode(), b"/hold?x", how)
        leave(server, f"silent-{way}".encode(), b"/stream?n=9&ms=60000", how)
        leave(server, f"blocked-{way}".encode(), b"/flood?size=300000", how)
    canary(server)


def test_many_wakes_become_one(server):
    reply, _ = ask(server, get(b"/wakes?n=10000"))
    expect(reply.body == b"1\n", f"10,000 calls, {reply.body} callbacks")


if __name__ == "__main__":
    harness.main(globals(), start)
