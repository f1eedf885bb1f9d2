#!/usr/bin/env python3
"""Measures how the CPU backend's speed grows with the number of threads.

    bench/cores.py MODEL.gguf [--threads 1,2,4,8,16] [--prompt 256] [--write 16] [--depth 0]
                   [--rounds 3] [--seconds 90] [--isa avx512] [--carat build/release/carat]
                   [--csv OUT.csv]

For each number of threads: tokens a second of prefill and decoding, how many times the first
number's they are, GB/s that decoding reads, and the share of what a loop that only reads gets with
as many threads in the same run. Medians of the rounds, in each of which all numbers take their
turn; no round begins that would not end within --seconds, judged by the longest before it.

Without --threads these are 1, 2, 4 ... and what carat would take. Needs Python and carat alone.
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = ("threads", "test", "tokens_a_second", "read_gbs", "read_limit_gbs")


def stop(text):
    sys.exit(f"cores: {text}")


def bench(options, threads):
    """One result for the prompt and one for decoding."""
    command = [options.carat, "bench", options.model, "--backend", "cpu", "-r", 1, "-o", "json",
               "-q", "--roofline", "-t", threads, "-p", options.prompt, "-n", options.write,
               "-d", options.depth]
    if options.isa:
        command += ["--isa", options.isa]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        stop(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr.strip()}")
    results = json.loads(done.stdout)
    return {"prefill" if one["n_prompt"] else "decode": one for one in results}


def usual_threads(options):
    """1, 2, 4 ... up to what carat takes by itself."""
    most = bench(argparse.Namespace(**{**vars(options), "prompt": 1, "write": 0, "depth": 0}),
                 0)["prefill"]["n_threads"]
    numbers = [1]
    while numbers[-1] * 2 < most:
        numbers.append(numbers[-1] * 2)
    return numbers + [most] * (most > 1)


def measure(options):
    """[{threads, test, ...}], a line for each run."""
    runs, begin, longest = [], time.monotonic(), 0
    for number in range(options.rounds):
        round_begin = time.monotonic()
        if number and round_begin + longest > begin + options.seconds:
            break
        for threads in options.threads:
            for test, one in bench(options, threads).items():
                runs.append(dict(zip(FIELDS, (threads, test, one["avg_ts"], one["read_gbs"],
                                              one["read_limit_gbs"]))))
        longest = max(longest, time.monotonic() - round_begin)
    return runs


def median(runs, threads, test, field):
    return statistics.median(run[field] for run in runs
                             if run["threads"] == threads and run["test"] == test)


def print_table(options, runs):
    rounds = len(runs) // len(options.threads) // 2
    print(f"{pathlib.Path(options.model).name}, {os.cpu_count()} processors, {rounds} rounds, "
          f"pp{options.prompt} and tg{options.write} @ {options.depth}")
    print("| threads | prefill t/s | times | decode t/s | times | reads GB/s | of | share |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    first = {test: median(runs, options.threads[0], test, "tokens_a_second")
             for test in ("prefill", "decode")}
    for threads in options.threads:
        prefill, decode = (median(runs, threads, test, "tokens_a_second")
                           for test in ("prefill", "decode"))
        read, limit = (median(runs, threads, "decode", field)
                       for field in ("read_gbs", "read_limit_gbs"))
        share = f"{100 * read / limit:.0f} %" if limit else "-"
        print(f"| {threads} | {prefill:.1f} | {prefill / first['prefill']:.2f} | {decode:.2f} | "
              f"{decode / first['decode']:.2f} | {read:.1f} | {limit:.1f} | {share} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--write", type=int, default=16)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--isa")
    parser.add_argument("--carat", default=ROOT / "build/release/carat")
    parser.add_argument("--csv")
    options = parser.parse_args()
    if min(options.prompt, options.write, options.rounds) < 1:
        stop("--prompt, --write and --rounds: numbers from 1 on")
    options.threads = options.threads or usual_threads(options)
    runs = measure(options)
    print_table(options, runs)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            table = csv.DictWriter(file, FIELDS)
            table.writeheader()
            table.writerows(runs)


if __name__ == "__main__":
    main()
