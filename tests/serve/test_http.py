#!/usr/bin/env python3
"""server/http.h through raw sockets: departures, deadlines, streams, many connections, TLS.

http_echo.c says what each path does. No request that stands here may harm the ones after it: a
canary follows.
"""
import contextlib
import itertools
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import warnings

import harness
from harness import (LIMIT, Reply, Server, Skip, ask, at_best, canary, expect, get, has_ended,
                     is_sanitized, reset, wait_until)
from test_requests import CHUNKED, LENGTHS, POST, REFUSED, all_that_comes, expect_one_refusal


def start():
    return Server()


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def is_idle(server, limit):
    """In some second it uses less of a processor than this."""
    def use():
        before = cpu_seconds(server)
        time.sleep(1)
        return cpu_seconds(server) - before
    at_best(limit, use, "seconds of processor in a second", 5)


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


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


def test_requests_arrive_whole_byte_by_byte(server):
    fields = [b"X-%d: %s" % (i, b"v" * 200) for i in range(40)] + [b"Empty:", b"Tight:x"]
    request = get(b"/header?name=x-39", *fields)
    with server.connect() as s:
        for at in range(0, len(request), 7):
            s.sendall(request[at:at + 7])
        expect(Reply(s).body == b"v" * 200, "the last of many headers")
        for byte in get(b"/echo", method=b"POST", body=b"hello"):
            s.sendall(bytes([byte]))
        expect(Reply(s).body.startswith(b"POST /echo 5"), "a body")


def test_headers_and_queries_are_found(server):
    two = get(b"/header?name=X-A&n=1", b"x-a: one", b"X-A:  two ", b"x-b: three")
    expect(ask(server, two)[0].body.strip() == b"two", "the second of a name")
    expect(ask(server, get(b"/header?name=x-a&n=2", b"x-a: 1", b"x-a: 2"))[0].status == 404, "none")
    for query, value in (b"a=b&key=a", b"b"), (b"key=a&a=%C3%BC+%26", "ü &".encode()), \
            (b"key=a&a", b""), (b"key=a&&&=&a==1", b"=1"), (b"a=1&a=2&key=a", b"1"):
        reply, _ = ask(server, get(b"/query?" + query))
        expect(reply.status == 200 and reply.body == value, f"{query}: {reply.body}")
    expect(ask(server, get(b"/query?key=b&a=1"))[0].status == 404, "none")
    reply, _ = ask(server, get(b"/%65cho/a%20b%2Fc"))
    expect(reply.body.startswith(b"GET /echo/a b/c "), reply.body)


def test_head_has_no_body_and_the_connection_goes_on(server):
    for path in b"/echo", b"/stream?n=3", b"/big?size=100000":
        with server.connect() as s:
            s.sendall(get(path, method=b"HEAD") + get(b"/echo"))
            head = Reply(s, is_head=True)
            expect(head.status == 200, path)
            expect(Reply(s, head.rest).body.startswith(b"GET /echo"), path)


def test_old_clients_are_answered(server):
    for host in b"", harness.HOST:
        reply, ended = ask(server, get(b"/echo", version=b"HTTP/1.0", host=host))
        expect(reply.status == 200 and ended, "HTTP/1.0 closes")
    reply, ended = ask(server, get(b"/stream?n=3&ms=5", version=b"HTTP/1.0"))
    expect(reply.body == b"xxx", f"a stream is whole, not {reply.body}")
    expect(ended, "a stream ends with the connection")
    expect("transfer-encoding" not in reply.fields, "chunks came with HTTP/1.1")
    reply, ended = ask(server, get(b"/echo", b"Connection: keep-alive", version=b"HTTP/1.0"))
    expect(reply.status == 200 and not ended, "unless it asks")


def test_absolute_targets_name_the_host(server):
    reply, _ = ask(server, get(b"http://localhost/echo"))
    expect(reply.body.startswith(b"GET /echo "), "the same host")


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


def test_a_thousand_pipelined_requests_are_all_answered(server):
    with server.connect() as s:
        sender = threading.Thread(target=s.sendall, args=(get(b"/echo") * 1000,))
        sender.start()
        rest = b""
        for _ in range(1000):
            reply = Reply(s, rest)
            expect(reply.status == 200, reply.body)
            rest = reply.rest
        sender.join()
        expect(rest == b"", "nothing more")


