#!/usr/bin/env python3
"""carat quantize: files in other types that run, and files that are left as they were.

usage: tests/e2e/test_quantize.py PROGRAM [NAME...]     (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile

import program
from imatrix_file import write_matrix
from program import (DEMO, PROGRAM, ROOT, carat, environment, expect, expect_error,
                     expect_status, need_demo, need_json, wait_until)

SOURCE = ROOT / "tests/golden/fixtures/e2b-q8_0.gguf"
DRAFTER = ROOT / "tests/golden/fixtures/12b-q4_k.draft.gguf"
AGAIN = "--allow-requantize"


def folder():
    return tempfile.TemporaryDirectory()


def types_of(path):
    done = carat("show", path, "--tensors", "--json")
    expect_status(done, 0)
    return {t["name"]: t["type"] for t in json.loads(done.stdout)["tensors"]}


def test_a_file_in_another_type_answers():
    need_demo()
    with folder() as here:
        path = pathlib.Path(here, "small.gguf")
        done = carat("quantize", DEMO, path, "Q4_K_M", AGAIN)
        expect_status(done, 0)
        expect(re.search(rb"^Q8_0 +to +Q\w+ +\d+ tensors? .* error 0\.0\d+$", done.stdout, re.M),
               f"{done.stdout!r}")
        expect(re.search(rb"MiB, \d\.\d\d bits a weight\n$", done.stdout), f"{done.stdout!r}")
        expect(path.stat().st_size < 0.8 * DEMO.stat().st_size, f"{path.stat().st_size} bytes")
        answer = carat("run", path, "Tell me a story about a small dog.", "--temp", "0", "-n", "24")
        expect_status(answer, 0)
        expect(b"dog" in answer.stdout, f"{answer.stdout!r}")
        expect(b"Q4_K" in carat("show", path).stdout, "show names the type")


def test_types_sizes_and_errors_are_told_in_json_too_and_without_writing():
    need_json()
    with folder() as here:
        path = pathlib.Path(here, "new.gguf")
        options = ["iq4_xs", AGAIN, "--json", "--tensor-type", "attn_q=Q6_K", "--tensor-type",
                   "^blk.0.=F16", "--token-embedding-type", "Q5_1"]
        real = carat("quantize", SOURCE, path, *options)
        dry = carat("quantize", SOURCE, *options, "--dry-run")
        for done in (real, dry):
            expect_status(done, 0)
        real, dry = json.loads(real.stdout), json.loads(dry.stdout)
        types = types_of(path)
        expect({t["name"]: t["to"] for t in real["tensors"]} == types, "types are as told")
        expect(types["token_embd.weight"] == "Q5_1", types["token_embd.weight"])
        expect(types["blk.0.ffn_up.weight"] == "F16", types["blk.0.ffn_up.weight"])
        expect(types["blk.1.attn_q.weight"] in ("Q6_K", "Q8_0"), types["blk.1.attn_q.weight"])
        expect(real["bytes"] == dry["bytes"] == sum(t["bytes"] for t in dry["tensors"]), "sizes")
        expect(0 < path.stat().st_size - real["bytes"] < 10 << 20, f"{path.stat().st_size}")
        expect(real["file"] == str(path) and dry["file"] is None, f"{dry['file']}")
        expect(max(t["error"] for t in real["tensors"]) > 0.001, "errors are measured")
        expect(max(t["error"] for t in dry["tensors"]) == 0, "a dry run computes nothing")


def test_an_importance_matrix_lowers_the_errors_that_it_weighs():
    need_json()
    with folder() as here:
        path, matrix = pathlib.Path(here, "new.gguf"), pathlib.Path(here, "matrix.dat")
        n_entries = write_matrix(matrix, SOURCE)
        done = carat("quantize", "--imatrix", matrix, SOURCE, path, "IQ2_M", AGAIN, "--json")
        expect_status(done, 0)
        layers = [t for t in json.loads(done.stdout)["tensors"] if "weighted_error" in t]
        expect(len(layers) > 50 and all(t["name"].startswith("blk.") for t in layers),
               f"{len(layers)} tensors")
        expect(all(t["weighted_error"] < t["error"] for t in layers), f"{layers}")
        expect(b"note: 2 of " in done.stderr and b"token_embd.weight, per_layer" in done.stderr,
               f"{done.stderr!r}")
        data = path.read_bytes()
        for key, value in (("file", str(matrix)), ("dataset", "words.txt")):
            expect(f"quantize.imatrix.{key}".encode() + struct.pack("<IQ", 8, len(value))
                   + value.encode() in data, key)
        for key, value in (("entries_count", n_entries), ("chunks_count", 8)):
            expect(f"quantize.imatrix.{key}".encode() + struct.pack("<II", 4, value) in data, key)
        done = carat("quantize", "--imatrix", matrix, SOURCE, path, "Q4_K_M", AGAIN,
                     "--exclude-weights", "attn_k", "--include-weights", "attn_", "-q")
        expect_status(done, 0)
        expect(re.search(rb"error 0\.\d+, weighted 0\.\d+$", done.stdout, re.M), f"{done.stdout!r}")
        expect(not done.stderr, f"{done.stderr!r}")


def test_a_matrix_is_measured_and_used():
    with folder() as here:
        text, matrix = pathlib.Path(here, "text.txt"), pathlib.Path(here, "matrix.gguf")
        text.write_text("Once upon a time there was a small dog in a house. " * 40)
        line = ["imatrix", SOURCE, "-f", text, "-c", "64", "--chunks", "2", "-o"]
        for backend in ("cpu", "ref"):
            done = carat(*line, matrix, "--backend", backend, "-q")
            expect_status(done, 0)
            expect(re.search(rb"2 chunks of 64 tokens, perplexity \d", done.stdout),
                   f"{done.stdout!r}")
            out = pathlib.Path(here, "out.gguf")
            done = carat("quantize", "--imatrix", matrix, SOURCE, out, "IQ2_S", AGAIN)
            expect_status(done, 0)
            expect(b"weighted 0." in done.stdout, f"{done.stdout!r}")
            data = out.read_bytes()
            expect(b"quantize.imatrix.chunks_count" + struct.pack("<II", 4, 2) in data, "chunks")
            expect(str(text).encode() in data, "the text's name")
        written = matrix.read_bytes()
        expect(carat(*line, "-", "--backend", "ref").stdout == written, "standard output")
        cases = [(["imatrix", SOURCE], 2, "-f FILE"),
                 (["imatrix", SOURCE, "-f", text, "-c", "5000", "-o", matrix], 2, "tokens", "-c"),
                 (["imatrix", SOURCE, "-f", text, "-o", text], 2, "would be lost"),
                 (["imatrix", SOURCE, "-f", text, "-o", matrix, "--backend", "cuda"], 2, "cuda"),
                 (["imatrix", SOURCE, "-f", "/nowhere/text", "-o", matrix], 2, "/nowhere/text"),
                 (line + ["/dev/full"], 1, "/dev/full")]
        for arguments, status, *words in cases:
            expect_error(carat(*arguments), status, *words)
            expect(matrix.read_bytes() == written, f"{arguments}: the matrix as it was")


def test_matrices_that_do_not_fit_leave_no_file():
    need_json()
    with folder() as here:
        out, matrix = pathlib.Path(here, "out.gguf"), pathlib.Path(here, "matrix.dat")
        other = ROOT / "tests/golden/fixtures/12b-q4_k.gguf"
        write_matrix(matrix, other)
        line = ["quantize", SOURCE, out, "Q4_0", AGAIN, "--imatrix"]
        expect_error(carat(*line, matrix), 3, "columns", "another model")
        matrix.write_bytes(b"GGUF")
        expect_error(carat(*line, matrix), 3, "matrix.dat")
        matrix.write_bytes(b"0123")
        expect_error(carat(*line, matrix), 3, "matrix.dat", "no importance matrix")
        expect_error(carat(*line, SOURCE), 3, "no importance matrix")
        expect_error(carat(*line, pathlib.Path(here, "nosuch")), 3, "nosuch")
        write_matrix(matrix, SOURCE)
        expect_error(carat(*line, matrix, "--include-weights", "nose"), 2, "nose")
        expect_error(carat(*line[:-1], "--include-weights", "attn"), 2, "no importance matrix")
        expect_error(carat("quantize", SOURCE, matrix, "Q4_0", AGAIN, "--imatrix", matrix), 2,
                     "would be lost")
        expect(os.listdir(here) == ["matrix.dat"], f"{os.listdir(here)}")


def test_help_names_all_types():
    done = carat("quantize", SOURCE, "out.gguf", "what", AGAIN)
    expect_error(done, 2, "what")
    types = re.search(r"hint: (.*)", done.stderr.decode()).group(1).split(", ")
    text = " ".join(carat("help", "quantize").stdout.decode().split())
    expect(len(types) > 15 and all(name in text for name in types), f"{types}")


def test_a_line_of_llama_quantize_runs():
    with folder() as here:
        link = pathlib.Path(here, "llama-quantize")
        link.symlink_to(PROGRAM)
        write_matrix(pathlib.Path(here, "i.dat"), SOURCE)
        for line in (["--imatrix", "i.dat", AGAIN, SOURCE, "out.gguf", "IQ2_XXS", "2"],
                     ["--imatrix", "i.dat", "--exclude-weights", "attn_v", AGAIN, SOURCE,
                      "out.gguf", "Q4_K_M"],
                     [AGAIN, SOURCE, "out.gguf", "Q4_0", "2"],
                     [AGAIN, "--pure", SOURCE, "out.gguf", "q5_k"],
                     [AGAIN, "--tensor-type", "attn_q=iq2_s", SOURCE, "out.gguf", "IQ3_XXS"],
                     [AGAIN, "--output-tensor-type", "q8_0", SOURCE, "out.gguf", "Q3_K_S"]):
            done = subprocess.run([link, *map(str, line)], capture_output=True, cwd=here,
                                  env=environment(), timeout=program.LIMIT)
            expect_status(done, 0)
            expect(pathlib.Path(here, "out.gguf").stat().st_size > 100000, "a file")


def test_what_cannot_be_done_is_refused_and_leaves_no_file():
    with folder() as here:
        out = pathlib.Path(here, "out.gguf")
        cases = [
            (["quantize", SOURCE, out, "Q4_0"], 2, "is quantised already", AGAIN),
            (["quantize", SOURCE, out, "Q4_K_XL", AGAIN], 2, "Q4_K_XL", "Q4_K_M"),
            (["quantize", SOURCE, out, "iq2_xxs", AGAIN], 2, "IQ2_XXS", "importance", "--imatrix"),
            (["quantize", SOURCE, "Q4_0"], 2, "OUT", "--dry-run"),
            (["quantize", SOURCE], 2, "OUT"),
            (["quantize", SOURCE, out, "15", AGAIN], 2, "15", "Q4_K_M"),
            (["quantize", SOURCE, out, "Q4_0", "1000", AGAIN], 2, "threads", "1000"),
            (["quantize", DRAFTER, out, "Q4_0", AGAIN], 3, "drafter"),
            (["quantize", SOURCE, out, "Q4_0", AGAIN, "--tensor-type", "attn_q"], 2, "NAME=TYPE"),
            (["quantize", SOURCE, out, "Q4_0", AGAIN, "--tensor-type", "nose=Q8_0"], 2, "nose"),
            (["quantize", SOURCE, out, "Q4_0", AGAIN, "--tensor-type", "attn=Q9"], 2, "Q9"),
            (["quantize", SOURCE, out, "Q4_0", AGAIN, "--imatrix", "i.dat"], 3, "i.dat"),
            (["quantize", "no-such-model", out, "Q4_0"], 3, "no-such-model"),
            (["quantize", SOURCE, "/nowhere/out.gguf", "Q4_0", AGAIN], 1, "/nowhere/out.gguf"),
            (["quantize", SOURCE, "/dev/full", "Q4_0", AGAIN], 1, "/dev/full"),
        ]
        for arguments, status, *words in cases:
            expect_error(carat(*arguments), status, *words)
            expect(os.listdir(here) == [], f"{arguments}: {os.listdir(here)}")


def test_the_model_itself_is_never_written_over():
    with folder() as here:
        model, link = pathlib.Path(here, "model.gguf"), pathlib.Path(here, "link.gguf")
        model.write_bytes(SOURCE.read_bytes())
        link.symlink_to(model)
        for out in (model, link):
            expect_error(carat("quantize", model, out, "Q4_0", AGAIN), 2, "is the model")
        expect(model.read_bytes() == SOURCE.read_bytes(), "the model is as it was")


def test_standard_output_gets_the_file_alone():
    with folder() as here:
        path = pathlib.Path(here, "a.gguf")
        expect_status(carat("quantize", SOURCE, path, "Q4_1", AGAIN), 0)
        done = carat("quantize", SOURCE, "-", "Q4_1", AGAIN, "-t", "1")
        expect_status(done, 0)
        expect(done.stdout == path.read_bytes(), f"{len(done.stdout)} bytes")


def test_a_signal_and_a_small_disk_keep_the_old_file():
    """The source is large enough for a signal to come before the end."""
    need_demo()
    with folder() as here:
        out = pathlib.Path(here, "out.gguf")
        out.write_bytes(b"old")
        child = subprocess.Popen([PROGRAM, "quantize", DEMO, out, "Q5_K_M", AGAIN, "-t", "1"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=environment())
        wait_until(lambda: child.poll() is not None or len(os.listdir(here)) > 1, "a new file")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=program.LIMIT)
        if child.returncode != 0:  # it was not ready before
            expect(child.returncode == 130, f"status {child.returncode}")
            expect(out.read_bytes() == b"old", "the old file")
        expect(os.listdir(here) == ["out.gguf"], f"{os.listdir(here)}")
        done = subprocess.run(["sh", "-c", 'ulimit -f 500; exec "$@"', "sh", PROGRAM, "quantize",
                               DEMO, pathlib.Path(here, "cut.gguf"), "Q5_K_M", AGAIN],
                              capture_output=True, env=environment(), timeout=program.LIMIT)
        expect_error(done, 1, "cut.gguf")
        expect(os.listdir(here) == ["out.gguf"], f"{os.listdir(here)}")


if __name__ == "__main__":
    program.main(globals())
