#!/usr/bin/env python3
"""The compiled kernels for AMX have its instructions, and no other part of the engine has.

usage: tests/kernels/test_amx_object.py LIBRARY [OBJDUMP [small]]

small: the products have functions of their own (KERNELS_SMALL).
"""
import collections
import re
import subprocess
import sys

PRODUCTS = "amx_run"  # the functions that have them, for all kinds of codes
PRODUCT = ("tileloadd", "tilezero", "tdpbf16ps", "tilestored")
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
    is_small = "small" in sys.argv[3:]
    products = set().union(*(words for name, words in found["amx.c.o"].items()
                             if is_small or name.startswith(PRODUCTS)))
    problems += [f"{PRODUCTS} has no {word}" for word in PRODUCT if word not in products]
    for problem in problems:
        print(f"FAIL {problem}")
    print(f"{len(all_of_it)} instructions, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