def test_a_client_that_waits_for_100_gets_it(server):
    with server.connect() as s:
        s.sendall(get(b"/echo", b"Expect: 100-continue", b"Content-Length: 5", method=b"POST"))
        reply = Reply(s)
        expect(reply.status == 100, reply.status)
        s.sendall(b"hello")
        expect(Reply(s, reply.rest).body.startswith(b"POST /echo 5"), "then its body is read")
    reply, ended = ask(server, get(b"/early", b"Expect: 100-continue", b"Content-Length: 5",
                                   method=b"POST"))
    expect(reply.status == 401 and ended, "a reply before the body takes its place")


def test_replies_before_the_body_arrive(server):
    reply, ended = ask(server, get(b"/early", method=b"POST", body=b"x" * 1000))
    expect(reply.status == 401 and not ended, "a short body is dropped, the connection goes on")
    for size in 1 << 18, 1 << 20:
        for _ in range(5):
            reply, ended = ask(server, get(b"/early", method=b"POST", body=b"x" * size))
            expect(reply.status == 401 and ended, "a long one ends it")
            expect(reply.fields["connection"] == "close", "and that is said")
    canary(server)


def test_long_replies_are_whole(server):
    for size in 0, 1, 65535, 65536, 65537, 1 << 20:
        reply, ended = ask(server, get(b"/big?size=%d" % size))
        expect(len(reply.body) == size and not ended, f"{len(reply.body)} of {size}")
        expect(reply.body[:26] == b"abcdefghijklmnopqrstuvwxyz"[:size], "the same bytes")


# --- how many connections there are ---

def test_connections_are_counted_by_what_they_do(_):
    with Server() as server, contextlib.ExitStack() as stack:
        def open_with(request, n):
            for _ in range(n):
                s = stack.enter_context(server.connect())
                if request.startswith(b"GET /flood"):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.sendall(request)

        open_with(b"", 2)
        for _ in range(3):
            s = stack.enter_context(server.connect())
            s.sendall(get(b"/echo"))
            Reply(s)
        open_with(b"GET /ec", 2)
        open_with(POST + b"Content-Length: 9\r\n\r\nabc", 2)
        open_with(get(b"/hold"), 6)
        open_with(get(b"/stream?n=9&ms=60000"), 1)
        open_with(get(b"/flood?size=9000000"), 3)
        wanted, counts = "5 4 7 4", ""  # the fourth that is written to is the one that asks
        end = time.monotonic() + harness.LIMIT
        while counts != wanted:
            expect(time.monotonic() < end, f"{counts}, not {wanted}")
            counts = ask(server, get(b"/counts"))[0].body.decode().strip()
            idle, reading, waiting, writing = map(int, counts.split())
            expect(idle + reading + waiting + writing <= 20, counts)
            counts = f"{idle} {reading} {waiting - 1} {writing + 1}"  # it is asked while it waits
        stack.close()
        while counts != "0 0 1 0":
            expect(time.monotonic() < end, f"{counts} when all have gone")
            counts = ask(server, get(b"/counts"))[0].body.decode().strip()


# --- departures ---

def leave(server, name, path, how, connect=None):
    numbers = itertools.count()

    def seconds():
        return seconds_to_notice(server, b"%s-%d" % (name, next(numbers)), path, how,
                                 connect or server.connect)
    at_best(0.1, seconds, f"seconds until it is noticed that {name} has left")


def seconds_to_notice(server, name, path, how, connect):
    s = connect()
    s.sendall(get(path + b"&tag=" + name))
    server.line(f"began {name.decode()}")
    time.sleep(0.02)  # it waits, or all buffers are full
    began = time.monotonic()
    how(s)
    when, line = server.line(f"closed {name.decode()} ")
    s.close()
    expect(line.endswith(" cut"), line)
    return when - began - seconds_of_a_request(server, name, connect)


def seconds_of_a_request(server, name, connect):
    """As long as both programs need now until one knows of what the other does."""
    with connect() as s:
        began = time.monotonic()
        s.sendall(get(b"/echo?tag=beside-" + name))
        return server.line(f"closed beside-{name.decode()} ")[0] - began


