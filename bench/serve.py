#!/usr/bin/env python3
"""What the server adds to the engine: each figure measured with the demo model on this machine.

usage: bench/serve.py PROGRAM [NAME...]      (only figures whose name contains a NAME)

The load comes from `carat bench --url`, so that no Python stands between two tokens. Needs an idle
machine: what else runs shows in every figure. The exit status is 1 when a figure is missed.
"""
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from program import PROGRAM  # noqa: E402
from server import Server  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
STREAMS = "users=64,in=64,out=64,requests=512,warmup=64"
ALONE = "users=1,in=16,out=2,requests=200,warmup=5"
WIDE = ("--parallel", "64", "--ctx-size", "256")


def bench(*words):
    command = [PROGRAM, "bench", "-q", "-o", "jsonl", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[0])


def through(server, load, *words):
    return bench("--url", f"http://127.0.0.1:{server.port}", "--load", load, *words)


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


class Probe:
    """Times GET /health again and again, on one connection, until it is stopped."""

    def __init__(self, server):
        self.connection, self.seconds, self.is_over = server.connect(), [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_over:
            begin = time.monotonic()
            self.connection.request("GET", "/health")
            self.connection.getresponse().read()
            self.seconds.append(time.monotonic() - begin)
            time.sleep(0.005)

    def stop(self):
        self.is_over = True
        self.thread.join()
        self.connection.close()
        return self.seconds


def main_thread_seconds(server):
    """Processor time of the thread that owns all connections."""
    pid = server.process.pid
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(text[11]) + int(text[12])) / TICKS


def resident(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(text[1]) * os.sysconf("SC_PAGE_SIZE")


# Each figure: rows of (what, measured, unit, at most or at least, must).

def throughput():
    here = bench("demo", "--load", STREAMS)
    with Server("demo", *WIDE) as server:
        there = through(server, STREAMS)
    assert here["answers_digest"] == there["answers_digest"], "other answers"
    yield ("tokens/s at 64 streams, of those in one process",
           100 * there["output_throughput"] / here["output_throughput"], "%", ">=", 70)


def first_token():
    here = bench("demo", "--load", ALONE)
    with Server("demo") as server:
        there = through(server, ALONE)
    for word, must in (("median", 2), ("p99", 5)):
        key = f"{word}_ttft_ms"
        yield f"added to the first token, {word}", there[key] - here[key], "ms", "<=", must


def tokenised():
    text = json.dumps({"content": "The quick brown fox jumps over the lazy dog. " * 23302})
    with Server("demo") as server:
        server.ask("POST", "/tokenize", {"content": "warm"})
        probe, times = Probe(server), []
        for _ in range(10):
            begin = time.monotonic()
            status = server.ask("POST", "/tokenize", text)[0]
            times.append(time.monotonic() - begin)
            assert status == 200, f"status {status}"
        waits = probe.stop()
    yield "a prompt of 1 MB: its ids", 1e3 * share(times, 0.5), "ms", "<=", 200
    yield "/health meanwhile, p99", 1e3 * share(waits, 0.99), "ms", "<=", 50


def cancel():
    body = {"prompt": "Once", "max_tokens": 900, "stream": True, "ignore_eos": True}
    times = []
    with Server("demo", "--parallel", "1") as server:
        for _ in range(20):
            with server.open("/v1/completions", body) as stream:
                next(iter(stream))
            times.append(server.wait_until(lambda: server.busy() == 0))
    yield "from leaving to a free sequence, longest", 1e3 * max(times), "ms", "<=", 110


def idle_connections():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    n = min(10000, limit - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with Server("demo", *WIDE) as server:
        through(server, STREAMS)
        alone, before, idle = through(server, STREAMS), resident(server), []
        for _ in range(n):
            idle.append(socket.create_connection(("127.0.0.1", server.port)))
        files = f"/proc/{server.process.pid}/fd"
        server.wait_until(lambda: len(os.listdir(files)) >= n)
        beside, after = through(server, STREAMS), resident(server)
        for connection in idle:
            connection.close()
    yield f"memory of {n} idle connections", (after - before) / 1e6, "MB", "<=", 200
    yield ("tokens/s of 64 streams beside them",
           100 * beside["output_throughput"] / alone["output_throughput"], "%", ">=", 95)


def open_streams():
    """Streams that wait cost nothing: what 320 take, beyond what 64 take for as many tokens."""
    shares = []
    for users in (64, 320):
        load = f"users={users},in=16,out=64,requests={2 * 320}"
        with Server("demo", *WIDE, "--max-queue", "400") as server:
            begin = main_thread_seconds(server)
            row = through(server, load)
            shares.append((main_thread_seconds(server) - begin) / row["duration"])
    yield "320 open streams, 64 active, of a core beyond 64", 100 * (shares[1] - shares[0]), "%", \
        "<=", 5


def minute():
    with Server("demo", *WIDE) as server:
        end, rows = time.monotonic() + 60, []
        while time.monotonic() < end:
            rows.append(through(server, STREAMS + ",cancel=0.1", "--seed", len(rows)))
    yield "64 streams for 60 s: errors", sum(r["failed"] for r in rows), "", "<=", 0
    yield "longest gap", max(r["max_itl_ms"] for r in rows), "ms", "<=", 2000


FIGURES = (throughput, first_token, tokenised, cancel, idle_connections, open_streams, minute)


def main():
    if not PROGRAM:
        raise SystemExit(__doc__)
    missed, wanted = 0, sys.argv[2:]
    print("| figure | measured | must | |\n| --- | --: | --: | --- |")
    for figure in FIGURES:
        if wanted and not any(word in figure.__name__ for word in wanted):
            continue
        for what, value, unit, how, must in figure():
            is_met = value <= must if how == "<=" else value >= must
            missed += not is_met
            print(f"| {what} | {value:.1f} {unit} | {how} {must} {unit} "
                  f"| {'yes' if is_met else 'NO'} |", flush=True)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
