#!/usr/bin/env python3
"""bench/compare_llama.py: what it refuses, and a whole run with a stand-in for llama.cpp.

usage: tests/e2e/test_compare_llama.py PROGRAM [WORDS]
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import program
from program import MODEL, Skip, carat, expect

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/compare_llama.py"
VARIANTS = ("x64", "haswell", "alderlake", "zen4", "sapphirerapids")


class Folder(tempfile.TemporaryDirectory):
    """Libraries by name, and a program that says which of them it was given."""

    def __enter__(self):
        self.path = pathlib.Path(super().__enter__())
        self.libraries, self.peer = self.path / "lib", self.path / "peer"
        self.libraries.mkdir()
        for name in ("llama.v0", *(f"ggml-cpu-{kind}" for kind in VARIANTS)):
            (self.libraries / f"lib{name}.so").touch()
        self.peer.write_text("#!/bin/sh\nls \"$1\" >" + str(self.path / "seen") + "\necho 2.5\n")
        self.peer.chmod(0o755)
        return self

    def compare(self, *arguments, **more):
        words = {"llama": self.libraries, "carat": program.PROGRAM, "peer": self.peer,
                 "rounds": 1, "csv": self.path / "out" / "runs.csv", **more}
        flags = [f"--{key}={value}" for key, value in words.items()]
        return subprocess.run([sys.executable, str(SCRIPT), *flags, *arguments],
                              capture_output=True, text=True, timeout=300)


def expect_refusal(done, words):
    expect(done.returncode != 0 and "Traceback" not in done.stderr, done.stderr)
    expect(words in done.stderr, f"{words!r} expected: {done.stderr}")
    expect(done.stderr.startswith("compare_llama: ") or "usage:" in done.stderr, done.stderr)


def test_what_is_missing_is_named_in_a_sentence():
    with Folder() as folder:
        test, gone = f"{MODEL}:pp16", folder.path / "gone"
        expect_refusal(folder.compare(f"{gone}:pp16"), f"model {gone} is not there")
        expect_refusal(folder.compare(MODEL), "MODEL.gguf:TEST,TEST expected")
        expect_refusal(folder.compare(f"{MODEL}:xx16"), "pp512, tg32 or tg32@4096 expected")
        expect_refusal(folder.compare(test, carat=gone), "./dev build makes it")
        expect_refusal(folder.compare(test, peer=gone), "--target time-llama makes it")
        expect_refusal(folder.compare(test, llama=gone), "npm pack @node-llama-cpp/linux-x64")
        expect_refusal(folder.compare(test, rounds=0), "1 or more expected")
        expect_refusal(folder.compare(test, isa="mmx"), "invalid choice: 'mmx'")
        (folder.libraries / "libggml-cpu-x64.so").unlink()
        expect_refusal(folder.compare(test, isa="plain"), "has no library for plain")
        folder.peer.write_text("#!/bin/sh\necho no such model >&2\nexit 3\n")
        expect_refusal(folder.compare(test), "peer failed (exit 3): no such model")


def test_a_set_is_forced_on_both_programs():
    known = json.loads(carat("doctor", "--json").stdout)["isas"]
    if not any(isa["name"] == "avx2" and not isa["problem"] for isa in known):
        raise Skip("this machine has no AVX2, and plain C is slow")
    with Folder() as folder:
        done = folder.compare(f"{MODEL}:pp16,tg4", isa="avx2")
        expect(done.returncode == 0, done.stderr)
        expect(", avx2, 2 threads, 1 rounds" in done.stdout, done.stdout)
        lines = [line for line in done.stdout.splitlines() if line.startswith("| e2b-q8_0.gguf")]
        expect(len(lines) == 2 and "| 2.50 (2.50 .. 2.50) |" in lines[0], done.stdout)
        expect(" % |" not in lines[0] and "% |" in lines[1], done.stdout)
        seen = (folder.path / "seen").read_text().split()
        expect(seen == ["libggml-cpu-haswell.so", "libllama.v0.so"], str(seen))
        with open(folder.path / "out/runs.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        expect([(row["isa"], row["test"], row["llama_ts"]) for row in rows]
               == [("avx2", "pp16", "2.500"), ("avx2", "tg4", "2.500")], str(rows))


def test_without_a_set_each_takes_its_best():
    with Folder() as folder:
        done = folder.compare(f"{MODEL}:pp16")
        expect(done.returncode == 0, done.stderr)
        expect(len((folder.path / "seen").read_text().split()) == 1 + len(VARIANTS), "all there")


if __name__ == "__main__":
    program.main(globals())
