#!/usr/bin/env python3
"""What arrives at server/http.h through raw sockets: requests that are refused, what clients really
send, bodies and the memory they may take.

http_echo.c says what each path does. No request that stands here may harm the ones after it: a
canary follows.
"""
import contextlib
import json
import re
import select
import time

import harness
from harness import ask, canary, expect, get, goes_on, is_sanitized, Reply, Server, wait_until


# --- requests that are refused ---

POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def fields(*lines):
    return POST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


REFUSED = {
    # what it is: (bytes, status)
    "two equal lengths": (fields(b"Content-Length: 5", b"Content-Length: 5") + b"hello", 400),
    "two lengths": (fields(b"Content-Length: 5", b"content-length: 50") + b"hello", 400),
    "length and chunks": (fields(b"Content-Length: 5", b"Transfer-Encoding: chunked")
                          + b"0\r\n\r\n", 400),
    "chunks and length": (fields(b"Transfer-Encoding: chunked", b"Content-Length: 5")
                          + b"0\r\n\r\n", 400),
    "list of lengths": (fields(b"Content-Length: 5, 5") + b"hello", 400),
    "negative length": (fields(b"Content-Length: -5") + b"hello", 400),
    "signed length": (fields(b"Content-Length: +5") + b"hello", 400),
    "length in hex": (fields(b"Content-Length: 0x5") + b"hello", 400),
    "length with a blank after it": (fields(b"Content-Length: 5 ") + b"hello", 400),
    "length with a tab after it": (fields(b"Content-Length: 5\t") + b"hello", 400),
    "length with a fraction": (fields(b"Content-Length: 5.0") + b"hello", 400),
    "length in words": (fields(b"Content-Length: five") + b"hello", 400),
    "length 2^64": (fields(b"Content-Length: 18446744073709551616"), 413),
    "length 2^64 - 1": (fields(b"Content-Length: 18446744073709551615"), 400),
    "empty length": (fields(b"Content-Length:"), 400),
    "length 2^63": (fields(b"Content-Length: 9223372036854775808"), 400),
    "length beyond 64 bits": (fields(b"Content-Length: 99999999999999999999"), 413),
    "blank before a colon": (fields(b"Transfer-Encoding : chunked") + b"0\r\n\r\n", 400),
    "two encodings": (fields(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 400),
    "encoding identity": (fields(b"Transfer-Encoding: identity"), 400),
    "encoding xchunked": (fields(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n", 400),
    "encoding after a vertical tab": (fields(b"Transfer-Encoding: \x0bchunked"), 400),
    "encoding twice": (fields(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")
                       + b"0\r\n\r\n", 400),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"/1.1", b"/1.0") + b"0\r\n\r\n", 400),
    "no host": (b"GET /echo HTTP/1.1\r\n\r\n", 400),
    "two hosts": (fields(b"Host: localhost"), 400),
    "a user in the host": (b"GET /echo HTTP/1.1\r\nHost: a@localhost\r\n\r\n", 400),
    "another absolute host": (get(b"http://evil.example/echo"), 400),
    "encoded NUL": (get(b"/echo%00x"), 400),
    "NUL": (get(b"/echo\0x"), 400),
    "NUL in a value": (get(b"/echo", b"x: a\0b"), 400),
    "NUL in a name": (get(b"/echo", b"x\0y: a"), 400),
    "folded line": (get(b"/echo", b"x: a\r\n b"), 400),
    "folded name": (get(b"/echo", b"Transfer-Encodin: chunked\r\n g") + b"0\r\n\r\n", 400),
    "no name": (get(b"/echo", b": x"), 400),
    "no name at the end": (b"GET /echo HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", 400),
    "no colon": (get(b"/echo", b"foo"), 400),
    "blank first": (b"GET /echo HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    "ends of lines are LF": (b"GET /echo HTTP/1.1\nHost: localhost\n\n", 400),
    "one end is LF": (get(b"/echo", b"x: a\ny: b"), 400),
    "parent": (get(b"/a/../echo"), 400),
    "parent at the end": (get(b"/echo/.."), 400),
    "encoded parent": (get(b"/a/%2e%2E/echo"), 400),
    "half encoded parent": (get(b"/a/.%2e/echo"), 400),
    "encoded slashes and parent": (get(b"/a%2f..%2fecho"), 400),
    "this folder": (get(b"/./echo"), 400),
    "backslash": (get(b"/echo\\x"), 400),
    "encoded backslash": (get(b"/echo%5c.."), 400),
    "fragment": (get(b"/echo#x"), 400),
    "fragment in the query": (get(b"/echo?a=1#x"), 400),
    "control character": (get(b"/ec\x07ho"), 400),
    "encoded CRLF": (get(b"/echo%0d%0aX:1"), 400),
    "broken escape": (get(b"/echo%zz"), 400),
    "short escape": (get(b"/echo%2"), 400),
    "encoded NUL in the query": (get(b"/echo?a=%00"), 400),
    "blank in the target": (get(b"/ec ho"), 400),
    "two blanks": (b"GET  /echo  HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "asterisk": (get(b"*", method=b"OPTIONS"), 400),
    "no slash": (get(b"echo"), 400),
    "trace": (get(b"/echo", method=b"TRACE"), 405),
    "connect": (get(b"example:443", method=b"CONNECT"), 405),
    "unknown method": (get(b"/echo", method=b"BREW"), 501),
    "method in small letters": (get(b"/echo", method=b"get"), 501),
    "compressed body": (fields(b"Content-Encoding: gzip", b"Content-Length: 5") + b"hello", 415),
    "two compressions": (fields(b"Content-Encoding: identity", b"Content-Encoding: gzip"), 415),
    "expectation": (get(b"/echo", b"Expect: 200-ok"), 417),
    "two expectations": (get(b"/echo", b"Expect: 100-continue", b"Expect: x"), 417),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/1.2": (get(b"/echo", version=b"HTTP/1.2"), 505),
    "HTTP/3.0": (get(b"/echo", version=b"HTTP/3.0"), 505),
    "no version of HTTP": (get(b"/echo", version=b"HTTQ/1.1"), 400),
    "one word": (b"hello\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), 400),
    "HTTP/0.9": (b"GET /echo\r\n\r\n", 400),
    "chunk size": (CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n", 400),
    "negative chunk": (CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", 400),
    "huge chunk": (CHUNKED + b"f" * 18 + b"\r\nhello\r\n0\r\n\r\n", 413),
    "chunk in 0x": (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", 400),
    "chunk size in capitals is too large": (CHUNKED + b"FFFFFFFFF\r\n" + b"x" * 1100000, 413),
    "line of a trailer without a colon": (CHUNKED + b"0\r\nfoo\r\n\r\n", 400),
    "64 KB of trailers": (CHUNKED + b"0\r\n" + b"X-A: %b\r\n" % (b"a" * 1000) * 64, 431),
    "64 KB of cookies": (get(b"/echo", b"Cookie: " + b"a=b; " * 13107), 431),
    "64 KB of cookies in many headers": (get(b"/echo", *[b"Cookie: a=" + b"b" * 1000] * 64), 431),
    "too many arguments": (get(b"/echo?" + b"a&" * 5000), 431),
    "chunk is longer": (CHUNKED + b"5\r\nhelloXX\r\n0\r\n\r\n", 400),
    "chunk is shorter": (CHUNKED + b"5\r\nhel\r\n0\r\n\r\n", 400),
    "64 KB header": (get(b"/echo", b"x: " + b"a" * 65536), 431),
    "40 KB header": (get(b"/echo", b"x: " + b"a" * 40000), 431),
    "10,000 headers": (get(b"/echo", *[b"x%d: y" % i for i in range(10000)]), 431),
    "64 KB target": (get(b"/" + b"a" * 65536), 414),
    "body too long": (get(b"/echo", method=b"POST", body=b"x" * 2000000), 413),
    "chunks too long": (CHUNKED + b"10000\r\n" + (b"x" * 65536 + b"\r\n10000\r\n") * 40, 413),
}


def test_what_two_readers_could_read_differently_is_refused(server):
    wrong = []
    for name, (request, status) in REFUSED.items():
        try:
            reply, ended = ask(server, request)
            got = f"{reply.status}, {'closed' if ended else 'open'}"
        except (OSError, AssertionError) as error:
            got = repr(error)
        if got != f"{status}, closed":
            wrong.append(f"{name}: {got}, not {status}")
    canary(server)
    expect(not wrong, "; ".join(wrong))


def all_that_comes(s, request):
    data = b""
    with contextlib.suppress(OSError):
        s.sendall(request)
    with contextlib.suppress(OSError):
        while piece := s.recv(65536):
            data += piece
    return data


def count_heads(data):
    return len(re.findall(rb"HTTP/1\.1 \d\d\d ", data))


def expect_one_refusal(data, name, status, heads=1):
    """After `heads - 1` replies comes one more, in JSON, with this status, and the end."""
    expect(count_heads(data) == heads, f"{name}: {data!r}")
    head, body = data[data.rindex(b"HTTP/1.1 %d " % status):].split(b"\r\n\r\n", 1)
    expect(head.startswith(b"HTTP/1.1 %d " % status), f"{name}: {head}")
    expect(b"\r\nContent-Type: application/json\r\n" in head, f"{name}: {head}")
    expect(b"\r\nConnection: close\r\n" in head, f"{name}: {head}")
    expect(b"\r\nDate: " in head, f"{name}: {head}")
    expect(b"Content-Length: %d" % len(body) in head, f"{name}: {head}")
    expect(json.loads(body)["error"]["message"], f"{name}: {body}")


# What the library says in its own words, because it is not certain whose request it is.
IN_HTML = "line of a trailer without a colon",


def test_every_refusal_is_one_reply_in_json(server):
    for name, (request, status) in REFUSED.items():
        with server.connect() as s:
            data = all_that_comes(s, request)
        if name in IN_HTML:
            expect(data.count(b"HTTP/1.1 %d " % status) == count_heads(data) == 1, data)
        else:
            expect_one_refusal(data, name, status)
    canary(server)


# The library gets none of these requests.
FIRST = ("HTTP/2", "HTTP/1.2", "HTTP/3.0", "no version of HTTP", "one word", "HTTP/0.9", "TLS",
         "NUL", "NUL in a value", "NUL in a name", "no colon", "64 KB header", "40 KB header",
         "64 KB target", "10,000 headers")


def test_first_bytes_are_seen_however_busy_the_server_is(_):
    """They come while the loop is between its own wait and the library's."""
    lines = b"line\n\0" * 150000
    with Server("busy_seconds=0.004") as server:
        for name, (request, status) in REFUSED.items():
            with server.connect() as s:
                time.sleep(0.01)  # its accept and its first bytes come in different turns
                data = all_that_comes(s, request)
            if name not in IN_HTML:
                expect_one_refusal(data, name, status)
        for name, request in {
                "long body": get(b"/echo", method=b"POST", body=lines),
                "chunks": CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(lines), lines)}.items():
            with server.connect() as s:
                time.sleep(0.01)
                s.sendall(request)
                expect(Reply(s).body.startswith(b"POST /echo %d " % len(lines)), name)


def test_what_the_library_does_not_get_may_come_byte_by_byte(server):
    for name in FIRST:
        request, status = REFUSED[name]
        with server.connect() as s:
            with contextlib.suppress(OSError):
                for i in range(min(len(request), 400)):
                    s.sendall(request[i:i + 1])
            data = all_that_comes(s, request[400:])
        expect_one_refusal(data, name, status)
    with server.connect() as s:
        for byte in get(b"/echo"):
            s.sendall(bytes([byte]))
        expect(Reply(s).status == 200, "a head in single bytes")
    canary(server)


LENGTHS = {name: case for name, case in REFUSED.items() if "length" in name and "two" not in name}


def test_wrong_lengths_are_refused_once_wherever_they_come(server):
    for name, (request, status) in LENGTHS.items():
        with server.connect() as s:  # after others, in the same bytes
            expect_one_refusal(all_that_comes(s, get(b"/echo") * 2 + request), name, status, 3)
        with server.connect() as s:  # after another, on its own
            s.sendall(get(b"/echo"))
            Reply(s)
            expect_one_refusal(all_that_comes(s, request), name, status)
        with server.connect() as s:  # byte by byte
            with contextlib.suppress(OSError):
                for byte in request:
                    s.sendall(bytes([byte]))
            expect_one_refusal(all_that_comes(s, b""), name, status)
    canary(server)


def test_a_refusal_reaches_its_own_client_alone(server):
    """Heads and chunks that have begun wait beside those that are refused."""
    with contextlib.ExitStack() as stack:
        waiting = []
        for half in get(b"/echo", b"a: b")[:-9], get(b"/echo")[:9], POST, CHUNKED, \
                CHUNKED + b"5\r\nhe":
            s = stack.enter_context(server.connect())
            s.sendall(half)
            waiting.append((s, half))
        for name, (request, status) in REFUSED.items():
            with server.connect() as s:
                data = all_that_comes(s, request)
            expect(count_heads(data) == 1 and data.startswith(b"HTTP/1.1 %d " % status),
                   f"{name}: {data[:99]}")
        rests = get(b"/echo", b"a: b")[-9:], get(b"/echo")[9:], b"\r\n", b"0\r\n\r\n", \
            b"llo\r\n0\r\n\r\n"
        for (s, half), rest in zip(waiting, rests):
            s.sendall(rest)
            expect(Reply(s).status == 200, half)


def test_a_lone_head_or_body_is_not_taken_for_what_is_refused_beside_it(server):
    for half, rest in (get(b"/echo", b"a: b")[:-9], get(b"/echo", b"a: b")[-9:]), \
            (CHUNKED + b"5\r\nhe", b"llo\r\n0\r\n\r\n"):
        for name, (request, status) in REFUSED.items():
            with server.connect() as waits:
                waits.sendall(half)
                ask(server, get(b"/echo"))  # it has been read
                with server.connect() as s:
                    data = all_that_comes(s, request)
                expect(count_heads(data) == 1 and data.startswith(b"HTTP/1.1 %d " % status),
                       f"{name}: {data[:99]}")
                waits.sendall(rest)
                expect(Reply(waits).status == 200, f"beside {name}")


def test_refusals_are_told_without_what_was_asked(server):
    for i, (name, (request, status)) in enumerate(REFUSED.items()):
        for when in "before", "after":  # whatever was told before a line of it is there by then
            ask(server, get(b"/echo?tag=%b-told-%d" % (when.encode(), i)))
            server.line(f"closed {when}-told-{i} ")
            if when == "before":
                seen = len(server.lines)
                with server.connect() as s:
                    all_that_comes(s, request)
        new = [x for _, x in server.lines[seen:] if x.startswith("refused ")]
        expect(len(new) == 1 and new[0].startswith(f"refused {status} "), f"{name}: {new}")
        expect("hello" not in new[0] and "echo" not in new[0], f"{name}: {new}")


def test_garbage_is_answered_by_400_or_closed(server):
    for garbage in bytes(range(256)) * 20, b"\xff" * 5000 + b"\r\n\r\n", b"\r\n \r\n\r\n", \
            b"GET\t/echo\tHTTP/1.1\r\n\r\n", get(b"/echo?" + b"a&" * 5000):
        with server.connect() as s:
            with contextlib.suppress(OSError):
                s.sendall(garbage)
            data = b""
            with contextlib.suppress(OSError):
                while piece := s.recv(65536):
                    data += piece
            expect(not data or data.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 ")), data[:99])
    canary(server)


def test_refusals_say_why_in_json(server):
    reply, _ = ask(server, REFUSED["two lengths"][0])
    expect(reply.fields["content-type"] == "application/json", reply.fields)
    expect(json.loads(reply.body)["error"] == {"message": "the request has two lengths",
                                               "path": "/echo"}, reply.body)
    expect(reply.fields["connection"] == "close", reply.fields)


def test_nothing_after_a_refused_request_is_read(server):
    hidden = get(b"/echo?tag=hidden")
    for name in "two lengths", "length and chunks", "no name", "folded name", "no host":
        with server.connect() as s:
            s.sendall(REFUSED[name][0] + hidden)
            data = b""
            with contextlib.suppress(OSError):
                while piece := s.recv(65536):
                    data += piece
        expect(b"GET /echo" not in data, name)
    ask(server, get(b"/echo?tag=after"))
    server.line("closed after ")
    expect(not [line for _, line in server.lines if "hidden" in line], "it was read")


# --- what clients really send ---

def answers(server, request, n=1):
    """The replies to this many requests in these bytes."""
    with server.connect() as s:
        s.sendall(request)
        replies, rest = [], b""
        for _ in range(n):
            replies.append(Reply(s, rest))
            rest = replies[-1].rest
        expect(rest == b"", f"more than {n} replies: {rest}")
        return replies, not goes_on(s)


def test_connection_close_is_seen_in_any_case_and_in_lists(server):
    for value in b"close", b"Close", b"CLOSE", b"keep-alive, close", b"Close,TE", b"TE , cLoSe":
        (reply,), ended = answers(server, get(b"/echo", b"Connection: " + value))
        expect(reply.status == 200 and ended, value)
    (reply,), ended = answers(server, get(b"/echo", b"cOnNeCtIoN: cLoSe"))
    expect(reply.status == 200 and ended, "in the name, too")
    for value in b"keep-alive", b"TE", b"upgrade", b"closed", b"HTTP2-Settings, Upgrade":
        (reply,), ended = answers(server, get(b"/echo", b"Connection: " + value, b"Upgrade: h2c"))
        expect(reply.status == 200 and not ended, value)


def test_chunks_may_have_capitals_extensions_and_trailers(server):
    long = b"x" * 0xAB
    for name, chunks in {
            "capitals": b"AB\r\n" + long + b"\r\n0\r\n\r\n",
            "zeros": b"0000aB\r\n" + long + b"\r\n000\r\n\r\n",
            "extensions": b"ab;a=b;c=\"d\"\r\n" + long + b"\r\n0;last\r\n\r\n",
            "trailers": b"ab\r\n" + long + b"\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"}.items():
        replies, ended = answers(server, CHUNKED + chunks + get(b"/echo"), 2)
        expect(replies[0].body.startswith(b"POST /echo 171 "), f"{name}: {replies[0].body}")
        expect(replies[1].body.startswith(b"GET /echo 0 ") and not ended, f"{name}: the next one")


def test_trailers_change_nothing_of_a_request(server):
    request = POST.replace(b"/echo", b"/header?name=x-a") + b"Transfer-Encoding: chunked\r\n\r\n"
    (reply,), _ = answers(server, request + b"0\r\nX-A: late\r\n\r\n")
    expect(reply.status in (200, 404) and b"echo" not in reply.body, reply.body)
    for name in b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Host: other", \
            b"Connection: close":
        request = CHUNKED + b"2\r\nab\r\n0\r\n" + name + b"\r\n\r\n"
        replies, _ = answers(server, request + get(b"/echo"), 2)
        expect(replies[0].body.startswith(b"POST /echo 2 "), name)
        expect(replies[1].body.startswith(b"GET /echo 0 "), name)


def test_a_body_that_is_refused_is_not_asked_for(server):
    """With Expect: 100-continue the refusal takes the place of 100, and nothing follows."""
    expects = b"Expect: 100-Continue"
    for name, request, status in (
            ("too long", fields(expects, b"Content-Length: 2000000"), 413),
            ("compressed", fields(expects, b"Content-Length: 20", b"Content-Encoding: gzip"), 415),
            ("no number", fields(expects, b"Content-Length: +20"), 400)):
        with server.connect() as s:
            expect_one_refusal(all_that_comes(s, request), name, status)


def test_compressed_bodies_are_refused_by_name(server):
    for name in b"gzip", b"deflate", b"br", b"zstd", b"X-GZIP":
        reply, ended = ask(server, fields(b"Content-Encoding: " + name, b"Content-Length: 5")
                           + b"hello")
        expect(reply.status == 415 and ended, name)
        word = b"gzip" if b"GZIP" in name else name
        expect(b"packed by " in reply.body and word in reply.body, reply.body)
        expect(reply.fields["accept-encoding"] == "identity", reply.fields)
    reply, _ = ask(server, fields(b"Content-Encoding: x-secret", b"Content-Length: 5") + b"hello")
    expect(reply.status == 415 and b"secret" not in reply.body, reply.body)


def test_a_client_that_asks_in_tls_or_http2_is_told_what_to_do(server):
    for name, words in ("TLS", b"http://"), ("HTTP/2", b"HTTP/1.1"):
        request, status = REFUSED[name]
        with server.connect() as s:
            data = all_that_comes(s, request)
        expect(data.startswith(b"HTTP/1.1 %d " % status) and words in data.split(b"\r\n\r\n")[1],
               data)


def test_a_connection_goes_on_after_a_refused_request_with_a_short_body(server):
    """/early answers before the body; what follows the body is the next request."""
    for body in b"", b"x", b"x" * 65536:
        request = get(b"/early", method=b"POST", body=body) + get(b"/echo")
        replies, ended = answers(server, request, 2)
        expect(replies[0].status == 401 and replies[1].status == 200 and not ended, len(body))
    request = CHUNKED.replace(b"/echo", b"/early") + b"5\r\nhello\r\n0\r\n\r\n" + get(b"/echo")
    with server.connect() as s:  # how long it is nobody knows
        data = all_that_comes(s, request)
    expect(count_heads(data) == 1 and b" 401 " in data, data)


# --- bodies that are being read ---

def test_bodies_that_are_being_read_share_their_memory(_):
    size, clients, total = 16 << 20, 200, 256 << 20
    with Server(f"body_bytes_max={64 << 20}", f"bodies_bytes_max={total}",
                "body_seconds=300") as server, \
            contextlib.ExitStack() as stack:
        before = server.memory()
        crowd = []
        for _ in range(clients):
            s = stack.enter_context(server.connect())
            s.sendall(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * 1000)
            crowd.append(s)
        expect(ask(server, get(b"/echo", method=b"POST", body=b"x" * 60000))[0].status == 200,
               "small requests pass")
        n_taken = total * 3 // 4 // size

        def refused():
            return select.select(crowd, [], [], 0)[0]
        wait_until(lambda: len(refused()) >= clients - n_taken, "all others are refused",
                   harness.LIMIT)
        told = refused()
        for s in told:
            reply = Reply(s)
            expect(reply.status == 503 and reply.fields["retry-after"] == "5", reply.fields)
        taken = [s for s in crowd if s not in told]
        expect(len(taken) == n_taken, f"{len(taken)} are read")
        for s in taken[1:]:
            s.close()
        taken[0].sendall(b"x" * (size - 1000))
        expect(Reply(taken[0]).body.startswith(b"POST /echo %d " % size), "who was taken is read")
        large = get(b"/echo", method=b"POST", body=b"x" * (40 << 20))
        wait_until(lambda: ask(server, large)[0].status == 200, "the room of those who have left",
                   harness.LIMIT)
        grown = (server.memory() - before) / 1e6
        expect(grown < 300 or is_sanitized(), f"{grown:.0f} MB more")


def test_chunks_without_room_are_refused_where_it_ends(_):
    with Server("body_bytes_max=1048576", "bodies_bytes_max=4194304",
                "body_seconds=300") as server, \
            contextlib.ExitStack() as stack:
        for _ in range(3):  # three quarters of it
            s = stack.enter_context(server.connect())
            s.sendall(POST + b"Content-Length: 1048576\r\n\r\n")
        s = stack.enter_context(server.connect())
        s.sendall(CHUNKED)

        def is_full():
            with server.connect() as other:
                other.sendall(get(b"/early", b"Content-Length: 70000", method=b"POST"))
                return Reply(other).status == 503
        wait_until(is_full, "three bodies are being read", harness.LIMIT)
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        expect_one_refusal(all_that_comes(s, chunk * 3), "the third block", 503)
        expect(ask(server, get(b"/echo", method=b"POST", body=b"x" * 60000))[0].status == 200,
               "small ones pass")


def test_a_body_a_byte_now_and_then_ends(_):
    """Long bodies have to come at some rate; short ones within many times body_seconds."""
    with Server("body_seconds=0.3") as server:
        for length in 5, 500000:
            with server.connect() as s:
                s.sendall(POST + b"Content-Length: %d\r\n\r\n" % length)
                end, data = time.monotonic() + harness.LIMIT, b""
                s.settimeout(0.1)
                sent = 0
                while not data:
                    expect(time.monotonic() < end, f"{length}: it is still awaited")
                    with contextlib.suppress(TimeoutError):
                        if sent + 1 < length or sent == 0:
                            s.sendall(b"x")
                            sent += 1
                        data = s.recv(65536)
                expect_one_refusal(data, length, 408)
        canary(server)


if __name__ == "__main__":
    harness.main(globals(), Server)
