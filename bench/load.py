#!/usr/bin/env python3
"""Many users on one machine: each scenario is one line of SCENARIOS, measured by `carat bench`.

    bench/load.py list                            scenarios, and what they must reach
    bench/load.py run [NAME ...]                  measures them (all for the backend by default)
    bench/load.py table RESULTS.csv ...           the table again, of kept results (.jsonl too): of
                                                  each scenario those in the last file that has it

Options: --programs DIR (a build folder, or that of `bench/gpu.sh pack`; build/release), --backend
cuda|gpus|cpu (gpus: the scenarios that need two), --repeat N (3), --limit SECONDS for everything
(540; what does not fit is left out and named), --out DIR ($OUT, else bench/results/h200), --models
DIR where models are made and kept, --layers N and --vocab N to try it with small ones, --scale F to
multiply all lengths.

Models have true shapes and random weights, made by bench/random-model. Every row of every
repetition is kept as CSV and as JSON lines. The table has medians, and the spread of the
repetitions. The exit status is 1 when a scenario failed to run, not when a figure is missed.
"""
import argparse
import collections
import contextlib
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# name; what runs on; model; options of `carat bench`. With `serve`, options of a `carat serve` that
# the load goes through; "gpus" stands for a backend that needs two devices.
Scenario = collections.namedtuple("Scenario", "name backend model words seconds serve")
# A median of a scenario's rows: "loop.ttft" names the group. With `per`, divided by the same of
# another scenario (of milliseconds: how much faster that one is). `must` is "<40" or ">2800", or
# "same": all values are those of `per`.
# `predicted` was written before measuring; docs/benchmarks.md has the reasons.
Figure = collections.namedtuple("Figure", "row key title scale must predicted per",
                                defaults=[""])

LOOP = ("--load name=loop,users=32,in=1024,in-spread=0.5,out=128,requests=320,warmup=32,"
        "ramp=1.3,goodput=ttft:150,tpot:20")
DECODE = "--load users=16,requests=16,in=128,out=1000,name=decode,during=long "
LONG = "--load name=long,users=1,requests=2,in=32k,out=16,after=decode,delay=0.2 "
SHORT = "--load name=short,users=1,requests=4,in=200,out=4,after=decode,delay=0.3,think=0.1"
ROBIN = ("--load name=robin,users=1,chats=16,turns=3,in=8k,in-next=64,out=16,requests=48 "
         "--cache-split 8k --cache-memory ")
