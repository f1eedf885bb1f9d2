#!/usr/bin/env python3
"""`carat serve` and a service manager: what it is told in which order, the watchdog, and a socket
that is listening already.

usage: tests/e2e/test_service.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import contextlib
import http.client
import signal
import socket
import statistics
import subprocess
import tempfile
import time

from program import LIMIT, PROGRAM, ROOT, environment, expect, main, wait_until
from server import need_server


class Manager:
    """A server that tells its state to us, with standard error in a file."""

    def __init__(self, *options, command=(), env=(), **more):
        need_server()
        self.folder = tempfile.TemporaryDirectory()
        path = self.folder.name + "/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.log = open(self.folder.name + "/log", "w+", encoding="utf-8", errors="replace")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [*command, PROGRAM, "serve", "demo", *map(str, options)], cwd=ROOT,
            env=environment(NOTIFY_SOCKET=path, **dict(env)), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self.log, **more)
        self.told = []  # (seconds, state)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self.socket.close()
        self.log.close()
        self.folder.cleanup()

    def wait_for(self, state, seconds=LIMIT):
        """The whole datagram that begins with it; what was told before is in `told`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                text = self.socket.recv(4096).decode()
                self.told.append((time.monotonic() - self.begin, text))
                if text.startswith(state):
                    return text
        self.log.seek(0)
        raise AssertionError(f"{state} did not come: {self.told} {self.log.read()[-500:]}")

    def has_logged(self, text):
        self.log.seek(0)
        return text in self.log.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.wait_for("STOPPING=1")
        return self.process.wait(LIMIT)


def drain(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT)
        connection.connect(path)
        connection.sendall(b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                           b"Connection: close\r\n\r\n")
        expect(b"draining" in connection.makefile("rb").read(), "drained")


def test_states_come_in_their_order():
    with Manager("--port", 0) as manager:
        manager.wait_for("READY=1")
        manager.process.send_signal(signal.SIGHUP)
        reloading = manager.wait_for("RELOADING=1")
        usec = int(reloading.split("MONOTONIC_USEC=")[1])
        expect(abs(usec / 1e6 - time.monotonic()) < 60, f"{reloading!r}")
        manager.wait_for("READY=1")
        expect(manager.stop() == 0, "a clean end")
        texts = [text.split("\n")[0] for _, text in manager.told]
        expect(texts[0].startswith("STATUS="), f"first: {texts}")
        expect(texts.count("READY=1") == 2 and texts[-1] == "STOPPING=1", f"{texts}")


def test_a_reload_does_not_make_a_server_ready():
    with Manager("--port", 0) as manager:
        manager.wait_for("STATUS=")  # from now on signals are taken
        manager.process.send_signal(signal.SIGHUP)
        manager.wait_for("READY=1")
        time.sleep(0.5)
        expect(manager.stop() == 0, "a clean end")
        texts = [text.split("\n")[0] for _, text in manager.told]
        # Where loading was faster than the signal, both follow READY.
        expect("RELOADING=1" not in texts[:texts.index("READY=1")], f"{texts}")
        expect(texts.count("READY=1") == 1 + texts.count("RELOADING=1"), f"{texts}")


def test_a_reload_after_drain_tells_nothing():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/socket"
        with Manager("--unix", path) as manager:
            manager.wait_for("READY=1")
            drain(path)
            manager.process.send_signal(signal.SIGHUP)
            wait_until(lambda: manager.has_logged("reloaded"))
            expect(manager.stop() == 0, "a clean end")
            texts = [text.split("\n")[0] for _, text in manager.told]
            expect("RELOADING=1" not in texts and texts.count("READY=1") == 1, f"{texts}")


def test_the_watchdog_is_fed_twice_in_its_time():
    with Manager("--port", 0, env={"WATCHDOG_USEC": "2000000"}) as manager:
        manager.wait_for("READY=1")
        for _ in range(4):
            manager.wait_for("WATCHDOG=1")
        times = [seconds for seconds, text in manager.told if text == "WATCHDOG=1"]
        pauses = [b - a for a, b in zip(times, times[1:])]
        expect(statistics.median(pauses) < 1.5, f"fed at {times}")
        expect(manager.stop() == 0, "a clean end")


def test_without_a_watchdog_none_is_fed():
    with Manager("--port", 0, env={"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}) as manager:
        manager.wait_for("READY=1")
        time.sleep(1.5)
        expect(manager.stop() == 0, "a clean end")
        expect("WATCHDOG=1" not in [text for _, text in manager.told], f"{manager.told}")


def test_a_socket_that_listens_already_is_served():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fd, port = listening.fileno(), listening.getsockname()[1]
        # The manager names the process by its number, which the shell passes on.
        script = f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&{fd}'
        with Manager("--port", 1, command=("bash", "-c", script, "bash"),
                     pass_fds=[fd]) as manager:
            manager.wait_for("READY=1")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
            connection.request("GET", "/health/ready")
            expect(connection.getresponse().status == 200, "health")
            connection.close()
            expect(manager.stop() == 0, "a clean end")


def test_a_passed_descriptor_that_does_not_listen_is_refused():
    with socket.socket() as idle:
        script = f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&{idle.fileno()}'
        with Manager("--port", 0, command=("bash", "-c", script, "bash"),
                     pass_fds=[idle.fileno()]) as manager:
            expect(manager.process.wait(LIMIT) == 2, f"status {manager.process.returncode}")
            manager.log.seek(0)
            text = manager.log.read()
            expect("does not listen" in text and "ListenStream=" in text, text)


if __name__ == "__main__":
    main(globals())
