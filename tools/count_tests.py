#!/usr/bin/env python3
"""Counts the single cases in a JUnit report of ctest.

usage: tools/count_tests.py REPORT.xml

A ctest test is a program with many cases. cmocka programs and the scripts of tests/e2e say how
many passed, failed and were skipped; a program that says nothing counts as one case. Prints the
cases that failed or were skipped, then a last line "PASSED FAILED SKIPPED".
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

SKIPPED_CASE = re.compile(r"^(?:\[  SKIPPED \] (?!\w+: \d+ test|\d+ test)|skip +)(.*)$",
                          re.MULTILINE)
# The reason: the line before the name of a cmocka case, or all that a program prints.
SKIP_REASON = re.compile(r"^skipped: (.*)\n\[  SKIPPED \] (\w+)$", re.MULTILINE)
PROGRAM_REASON = re.compile(r"^skipped: (.*)$", re.MULTILINE)
SCRIPT_SUM = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def cmocka_sum(text, word):
    """Sums "[  PASSED  ] 5 test(s)." and "[  FAILED  ] group: 1 test(s), listed below:"."""
    found = re.findall(rf"^\[ *{word} *\](?: \w+:)? (\d+) test\(s\)", text, re.MULTILINE)
    return sum(int(n) for n in found)


def count_case(case):
    """(passed, failed, skipped) of one program, and the lines of its skipped cases."""
    text = case.findtext("system-out") or ""
    has_failed = case.find("failure") is not None or case.get("status") == "fail"
    is_skipped = case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
    if is_skipped:
        reason = PROGRAM_REASON.search(text)
        return (0, 0, 1), [reason[1] if reason else case.findtext("skipped") or "not run"]
    script = SCRIPT_SUM.findall(text)
    if script:
        counts = [sum(int(row[i]) for row in script) for i in range(3)]
    else:
        counts = [cmocka_sum(text, word) for word in ("PASSED", "FAILED", "SKIPPED")]
    if has_failed and counts[1] == 0:
        counts[1] = 1  # it crashed, ran out of time, or failed outside its cases
    if not has_failed and sum(counts) == 0:
        counts[0] = 1
    reasons = {name: f": {reason}" for reason, name in SKIP_REASON.findall(text)}
    names = dict.fromkeys(line.strip() for line in SKIPPED_CASE.findall(text))
    return tuple(counts), [name + reasons.get(name, "") for name in names]


def main():
    total = [0, 0, 0]
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        counts, skipped = count_case(case)
        total = [a + b for a, b in zip(total, counts)]
        name = case.get("name")
        if counts[1]:
            print(f"failed: {name}: {counts[1]} of {sum(counts)}")
        for reason in skipped:
            print(f"skipped: {name}: {reason}")
    print(*total)


if __name__ == "__main__":
    main()