SHARED = "--load name=shared,users=32,requests=32,prefix=32k,in=64,out=256,warmup=1 --cascade "
APART = "--load name=apart,users=32,requests=32,in=8k,out=256,warmup=1 --cascade "
JSON1 = "--load name=one,users=1,requests=4,in=64,out=256,warmup=1"
JSON32 = "--load name=many,users=32,requests=64,in=64,out=256,warmup=32"
SCHEMA = ",schema=bench/load_schema.json"  # one token of 40 is refused
SHORT_SCHEMA = ",schema=bench/load_schema_short.json"  # one of four
STREAM16 = "--load name=many,users=16,requests=32,in=32,out=32,warmup=1"
E4B, E12B = "e4b:q8_0", "12b:q4_0"
LOOP_SERVE = "--parallel 32 --ctx-size 2048"
PAIR = "--load name=pair,users=64,in=1024,in-spread=0.5,out=128,requests=640,warmup=64"
PAIR_FULL = "--load name=pair,users=128,in=1024,in-spread=0.5,out=128,requests=1280,warmup=128"
PAIR_BITS = "--load name=pair,users=64,in=256,in-spread=0.5,out=64,requests=128"
PAIR_SERVE = "--parallel 64 --ctx-size 2048 --gpus "
# The last number: seconds that one repetition may take.
SCENARIOS = [Scenario(name, backend, model, words.split(), seconds, "".join(serve).split())
             for name, backend, model, words, seconds, *serve in (
    ("users2k", "cuda", E4B, "-p 0 -n 64 -d 2048 -npl 64,128 --no-roofline", 15),
    ("plain", "cuda", E4B, "-p 2048,8192 -n 64 --no-roofline", 5),
    ("det", "cuda", E4B, "-p 2048,8192 -n 64 --no-roofline --deterministic", 10),
    ("loop32", "cuda", E4B, LOOP, 20),
    ("loop32det", "cuda", E4B, LOOP + " --deterministic", 40),
    ("http32", "cuda", E4B, LOOP, 20, LOOP_SERVE),
    ("pair1", "gpus", E4B, PAIR, 40, PAIR_SERVE + "0"),
    ("pair2", "gpus", E4B, PAIR, 30, PAIR_SERVE + "0,1"),
    ("pairfull", "gpus", E4B, PAIR_FULL, 50, PAIR_SERVE + "0,1"),
    ("bits1", "gpus", E4B, PAIR_BITS, 40, PAIR_SERVE + "0 --deterministic"),
    ("bits2", "gpus", E4B, PAIR_BITS, 30, PAIR_SERVE + "0,1 --deterministic"),
    ("prompt32k", "cuda", E4B, DECODE + LONG, 20),
    ("prompt32k12", "cuda", E4B, DECODE + LONG + "--max-itl 12", 20),
    ("short", "cuda", E4B, DECODE + LONG + SHORT, 20),
    ("turn2", "cuda", E4B, "--load name=chat,users=1,turns=2,in=8k,in-next=64,out=64,requests=16,"
     "warmup=1", 15),
    ("caches12b", "cuda", E12B, "--load name=wide,users=64,requests=64,in=2k,out=32 "
     "--no-prefix-cache", 20),
    ("robin", "cuda", E12B, ROBIN + "14G", 30),
    ("robin23", "cuda", E12B, ROBIN + "6200m", 40),
    ("shared", "cuda", E4B, SHARED + "on", 20),
    ("sharedoff", "cuda", E4B, SHARED + "off", 20),
    ("apart", "cuda", E4B, APART + "on", 20),
    ("apartoff", "cuda", E4B, APART + "off", 20),
    ("free1", "cuda", E4B, JSON1, 10),
    ("json1", "cuda", E4B, JSON1 + SCHEMA, 10),
    ("free32", "cuda", E4B, JSON32, 10),
    ("json32", "cuda", E4B, JSON32 + SCHEMA, 10),
    ("json1short", "cuda", E4B, JSON1 + SHORT_SCHEMA, 10),
    ("json32short", "cuda", E4B, JSON32 + SHORT_SCHEMA, 10),
    ("stream1", "cpu", E4B, "--load name=one,users=1,requests=2,in=32,out=32,warmup=1", 120),
    ("stream16", "cpu", E4B, STREAM16, 120),
    ("http16", "cpu", E4B, STREAM16, 120, "--parallel 16 --ctx-size 256"),
)]
FIGURES = [
    Figure("plain.pp2048", "avg_ts", "pp2048, tokens/s", 1, ">109700", 111000),
    Figure("plain.pp8192", "avg_ts", "pp8192, tokens/s", 1, ">99960", 101500),
    Figure("plain.tg64", "avg_ts", "tg64, tokens/s", 1, ">402", 407),
    Figure("users2k.tg64@2048x64", "avg_ts", "64 users at 2K, tokens/s", 1, ">5882", 6050),
    Figure("users2k.tg64@2048x128", "avg_ts", "128 users at 2K, tokens/s", 1, ">7500", 7800),
    Figure("det.pp2048", "avg_ts", "pp2048, deterministic, tokens/s", 1, "", 17000),
    Figure("loop32.loop", "output_throughput", "32 users in a loop, output tokens/s", 1, ">2800",
           3300),
    Figure("loop32.loop", "median_ttft_ms", "its TTFT p50, ms", 1, "<40", 25),
    Figure("loop32.loop", "p99_ttft_ms", "its TTFT p99, ms", 1, "<150", 100),
    Figure("loop32.loop", "median_tpot_ms", "its TPOT p50, ms", 1, "<11", 9),
    Figure("loop32.loop", "p99_tpot_ms", "its TPOT p99, ms", 1, "<20", 12),
    Figure("loop32.loop", "good_share", "good: first token in 150 ms, 20 ms a token, %", 100, "",
           99),
    Figure("http32.loop", "output_throughput", "32 users through HTTP / in one process", 1, ">0.95",
           0.98, "loop32.loop"),
    # 64 users on two GPUs are 32 on each, and a step of 32 takes more than half of one of 64.
    Figure("pair2.pair", "output_throughput", "64 users on two GPUs / on one, through HTTP", 1,
           "", 1.65, "pair1.pair"),
    Figure("pairfull.pair", "output_throughput", "128 users on two GPUs / 64 on one", 1, ">1.9",
           1.97, "pair1.pair"),
    Figure("bits2.pair", "answers_digest", "the same, deterministic: answers", 1, "same", "same",
           "bits1.pair"),
    Figure("loop32det.loop", "output_throughput", "deterministic: output tokens/s", 1, "", 1500),
    Figure("prompt32k.decode", "p99_itl_ms", "16 decode, 32K come: ITL p99, ms", 1, "<50", 32),
    Figure("prompt32k.long", "median_ttft_ms", "its TTFT, ms", 1, "<700", 480),
    Figure("prompt32k12.decode", "p99_itl_ms", "the same, --max-itl 12: ITL p99, ms", 1, "<14", 13),
    Figure("prompt32k12.long", "median_ttft_ms", "its TTFT, ms", 1, "<2000", 950),
    Figure("short.short", "median_ttft_ms", "200 tokens come during it: TTFT, ms", 1, "<60", 45),
    Figure("turn2.chat", "median_next_turn_ttft_ms", "second turn after 8192: TTFT, ms", 1, "<10",
           5.5),
    Figure("caches12b.wide", "kv_bytes", "12B, 64 users at 2K: bytes of caches, GB", 1e-9, "<27",
           26.4),
    Figure("robin.robin", "reused_share", "12B, 16 chats of 8K by turns: reused, %", 100, ">95",
           99),
    Figure("robin23.robin", "reused_share", "the same, budget for two thirds, %", 100, ">25", 45),
    Figure("sharedoff.shared", "median_tpot_ms", "32 users after a 32K prefix, cascade / not", 1,
           ">2", 1.9, "shared.shared"),
    Figure("apartoff.apart", "median_tpot_ms", "32 users of 8K, nothing shared, cascade / not", 1,
           ">0.99", 1, "apart.apart"),
    Figure("free1.one", "median_tpot_ms", "constrained JSON / free, 1 stream", 1, ">0.97", 0.98,
           "json1.one"),
    Figure("free32.many", "median_tpot_ms", "constrained JSON / free, 32 streams", 1, ">0.92", 0.93,
           "json32.many"),
    Figure("free1.one", "median_tpot_ms", "the same, one token of four refused, 1 stream", 1, "",
           0.9, "json1short.one"),
    Figure("free32.many", "median_tpot_ms", "the same, 32 streams", 1, "", 0.7, "json32short.many"),
    Figure("http16.many", "output_throughput", "CPU: 16 streams through HTTP / in one process", 1,
           ">0.95", 0.99, "stream16.many"),
    Figure("http16.many", "answers_digest", "their answers", 1, "same", "same", "stream16.many"),
    Figure("stream16.many", "output_throughput", "CPU: 16 streams / one", 1, ">3", 4.3,
           "stream1.one"),
]