def test_departed_clients_are_noticed_in_every_state(server):
    ways = {"close": lambda s: s.close(), "reset": reset, "half": lambda s: s.shutdown(1)}
    for way, how in ways.items():
        leave(server, f"waits-{way}".encode(), b"/hold?x", how)
        leave(server, f"silent-{way}".encode(), b"/stream?n=9&ms=60000", how)
        leave(server, f"blocked-{way}".encode(), b"/flood?size=300000", how)
        leave(server, f"long-{way}".encode(), b"/big?size=12000000", how)
    canary(server)


def test_departures_in_the_middle_of_requests_are_noticed(server):
    numbers = itertools.count()
    for part in b"", b"GET /ec", get(b"/echo")[:-2], POST, POST + b"Content-Length: 9\r\n\r\nabc", \
            CHUNKED + b"5\r\nhe":
        for how in reset, lambda s: s.close():
            with server.connect() as s:
                s.sendall(part)
                time.sleep(0.01)
                how(s)

        def seconds():
            with server.connect() as s:
                s.sendall(part)
                time.sleep(0.05)
                began = time.monotonic()
                s.shutdown(socket.SHUT_WR)
                expect(has_ended(s), f"{part[-20:]}: the rest is still awaited")
                took = time.monotonic() - began
            return took - seconds_of_a_request(server, b"%d" % next(numbers), server.connect)
        at_best(0.2, seconds, f"{part[-20:]}: seconds until it is noticed")
    canary(server)


def test_an_end_that_comes_with_bytes_is_noticed(server):
    before = descriptors(server)
    for part in b"GET /ec", get(b"/echo"), get(b"/hold"), POST, CHUNKED + b"5\r\nhe":
        for how in reset, socket.socket.close:
            for _ in range(10):
                s = server.connect()
                s.sendall(part)
                how(s)
            wait_until(lambda: descriptors(server) <= before, f"{part[:20]} is closed", LIMIT)
    with server.connect() as s:
        s.sendall(get(b"/echo") * 3)
        s.shutdown(socket.SHUT_WR)
        rest = b""
        for _ in range(3):  # what needs no waiting is answered
            reply = Reply(s, rest)
            rest = reply.rest
        expect(reply.status == 200 and has_ended(s), "then it is closed")


def test_who_sends_no_more_gets_the_replies_that_need_no_waiting(_):
    """The end is noticed between a reply and the next one, as ticks take long. Not each time."""
    with Server("busy_seconds=0.02") as server:
        for _ in range(12):
            with server.connect() as s:
                s.sendall(get(b"/echo") * 9 + get(b"/hold"))
                rest = Reply(s).rest
                s.shutdown(socket.SHUT_WR)
                for _ in range(8):
                    reply = Reply(s, rest)
                    expect(reply.status == 200, reply.body)
                    rest = reply.rest
                expect(rest == b"" and has_ended(s), "nobody waits for the last one")


def test_a_client_that_leaves_a_pipeline_is_noticed_too(server):
    leave(server, b"pipelined", b"/hold?x", lambda s: (s.sendall(get(b"/echo") * 100), s.close()))


def test_each_request_is_closed_once(server):
    for _ in range(3):
        ask(server, get(b"/echo?tag=once"))
    ask(server, get(b"/stream?n=3&ms=5&tag=once"))

    def times():
        return len([x for _, x in server.lines if x == "closed once sent"])
    wait_until(lambda: times() >= 4, "four requests are closed", LIMIT)
    ask(server, get(b"/echo?tag=afterwards"))
    server.line("closed afterwards ")
    expect(times() == 4, "four times")


# --- streams ---

def test_streams_arrive_piece_by_piece(server):
    with server.connect() as s:
        s.sendall(get(b"/stream?n=1&ms=600000"))
        expect(s.recv(65536).startswith(b"HTTP/1.1 200"), "the headers come before any piece")

    def without_their_own_time():
        """Of five pieces, those that came together with another one."""
        data, times = b"", 0
        with server.connect() as s:
            s.sendall(get(b"/stream?n=5&ms=60"))
            while not data.endswith(b"0\r\n\r\n"):
                data += s.recv(65536)
                times += 1
        expect(times <= 7, f"{times} parts: the headers, five pieces, perhaps the end")
        return max(0, 5 - times)
    at_best(1, without_their_own_time, "pieces that were held back")


def test_a_stream_that_ends_in_the_middle_shows_it(server):
    with server.connect() as s:
        s.sendall(get(b"/stream?n=2&ms=5&end=cut&tag=middle"))
        data = b""
        while piece := s.recv(65536):
            data += piece
    expect(b"0\r\n\r\n" not in data, "no last chunk")
    server.line("closed middle cut")


