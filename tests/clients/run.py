#!/usr/bin/env python3
"""Runs the clients that people use, from npm, against carat serve.

usage: run.py PROGRAM FOLDER [WORD...]

PROGRAM is carat_scripted, FOLDER where the packages go. Only scripts whose names contain one of the
words are run. Without node, npm or the registry the last line says "skipped: " and why.
"""
import pathlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from program import is_sanitized

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CONTEXT = 32768  # of the model: long enough for calls of 10 KB
NODE_LEAST = 20


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def node_version():
    return int(subprocess.run(["node", "--version"], capture_output=True, text=True,
                              check=True).stdout.lstrip("v").split(".")[0])


def install(folder, home=HERE):
    """The packages of the lock file, unless they are there."""
    for name in ("node", "npm"):
        if not shutil.which(name):
            skip(f"{name} is not installed")
    if node_version() < NODE_LEAST:
        skip(f"node {NODE_LEAST} or newer is needed")
    folder.mkdir(parents=True, exist_ok=True)
    lock = (home / "package-lock.json").read_bytes()
    stamp = folder / "installed.lock"
    for source in [*home.glob("*.mjs"), home / "package.json", home / "package-lock.json"]:
        shutil.copy(source, folder / source.name)
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    try:
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                              cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        skip("npm has not installed the packages in 300 s")
    if done.returncode:
        print(done.stderr[-2000:])
        skip("npm cannot install the packages here")
    stamp.write_bytes(lock)


def long_demo(folder):
    """The demo model with a longer context."""
    demo = ROOT / "models/demo.gguf"
    if not demo.exists():
        skip("models/demo.gguf is not there")
    data = bytearray(demo.read_bytes())
    key = b"gemma4.context_length"
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4  # after the type
    data[at:at + 4] = struct.pack("<I", CONTEXT)
    path = folder / "demo.gguf"
    path.write_bytes(data)
    return path


def start(program, model, folder, *options):
    """The server and its address, once it is ready."""
    log = folder / "server.log"
    with open(log, "w", encoding="utf-8") as out:
        server = subprocess.Popen([program, "serve", str(model), "--port", "0", "-c", str(CONTEXT),
                                   *options],
                                  stdout=out, stderr=out, cwd=str(ROOT))
    for _ in range(1200):
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(encoding="utf-8"))
        if found and is_ready(found[0]):
            return server, found[0]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    print(log.read_text(encoding="utf-8")[-4000:])
    sys.exit("the server did not start")


def is_ready(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def stop(server):
    """Its exit status after SIGTERM."""
    server.send_signal(signal.SIGTERM)
    try:
        return server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        server.kill()
        sys.exit("the server did not end on SIGTERM")


def run_script(program, folder, model, script):
    """How many cases passed, failed and were skipped. A first line "// serve: OPTIONS" is for its
    server."""
    first = (folder / script).read_text(encoding="utf-8").split("\n", 1)[0]
    options = first.removeprefix("// serve: ").split() if first.startswith("// serve: ") else []
    server, url = start(program, model, folder, *options)
    try:
        done = subprocess.run(["node", "--test", "--test-timeout=400000", "--test-reporter=spec",
                               script], cwd=folder, timeout=900, text=True, encoding="utf-8",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={"PATH": os.environ["PATH"], "CARAT_URL": url,
                                   "CARAT_SLOW": "1" if is_sanitized() else "0"})
    finally:
        status = stop(server)
    print(done.stdout)
    counts = [sum(int(n) for n in re.findall(rf"^ℹ {word} (\d+)$", done.stdout, re.MULTILINE))
              for word in ("pass", "fail", "skipped")]
    if status != 0:
        print(f"FAIL the server of {script} ended with {status}")
    if status != 0 or (done.returncode != 0 and counts[1] == 0):
        counts[1] += 1
    return counts


def main():
    program, folder, words = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    install(folder)
    model = long_demo(folder)
    scripts = [s.name for s in sorted(folder.glob("*.test.mjs"))
               if not words or any(w in s.name for w in words)]
    counts = [run_script(program, folder, model, script) for script in scripts]
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