# ---- Results ----------------------------------------------------------------------------------

def group_of(row):
    """A load's group; a test as bench names it: "pp512", "tg64@2048x8" for 8 users."""
    if "label" in row:
        return row["label"]
    name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
    depth, users = row["n_depth"], row["n_users"]
    return name + (f"@{depth}" if depth else "") + (f"x{users}" if users > 1 else "")


def values_of(rows, name, key):
    """One value for each repetition of "scenario.group"; a test has one row for all of its."""
    scenario, group = name.split(".")
    chosen = [row for row in rows if row["scenario"] == scenario and group_of(row) == group]
    if key == "avg_ts":
        return [value for row in chosen for value in row.get("samples_ts", [row["avg_ts"]])]
    return [row[key] for row in chosen if row.get(key) is not None]


def holds(value, must):
    return value < float(must[1:]) if must[0] == "<" else value > float(must[1:])


def print_table(rows):
    print("| | measured (spread) | predicted | must | |\n|---|--:|--:|--:|---|")
    for f in FIGURES:
        values = values_of(rows, f.row, f.key)
        below = values_of(rows, f.per, f.key) if f.per else [1]
        if not values or not below:
            continue
        if f.must == "same":
            verdict = "yes" if set(values) == set(below) else "NO"
            found = f"{len(set(values))} digest(s)"
            print(f"| {f.title} | {found} | {f.predicted} | the same | {verdict} |")
            continue
        middle = statistics.median(values)
        spread = (max(values) - min(values)) / middle * 100 if middle else 0
        value = middle * f.scale / statistics.median(below)
        verdict = "" if not f.must else "yes" if holds(value, f.must) else "NO"
        must = f.must.replace("<", "at most ").replace(">", "at least ")
        print(f"| {f.title} | {value:.4g} ({spread:.1f} %) | {f.predicted} | {must} | {verdict} |")