def test_on_room_follows_the_client(server):
    with server.connect() as s:
        s.sendall(get(b"/flood?size=100000&tag=follows"))
        got = 0
        while got < 50_000_000:
            got += len(s.recv(1 << 20))
    server.line("closed follows cut")
    canary(server)


def test_a_stream_is_told_of_room_once_it_is_low(server):
    def missing(tries=itertools.count()):
        tag = f"low-{next(tries)}"
        with server.connect() as s:
            s.sendall(get(b"/stream?n=2&ms=20&size=200000&tag=" + tag.encode()))
            expect(len(Reply(s).body) == 400000, "all of it")
        server.line(f"closed {tag} sent")
        rooms = [x for _, x in server.lines if x == f"room {tag}"]
        expect(len(rooms) <= 2, f"{len(rooms)} calls of on_room for two pieces")
        return 1 - len(rooms)  # none if the end follows before anything was read
    at_best(1, missing, "calls of on_room that did not come")


def test_waiting_costs_no_time(server):
    """Suspended, silent and blocked connections: the loop sleeps but for its ticks."""
    waiting = []
    for path in b"/hold", b"/stream?n=9&ms=60000", b"/flood?size=300000", b"/big?size=12000000":
        for _ in range(5):
            s = server.connect()
            s.sendall(get(path))
            waiting.append(s)
    is_idle(server, 0.3 if is_sanitized() else 0.1)
    for s in waiting:
        s.close()


def test_many_wakes_become_one(server):
    reply, _ = ask(server, get(b"/wakes?n=10000"))
    expect(reply.body == b"1\n", f"10,000 calls, {reply.body} callbacks")


# --- deadlines ---

def test_slow_clients_are_cut(_):
    with Server("header_seconds=0.8", "body_seconds=0.8", "idle_seconds=1.5") as server:
        drips = server.connect()
        idle, body = server.connect(), server.connect()
        body.sendall(POST + b"Content-Length: 9\r\n\r\nabc")
        for byte in b"GET /echo HTTP/1.1":  # hardly longer than 0.05 s without a byte
            with contextlib.suppress(OSError):
                drips.sendall(bytes([byte]))
            time.sleep(0.05)
        expect(Reply(drips).status == 408 and has_ended(drips), "slow headers")
        expect(Reply(body).status == 408 and has_ended(body), "a body that stops")
        expect(idle.recv(1) == b"", "nothing was asked")
        kept = server.connect()
        began = time.monotonic()
        kept.sendall(get(b"/echo"))
        Reply(kept)
        expect(kept.recv(1) == b"" and time.monotonic() - began > 1, "nothing more")
        for s in drips, idle, body, kept:
            s.close()
        canary(server)


def most_patient(use):
    """Calls `use` with a server that cuts who does nothing for some time, and with that time. This
    program may be held up longer than that, so there are tries with more and more patience."""
    for seconds in 0.5, 2, 8:
        with Server(f"body_seconds={seconds}", f"write_seconds={seconds}") as server:
            try:
                use(server, seconds)
                canary(server)
                return
            except (AssertionError, OSError) as error:
                last = error
    raise last


def test_slow_bodies_that_go_on_are_not_cut(_):
    def send_slowly(server, seconds):
        with server.connect() as s:
            s.sendall(CHUNKED)
            for _ in range(12):
                s.sendall(b"1\r\na\r\n")
                time.sleep(seconds / 8)
            s.sendall(b"0\r\n\r\n")
            expect(Reply(s).body.startswith(b"POST /echo 12"), "a slow body that goes on")
    most_patient(send_slowly)


def small_reader(server, path):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(LIMIT)
    s.connect(("127.0.0.1", server.port))
    s.sendall(get(path))
    return s


