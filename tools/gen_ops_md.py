#!/usr/bin/env python3
"""Makes docs/ops.md from the lines of src/plan/op_list.h.

usage: tools/gen_ops_md.py [--check]      (writes the document, or says whether it is up to date)
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/plan/op_list.h"
TARGET = ROOT / "docs/ops.md"
LINE = re.compile(r'^\s*X\((\w+),\s*(\w+),\s*"((?:[^"\\]|\\.)*)",\s*([^)]+)\)', re.MULTILINE)


def budget_text(value):
    number = float(value)
    if number < 0:
        return "by format"
    return "bit-equal" if number == 0 else value.strip()


def render(source):
    rows = LINE.findall(source)
    if not rows:
        raise SystemExit(f"{SOURCE}: no operation found")
    out = [
        "# Operations of a plan",
        "",
        "Made by `tools/gen_ops_md.py` from `src/plan/op_list.h`; change that file, then run it.",
        "Rows are written y[t], with t running over the rows of the output. The budget is the",
        "largest normalised mean squared error of a fast backend against the reference.",
        "",
        "| operation | parameters | meaning | budget |",
        "| --- | --- | --- | --- |",
    ]
    for name, params, meaning, budget in rows:
        shown = meaning.replace('\\"', '"').replace("|", "\\|")
        params = "" if params == "none" else f"`{params}`"
        out.append(f"| `{name}` | {params} | {shown} | {budget_text(budget)} |")
    return "\n".join(out) + "\n"


def main():
    text = render(SOURCE.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--check"]:
        is_current = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
        print("up to date" if is_current else "docs/ops.md is old: run tools/gen_ops_md.py")
        return 0 if is_current else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
