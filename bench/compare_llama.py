#!/usr/bin/env python3
"""Times carat and llama.cpp in turns on the same files and prints medians and their ratio.

    bench/compare_llama.py --llama DIR [--isa avx2] [--carat build/release/carat] [--threads 2]
                           [--rounds 5] [--csv OUT.csv] MODEL.gguf:TEST[,TEST...] ...

DIR holds the shared libraries of llama.cpp, libllama*.so among them. The npm package
@node-llama-cpp/linux-x64 has them prebuilt (npm pack, tar xzf, package/bins/linux-x64).
TEST is pp512 (prefill of 512 tokens), tg32 (32 tokens decoded) or tg32@4096 (after 4096).
--isa forces an instruction set on both programs: llama.cpp then finds only those of its libraries
for a kind of processor that have no more than this set. The program that times llama.cpp is built
when it is not there.

A round runs both programs once for every test, so slow drift of a shared machine hits both; each
run of either begins with an uncounted warm-up of the test. For decoding it also prints which share
of the memory's read bandwidth carat reached, and what the ratio would be with all of it. A loop
that only reads measures the bandwidth in each run of carat, after the test. Every run goes to a
file in bench/results/cpu, unless --csv names another.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
AVX512 = ("zen4", "cooperlake", "icelake", "cascadelake", "cannonlake", "skylakex")
# Libraries of llama.cpp for kinds of processors that have what a set of carat has. It takes the
# best one that it finds and that runs.
VARIANTS = {"auto": None, "amx": ("sapphirerapids", *AVX512), "avx512": AVX512,
            "avxvnni": ("alderlake",), "avx2": ("haswell",), "plain": ("x64",)}


def stop(text):
    sys.exit(f"compare_llama: {text}")


def parse_test(text):
    match = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?", text)
    if not match:
        stop(f"test {text!r}: pp512, tg32 or tg32@4096 expected")
    return match[1], int(match[2]), int(match[3] or 0)


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        stop(f"{pathlib.Path(command[0]).name} failed (exit {done.returncode}): "
             f"{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


# ---- What must be there before the first round --------------------------------------------------

def build_peer(path):
    """The program that times llama.cpp, built if it is not there."""
    build = next((up for up in path.parents if (up / "CMakeCache.txt").exists()), None)
    if path.exists():
        return
    if path.name != "time-llama" or not build:
        stop(f"{path} is not there: cmake --build build/release --target time-llama makes it")
    print(f"building {path}", file=sys.stderr)
    done = subprocess.run(["cmake", "--build", build, "--target", "time-llama"],
                          capture_output=True, text=True)
    if done.returncode or not path.exists():
        stop(f"cmake --build {build} --target time-llama failed:\n{done.stdout[-2000:]}")


def check_isa(carat, isa):
    report = json.loads(run([carat, "doctor", "--json", "--isa", isa]))
    return report["isa"]


def check_libraries(folder):
    if not any(folder.glob("libllama.*so*")):
        stop(f"{folder} has no libllama*.so: npm pack @node-llama-cpp/linux-x64@3.22.1, tar xzf "
             "it, --llama package/bins/linux-x64")


def link_libraries(folder, isa, out):
    """Links to all libraries but those for processors that have more than `isa`."""
    kinds = VARIANTS[isa]
    taken = {f"libggml-cpu-{kind}.so" for kind in kinds}
    if not any((folder / name).exists() for name in taken):
        stop(f"{folder} has no library for {isa}: one of {', '.join(sorted(taken))} expected")
    for file in folder.resolve().iterdir():
        if not file.name.startswith("libggml-cpu-") or file.name in taken:
            (out / file.name).symlink_to(file)
    return out


def read_pairs(entries):
    pairs = []
    for entry in entries:
        model, colon, tests = entry.rpartition(":")
        if not colon or not model:
            stop(f"{entry!r}: MODEL.gguf:TEST,TEST expected")
        if not os.path.isfile(model):
            stop(f"model {model} is not there; random-model FILE SIZE FORMAT makes one of a size")
        pairs += [(model, test) for test in tests.split(",") if parse_test(test)]
    return pairs


# ---- Rounds -------------------------------------------------------------------------------------

def carat_rate(arguments, model, test):
    """Tokens a second, and the share of the read bandwidth of the same run."""
    kind, n, depth = parse_test(test)
    sizes = ["-p", n, "-n", 0] if kind == "pp" else ["-p", 0, "-n", n]
    out = run([arguments.carat, "bench", model, *sizes, "-d", depth, "-r", 1, "-t",
               arguments.threads, "-o", "json", "-q", "--roofline", "--backend", "cpu", "--isa",
               arguments.isa])
    result = json.loads(out)[0]
    return result["avg_ts"], result["read_share"]


def llama_rate(arguments, libraries, model, test):
    kind, n, depth = parse_test(test)
    return float(run([arguments.peer, libraries, model, arguments.threads, kind, n, depth]))


def machine():
    with open("/proc/cpuinfo") as file:
        name = re.search(r"model name\s*:\s*(.*)", file.read())
    return f"{name[1] if name else 'unknown'}, {os.cpu_count()} processors"


def measure(arguments, libraries, pairs):
    """({pair: (rates of carat, of llama.cpp, shares)}, rows of the file)"""
    rates, rows = {pair: ([], [], []) for pair in pairs}, []
    for turn in range(arguments.rounds):
        for model, test in pairs:
            name = os.path.basename(model)
            ours, share = carat_rate(arguments, model, test)
            theirs = llama_rate(arguments, libraries, model, test)
            for values, value in zip(rates[model, test], (ours, theirs, share)):
                values.append(value)
            rows.append([machine(), arguments.isa, arguments.threads, name, test, turn + 1,
                         f"{ours:.3f}", f"{theirs:.3f}", f"{share:.3f}"])
            print(f"round {turn + 1} {name} {test}: carat {ours:.2f}, llama.cpp {theirs:.2f} t/s, "
                  f"{share:.0%} of reading", file=sys.stderr)
    return rates, rows


def print_table(rates):
    print("| model | test | carat t/s (min .. max) | llama.cpp t/s (min .. max) | ratio "
          "| of reading | ratio at 100 % |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for (model, test), (ours, theirs, shares) in rates.items():
        a, b = statistics.median(ours), statistics.median(theirs)
        reading = "|"
        if parse_test(test)[0] == "tg":
            bounds = [x / y / z for x, y, z in zip(ours, theirs, shares) if z]
            reading = f"{statistics.median(shares):.0%} | " + (
                f"{statistics.median(bounds):.2f}x" if bounds else "")
        print(f"| {os.path.basename(model)} | {test} "
              f"| {a:.2f} ({min(ours):.2f} .. {max(ours):.2f}) "
              f"| {b:.2f} ({min(theirs):.2f} .. {max(theirs):.2f}) | {a / b:.2f}x "
              f"| {reading} |")


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["machine", "isa", "threads", "model", "test", "round", "carat_ts",
                         "llama_ts", "carat_read_share"])
        writer.writerows(rows)
    print(f"every run: {path}", file=sys.stderr)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llama", required=True, type=pathlib.Path,
                        help="folder of llama.cpp's libraries")
    parser.add_argument("--isa", choices=VARIANTS, default="auto",
                        help="instruction set of both programs (auto: the best of each)")
    parser.add_argument("--carat", type=pathlib.Path, default=ROOT / "build/release/carat")
    parser.add_argument("--peer", type=pathlib.Path,
                        default=ROOT / "build/release/bench/time-llama")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=pathlib.Path, help="write every run here")
    parser.add_argument("tests", nargs="+", metavar="MODEL:TEST,TEST")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.threads < 1:
        stop("--rounds and --threads: 1 or more expected")
    return arguments


def main():
    arguments = read_arguments()
    pairs = read_pairs(arguments.tests)
    if not arguments.carat.exists():
        stop(f"{arguments.carat} is not there: ./dev build makes it")
    check_libraries(arguments.llama)
    used = check_isa(arguments.carat, arguments.isa)
    build_peer(arguments.peer)
    with tempfile.TemporaryDirectory() as folder:
        libraries = arguments.llama
        if arguments.isa != "auto":
            libraries = link_libraries(arguments.llama, arguments.isa, pathlib.Path(folder))
        rates, rows = measure(arguments, libraries, pairs)
    print(f"{machine()}, {used}, {arguments.threads} threads, {arguments.rounds} rounds, medians\n")
    print_table(rates)
    day = datetime.date.today().isoformat()
    write_rows(arguments.csv or ROOT / f"bench/results/cpu/{day}-llama-cpp-{used}.csv", rows)


if __name__ == "__main__":
    main()