def test_what_came_while_the_server_could_not_run_is_not_late(_):
    """A stopped process is like one on a machine without time for it."""
    body = get(b"/echo", method=b"POST", body=b"x" * 100000)
    first = get(b"/echo")
    with Server("header_seconds=0.5", "body_seconds=0.5") as server:
        for name, before, half, rest, length in (
                ("body", b"", body[:50000], body[50000:], 100000),
                ("head", b"", first[:20], first[20:], 0),
                ("second head", first, first[:20], first[20:], 0)):
            with server.connect() as s:
                if before:
                    s.sendall(before)
                    Reply(s)
                s.sendall(half)
                wait_until(lambda: ask(server, get(b"/counts"))[0].body.split()[1] != b"0",
                           "it is being read", LIMIT)
                server.process.send_signal(signal.SIGSTOP)
                s.sendall(rest)
                time.sleep(1)  # that time is over
                server.process.send_signal(signal.SIGCONT)
                expect(Reply(s).body.split()[2] == b"%d" % length, name)


def test_clients_that_do_not_read_are_cut(_):
    with Server("write_seconds=0.5") as server:
        stuck = []
        for name, path in (b"flood", b"/flood?size=300000"), (b"big", b"/big?size=20000000"):
            began = time.monotonic()
            stuck.append(small_reader(server, path + b"&tag=stuck-" + name))
            when, line = server.line(f"closed stuck-{name.decode()} ")
            expect(line.endswith("cut") and when - began > 0.4, f"{line} {when - began}")
        for s in stuck:
            s.close()
        canary(server)


def test_slow_readers_are_not_cut(_):
    def read_slowly(server, seconds):
        with small_reader(server, b"/flood?size=300000&tag=reads") as s:
            end = time.monotonic() + 3 * seconds
            while time.monotonic() < end:  # far less than a buffer of the system in write_seconds
                expect(s.recv(4096), "it reads, and was cut")
                time.sleep(seconds / 10)
        expect("began reads" in [x for _, x in server.lines], "it was served")
    most_patient(read_slowly)


def test_a_silent_stream_is_not_cut(_):
    with Server("write_seconds=0.3", "idle_seconds=0.3", "body_seconds=0.3",
                "header_seconds=0.3") as server:
        reply, _ = ask(server, get(b"/stream?n=2&ms=800"))
        expect(reply.body == b"xx", "waiting is the server's")
        expect(ask(server, get(b"/later?ms=900"))[0].status == 200, "here too")


# --- many connections ---

