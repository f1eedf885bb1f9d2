#!/usr/bin/env python3
"""Puts profiles of `carat bench --profile` next to each other: where a step's time goes, by users.

    bench/profile_table.py [--part decode] [--times RESULTS.csv] 16=PROFILE.txt 48=PROFILE.txt ...

A profile records an event after each launch, which costs time and keeps launches apart. With the
table of a run without --profile (`carat bench -o csv`, rows of the same users), each launch is
charged for its share of the difference, and columns add up to the step as it is.
"""
import argparse
import csv
import re
import sys

ROW = re.compile(r"^(.{40}) +([0-9.]+) +([0-9.]+) +([0-9.]+)%")
HEAD = re.compile(r"^(prefill|decode): (\d+) steps, ([0-9.]+) ms each")
HOST = "host, gaps between steps"


def read_profile(path, part):
    """(ms of a step, {name: (launches, ms)}) of the last table of this part."""
    step, rows, now = None, {}, None
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            head = HEAD.match(line)
            if head:
                now = head[1]
                if now == part:
                    step, rows = float(head[3]), {}
            elif now == part:
                row = ROW.match(line)
                if row:
                    rows[row[1].strip()] = (float(row[2]), float(row[3]))
                elif line.startswith(HOST):
                    rows[HOST] = (0.0, float(line[40:].split()[0]))
    if step is None:
        sys.exit(f"{path}: no table of {part} steps")
    return step, rows


def read_times(path):
    """{users: ms of a step} of tests that only generate."""
    times = {}
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in csv.reader(file) if line]
    begin = next(i for i, line in enumerate(lines) if "n_users" in line)
    for line in lines[begin + 1:]:
        row = dict(zip(lines[begin], line))
        if len(line) == len(lines[begin]) and int(row["n_gen"]) > 0:
            times[row["n_users"]] = float(row["avg_ns"]) / 1e6 / int(row["n_gen"])
    return times


def corrected(step, rows, real):
    """{name: us}: each launch without what the profile adds to it."""
    launches = sum(n for n, _ in rows.values())
    charge = (step - real) / launches if real else 0
    return charge, {name: 1e3 * (ms - n * charge) for name, (n, ms) in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", default="decode", choices=["decode", "prefill"])
    parser.add_argument("--times")
    parser.add_argument("profiles", nargs="+", metavar="USERS=FILE")
    arguments = parser.parse_args()
    times = read_times(arguments.times) if arguments.times else {}
    labels, columns, launches = [], [], {}
    for item in arguments.profiles:
        label, _, path = item.partition("=")
        step, rows = read_profile(path, arguments.part)
        real = times.get(label)
        charge, us = corrected(step, rows, real)
        print(f"{label}: {step:.3f} ms a step with the profile, "
              f"{f'{real:.3f} without it, {1e3 * charge:.2f} us a launch' if real else 'as it is'}")
        labels.append(label)
        columns.append(us)
        launches.update({name: n for name, (n, _) in rows.items()})
    names = sorted(launches, key=lambda name: -columns[-1].get(name, 0))
    ends = [f"{a} to {b}" for a, b in zip(labels, labels[1:])]
    print("\n| us a step | times | " + " | ".join(labels + ends) + " |")
    print("|---|--:|" + "--:|" * (len(labels) + len(ends)))
    for name in [*names, "all"]:
        values = [sum(c.values()) if name == "all" else c.get(name, 0) for c in columns]
        grown = [b - a for a, b in zip(values, values[1:])]
        times_text = f"{launches[name]:g}" if name in launches else ""
        print(f"| {name} | {times_text} | " +
              " | ".join([f"{v:.0f}" for v in values] + [f"{g:+.0f}" for g in grown]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
