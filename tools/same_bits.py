#!/usr/bin/env python3
"""Compares the logits of two builds of carat bit by bit: a refactoring changes none.

usage: same_bits.py BEFORE AFTER [--backends ref,cpu] [--models FILE,...] [--jobs N] [--full]

Both programs compute the same texts in every setting: each --precision, --kv-type and --matmul,
layers divided between two devices, and on a GPU without graphs, cuBLAS or fused launches. The
texts are scored as a whole, in small chunks and one token a step, and one answer is generated.
A GPU takes a second to open, so there only a part of this is done, or all of it with --full. A line
is printed for each model as soon as it is done. Ends with 0 if all is equal, and with 1 if a case
differs or a backend has computed nothing. Needs nothing but Python's standard library."""
import argparse
import array
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = sorted((ROOT / "tests/golden/fixtures").glob("*.gguf"))
MODELS = [*(path for path in FIXTURES if ".draft." not in path.name), ROOT / "models/demo.gguf"]
SEED = 11
TIMEOUT_S = 300
SHOWN_MAX = 10  # differing cases of a model that are listed

# Number of ids, and options: which positions, in which chunks. On a GPU more than 64 rows take
# other kernels than fewer rows do, and a chunk of one row takes those of a decode step.
TEXTS = [
    (1, []),
    (200, ["--all"]),
    (300, []),
    (150, ["--at", "63,149", "--chunk", "64"]),
    (40, ["--all", "--chunk", "9"]),
    (24, ["--all", "--chunk", "1"]),
]
TEXTS_OF_GPU = [TEXTS[i] for i in (1, 3, 5)]
ANSWER = ["--raw", "The dog said 17 + 4", "--temp", "0", "-n", "16", "--ignore-eos", "-q"]

KV_TYPES = ["f16", "bf16", "f32", "q8_0"]


def settings_of(backend, is_full):
    """Lists of options. Choices that would be measured are fixed, so that they cannot change."""
    fast, exact = ["--precision", "fast"], ["--precision", "fp32"]
    if backend != "cuda":
        plain = [[*p, "--kv-type", kv] for p in (fast, exact) for kv in KV_TYPES]
        if backend == "cpu":
            return [*plain, [*fast, "-t", "1"], [*exact, "-t", "1"]]
        return [*plain, *([*p, "--gpu-layers", n] for p in (fast, exact) for n in ("2", "5"))]
    int8, fp16 = [*fast, "--matmul", "int8"], [*fast, "--matmul", "fp16"]
    some = [int8, [*int8, "--kv-type", "q8_0"], [*int8, "--graphs", "off"],
            [*int8, "--fuse", "off"], [*int8, "--gpu-layers", "2"], fp16,
            [*fp16, "--mirror-budget", "0", "--cublas", "off"], exact,
            [*exact, "--kv-type", "f16"]]
    if not is_full:
        return some
    other = [["--graphs", "off"], ["--fuse", "off"], ["--gpu-layers", "2"], ["--gpu-layers", "5"],
             ["--cpu-expert-layers", "2"], ["--ple", "pinned"], ["--ple", "host"],
             *(["--kv-type", kv] for kv in KV_TYPES)]
    found = [*some, *([*p, *o] for p in (int8, fp16, exact) for o in other),
             [*fp16, "--cublas", "off"], [*fp16, "--mirror-budget", "0"]]
    return [list(s) for s in dict.fromkeys(map(tuple, found))]


@dataclasses.dataclass(frozen=True)
class Case:
    backend: str
    setting: tuple
    model: str
    command: tuple  # without the program and the path of the result

    def __str__(self):
        words = [w if len(w) < 24 else w[:20] + "..." for w in self.command[2:]]
        return f"{pathlib.Path(self.model).stem}: {self.command[0]} {' '.join(words)}"


def vocabulary_of(program, model):
    """Number of tokens of a model."""
    says = subprocess.run([program, "show", model, "--json"], check=True, capture_output=True)
    for entry in json.loads(says.stdout)["metadata"]:
        if entry["key"] == "tokenizer.ggml.tokens":
            return entry["count"]
    sys.exit(f"{model}: no tokens")


def cases_of(backend, model, n_vocab, is_full):
    draw = random.Random(SEED)
    texts = [(",".join(["2", *(str(draw.randrange(n_vocab)) for _ in range(n - 1))]), options)
             for n, options in (TEXTS_OF_GPU if backend == "cuda" and not is_full else TEXTS)]
    for setting in settings_of(backend, is_full):
        common = ["--backend", backend, *setting]
        for ids, options in texts:
            yield Case(backend, tuple(setting), model,
                       ("logits", model, *common, *options, "--tokens", ids))
        yield Case(backend, tuple(setting), model, ("run", model, *common, *ANSWER))


