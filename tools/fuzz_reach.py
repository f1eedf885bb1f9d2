#!/usr/bin/env python3
"""Counts the functions of its subjects that a fuzz target has entered.

usage: tools/fuzz_reach.py TARGET.c PROGRAM PROFILE.profraw

A target names its subjects in its first comment, one a line, with the share of their functions that
has to be entered: "Subject: src/text/call_syntax.c 95". Prints a line for each, with the functions
that were not entered. The exit status is 1 if a subject is below its share or no subject is named.
Functions are counted by clang's source-based coverage (the preset `fuzz`).
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUBJECT = re.compile(r"^ \* Subject: (\S+) (\d+)(?: \*/)?$", re.MULTILINE)


def entered(program, profile):
    """{source: {function: whether it was entered}} of everything that was counted."""
    merged = str(profile) + ".merged"
    subprocess.run(["llvm-profdata", "merge", "-o", merged, str(profile)], check=True)
    report = subprocess.run(["llvm-cov", "export", "-instr-profile", merged, str(program)],
                            check=True, capture_output=True).stdout
    found = {}
    for function in json.loads(report)["data"][0]["functions"]:
        source = pathlib.Path(function["filenames"][0]).resolve()
        name = function["name"].split(":")[-1]
        of_source = found.setdefault(source, {})
        of_source[name] = of_source.get(name, False) or function["count"] > 0
    return found


def main():
    target, program, profile = map(pathlib.Path, sys.argv[1:])
    subjects = SUBJECT.findall(target.read_text())
    if not subjects:
        print(f"{target}: names no subject")
        return 1
    counted = entered(program, profile)
    has_failed = False
    for source, share in subjects:
        functions = counted.get(ROOT / source, {})
        missed = sorted(name for name, is_entered in functions.items() if not is_entered)
        n = len(functions) - len(missed)
        is_less = not functions or 100 * n < int(share) * len(functions)
        has_failed |= is_less
        wanted = f", {share} % EXPECTED" if is_less else ""
        rest = f" (not: {', '.join(missed)})" if missed else ""
        print(f"  {source}: {n} of {len(functions)} functions{wanted}{rest}")
    return has_failed


if __name__ == "__main__":
    sys.exit(main())