def read_rows(text, scenario):
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for row in rows:
        row.setdefault("scenario", scenario)
        if "kv_local_bytes" in row:
            row["kv_bytes"] = row["kv_local_bytes"] + row["kv_global_bytes"]
    return rows


def number(text):
    """A value of a CSV file."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text or None


def read_kept(path):
    """Rows of a kept file: keys that belong to the other kind of row are left out."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if not path.endswith(".csv"):
        return read_rows(text, "")
    rows = [{k: number(v) for k, v in row.items()} for row in csv.DictReader(text.splitlines())]
    return [{k: v for k, v in row.items() if v is not None} for row in rows]


def write_csv(path, rows):
    """Lists are left out. Tests and loads have other keys: a key that a row lacks is empty."""
    keys = list(dict.fromkeys(k for row in rows for k, v in row.items() if not isinstance(v, list)))
    keys.insert(0, keys.pop(keys.index("scenario")))
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, keys, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


# ---- Running ----------------------------------------------------------------------------------

def program(folder, name):
    for at in (f"{folder}/{name}", f"{folder}/bench/{name}", f"{folder}/tests/{name}"):
        if os.access(at, os.X_OK):
            return at
    sys.exit(f"load.py: {name} is not in {folder}: build it, or say --programs DIR")


def scaled(word, scale):
    """A load with shorter prompts and answers, to try the script."""
    def shorten(match):
        tokens = int(match[2]) * (1024 if match[3] else 1)
        return f"{match[1]}={max(int(tokens * scale), 1)}"
    return re.sub(r"\b(in|in-next|out|prefix)=(\d+)(k?)\b", shorten, word)


