"""What the end-to-end scripts share: the program as a process or on a terminal, checks, running.

A script defines functions test_NAME and ends with `program.main(globals())`. It takes the program
and words: only tests whose name contains one of them are run.
"""
import codecs
import fcntl
import json
import math
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests/golden/fixtures"
MODEL = str(FIXTURES / "e2b-q8_0.gguf")
DEMO = ROOT / "models/demo.gguf"
# Seconds to wait for what comes soon, unless the machine is very busy.
LIMIT = float(os.environ.get("CARAT_TEST_LIMIT", "120"))
# What part of their requests, clients and seconds the long tests take.
SIZE = float(os.environ.get("CARAT_TEST_SIZE", "1"))
# The first notes of every command that computes.
SETUP = re.compile(r"\A(carat: note: memory: .*\n)?carat: note: on .*\n")
PARTS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Skip(Exception):
    """Why a case cannot be tried here."""


def environment(**more):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("CARAT_", "OTEL_"))
            and k not in ("NO_COLOR", "CI", "XDG_CONFIG_HOME")}
    return {**kept, "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", "CARAT_CONFIG": "none", **more}


def carat(*arguments, stdin=b"", env=None, cwd=None, **more):
    """Runs the program; stdin is bytes. Returns status, out and err."""
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True,
                          env=env or environment(), cwd=cwd or str(ROOT), timeout=LIMIT, **more)


def patched_model(path, **keys):
    """A copy of the model with other integers `gemma4.KEY` ("__" stands for a dot)."""
    data = bytearray(pathlib.Path(MODEL).read_bytes())
    for key, number in keys.items():
        key = f"gemma4.{key.replace('__', '.')}".encode()
        key = struct.pack("<Q", len(key)) + key
        at = data.index(key) + len(key) + 4  # after the type
        data[at:at + 4] = struct.pack("<I", number)
    pathlib.Path(path).write_bytes(data)
    return str(path)


_long = tempfile.TemporaryDirectory()


def long_model():
    """A model whose context is so long that an answer does not end during a test."""
    path = os.path.join(_long.name, "long.gguf")
    return path if os.path.exists(path) else patched_model(path, context_length=1 << 18)


def model_with_keys(path, **keys):
    """A model whose metadata also has these keys of general.sampling. They and a text that fills up
    take a multiple of the alignment, so that all else stays as it is."""
    def text(value):
        return struct.pack("<Q", len(value)) + value

    def entry(key, value):
        if isinstance(value, str):
            return text(key.encode()) + struct.pack("<I", 8) + text(value.encode())
        form, kind = ("<f", 6) if isinstance(value, float) else ("<i", 5)
        return text(key.encode()) + struct.pack("<I", kind) + struct.pack(form, value)

    added = b"".join(entry("general.sampling." + key, value) for key, value in keys.items())
    rest = len(added + entry("filler", "")) % 32
    added += entry("filler", " " * (32 - rest))
    old = pathlib.Path(MODEL).read_bytes()
    count = struct.unpack_from("<Q", old, 16)[0] + len(keys) + 1
    pathlib.Path(path).write_bytes(old[:16] + struct.pack("<Q", count) + added + old[24:])
    return str(path)


def expect(is_true, text):
    if not is_true:
        raise AssertionError(text)


def expect_status(done, status):
    expect(done.returncode == status, f"status {done.returncode}, {status} expected: "
           f"{done.stderr.decode(errors='replace')[-400:]}")


def expect_error(done, status, *words):
    """One error line with these words, perhaps after the first notes; nothing on stdout."""
    expect_status(done, status)
    text = SETUP.sub("", done.stderr.decode(), count=1)
    expect(text.startswith("carat: error: "), f"form of the error: {text!r}")
    expect(done.stdout == b"", f"stdout of a failure: {done.stdout[:80]!r}")
    for word in words:
        expect(word in text, f"{word!r} is not in {text!r}")


def sized(n, least=1):
    """A number of requests, clients or seconds that a long test takes. Its kind is kept."""
    return max(least, type(n)(n * SIZE))


