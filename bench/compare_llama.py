#!/usr/bin/env python3
"""Times carat and llama.cpp in turns on the same files and prints medians and their ratio.

    bench/compare_llama.py --llama DIR --carat build/release/carat [--threads 2] [--rounds 5]
                           [--csv OUT.csv] MODEL.gguf:TEST[,TEST...] ...

DIR holds the shared libraries of llama.cpp, libllama*.so among them. The npm package
@node-llama-cpp/linux-x64 has them prebuilt (npm pack, tar xzf, package/bins/linux-x64).
TEST is pp512 (prefill of 512 tokens), tg32 (32 tokens decoded) or tg32@4096 (after 4096).
A round runs both programs once for every test, so slow drift of a shared machine hits both; each
run of either begins with an uncounted warm-up of the test. For decoding it also prints which share
of the memory's read bandwidth carat reached, and what the ratio would be with all of it. A loop
that only reads measures the bandwidth in each run of carat, after the test.
"""
import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys


def parse_test(text):
    match = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?", text)
    if not match:
        sys.exit(f"test {text!r}: pp512, tg32 or tg32@4096 expected")
    return match[1], int(match[2]), int(match[3] or 0)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def carat_rate(program, model, test, threads):
    """Tokens a second, and the share of the read bandwidth of the same run."""
    kind, n, depth = parse_test(test)
    sizes = ["-p", str(n), "-n", "0"] if kind == "pp" else ["-p", "0", "-n", str(n)]
    out = run([program, "bench", model, *sizes, "-d", str(depth), "-r", "1", "-t", str(threads),
               "-o", "json", "-q", "--roofline"])
    result = json.loads(out)[0]
    return result["avg_ts"], result["read_share"]


def llama_rate(program, libraries, model, test, threads):
    kind, n, depth = parse_test(test)
    return float(run([program, libraries, model, str(threads), kind, str(n), str(depth)]))


def machine():
    with open("/proc/cpuinfo") as file:
        name = re.search(r"model name\s*:\s*(.*)", file.read())
    return f"{name[1] if name else 'unknown'}, {os.cpu_count()} processors"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llama", required=True, help="folder of llama.cpp's libraries")
    parser.add_argument("--carat", default="build/release/carat")
    parser.add_argument("--peer", default="build/release/bench/time-llama")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", help="write every run here")
    parser.add_argument("tests", nargs="+", metavar="MODEL:TEST,TEST")
    arguments = parser.parse_args()
    pairs = [(model, test) for entry in arguments.tests
             for model, tests in [entry.rsplit(":", 1)] for test in tests.split(",")]
    rates = {pair: ([], [], []) for pair in pairs}
    rows = []
    for turn in range(arguments.rounds):
        for model, test in pairs:
            ours, share = carat_rate(arguments.carat, model, test, arguments.threads)
            theirs = llama_rate(arguments.peer, arguments.llama, model, test, arguments.threads)
            rates[model, test][0].append(ours)
            rates[model, test][1].append(theirs)
            rates[model, test][2].append(share)
            rows.append([machine(), arguments.threads, os.path.basename(model), test, turn + 1,
                         f"{ours:.3f}", f"{theirs:.3f}", f"{share:.3f}"])
            print(f"round {turn + 1} {os.path.basename(model)} {test}: carat {ours:.2f}, "
                  f"llama.cpp {theirs:.2f} t/s, {share:.0%} of reading", file=sys.stderr)
    print(f"{machine()}, {arguments.threads} threads, {arguments.rounds} rounds, medians\n")
    print("| model | test | carat t/s (min .. max) | llama.cpp t/s (min .. max) | ratio "
          "| of reading | ratio at 100 % |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for (model, test), (ours, theirs, shares) in rates.items():
        a, b = statistics.median(ours), statistics.median(theirs)
        share = statistics.median(shares)
        bound = statistics.median(x / y / z for x, y, z in zip(ours, theirs, shares))
        reading = f"{share:.0%} | {bound:.2f}x" if parse_test(test)[0] == "tg" else "|"
        name = os.path.basename(model)
        print(f"| {name} | {test} | {a:.2f} ({min(ours):.2f} .. {max(ours):.2f}) "
              f"| {b:.2f} ({min(theirs):.2f} .. {max(theirs):.2f}) | {a / b:.2f}x "
              f"| {reading} |")
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["machine", "threads", "model", "test", "round", "carat_ts",
                             "llama_ts", "carat_read_share"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