class Runner:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.models = {}
        self.rows, self.phases, self.has_failed = [], [], False

    def left(self):
        return self.options.limit - (time.monotonic() - self.begin)

    def phase(self, name, command, most):
        """Its output, or None."""
        if self.left() < 10:
            self.phases.append((name, 0, "left out: no time"))
            return None
        begin = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True,
                                  timeout=min(most, self.left()))
            result = "passed" if done.returncode == 0 else f"FAILED: status {done.returncode}"
            out, err = done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            result, out, err = f"FAILED: more than {late.timeout:.0f} s", "", ""
        self.phases.append((name, time.monotonic() - begin, result))
        print(f"==> {name}: {result}", flush=True)
        if result == "passed":
            return out
        self.has_failed = True
        print(" ".join(map(str, command)), err[-2000:], sep="\n", flush=True)
        return None

    def model(self, name):
        """The path of a model, made on first use."""
        o = self.options
        if name not in self.models:
            size, quantisation = name.split(":")
            layers = o.layers or (12 if o.backend == "cpu" else 0)
            path = os.path.join(o.models, f"{size}-{quantisation}-{layers}-{o.vocab}.gguf")
            command = [program(o.programs, "random-model"), size, quantisation, path]
            command += ["--layers", str(layers)] if layers else []
            command += ["--vocab", str(o.vocab)] if o.vocab else []
            is_made = os.path.exists(path) or self.phase(f"make {name}", command, 200) is not None
            self.models[name] = path if is_made else None
        return self.models[name]

    @contextlib.contextmanager
    def server(self, scenario, command):
        """Its address once it answers, or None."""
        begin, most = time.monotonic(), min(120, self.left())
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.DEVNULL,
                                       stderr=log)
            try:
                address = None
                while not address and process.poll() is None and time.monotonic() < begin + most:
                    time.sleep(0.1)
                    log.seek(0)
                    address = re.search(r"answers on (http://\S+)", log.read())
                name = f"{scenario.name} server"
                self.phases.append((name, time.monotonic() - begin,
                                    "passed" if address else "FAILED: no address"))
                if not address:
                    self.has_failed = True
                    log.seek(0)
                    print(" ".join(command), log.read()[-2000:], sep="\n", flush=True)
                yield address and address[1]
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def measure(self, scenario):
        o = self.options
        model = self.model(scenario.model)
        if not model:
            return
        words = [scaled(word, o.scale) for word in scenario.words]
        if o.scale != 1 and "-d" in words:
            words[words.index("-d") + 1] = str(int(2048 * o.scale))
        device = "cpu" if o.backend == "cpu" else "cuda"
        carat, ways = program(o.programs, "carat"), ["--backend", device, *o.more.split()]
        if scenario.serve:
            with self.server(scenario, [carat, "serve", model, *scenario.serve, *ways]) as url:
                if url:
                    command = [carat, "bench", "-q", "-o", "jsonl", "--url", url, *words]
                    self.repeat(scenario, command)
        else:
            self.repeat(scenario, [carat, "bench", model, "-q", "-o", "jsonl", *words, *ways])

    def repeat(self, scenario, command):
        o = self.options
        # In a budget that earlier repetitions have filled, other things are measured.
        is_fresh = "--cache-memory" in command
        for seed in range(1, o.repeat + 1) if is_fresh else [0]:
            more = ["-r", "1", "--seed", str(seed)] if is_fresh else ["-r", str(o.repeat)]
            out = self.phase(scenario.name, command + more,
                             30 + scenario.seconds * (1 if is_fresh else o.repeat))
            self.rows += read_rows(out or "", scenario.name)


def run(options):
    chosen = [s for s in SCENARIOS if s.name in options.names or
              (not options.names and s.backend == options.backend)]
    unknown = set(options.names) - {s.name for s in SCENARIOS}
    if unknown:
        sys.exit(f"load.py: no scenario {', '.join(sorted(unknown))}; bench/load.py list")
    runner = Runner(options)
    for scenario in sorted(chosen, key=lambda s: s.model, reverse=True):
        runner.measure(scenario)
    print(f"\n{'phase':32} {'s':>6}  result")
    for name, seconds, result in runner.phases:
        print(f"{name:32} {seconds:6.1f}  {result}")
    if runner.rows:
        os.makedirs(options.out, exist_ok=True)
        base = os.path.join(options.out, f"{time.strftime('%F')}-{options.backend}-load")
        write_csv(base + ".csv", runner.rows)
        with open(base + ".jsonl", "w", encoding="utf-8") as kept:
            kept.writelines(json.dumps(row) + "\n" for row in runner.rows)
        print()
        print_table(runner.rows)
    return int(runner.has_failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("verb", choices=["run", "list", "table"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--programs", default=str(ROOT / "build/release"))
    parser.add_argument("--backend", default="cuda", choices=["cuda", "gpus", "cpu"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("--out", default=os.environ.get("OUT", str(ROOT / "bench/results/h200")))
    parser.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "carat-load"))
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--vocab", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--more", default="", help="further options of `carat bench`")
    options = parser.parse_intermixed_args()
    if options.verb == "run":
        os.makedirs(options.models, exist_ok=True)
        sys.exit(run(options))
    if options.verb == "list":
        for s in SCENARIOS:
            print(f"{s.name:12} {s.backend:5} {s.model:9} {' '.join(s.words)}")
        for f in FIGURES:
            print(f"{f.row:24} {f.must:>8} {f.predicted:>8}  {f.title}")
        return
    rows = []
    for path in options.names:
        new = read_kept(path)
        rows = [r for r in rows if r["scenario"] not in {n["scenario"] for n in new}] + new
    print_table(rows)


if __name__ == "__main__":
    main()
