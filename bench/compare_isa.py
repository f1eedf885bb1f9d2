#!/usr/bin/env python3
"""Compares instruction sets of the CPU backend on one machine, in turns.

    bench/compare_isa.py kernels [--sets avx2,avx512] [--rounds 3] [--formats Q8_0,Q4_0,Q4_K,Q6_K]
                                 [--program build/release/tests/check-cpu-kernels]
    bench/compare_isa.py models  [--sets avx512,amx] [--rounds 3] [--threads 2,16]
                                 [--tests pp512,pp256,tg32] [--program build/release/carat]
                                 MODEL.gguf ...

kernels: products in 8 bits alone on one core, GOP/s by format and number of rows, the best of all
rounds; the last column is the ratio of the last set to the first. At the end: from how many rows on
the last set is faster. (Rows of prompts are in bf16 with amx: models shows that.)

models: tokens a second, medians over the rounds, with the ratio of the last set to the first.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def names(text):
    return text.split(",")


def kernel_rates(program, name, kind):
    """{rows: GOP/s}"""
    lines = run([program, "--perf", name, kind]).splitlines()[1:]
    return {int(line.split(",")[2]): float(line.split(",")[4]) for line in lines}


def compare_kernels(options):
    first_faster = {}
    print("format  rows  " + "".join(f"{name:>10}" for name in options.sets) + "     ratio")
    for kind in options.formats:
        best = {name: {} for name in options.sets}
        for _ in range(options.rounds):
            for name in options.sets:
                for rows, rate in kernel_rates(options.program, name, kind).items():
                    best[name][rows] = max(rate, best[name].get(rows, 0))
        base, last = best[options.sets[0]], best[options.sets[-1]]
        slower = [rows for rows in last if last[rows] <= base[rows]]
        first_faster[kind] = min((rows for rows in last if rows > max(slower, default=0)),
                                 default=None)
        for rows in sorted(base):
            print(f"{kind:7} {rows:4}  " + "".join(f"{best[name][rows]:10.1f}"
                                                  for name in options.sets) +
                  f"  {last[rows] / base[rows]:7.2f}x", flush=True)
    for kind, rows in first_faster.items():
        print(f"{kind}: {options.sets[-1]} is faster " +
              (f"from {rows} rows on" if rows else "with no number of rows"))


def model_rate(options, model, name, threads, test):
    match = re.fullmatch(r"(pp|tg)(\d+)", test)
    if not match:
        sys.exit(f"test {test!r}: pp512 or tg32 expected")
    sizes = ["-p", match[2], "-n", 0] if match[1] == "pp" else ["-p", 0, "-n", match[2]]
    out = run([options.program, "bench", model, *sizes, "-r", 1, "-t", threads, "--isa", name,
               "--backend", "cpu", "-o", "json", "-q"])
    return json.loads(out)[0]["avg_ts"]


def compare_models(options):
    print("model | threads | test | " + " | ".join(options.sets) + " | ratio")
    for model in options.models:
        for threads in names(options.threads):
            for test in names(options.tests):
                rates = {name: [] for name in options.sets}
                for _ in range(options.rounds):
                    for name in options.sets:
                        rates[name].append(model_rate(options, model, name, threads, test))
                medians = {name: statistics.median(found) for name, found in rates.items()}
                cells = [f"{medians[name]:.2f} ({min(found):.2f} .. {max(found):.2f})"
                         for name, found in rates.items()]
                ratio = medians[options.sets[-1]] / medians[options.sets[0]]
                print(" | ".join([model, threads, test, *cells, f"{ratio:.2f}x"]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    kernels, models = parts.add_parser("kernels"), parts.add_parser("models")
    for part in (kernels, models):
        part.add_argument("--sets", type=names, default=["avx512", "amx"])
        part.add_argument("--rounds", type=int, default=3)
    kernels.add_argument("--formats", type=names, default=["Q8_0", "Q4_0", "Q4_K", "Q6_K"])
    kernels.add_argument("--program", default="build/release/tests/check-cpu-kernels")
    models.add_argument("--threads", default="2,16")
    models.add_argument("--tests", default="pp512,pp256,tg32")
    models.add_argument("--program", default="build/release/carat")
    models.add_argument("models", nargs="+")
    options = parser.parse_args()
    compare_kernels(options) if options.part == "kernels" else compare_models(options)


if __name__ == "__main__":
    main()