def test_ten_thousand_idle_connections_take_little_memory(_):
    wanted = 10000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted + 200:
        raise Skip(f"{hard} descriptors are allowed, {wanted + 200} needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 200, hard))
    many = []
    try:
        with Server("idle_seconds=600") as server:
            before = server.memory()
            for i in range(wanted):
                s = server.connect()
                if i % 2:
                    s.sendall(get(b"/echo"))  # half of them have asked something
                many.append(s)
            for s in many[1::2]:
                Reply(s)
            canary(server)
            taken = (server.memory() - before) / 1e6
            expect(taken < 200 or is_sanitized(), f"{taken:.0f} MB")
            with server.connect() as s:
                s.sendall(get(b"/stream?n=100&ms=10"))
                expect(len(Reply(s).body) == 100, "a stream beside them")
            print(f"    {taken:.0f} MB for {wanted} connections")
    finally:
        for s in many:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def test_a_server_with_few_descriptors_stays_up(_):
    with Server("header_seconds=1", preexec_fn=few_descriptors) as server:
        crowd = [server.connect() for _ in range(200)]  # the rest waits in the system's queue
        is_idle(server, 0.3)
        began = time.monotonic()
        expect(ask(server, get(b"/echo"), limit=300)[0].status == 200, "places are made")
        print(f"    {time.monotonic() - began:.1f} s behind 200 idle connections")
        for s in crowd:
            s.close()
        canary(server)


def test_nothing_is_left_of_connections(server):
    """Clients that end in any way leave neither descriptors nor memory."""
    def crowd():
        for i in range(200):
            part = (b"", b"GET /ec", get(b"/hold"), get(b"/flood?size=300000"), POST, get(b"/echo"),
                    get(b"/stream?n=9&ms=60000"), REFUSED["two lengths"][0],
                    get(b"/early", method=b"POST", body=b"x" * 100000),
                    get(b"/echo", method=b"POST", body=b"x" * 1100000))[i % 10]
            s = server.connect()
            with contextlib.suppress(OSError):
                s.sendall(part)
            (reset if i % 3 else socket.socket.close)(s)
        canary(server)

    def only_one_is_left():
        """But the one that asks, and what listens."""
        ask(server, get(b"/echo"))
        return descriptors(server) <= before

    with Server() as other:  # nobody has asked it yet
        before = descriptors(other)
    crowd()
    wait_until(only_one_is_left, "the first crowd is gone", LIMIT)
    memory = server.memory()
    for _ in range(3):
        crowd()
    wait_until(only_one_is_left, "all are gone", LIMIT)
    grown = (server.memory() - memory) / 1e6
    expect(grown < 30 or is_sanitized(), f"{grown:.0f} MB more after 600 connections")


# --- memory ---

def test_requests_without_memory_fail_alone(_):
    """The n-th allocation and all later ones fail. What is asked then is refused or cut; when there
    is memory again the server answers as before."""
    requests = (get(b"/echo?a=b", b"x: y", method=b"POST", body=b"x" * 100), get(b"/early"),
                get(b"/big?size=99999"), get(b"/stream?n=2&ms=1"), REFUSED["two lengths"][0])
    seen = set()
    for n in range(40):
        with Server(f"fail_after={n}", "header_seconds=2") as server:
            for request in requests:
                with server.connect() as s:
                    try:
                        s.sendall(request)
                        seen.add(Reply(s).status)
                    except (OSError, AssertionError):
                        seen.add("cut")
            server.process.send_signal(signal.SIGUSR1)
            _, line = server.line("memory ")
            with server.connect() as s:
                s.sendall(get(b"/echo"))
                expect(Reply(s).status == 200, f"not well after {n} allocations")
            expect(server.stop() == 0, "it ends")
        if line == "memory 0":
            break
    expect(line == "memory 0" and {"cut", 200, 401} <= seen, f"{line} {seen}")


# --- other sockets ---

def test_a_unix_socket_serves_and_is_removed(_):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "carat.sock")
        for _ in range(2):  # the second finds what the first left behind
            with Server(f"unix_path={path}") as server:
                expect(os.stat(path).st_mode & 0o777 == 0o660, "mode 0660")
                with socket.socket(socket.AF_UNIX) as s:
                    s.settimeout(LIMIT)
                    s.connect(path)
                    s.sendall(get(b"/echo"))
                    expect(b" unix " in Reply(s).body, "its client is \"unix\"")
                    s.sendall(get(b"/big?size=1000000"))
                    expect(len(Reply(s).body) == 1000000, "a long reply")
                    s.sendall(get(b"/hold?tag=local"))
                    server.line("began local")
                    s.close()
                    server.line("closed local cut")
                second = subprocess.run([harness.PROGRAM, f"unix_path={path}"], timeout=LIMIT,
                                        capture_output=True, check=False)
                expect(second.returncode == 7 and b"in use" in second.stdout, second.stdout)
                server.process.kill()
        with Server(f"unix_path={path}") as server:
            expect(server.stop() == 0, "ends")
            expect(not os.path.exists(path), "the socket is gone")


def test_a_server_that_ends_leaves_the_socket_of_its_successor(_):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "carat.sock")

        def connect():
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(LIMIT)
            s.connect(path)
            return s

        def is_refused():
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                connect().close()
                return False
            return True

        with Server(f"unix_path={path}") as old, connect() as s:
            s.sendall(get(b"/stream?n=1&ms=10&after=stop&tag=last") + get(b"/hold?tag=held"))
            old.line("began last")
            old.process.send_signal(signal.SIGTERM)
            wait_until(is_refused, "it does not listen any more", LIMIT)
            with Server(f"unix_path={path}"):
                expect(Reply(s).status == 200, "what ran comes to its end")
                expect(old.stop(signal.SIGINT) == 0, "the old one ends")
                with connect() as other:
                    other.sendall(get(b"/echo"))
                    expect(Reply(other).status == 200, "the new one has its socket")


def test_a_name_with_two_addresses_is_not_half_taken(_):
    """Who asks "localhost" must not get the program that has the other address of that name."""
    with tempfile.TemporaryDirectory() as folder, \
            socket.create_server(("127.0.0.1", 0)) as taken:
        hosts = os.path.join(folder, "hosts")
        with open(hosts, "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n::1 localhost\n")
        script = f"mount --bind {hosts} /etc/hosts && echo mounted && exec \"$@\""
        process = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, "sh", harness.PROGRAM, "host=localhost",
             f"port={taken.getsockname()[1]}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            if process.stdout.readline() != b"mounted\n":
                raise Skip(f"no file system of its own: {process.stderr.read()}")
            line = process.stdout.readline()
            expect(b"in use" in line, line)
        finally:
            process.kill()
            process.communicate()


