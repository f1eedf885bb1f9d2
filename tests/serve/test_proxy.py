#!/usr/bin/env python3
"""server/http.h behind HAProxy, which sends requests of many clients through the same connections.

If the two disagreed about where a request ends, a client could plant one that answers somebody
else's. So each request that could be read in two ways is sent through the proxy with another one
hidden behind it, and then others must get their own answers.
"""
import contextlib
import pathlib
import shutil
import socket
import subprocess
import tempfile

import harness
from harness import Reply, Server, Skip, expect, get
from test_http import leave
from test_requests import CHUNKED, REFUSED, fields

PAIRS = {name: request for name, (request, _) in REFUSED.items() if len(request) < 10000}
HIDDEN = get(b"/echo/hidden")
PAIRS |= {
    "length hides a request": fields(b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "chunks hide a request": CHUNKED + b"%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n",
    "length before chunks": fields(b"Content-Length: %d" % (len(HIDDEN) + 5),
                                   b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks with an odd name": fields(b"Content-Length: 5", b"Transfer-Encoding: xchunked")
    + b"0\r\n\r\n",
    "chunks with a tab": fields(b"Content-Length: 5", b"Transfer-Encoding:\tchunked")
    + b"0\r\n\r\n",
    "chunks on a folded line": fields(b"Content-Length: 5", b"Transfer-Encoding:\r\n chunked")
    + b"0\r\n\r\n",
    "bare LF after an extension": CHUNKED + b"5;a\nhello\r\n0\r\n\r\n",
    "bare LF after a chunk size": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "bare LF after a chunk": CHUNKED + b"5\r\nhello\n0\r\n\r\n",
    "bare CR after a chunk size": CHUNKED + b"5\rhello\r\n0\r\n\r\n",
    "blank after a chunk size": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "an extension that hides a chunk": CHUNKED + b"5;\r\nhello\r\n1;a=\n0\r\nX\r\n0\r\n\r\n",
    "a chunk size of 17 digits": CHUNKED + b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "no end of the chunks": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "a line after the chunks": CHUNKED + b"5\r\nhello\r\n0\r\nGET /echo/hidden HTTP/1.1\r\n",
    "length with zeros": fields(b"Content-Length: 0000%d" % len(HIDDEN)) + HIDDEN,
    "length after a header of the same length": fields(b"X: 5", b"Content-Length: 0") + HIDDEN,
    "length that a connection option drops": fields(
        b"Connection: Content-Length", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "chunks that a connection option drops": fields(
        b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks in a list with blanks": fields(b"Transfer-Encoding: , chunked") + b"0\r\n\r\n",
    "chunks in quotes": fields(b'Transfer-Encoding: "chunked"') + b"0\r\n\r\n",
    "chunks with a parameter": fields(b"Transfer-Encoding: chunked;a=b") + b"0\r\n\r\n",
    "underscore instead of a dash": fields(b"Content_Length: 5", b"Content-Length: %d"
                                           % len(HIDDEN)) + HIDDEN,
    "a body of GET": get(b"/echo", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
    "trailer with a length": CHUNKED + b"0\r\nContent-Length: 50\r\n\r\n",
}

CONFIG = """
global
    maxconn 200
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
    {option}
frontend front
    bind fd@{front}
    default_backend back
backend back
    http-reuse always
    server carat 127.0.0.1:{back}
"""


@contextlib.contextmanager
def proxy(server, option):
    """HAProxy in front of the server; its port. Who connects before it runs waits."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if not program:
        raise Skip("haproxy is not here")
    with tempfile.TemporaryDirectory() as folder, \
            socket.create_server(("127.0.0.1", 0), backlog=200) as front:
        path = pathlib.Path(folder) / "haproxy.cfg"
        path.write_text(CONFIG.format(option=option, front=front.fileno(), back=server.port))
        process = subprocess.Popen([program, "-q", "-db", "-f", str(path)],
                                   pass_fds=[front.fileno()])
        try:
            yield front.getsockname()[1]
            expect(process.poll() is None, "the proxy has ended")
        finally:
            process.kill()
            process.wait()


def send(port, request):
    """Everything that comes back until the end, or a pause."""
    data = b""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(0.1)
        with contextlib.suppress(OSError):
            s.sendall(request)
            while piece := s.recv(65536):
                data += piece
    return data


def all_get_their_own(server, option):
    with proxy(server, option) as port:
        for name, request in PAIRS.items():
            send(port, request + HIDDEN)
            for k in range(3):
                path = b"/echo/victim-%d" % k
                with socket.create_connection(("127.0.0.1", port)) as s:
                    s.settimeout(harness.LIMIT)
                    s.sendall(get(path))
                    reply = Reply(s)
                    expect(reply.status == 200 and reply.body.startswith(b"GET " + path + b" "),
                           f"after {name!r}: {reply.status} {reply.body[:80]}")
                    expect(not reply.rest, f"after {name!r}: more than one answer")


def test_behind_a_proxy_nobody_gets_the_answer_of_another(server):
    all_get_their_own(server, "")


def test_not_even_when_the_proxy_takes_what_is_not_valid(server):
    all_get_their_own(server, "option accept-invalid-http-request")


def test_behind_a_proxy_departures_are_noticed(server):
    with proxy(server, "option abortonclose") as port:
        for name, path in (b"waits", b"/hold?x"), (b"silent", b"/stream?n=9&ms=60000"):
            def through_the_proxy():
                return socket.create_connection(("127.0.0.1", port), harness.LIMIT)
            leave(server, b"proxy-" + name, path, socket.socket.close, through_the_proxy)


if __name__ == "__main__":
    harness.main(globals(), Server)
