#!/usr/bin/env python3
"""Runs ctest in a build folder and counts the single cases.

usage: tools/run_tests.py BUILD [CTEST OPTION...]

Programs that depend on the clock of the machine and that have failed are run once more, alone. One
that passes then is unsteady: it fails nobody's run, but each such line is a defect to be mended.
Prints a line for each case that failed, was unsteady or was skipped, and at last "PASSED FAILED
SKIPPED UNSTEADY". The same is in BUILD/counts.txt.
"""
import os
import pathlib
import re
import subprocess
import sys

import count_tests

# Labels of programs with processes, connections or browsers, which come first in their names.
TIMED = ("e2e", "serve", "page", "clients", "chaos")
EVERYTHING = ("--test-output-size-passed", "1000000", "--test-output-size-failed", "1000000")


def run(build, name, options):
    """The cases of a ctest run, by the name of their program; None if it left no report."""
    report = build / name
    report.unlink(missing_ok=True)
    subprocess.run(["ctest", "--test-dir", str(build), "--output-on-failure", "--output-junit",
                    name, *EVERYTHING, *options], check=False)
    return count_tests.read(report) if report.exists() else None


def run_again(build, programs):
    """Those of the timed programs that failed, one after the other."""
    names = [name for name, program in programs.items()
             if program.failed and name.split(".")[0] in TIMED]
    if not names:
        return {}
    print(f"\n==> once more, alone: {' '.join(names)}", flush=True)
    pattern = "|".join(re.escape(name) for name in names)
    return run(build, "report-again.xml", ["--tests-regex", f"^({pattern})$"]) or {}


def summary(programs, again):
    """The lines to be printed, and [passed, failed, skipped, unsteady]."""
    lines, total = [], [0, 0, 0, 0]
    for name, program in programs.items():
        is_unsteady = program.failed and name in again and not again[name].failed
        total[0] += program.passed
        total[2] += program.skipped
        if is_unsteady:
            total[3] += program.failed
            lines.append(f"unsteady: {name}: {program.first_failure}")
        elif program.failed:
            total[1] += program.failed
            n = program.passed + program.failed + program.skipped
            lines.append(f"failed: {name}: {program.failed} of {n}: {program.first_failure}")
        lines += [f"skipped: {name}: {why}" for why in program.skips]
    return lines, total


def main():
    build = pathlib.Path(sys.argv[1])
    counts = build / "counts.txt"
    counts.unlink(missing_ok=True)
    parallel = ["--parallel", str(len(os.sched_getaffinity(0)))]
    programs = run(build, "report.xml", parallel + sys.argv[2:])
    if programs is None:
        sys.exit(f"ctest in {build} left no report")
    lines, total = summary(programs, run_again(build, programs))
    text = "\n".join([*lines, " ".join(map(str, total))])
    print(text)
    counts.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