def test_a_socket_that_is_given_is_served(_):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        fd = listener.fileno()
        with Server(f"listen_fd={fd}", pass_fds=[fd]) as server:
            expect(server.port == listener.getsockname()[1], "its port")
            canary(server)
    with open(os.devnull, "rb") as file, \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as packets:
        packets.bind("")  # an abstract name that the system chooses
        packets.listen()
        for other in file, packets:
            done = subprocess.run([harness.PROGRAM, f"listen_fd={other.fileno()}"], timeout=LIMIT,
                                  pass_fds=[other.fileno()], capture_output=True, check=False)
            expect(done.returncode == 7 and b"not a listening socket" in done.stdout, done.stdout)


def test_addresses_that_cannot_be_had_are_named(server):
    for option, words in (f"port={server.port}", b"in use"), ("host=192.0.2.1", b"192.0.2.1"), \
            ("host=no.such.name.invalid", b"no.such.name.invalid"):
        # Without servers of names the system asks each of them for long.
        env = {**os.environ, "RES_OPTIONS": "timeout:1 attempts:1"}
        done = subprocess.run([harness.PROGRAM, option], timeout=300, capture_output=True,
                              check=False, env=env)
        expect(done.returncode == 7 and words in done.stdout, f"{option}: {done.stdout}")


def test_ipv6_is_served(_):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        raise Skip(f"no IPv6 here: {error}") from error
    with Server("host=::1") as server, socket.create_connection(("::1", server.port)) as s:
        s.sendall(get(b"/echo"))
        expect(b" ::1 " in Reply(s).body, "the client's address")


# --- TLS ---

@contextlib.contextmanager
def certificates():
    """A folder with two pairs, each of another name, and a function that puts one in place."""
    with tempfile.TemporaryDirectory() as folder:
        def path(name):
            return os.path.join(folder, name)

        for name in "a", "b":
            try:
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                                "ec_paramgen_curve:P-256", "-nodes", "-keyout", path(name + ".key"),
                                "-out", path(name + ".crt"), "-subj", f"/CN={name}.example",
                                "-days", "2"], check=True, capture_output=True)
            except FileNotFoundError as error:
                raise Skip("openssl makes the certificates, and it is not here") from error

        def place(certificate, key):
            for source, target in (certificate, "now.crt"), (key, "now.key"):
                with open(path(source), "rb") as f, open(path(target), "wb") as g:
                    g.write(f.read())

        place("a.crt", "a.key")
        yield path, place


def tls(server, *versions):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if versions:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = versions[0]
    return context.wrap_socket(server.connect())


def name_of(s):
    return re.search(rb"([ab])\.example", s.getpeercert(True)).group(1)


