"""What a JUnit report of ctest says of single cases.

A ctest test is a program with many cases. cmocka programs and the scripts of tests/e2e say how many
passed, failed and were skipped; a program that says nothing counts as one case.
"""
import re
import types
import xml.etree.ElementTree as ElementTree

SKIPPED_CASE = re.compile(r"^(?:\[  SKIPPED \] (?!\w+: \d+ test|\d+ test)|skip +)(.*)$",
                          re.MULTILINE)
# The reason: the line before the name of a cmocka case, or all that a program prints.
SKIP_REASON = re.compile(r"^skipped: (.*)\n\[  SKIPPED \] (\w+)$", re.MULTILINE)
PROGRAM_REASON = re.compile(r"^skipped: (.*)$", re.MULTILINE)
SCRIPT_SUM = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
# Of scripts, of cmocka and of node.
FAILED_CASE = re.compile(r"^ *(?:FAIL +|\[  FAILED  \] (?!\w+: \d+ test|\d+ test)|✖ )(.*)$",
                         re.MULTILINE)


def cmocka_sum(text, word):
    """Sums "[  PASSED  ] 5 test(s)." and "[  FAILED  ] group: 1 test(s), listed below:"."""
    found = re.findall(rf"^\[ *{word} *\](?: \w+:)? (\d+) test\(s\)", text, re.MULTILINE)
    return sum(int(n) for n in found)


def first_failure(case, text):
    """Its line; else the program's last line and how it ended."""
    found = FAILED_CASE.search(text)
    if found:
        return found[1].strip()
    failure = case.find("failure")
    last = (text.strip().splitlines() or ["no output"])[-1]
    return f"{last} ({'failed' if failure is None else failure.get('message') or 'failed'})"


def read_program(case):
    """passed, failed, skipped; skips: a line for each skipped case; first_failure: a line or ""."""
    text = case.findtext("system-out") or ""
    has_failed = case.find("failure") is not None or case.get("status") == "fail"
    is_skipped = case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
    program = types.SimpleNamespace(passed=0, failed=0, skipped=1, skips=[], first_failure="")
    if is_skipped:
        reason = PROGRAM_REASON.search(text)
        program.skips = [reason[1] if reason else case.findtext("skipped") or "not run"]
        return program
    script = SCRIPT_SUM.findall(text)
    if script:
        counts = [sum(int(row[i]) for row in script) for i in range(3)]
    else:
        counts = [cmocka_sum(text, word) for word in ("PASSED", "FAILED", "SKIPPED")]
    if has_failed and counts[1] == 0:
        counts[1] = 1  # it crashed, ran out of time, or failed outside its cases
    if not has_failed and sum(counts) == 0:
        counts[0] = 1
    program.passed, program.failed, program.skipped = counts
    program.first_failure = first_failure(case, text) if program.failed else ""
    reasons = {name: f": {reason}" for reason, name in SKIP_REASON.findall(text)}
    names = dict.fromkeys(line.strip() for line in SKIPPED_CASE.findall(text))
    program.skips = [name + reasons.get(name, "") for name in names]
    return program


def read(report):
    """The programs of a report, by their names."""
    root = ElementTree.parse(report).getroot()
    return {case.get("name"): read_program(case) for case in root.iter("testcase")}
