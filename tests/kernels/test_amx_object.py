#!/usr/bin/env python3
"""The compiled kernels for AMX have its instructions, and no other part of the engine has.

usage: tests/kernels/test_amx_object.py LIBRARY [OBJDUMP [small]]

small: the kinds of codes share their functions (KERNELS_SMALL).
"""
import collections
import re
import subprocess
import sys

KINDS = ("S4", "U4", "N4", "S5", "U5", "S6", "S8")
PRODUCT = ("tileloadd", "tilezero", "tdpbssd", "tilestored")
AROUND = ("ldtilecfg", "tilerelease")  # perhaps in functions of their own
ANY = re.compile(r"\t(tileloadd|tileloaddt1|tilezero|tilestored|tilerelease|ldtilecfg|tdp\w+)\b")


def instructions(objdump, library):
    """{member: {function: {instruction}}}, of AMX alone."""
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    member = function = ""
    with subprocess.Popen([objdump, "-d", "--no-show-raw-insn", library], text=True,
                          stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            if ":     file format" in line:
                member = line.split(":")[0]
            elif line.endswith(">:\n"):
                function = line.split("<")[1][:-3]
            elif match := ANY.search(line):
                found[member][function].add(match[1])
    if process.returncode:
        sys.exit(f"objdump: exit {process.returncode}")
    return found


def main():
    if len(sys.argv) < 3:
        print("skipped: no objdump that knows the library")
        return
    found = instructions(sys.argv[2], sys.argv[1])
    problems = [f"{member} has instructions of AMX" for member in found if member != "amx.c.o"]
    all_of_it = set().union(*found["amx.c.o"].values())
    problems += [f"amx.c.o has no {word}" for word in AROUND if word not in all_of_it]
    for kind in KINDS:
        name = f"tile_dot_{kind}"
        missing = set(PRODUCT) - (all_of_it if "small" in sys.argv[3:] else found["amx.c.o"][name])
        if missing:
            problems.append(f"{name} has no {', '.join(sorted(missing))}")
    for problem in problems:
        print(f"FAIL {problem}")
    print(f"{len(KINDS)} kinds of codes, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
