#!/usr/bin/env python3
"""Tables for bench/gpu.sh.

    bench/gpu_tables.py logits PROGRAM --backend NAME     distance from the oracle models' logits
    bench/gpu_tables.py shapes PROGRAM MODEL --lengths 40,700,2500   two backends on a large model
    bench/gpu_tables.py add RESULTS.csv --model M --matmul WAY <CSV   adds rows of `carat bench`
    bench/gpu_tables.py table RESULTS.csv --read GB/s --rates AUTO,FP16,INT8   with bounds

A bound is the time to read what has to be read at the device's rate, or to compute what has to be
computed, whichever is longer.
"""
import argparse
import array
import csv
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests/golden/fixtures"
ORACLES = ["e2b-q8_0", "e4b-q4_0", "12b-q4_k", "26b-q4_0", "31b-mixed"]
WAYS = ["auto", "fp16", "int8"]
# The allowed mean distance: fp32 in another order; about three times what 8-bit shows.
LIMITS = {"fp32": 1e-5, "fast": 0.1}


# ---- Logits -----------------------------------------------------------------------------------

def read_floats(path):
    values = array.array("f")
    values.frombytes(pathlib.Path(path).read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def rows_of(program, name, tokens, options):
    """All rows that the program computes for the tokens, and the number of values of a row."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        command = [program, "logits", str(FIXTURES / f"{name}.gguf"), "--tokens",
                   ",".join(map(str, tokens)), "--all", "-o", path, "-q", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            sys.exit(f"{' '.join(command[:3])} ...: status {done.returncode}\n{done.stderr}")
        values = read_floats(path)
    return values, len(values) // len(tokens)


def distance(found, expected):
    error = math.fsum((a - b) ** 2 for a, b in zip(found, expected))
    return math.sqrt(error / math.fsum(b * b for b in expected))


def compare(program, name, options):
    """(mean, worst distance, positions of another best id, positions)."""
    facts = json.loads((FIXTURES / f"{name}.json").read_text())
    values, n = rows_of(program, name, facts["tokens"], options)
    expected = read_floats(FIXTURES / f"{name}.logits.f32")
    distances = [distance(values[p * n:(p + 1) * n], expected[i * n:(i + 1) * n])
                 for i, p in enumerate(facts["logits_positions"])]
    best = facts["argmax_every_position"]
    others = sum(max(range(n), key=values[p * n:(p + 1) * n].__getitem__) != id
                 for p, id in enumerate(best))
    return sum(distances) / len(distances), max(distances), others, len(best)


def logits(arguments):
    is_wrong = False
    print(f"{'model':10} {'precision':9} {'chunk':>5} {'mean':>9} {'worst':>9}  other best id")
    for name in ORACLES:
        for precision, limit in LIMITS.items():
            for chunk in ["64", "1"]:
                options = ["--backend", arguments.backend, "--precision", precision, "--chunk",
                           chunk]
                mean, worst, others, n = compare(arguments.program, name, options)
                is_bad = not mean <= limit or (precision == "fp32" and others > 0)
                is_wrong = is_wrong or is_bad
                print(f"{name:10} {precision:9} {chunk:>5} {mean:9.2e} {worst:9.2e}  "
                      f"{others} of {n}{'  FAILED' if is_bad else ''}", flush=True)
    return 1 if is_wrong else 0


def last_row(program, model, ids, options):
    with tempfile.TemporaryDirectory() as folder:
        path, tokens = os.path.join(folder, "row"), os.path.join(folder, "ids")
        pathlib.Path(tokens).write_text(" ".join(map(str, ids)))
        command = [program, "logits", model, "--tokens-file", tokens, "-o", path, "-q", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            sys.exit(f"{' '.join(command[:3])} ...: status {done.returncode}\n{done.stderr}")
        return read_floats(path)


def shapes(arguments):
    """The last row of prompts of several lengths: both precisions against fp32 on the CPU. Random
    weights amplify the rounding to 8 bits, so the distance of the CPU itself is the measure."""
    is_wrong = False
    print(f"{'precision':9} {'tokens':>6} {'distance':>9} {'the cpu':>9}  best id, lead of it")
    for length in map(int, arguments.lengths.split(",")):
        draw = random.Random(length)
        ids = [2] + [draw.randrange(arguments.ids) for _ in range(length - 1)]
        expected = None
        for precision, limit in (("fp32", 1e-3), ("fast", 0.1)):
            options = ["--precision", precision, "-c", str(length + 16)]
            beside = last_row(arguments.program, arguments.model, ids,
                              [*options, "--backend", arguments.against])
            expected = expected or beside
            found = last_row(arguments.program, arguments.model, ids,
                             [*options, "--backend", arguments.backend])
            far, far_beside = distance(found, expected), distance(beside, expected)
            first, second = sorted(range(len(expected)), key=expected.__getitem__)[:-3:-1]
            same = max(range(len(found)), key=found.__getitem__) == first
            lead = expected[first] - expected[second]
            is_bad = not far <= max(limit, 1.25 * far_beside)
            is_wrong = is_wrong or is_bad
            print(f"{precision:9} {length:6} {far:9.2e} {far_beside:9.2e}  "
                  f"{'same' if same else 'other'}, {lead:.3g}{'  FAILED' if is_bad else ''}",
                  flush=True)
    return 1 if is_wrong else 0


# ---- Times ------------------------------------------------------------------------------------

def add(arguments):
    lines = list(csv.reader(sys.stdin))
    begin = next((i for i, line in enumerate(lines) if line[:1] == ["build_commit"]), len(lines))
    rows = [dict(zip(lines[begin], line)) for line in lines[begin + 1:]
            if len(line) == len(lines[begin])]  # other lines are notes
    if not rows:
        sys.exit("no rows of results")
    names = [name for name in ["model", "matmul", *rows[0]] if name != "model_filename"]
    is_new = not os.path.exists(arguments.results)
    if not is_new:
        with open(arguments.results, newline="") as file:
            names = next(csv.reader(file))
    with open(arguments.results, "a", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in rows:
            writer.writerow({"model": arguments.model, "matmul": arguments.matmul, **row})
    return 0


def test_name(row):
    prompt, gen, depth = int(row["n_prompt"]), int(row["n_gen"]), int(row["n_depth"])
    name = f"pp{prompt}" if prompt else f"tg{gen}"
    return name + (f" @ {depth}" if depth else "")


def table(arguments):
    read = arguments.read * 1e9
    rates = dict(zip(WAYS, (float(r) * 1e12 for r in arguments.rates.split(","))))
    print(f"\nbounds: {arguments.read:g} GB/s read; TFLOP/s {arguments.rates} "
          f"({', '.join(WAYS)})\n")
    print("| model | test | users | matmul | t/s (+- %) | ms/step | GB/s | TFLOP/s "
          "| bound t/s | of it |")
    print("|---|---|--:|---|--:|--:|--:|--:|--:|--:|")
    with open(arguments.results, newline="") as file:
        for row in csv.DictReader(file):
            users, seconds = int(row["n_users"]), int(row["avg_ns"]) / 1e9
            steps = int(row["n_gen"]) or 1
            work_bytes, operations = int(row["work_bytes"]), int(row["work_operations"])
            bound = max(work_bytes / read, operations / rates[row["matmul"]])
            rate = float(row["avg_ts"])
            print(f"| {row['model']} | {test_name(row)} | {users} | {row['matmul']} "
                  f"| {rate:.1f} ({100 * float(row['stddev_ts']) / rate:.1f}) "
                  f"| {1e3 * seconds / steps:.3f} | {work_bytes / seconds / 1e9:.1f} "
                  f"| {operations / seconds / 1e12:.2f} | {rate * seconds / bound:.0f} "
                  f"| {100 * bound / seconds:.0f} % |")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("logits")
    verb.add_argument("program")
    verb.add_argument("--backend", default="cuda")
    verb = verbs.add_parser("shapes")
    verb.add_argument("program")
    verb.add_argument("model")
    verb.add_argument("--backend", default="cuda")
    verb.add_argument("--against", default="cpu")
    verb.add_argument("--lengths", default="40,700,2500")
    verb.add_argument("--ids", type=int, default=200000)
    verb = verbs.add_parser("add")
    verb.add_argument("results")
    verb.add_argument("--model", required=True)
    verb.add_argument("--matmul", default="auto", choices=WAYS)
    verb = verbs.add_parser("table")
    verb.add_argument("results")
    verb.add_argument("--read", type=float, default=4670)
    verb.add_argument("--rates", default="780,780,500")
    arguments = parser.parse_args()
    commands = {"logits": logits, "shapes": shapes, "add": add, "table": table}
    return commands[arguments.verb](arguments)


if __name__ == "__main__":
    sys.exit(main())
