#!/usr/bin/env python3
"""Draws docs/images/speed.svg: carat next to llama.cpp, from the files in bench/results.

usage: bench/chart.py [--check]      (--check: fails when the committed file is another one)

A bar is how many times llama.cpp's tokens a second; the figures are next to it. The same results
make the same file, to the byte.
"""
import csv
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
TARGET = ROOT / "docs/images/speed.svg"

XEON = RESULTS / "xeon-emerald-rapids-2core"
CPU_ROWS = [  # what it is called, file, test
    ("E2B Q4_0, read 512", "2026-11-21-llama-cpp-e2b-2.csv", "pp512"),
    ("E2B Q4_0, write", "2026-11-21-llama-cpp-e2b-2.csv", "tg32"),
    ("E4B Q8_0, read 512", "2026-11-21-llama-cpp-e4b.csv", "pp512"),
    ("E4B Q8_0, write", "2026-11-21-llama-cpp-e4b.csv", "tg32"),
    ("12B Q4_0, read 256", "2026-11-21-llama-cpp-12b.csv", "pp256"),
]
GPU_COMMIT = "4a3aa17"
GPU_ROWS = [  # what it is called, model, and in both files: prompt, is it writing, depth, users
    ("E4B Q8_0, read 2048", "E4B Q8_0", 2048, False, 0, 1),
    ("E4B Q8_0, write", "E4B Q8_0", 0, True, 0, 1),
    ("E4B Q8_0, write for 32", "E4B Q8_0", 0, True, 2048, 32),
    ("12B Q4_0, read 2048", "12B Q4_0", 2048, False, 0, 1),
    ("12B Q4_0, write", "12B Q4_0", 0, True, 0, 1),
    ("26B-A4B Q4_0, read 2048", "26B-A4B Q4_0", 2048, False, 0, 1),
    ("26B-A4B Q4_0, write", "26B-A4B Q4_0", 0, True, 0, 1),
]
PANELS = [
    ("On 2 cores of an Intel Xeon", "llama.cpp v0.5.0, both by turns, medians of five rounds"),
    ("On one NVIDIA H200", "llama.cpp of August 2026, measured at another time"),
]

WIDTH, LEFT, BAR, STEP = 760, 200, 15, 26  # pixels
PER_TIME = 36  # of one time llama.cpp
STYLE = """
  .page { fill: #fcfcfa; stroke: #dfe0da; } .name, .head { fill: #1e2326; } .soft { fill: #5d666c; }
  .ours { fill: #0b6e66; } .one { stroke: #5d666c; stroke-dasharray: 3 3; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
  .head { font-size: 15px; font-weight: 600; } .soft { font-size: 12px; }
  .times { fill: #1e2326; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #17191b; stroke: #303539; } .name, .head, .times { fill: #e4e6e7; }
    .soft { fill: #9ba3a9; } .ours { fill: #58c4b8; } .one { stroke: #9ba3a9; }
  }
"""


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cpu_pair(file, test):
    """The medians of carat and llama.cpp."""
    rows = [row for row in read(XEON / file) if row["test"] == test]
    return [statistics.median(float(row[f"{name}_ts"]) for row in rows)
            for name in ("carat", "llama")]


def gpu_pair(model, *wanted):
    pair = []
    for file, commit in (("2026-11-22-rebuilt.csv", GPU_COMMIT),
                         ("2026-11-20-llama-cpp.csv", None)):
        speeds = [float(row["avg_ts"]) for row in read(RESULTS / "h200" / file)
                  if row["model"] == model and row.get("commit") == commit and
                  (int(row["n_prompt"]), row["n_gen"] != "0", int(row["n_depth"]),
                   int(row["n_users"])) == wanted]
        pair.append(statistics.median(speeds))
    return pair


def number(value):
    """Three digits that say something: 496.59 -> 497, 6.14 -> 6.1, 109394 -> 109,000."""
    if value < 100:
        return f"{value:.1f}"
    digits = len(str(int(value))) - 3
    return f"{round(value, -digits):,.0f}"


def bar(y, name, pair):
    ours, theirs = pair
    times = ours / theirs
    length = times * PER_TIME
    text_at = LEFT + length + 8
    middle = y + BAR - 3.5
    return [f'<text class="name" x="{LEFT - 10}" y="{middle}" text-anchor="end">{name}</text>',
            f'<rect class="ours" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{text_at:.1f}" y="{middle}"><tspan class="times">{times:.1f}x</tspan>'
            f'<tspan class="soft" dx="7">{number(ours)} : {number(theirs)}</tspan></text>']


def panel(y, head, note, rows):
    """The lines of a panel, and where the next one begins."""
    lines = [f'<text class="head" x="24" y="{y + 14}">{head}</text>',
             f'<text class="soft" x="24" y="{y + 32}">{note}</text>']
    top = y + 48
    for i, (name, pair) in enumerate(rows):
        lines += bar(top + i * STEP, name, pair)
    end = top + len(rows) * STEP
    one = LEFT + PER_TIME
    lines.append(f'<path class="one" d="M{one} {top - 6}V{end - 2}"/>')
    return lines, end + 26


def draw():
    cpu = [(name, cpu_pair(*key)) for name, *key in CPU_ROWS]
    gpu = [(name, gpu_pair(*key)) for name, *key in GPU_ROWS]
    lines, y = [], 24
    for (head, note), rows in zip(PANELS, (cpu, gpu)):
        more, y = panel(y, head, note, rows)
        lines += more
    lines.append(f'<text class="soft" x="24" y="{y}">Tokens a second, carat : llama.cpp. '
                 'Dashed: as fast as llama.cpp. Random weights of the true shapes.</text>')
    height = y + 20
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title">',
        '<title id="title">Speed of carat next to llama.cpp</title>', f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        *lines, "</svg>", ""])


def main():
    text = draw()
    if sys.argv[1:] != ["--check"]:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        raise SystemExit("docs/images/speed.svg is old: run bench/chart.py")


if __name__ == "__main__":
    main()