def test_tls_is_new_and_its_certificate_is_exchanged(_):
    with certificates() as (path, place), \
            Server(f"certificate={path('now.crt')}", f"private_key={path('now.key')}") as server:
        if server.lines and "built without" in server.lines[0][1]:
            raise Skip("built without TLS")
        old = tls(server)
        expect(old.version() == "TLSv1.3" and name_of(old) == b"a", "a, TLS 1.3")
        expect(tls(server, ssl.TLSVersion.TLSv1_2).version() == "TLSv1.2", "TLS 1.2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for version in ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1:
                try:
                    tls(server, version)
                    raise AssertionError(f"{version} is taken")
                except (ssl.SSLError, ConnectionError):
                    pass
        place("b.crt", "b.key")
        server.process.send_signal(signal.SIGHUP)
        server.line("reload ok")
        old.sendall(get(b"/echo"))
        expect(Reply(old).status == 200, "who is connected stays so")
        expect(name_of(tls(server)) == b"b", "who comes gets the new one")
        place("a.crt", "b.key")
        server.process.send_signal(signal.SIGHUP)
        _, line = server.line("reload TLS")
        expect("do not belong together" in line and "now.crt" in line, line)
        with open(path("now.key"), "wb") as f:
            f.write(b"garbage")
        server.process.send_signal(signal.SIGHUP)
        _, line = server.line(f"reload TLS: {path('now.key')}")
        expect(name_of(tls(server)) == b"b", "the old pair stays")
        old.close()
        expect(server.stop() == 0, "it ends, and has kept nothing")


def test_tls_carries_what_plain_does(_):
    with certificates() as (path, _), \
            Server(f"certificate={path('now.crt')}", f"private_key={path('now.key')}") as server:
        with tls(server) as s:
            s.sendall(get(b"/echo", method=b"POST", body=b"x" * 100000))
            expect(b" 100000 " in Reply(s).body, "a body")
            s.sendall(get(b"/big?size=3000000"))
            expect(len(Reply(s).body) == 3000000, "a long reply")
            s.sendall(get(b"/stream?n=5&ms=20"))
            expect(Reply(s).body == b"xxxxx", "a stream")
            s.sendall(get(b"/later?ms=100") + get(b"/echo"))
            later = Reply(s)
            expect(Reply(s, later.rest).status == 200, "requests after each other")
        for name, sent in (b"tls-waits", b"/hold?x"), (b"tls-blocked", b"/flood?size=300000"):
            leave(server, name, sent, lambda s: s.close(), lambda: tls(server))


def test_slow_and_wrong_clients_of_tls_are_cut(_):
    with certificates() as (path, _), \
            Server(f"certificate={path('now.crt')}", f"private_key={path('now.key')}",
                   "header_seconds=3", "body_seconds=0.5") as server:
        with tls(server) as s, server.connect() as silent:
            silent.sendall(b"\x16\x03\x01")  # never says hello
            s.sendall(POST + b"Content-Length: 9\r\n\r\nabc")
            expect(Reply(s).status == 408, "a slow body")
            expect(has_ended(silent), "a handshake that stops")
        server.line("refused 0 127.0.0.1 new: the TLS handshake failed")
        with server.connect() as s:
            data = all_that_comes(s, get(b"/echo"))
            expect_one_refusal(data, "plain", 400)
            expect(b"https://" in data, data)
        for name, (request, status) in LENGTHS.items():
            with tls(server) as s:
                expect_one_refusal(all_that_comes(s, request), name, status)
        for garbage in b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000), b"\x16\x03\x01\x00\x05hello":
            with server.connect() as s:
                with contextlib.suppress(OSError):
                    s.sendall(garbage)
                expect(has_ended(s), "garbage")
        with tls(server) as s:
            s.sendall(get(b"/echo"))
            expect(Reply(s).status == 200, "the server is not well")


def test_wrong_certificates_are_named(_):
    with certificates() as (path, _):
        for certificate, key, words in (path("none.crt"), path("a.key"), b"none.crt"), \
                (path("a.key"), path("a.key"), b"no certificate"), \
                (path("a.crt"), path("a.crt"), b"no private key"), \
                (path("a.crt"), path("b.key"), b"do not belong together"):
            done = subprocess.run([harness.PROGRAM, f"certificate={certificate}",
                                   f"private_key={key}"], timeout=LIMIT, capture_output=True,
                                  check=False)
            expect(done.returncode == 2 and words in done.stdout, done.stdout)


# --- the end ---

def test_stopping_lets_open_requests_end(_):
    with Server() as server:
        waits, streams, idle = (server.connect() for _ in range(3))
        waits.sendall(get(b"/later?ms=400&after=stop&tag=waits"))
        streams.sendall(get(b"/stream?n=4&ms=100&after=stop&tag=streams"))
        server.line("began waits")
        server.line("began streams")
        server.process.send_signal(signal.SIGTERM)
        expect(has_ended(idle), "idle connections close")
        try:
            server.connect()
            raise AssertionError("it still listens")
        except ConnectionRefusedError:
            pass
        reply = Reply(waits)
        expect(reply.status == 200 and reply.fields["connection"] == "close", reply.fields)
        expect(Reply(streams).body == b"xxxx", "the stream is whole")
        expect(server.stop() == 0, "then it ends")


def test_stopping_at_once_cuts_everything(_):
    with Server() as server:
        many = []
        for path in b"/hold?tag=1", b"/stream?n=9&ms=60000&tag=2", b"/flood?size=300000&tag=3":
            s = server.connect()
            s.sendall(get(path))
            many.append(s)
        many.append(server.connect())
        for tag in "123":
            server.line(f"began {tag}")
        expect(server.stop(signal.SIGINT) == 0, "it ends")
        for tag in "123":
            server.line(f"closed {tag} cut")
        for s in many:
            s.close()


if __name__ == "__main__":
    harness.main(globals(), start)
