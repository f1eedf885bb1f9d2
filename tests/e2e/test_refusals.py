#!/usr/bin/env python3
"""Requests that HTTP itself refuses, as users and operators of `carat serve` see them: one reply in
the words of the route's API, one line of the log without what was asked, one more in the metrics.

usage: tests/e2e/test_refusals.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import contextlib
import ctypes
import json
import re
import select
import socket

from program import LIMIT, expect, main
from server import Server
from test_tls import Secure, certificates, need_tls

SECRET = "xylophone"
LENGTH = "Content-Length: "

# The head of a request, and its status.
REFUSED = {
    "length with a sign": (f"{LENGTH}+2", 400),
    "empty length": (LENGTH, 400),
    "list of lengths": (f"{LENGTH}2, 2", 400),
    "length with a blank": (f"{LENGTH}2 ", 400),
    "two lengths": (f"{LENGTH}2\r\n{LENGTH}3", 400),
    "huge length": (f"{LENGTH}99999999999999999999", 413),
    "long length": (f"{LENGTH}999999999999", 413),
    "length and chunks": (f"{LENGTH}2\r\nTransfer-Encoding: chunked", 400),
    "long header": (f"X-A: {SECRET * 4000}", 431),
    "line without a colon": (SECRET, 400),
    "packed body": (f"Content-Encoding: gzip\r\n{LENGTH}2", 415),
}
PATHS = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic", "/api/chat": "ollama",
         f"/{SECRET}": "openai"}


def read_all(s):
    data = b""
    with contextlib.suppress(OSError):
        while piece := s.recv(65536):
            data += piece
    return data


def exchange(server, request):
    with server.socket() as s:
        s.settimeout(LIMIT)
        with contextlib.suppress(OSError):
            s.sendall(request)
        return read_all(s)


def expect_form(body, form, name):
    reply = json.loads(body)
    if form == "ollama":
        expect(isinstance(reply["error"], str), f"{name}: {reply}")
    elif form == "anthropic":
        expect(reply["type"] == "error" and reply["error"]["message"], f"{name}: {reply}")
    else:
        expect(reply["error"]["message"] and "param" in reply["error"], f"{name}: {reply}")


def expect_refusal(data, status, form, name):
    heads = re.findall(rb"HTTP/1\.1 (\d+) ", data)
    expect(heads == [b"%d" % status], f"{name}: {heads}, {data[:300]}")
    head, body = data.split(b"\r\n\r\n", 1)
    expect(b"application/json" in head and b"Connection: close" in head, f"{name}: {head}")
    expect_form(body, form, name)


def test_refusals_are_one_reply_in_the_words_of_their_route():
    with Server("demo") as server:
        for path, form in PATHS.items():
            for name, (fields, status) in REFUSED.items():
                request = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n".encode()
                expect_refusal(exchange(server, request), status, form, f"{path}, {name}")
        expect(server.ask("GET", "/health")[0] == 200, "the server is not well")


def test_refusals_are_counted_and_logged_without_what_was_asked():
    with Server("demo") as server:
        counts = {}
        for name, (fields, status) in REFUSED.items():
            request = f"POST /{SECRET} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n"
            exchange(server, request.encode())
            counts[status] = counts.get(status, 0) + 1
        for status, n in counts.items():
            def is_counted(status=status, n=n):
                return server.metric("carat_requests_total", route="refused", status=status) == n
            server.wait_until(is_counted, LIMIT)
        expect(server.stop() == 0, "a clean end")
        lines = [x for x in server.whole_log().split("\n") if " refused id=" in x]
        expect(len(lines) == len(REFUSED), f"{len(lines)} lines: {lines}")
        for line in lines:
            expect("client=127.0.0.1 status=4" in line and SECRET not in line, line)


def id_of(data, form, name):
    """x-request-id of a refusal, which Anthropic's clients look for in two more places."""
    head, body = data.decode().split("\r\n\r\n", 1)
    found = re.findall(r"(?mi)^x-request-id: ([A-Za-z0-9._-]{1,64})\r?$", head)
    expect(len(found) == 1, f"{name}: {head}")
    if form == "anthropic":
        again = re.findall(r"(?m)^request-id: (.*?)\r?$", head)
        expect(again == found and json.loads(body)["request_id"] == found[0], f"{name}: {data}")
    return found[0]


