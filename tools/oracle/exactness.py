#!/usr/bin/env python3
"""Draws random models of each shape and prints how far carat's logits are from transformers' fp32,
by shape and way of computing: mean and worst over the models of the relative distance (the root of
its mean square over positions), and how many models are nearer than a peer.

usage: exactness.py --carat build/release/carat [--peer COMMAND] [options]
COMMAND is another engine: {model}, {ids} (with commas) and {file} are replaced; it writes the
logits after the last id, 32-bit floats. Both are compared at the same positions."""
import argparse
import concurrent.futures
import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile

import numpy as np

from shapes import SHAPES

WAYS = {
    "ref": ["--backend", "ref"],
    "cpu": ["--backend", "cpu"],
    "cpu, 8 bits": ["--backend", "cpu", "--deterministic"],
    "cuda": ["--backend", "cuda"],
    "cuda, 64 rows": ["--backend", "cuda", "--chunk", "64"],
    "cuda, 1 row": ["--backend", "cuda", "--chunk", "1"],
    "cuda, int8": ["--backend", "cuda", "--matmul", "int8"],
    "cuda, fp32": ["--backend", "cuda", "--precision", "fp32"],
}
PEER = "peer"
EVERY = 4  # of the stored positions; a peer computes each from the beginning


class Failure(Exception):
    pass


def call(command, **more):
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if found.returncode:
        last = found.stdout.decode(errors="replace").strip().splitlines()[-1:]
        raise Failure(f"{command[0]}: status {found.returncode}: {''.join(last)}")


def distance(found, expected):
    """The root of the mean square of the relative distances of rows."""
    relative = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(np.sqrt(np.mean(relative ** 2)))


class Model:
    def __init__(self, folder, name):
        self.path = os.path.join(folder, name)
        with open(self.path + ".json") as f:
            facts = json.load(f)
        self.ids, self.vocab = facts["tokens"], facts["vocab"]
        stored = np.fromfile(self.path + ".logits.f32", "<f4").reshape(-1, self.vocab)
        self.at = facts["logits_positions"][EVERY - 1::EVERY]
        self.expected = stored[EVERY - 1::EVERY]

    def by_carat(self, args, way):
        out = self.path + ".out"
        call([args.carat, "logits", self.path + ".gguf", "-o", out, "-t", "2",
              "--tokens", ",".join(map(str, self.ids)), "--at", ",".join(map(str, self.at)),
              *WAYS[way]])
        return distance(np.fromfile(out, "<f4").reshape(-1, self.vocab), self.expected)

    def by_peer(self, args):
        out, rows = self.path + ".out", []
        for p in self.at:
            words = {"model": self.path + ".gguf", "file": out,
                     "ids": ",".join(map(str, self.ids[:p + 1]))}
            call([word.format(**words) for word in shlex.split(args.peer)])
            rows.append(np.fromfile(out, "<f4"))
        return distance(np.stack(rows), self.expected)


def measure(args, seed, name):
    """Distances of one model, by way."""
    maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_oracle.py")
    with tempfile.TemporaryDirectory() as folder:
        call([sys.executable, maker, folder, str(seed), name],
             env={**os.environ, "OMP_NUM_THREADS": "2"})
        model = Model(folder, name)
        found = {way: model.by_carat(args, way) for way in args.ways}
        if args.peer:
            found[PEER] = model.by_peer(args)
        return found


def measure_all(args):
    """name -> seed -> distances. What failed is reported and left out."""
    results, n_failed = {name: {} for name in args.names}, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        tasks = {pool.submit(measure, args, args.seed + i, name): (name, args.seed + i)
                 for i in range(args.count) for name in args.names}
        for task in concurrent.futures.as_completed(tasks):
            name, seed = tasks[task]
            try:
                results[name][seed] = task.result()
            except Failure as failure:
                n_failed += 1
                print(f"{name}, seed {seed}: {failure}", file=sys.stderr, flush=True)
    return results, n_failed


def print_table(args, results):
    ways = [*args.ways, *([PEER] if args.peer else [])]
    nearer = dict.fromkeys(args.ways, 0)
    print("| shape | models | " + " | ".join(ways) + " |")
    print("|---|--:|" + "--:|" * len(ways))
    for name, models in results.items():
        cells = []
        for way in ways:
            found = [models[seed][way] for seed in models]
            cell = f"{np.mean(found):.2g} ({max(found):.2g})" if found else ""
            if found and args.peer and way != PEER:
                peer = [models[seed][PEER] for seed in models]
                n = sum(a < b for a, b in zip(found, peer))
                nearer[way] += n
                cell += f", {np.mean(found) / np.mean(peer):.2f} of the peer's, {n} nearer"
            cells.append(cell)
        print(f"| {name} | {len(models)} | " + " | ".join(cells) + " |")
    if args.peer:
        total = sum(map(len, results.values()))
        print("\nnearer than the peer, of", total, "models:",
              ", ".join(f"{way} {n}" for way, n in nearer.items()))


def write_csv(path, results):
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["shape", "seed", "way", "distance"])
        for name, models in results.items():
            for seed in sorted(models):
                out.writerows([name, seed, way, f"{x:.6g}"] for way, x in models[seed].items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--carat", required=True, help="the program")
    parser.add_argument("--peer", help="command of another engine")
    parser.add_argument("--seed", type=int, default=1, help="of the first models (1)")
    parser.add_argument("--count", type=int, default=10, help="models of each shape (10)")
    parser.add_argument("--names", default=",".join(SHAPES), help="shapes, with commas (all)")
    parser.add_argument("--ways", default=";".join(WAYS), help="with semicolons (all)")
    parser.add_argument("--jobs", type=int, default=8, help="models at a time (8)")
    parser.add_argument("--csv", help="file for every distance")
    args = parser.parse_args()
    args.names, args.ways = args.names.split(","), args.ways.split(";")
    for found, known in ((args.names, SHAPES), (args.ways, WAYS)):
        for word in found:
            if word not in known:
                parser.error(f"{word}: one of {'; '.join(known)} expected")
    results, n_failed = measure_all(args)
    print_table(args, results)
    if args.csv:
        write_csv(args.csv, results)
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