def call(program, case, folder):
    """(exit status, bytes of the result or the first line of the error)."""
    out = pathlib.Path(folder, "out")
    out.unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CARAT_")}
    try:
        done = subprocess.run([program, *case.command, "-o", str(out)], capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, env=environment)
    except subprocess.TimeoutExpired:
        return -1, f"took longer than {TIMEOUT_S} s".encode()
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if b"note:" not in line]
        return done.returncode, b"".join(lines[:1])
    return 0, out.read_bytes()


def describe_difference(case, before, after):
    if case.command[0] == "run":
        return f"{before[:40]!r} became {after[:40]!r}"
    if len(before) != len(after):
        return f"{len(before)} bytes became {len(after)}"
    a, b = (array.array("f", data) for data in (before, after))
    apart = [abs(x - y) for x, y in zip(a, b) if x != y and not (x != x and y != y)]
    n_nan = sum(x != x for x in apart)
    most = max((x for x in apart if x == x), default=0.0)
    nan = f", {n_nan} of them NaN in one of the two" if n_nan else ""
    return f"{len(apart)} of {len(a)} logits, by at most {most:.3g}{nan}"


def compare(programs, case):
    """(case, "equal" or "refused" or "differs", what differs)."""
    with tempfile.TemporaryDirectory() as folder:
        (before_status, before), (after_status, after) = (call(p, case, folder) for p in programs)
    if before_status != after_status:
        found = [f"status {s}: {text.decode(errors='replace')}" if s else "computed"
                 for s, text in ((before_status, before), (after_status, after))]
        return case, "differs", f"{found[0]}; then {found[1]}"
    if before_status:
        is_refusal = before_status in (2, 3, 4, 5)  # usage, file, memory, device
        return case, "refused" if is_refusal else "differs", before.decode(errors="replace")
    if before == after:
        return case, "equal", ""
    return case, "differs", describe_difference(case, before, after)


def print_model(model, results):
    """One line, and the cases that differ."""
    count = collections.Counter(verdict for _, verdict, _ in results)
    print(f"{pathlib.Path(model).stem}: {len(results)} cases, {count['equal']} equal, "
          f"{count['refused']} refused by both, {count['differs']} differ", flush=True)
    differing = [(case, text) for case, verdict, text in results if verdict == "differs"]
    for case, text in differing[:SHOWN_MAX]:
        print(f"    {case}\n        {text}", flush=True)
    if len(differing) > SHOWN_MAX:
        print(f"    ... and {len(differing) - SHOWN_MAX} more", flush=True)


def print_table(results, backends):
    """Whether all is well."""
    is_well = True
    print("\n| backend | settings | computed | cases | equal | refused by both | differ |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for backend in backends:
        of_backend = [r for r in results if r[0].backend == backend]
        count = collections.Counter(verdict for _, verdict, _ in of_backend)
        settings = {case.setting for case, _, _ in of_backend}
        computed = {case.setting for case, verdict, _ in of_backend if verdict == "equal"}
        print(f"| {backend} | {len(settings)} | {len(computed)} | {len(of_backend)} "
              f"| {count['equal']} | {count['refused']} | {count['differs']} |")
        if not count["equal"]:
            why = next((text for _, verdict, text in of_backend if verdict == "refused"), "")
            print(f"\n{backend}: nothing was computed alike. {why}\n")
        is_well = is_well and count["equal"] > 0 and not count["differs"]
    return is_well


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("before", help="a program carat")
    parser.add_argument("after", help="the program that may not differ from it")
    parser.add_argument("--backends", default="ref,cpu", help="with commas (ref,cpu)")
    parser.add_argument("--models", default=",".join(map(str, MODELS)),
                        help="files, with commas (the golden models and the demo model)")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    parser.add_argument("--full", action="store_true", help="on a GPU too")
    args = parser.parse_args()
    programs = [str(pathlib.Path(p).resolve()) for p in (args.before, args.after)]
    backends, results = args.backends.split(","), []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for model in args.models.split(","):
            n_vocab = vocabulary_of(programs[0], model)
            cases = [case for backend in backends
                     for case in cases_of(backend, model, n_vocab, args.full)]
            found = list(pool.map(lambda case: compare(programs, case), cases))
            print_model(model, found)
            results += found
    return 0 if print_table(results, backends) else 1


if __name__ == "__main__":
    sys.exit(main())