def test_refusals_have_an_id_and_the_log_has_the_same():
    """The client's, where its head could be read."""
    with Server("demo") as server:
        wanted = []
        for path, form in PATHS.items():
            for name, (fields, status) in REFUSED.items():
                request = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
                           f"x-request-id: mine-{len(wanted)}\r\n\r\n").encode()
                one = id_of(exchange(server, request), form, name)
                expect(status != 415 or one == f"mine-{len(wanted)}", f"{name}: {one}")
                wanted.append(f"id={one} client=127.0.0.1 status={status}")
        for bad in (b"GET / HTTP/1.1\r\n\r\n", b"NONSENSE\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nx-request-id: b@d\r\n\r\n"):
            one = id_of(exchange(server, bad), "openai", bad)
            wanted.append(f"id={one} client=127.0.0.1 status=400")
        expect(server.stop() == 0, "a clean end")
        log = server.whole_log()
        lines = re.findall(r" refused (id=.* client=.* status=\d+) ", log)
        expect(sorted(lines) == sorted(wanted), f"{set(lines) ^ set(wanted)}")
        expect(len(set(lines)) == len(lines), "an id came twice")


def library_version():
    try:
        get = ctypes.CDLL("libmicrohttpd.so.12").MHD_get_version
    except OSError:
        return "unknown"
    get.restype = ctypes.c_char_p
    return get().decode()