def wait_until(is_true, what="what was awaited", seconds=LIMIT):
    """Asks again and again; returns how long it took, fails when it does not come true."""
    begin = time.monotonic()
    while not is_true():
        expect(time.monotonic() - begin < seconds, f"{what}: not after {seconds} s")
        time.sleep(0.005)
    return time.monotonic() - begin


def at_best(limit, measure, what, tries=12):
    """Calls `measure` until it returns less than the limit, as often as `tries` says: for what is
    quick whenever other programs leave the processor to it. Returns the least."""
    least = math.inf
    for _ in range(tries):
        least = min(least, measure())
        if least < limit:
            return least
    raise AssertionError(f"{what}: {least:.3f} at best, less than {limit} expected")


def libraries():
    return json.loads(carat("version", "--json").stdout)["libraries"]


def is_sanitized():
    """Sanitizers make it slow, take terabytes of address space and keep what was freed."""
    text = pathlib.Path(PROGRAM).read_bytes()
    return b"__asan_init" in text or b"__tsan_init" in text


def need_json():
    if "jansson" not in libraries():
        raise Skip("built without jansson")


def need_demo():
    if not DEMO.exists():
        raise Skip("models/demo.gguf is not there")
    return "demo"


def quick_model():
    """The demo model; with sanitizers, which make it slow, a smaller one."""
    return long_model() if is_sanitized() else need_demo()


class Terminal:
    """The program on a terminal of its own. `program` names another program, further keywords set
    its environment. Without CI="" it shows no progress there, as that depends on the clock."""

    def __init__(self, *arguments, program=None, size=(24, 100), **more):
        self.folder = tempfile.TemporaryDirectory()
        env = {**environment(TERM="xterm", XDG_STATE_HOME=self.folder.name, CI="1"), **more}
        program = program or PROGRAM
        try:
            self.pid, self.fd = pty.fork()
        except OSError as error:
            raise Skip(f"no pseudo-terminal to be had here: {error}") from error
        if self.pid == 0:
            os.chdir(ROOT)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.execvpe(program, [program, *arguments], env)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.raw = ""   # all that came
        self.held = ""  # a sequence that has only begun
        self.seen = ""  # what is not yet waited for, without sequences

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        """Takes the output that has come; false when nothing comes."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        text = self.decoder.decode(data)
        self.raw += text
        whole, begun = re.fullmatch(r"(?s)(.*?)(\x1b\[?[0-9;?]*)?", self.held + text).groups()
        self.held = begun or ""
        self.seen += PARTS.sub("", whole)
        return bool(data)

    def wait_for(self, text, seconds=LIMIT):
        """Reads until `text` appears; returns what came before it and drops both."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            if not self.read(max(0, end - time.monotonic())):
                raise AssertionError(f"{text!r} did not come; seen: {self.seen[-300:]!r}")
        before, _, self.seen = self.seen.partition(text)
        return before

    def send(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        """The exit status, once the program has ended; its last output is read meanwhile."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            while self.read(0 if pid else 0.05):
                pass
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("does not end")


def main(tests):
    """Runs the functions test_* of `tests` and exits: 1 if one of them failed."""
    if not PROGRAM:
        raise SystemExit(tests["__doc__"])
    wanted = sys.argv[2:]
    if SIZE != 1:
        print(f"CARAT_TEST_SIZE={SIZE:g}: long tests take this part of what they do otherwise")
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    for name, test in list(tests.items()):
        if not name.startswith("test_") or (wanted and not any(w in name for w in wanted)):
            continue
        begin, result, why = time.monotonic(), "ok", ""
        try:
            test()
        except Skip as reason:
            result, why = "skip", f": {reason}"
        except Exception as error:  # whatever it is, the others are run
            result, why = "FAIL", f": {type(error).__name__}: {error}"
        counts[result] += 1
        print(f"{result:4} {name[5:].replace('_', ' ')} ({time.monotonic() - begin:.1f} s){why}",
              flush=True)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    raise SystemExit(1 if counts["FAIL"] else 0)
