#!/usr/bin/env python3
"""How fast `carat pull` is, against a registry on loopback.

usage: bench/pull.py PROGRAM FOLDER disk [MB [ROUNDS]]
       bench/pull.py PROGRAM FOLDER jobs N,N... [MB [ROUNDS [LATENCY_MS [MBS_A_CONNECTION]]]]

`disk` compares with `dd conv=fsync` of the same bytes, with and without the page cache. `jobs`
compares numbers of connections. Both do so in turns. Everything is written to FOLDER, which should
be on the disk that is meant; downloads are removed. Prints MB/s of each round and the medians.
"""
import hashlib
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(http.server.BaseHTTPRequestHandler):
    """Hugging Face's three kinds of answers; bodies by sendfile, so that Python costs little."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def begin(self, status, length, **headers):
        time.sleep(self.server.latency)
        self.send_response(status)
        for name, value in {"Content-Length": length, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.flush()

    def do_GET(self):
        try:
            self.give()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def give(self):
        s = self.server
        if "/revision/" in self.path or "/tree/" in self.path:
            entry = {"type": "file", "path": "m-Q4_K_M.gguf", "size": s.size, "oid": "0",
                     "lfs": {"oid": s.sha256, "size": s.size}}
            text = json.dumps([entry] if "/tree/" in self.path else {"sha": COMMIT}).encode()
            self.begin(200, len(text))
            self.wfile.write(text)
        elif "/resolve/" in self.path:
            self.begin(302, 0, Location=f"http://127.0.0.1:{s.server_port}/blob")
        else:
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            first, last = 0, s.size - 1
            if asked:
                first, last = int(asked[1]), int(asked[2] or last)
            self.begin(206 if asked else 200, last + 1 - first, ETag='"e"', Accept_Ranges="bytes",
                       **({"Content-Range": f"bytes {first}-{last}/{s.size}"} if asked else {}))
            self.send(first, last + 1)

    def send(self, at, end):
        s = self.server
        block = int(s.rate / 50) if s.rate else 1 << 22
        due = time.monotonic()
        while at < end:
            at += os.sendfile(self.connection.fileno(), s.file.fileno(), at, min(block, end - at))
            if s.rate:
                due = max(due + 0.02, time.monotonic() - 0.1)
                time.sleep(max(0, due - time.monotonic()))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, path, latency, rate):
        super().__init__(("127.0.0.1", 0), Handler)
        self.file, self.size = open(path, "rb"), path.stat().st_size
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self.latency, self.rate = latency, rate
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass


def seconds_of(*command, **more):
    begin = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, **more)
    return time.monotonic() - begin


def pull(program, server, folder, *flags):
    env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HOME": folder}
    seconds = seconds_of(program, "pull", "hf:u/r", "--dir", folder / "store", "-q", *flags,
                         env={k: str(v) for k, v in env.items()})
    shutil.rmtree(folder / "store")
    return seconds


def dd(source, folder, *flags):
    seconds = seconds_of("dd", f"if={source}", f"of={folder}/copy", "bs=1M", "conv=fsync", *flags)
    (folder / "copy").unlink()
    return seconds


def main():
    if len(sys.argv) < 4 or sys.argv[3] not in ("disk", "jobs"):
        raise SystemExit(__doc__)
    program, folder, what, *rest = sys.argv[1:]
    program, folder = pathlib.Path(program).resolve(), pathlib.Path(folder).resolve()
    jobs = rest.pop(0).split(",") if what == "jobs" else []
    size, rounds, latency, rate = [float(n) for n in rest] + [512, 5, 0, 0][len(rest):]
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "source"
    if not source.exists() or source.stat().st_size != size * 1e6:
        block = random.Random(1).randbytes(1_000_000)
        with open(source, "wb") as file:
            file.write(b"GGUF" + block[4:])
            for _ in range(int(size) - 1):
                file.write(block)
        os.sync()
    server = Server(source, latency / 1e3, rate * 1e6)
    ways = {f"-j {n}": lambda n=n: pull(program, server, folder, "-j", n) for n in jobs} or {
        "dd": lambda: dd(source, folder), "dd direct": lambda: dd(source, folder, "oflag=direct"),
        "pull": lambda: pull(program, server, folder)}
    found = {name: [] for name in ways}
    for _ in range(int(rounds)):
        for name, way in ways.items():
            found[name].append(size / way())
            print(f"{name}: {found[name][-1]:.0f} MB/s", flush=True)
    print(", ".join(f"{name}: median {statistics.median(v):.0f} ({min(v):.0f} to {max(v):.0f})"
                    for name, v in found.items()))


if __name__ == "__main__":
    main()