GOOD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
LATER = {  # status, or 0: no reply
    "one word": (b"NONSENSE\r\n\r\n", 0),
    "no version": (b"GET /\r\n\r\n", 400),
    "another version": (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
    "another protocol": (b"GET / HTXP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "long line": (b"GET /" + b"a" * 30000 + b" HTTP/1.1\r\n\r\n", 414),
    "no colon": (b"GET / HTTP/1.1\r\nHost: localhost\r\nabc\r\n\r\n", 400),
}


def answer_to_later(server, request):
    """What comes for the second request of a connection, until it is closed."""
    with server.socket() as s:
        s.settimeout(LIMIT)
        s.sendall(GOOD)
        head = b""
        while not head.endswith(b'"ok"}\n'):
            piece = s.recv(65536)
            expect(piece, head)
            head += piece
        with contextlib.suppress(OSError):
            s.sendall(request)
        return read_all(s)


def test_what_the_library_refuses_by_itself_is_as_the_page_says():
    """docs/server.md, at the end of the errors."""
    is_known = library_version() == "0.9.75"
    with Server("demo") as server:
        for name, (request, status) in LATER.items():
            data = answer_to_later(server, request)
            if not is_known:
                continue
            heads = re.findall(rb"HTTP/1\.1 (\d+) ", data)
            expect(heads == [b"%d" % status] * (status > 0), f"{name}: {data[:200]}")
            expect((b"<html>" in data) == (status > 0) and b"x-request-id" not in data, name)
        if is_known:
            server.wait_until(lambda: server.metric(
                "carat_requests_total", route="refused", status=400) == 3, LIMIT)
        body = b'{"content": "Hi"}'
        data = exchange(server, CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
                        + b"%x\n" % len(body) + body + b"\n0\n\n")
        expect(not is_known or data.startswith(b"HTTP/1.1 200 "), data[:200])
        expect(server.ask("GET", "/health")[0] == 200, "the server is not well")
        expect(server.stop() == 0, "a clean end")
        log = server.whole_log()
        expect(not is_known or log.count(' refused client="" status=') == 5, log)


def test_chunks_are_refused_in_html_beside_others_alone():
    is_known = library_version() == "0.9.75"
    with Server("demo") as server, contextlib.ExitStack() as stack:
        data = exchange(server, CHUNKED + b"zz\r\n")
        expect_refusal(data, 400, "openai", "alone")
        for _ in range(2):
            other = stack.enter_context(server.socket())
            other.sendall(CHUNKED + b"2\r\n{}\r\n")
        server.wait_until(lambda: server.metric("carat_connections", state="reading") == 2,
                          LIMIT)
        data = exchange(server, CHUNKED + b"zz\r\n")
        expect(data.startswith(b"HTTP/1.1 400 "), data[:200])
        expect(not is_known or b"<html>" in data, data[:200])


def test_a_body_that_is_refused_in_its_middle_has_the_id_of_its_request():
    with Server("demo", "--max-body", "100K") as server:
        head = ("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nx-request-id: mine\r\n"
                "Transfer-Encoding: chunked\r\n\r\n")
        data = exchange(server, head.encode() + b"zz\r\n")
        expect(id_of(data, "anthropic", "chunks") == "mine", data)
        expect(server.stop() == 0, "a clean end")
        expect(" request id=mine " in server.whole_log(), "the log has another id")


def test_a_body_that_is_refused_in_its_middle_is_one_request():
    """Its route was asked already: it counts there, with the status that was sent."""
    path = "/v1/messages"
    with Server("demo", "--max-body", "100K") as server:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        for chunks, status in (b"zz\r\n", 400), (b"20000\r\n" + b"x" * 0x20000, 413):
            data = exchange(server, head.encode() + chunks)
            expect_refusal(data, status, "anthropic", chunks[:9])
            server.wait_until(lambda status=status: server.metric(
                "carat_requests_total", route=path, status=status) == 1, LIMIT)
        expect(server.stop() == 0, "a clean end")
        log = server.whole_log()
        expect(" refused " not in log and log.count(f"route={path} status=4") == 2, log)


def test_bodies_beyond_their_memory_are_refused_at_their_head():
    """Two hundred clients declare 16 MB each and send slowly."""
    with Server("demo", "--body-memory", "64M", "--max-body", "16M") as server, \
            contextlib.ExitStack() as stack:
        before = server.metric("process_resident_memory_bytes")
        head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\n{LENGTH}{16 << 20}\r\n\r\n".encode()
        crowd = [stack.enter_context(server.socket()) for _ in range(200)]
        for s in crowd:
            s.sendall(head + b"{" * 100)
        def are_refused():
            return server.metric("carat_requests_total", route="refused", status=503) == 197
        server.wait_until(are_refused, LIMIT)
        expect(server.metric("carat_connections", state="reading") == 3, "three are read")
        status, _, _ = server.ask("POST", "/tokenize", {"content": "x" * 60000})
        expect(status == 200, "small requests pass")
        def told():
            return select.select(crowd, [], [], 0)[0]
        server.wait_until(lambda: len(told()) >= 197, LIMIT)
        for s in told():
            s.settimeout(LIMIT)
            data = read_all(s)
            expect_refusal(data, 503, "ollama", "no room")
            expect(b"Retry-After: 5" in data, data)
        for s in crowd:
            with contextlib.suppress(OSError):
                s.sendall(b" ")
        grown = (server.metric("process_resident_memory_bytes") - before) / 1e6
        expect(grown < 100, f"{grown:.0f} MB more")


def test_connections_are_counted_truly():
    with Server("demo") as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(server.socket()) for _ in range(7)]
        for s in idle[:3]:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            s.settimeout(LIMIT)
            s.recv(4096)
        body = stack.enter_context(server.socket())
        body.sendall(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{LENGTH}9\r\n\r\n".encode())
        server.wait_until(lambda: server.metric("carat_connections", state="idle") == 7
                          and server.metric("carat_connections", state="reading") == 1, LIMIT)
        expect(server.metric("carat_connections") == 9, "and the one that asks")
        expect(server.metric("carat_requests_open") == 2, "the body's, and this one")
        for s in idle + [body]:
            s.close()
        server.wait_until(lambda: server.metric("carat_connections") == 1, LIMIT)


def test_failed_handshakes_are_counted_and_logged():
    need_tls()
    with certificates("a") as path, \
            Secure("demo", "--tls-cert", path("a.crt"), "--tls-key", path("a.key")) as server:
        with socket.create_connection((server.host, server.port)) as s:
            s.sendall(b"\x16\x03\x01\x00\x04\x63\x00\x00\x00")
            read_all(s)
        server.wait_until(lambda: server.metric("carat_connections_failed_total") == 1, LIMIT)
        with socket.create_connection((server.host, server.port)) as s:
            s.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = read_all(s)
        expect_refusal(data, 400, "anthropic", "plain HTTP on a port of TLS")
        expect(b"https://" in data, data)
        with socket.create_connection((server.host, server.port)):
            pass  # who only knocks has not failed
        server.wait_until(lambda: server.metric("carat_connections") == 1, LIMIT)
        failed = server.metric("carat_connections_failed_total")
        expect(failed == 1, f"{failed} are counted")
        expect(server.stop() == 0, "a clean end")
        log = server.whole_log()
        expect(log.count("connection_failed client=127.0.0.1") == 1, log)
        expect(log.count("client=127.0.0.1 status=400") == 1, log)


def test_tls_on_a_plain_port_is_one_clear_line():
    with Server("demo") as server:
        data = exchange(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300))
        expect_refusal(data, 400, "openai", "TLS")
        expect(server.stop() == 0, "a clean end")
        lines = [x for x in server.whole_log().split("\n") if " refused id=" in x]
        expect(len(lines) == 1 and "this port does not speak TLS" in lines[0], lines)


if __name__ == "__main__":
    main(globals())
