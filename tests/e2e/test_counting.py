#!/usr/bin/env python3
"""How ./dev test counts: tools/run_tests.py on small programs, some of which fail once.

usage: tests/e2e/test_counting.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import pathlib
import shutil
import subprocess
import tempfile

from program import LIMIT, ROOT, Skip, expect, main

PASSES = "echo '3 passed, 0 failed, 1 skipped'; echo 'skip a case: no such thing'"
FAILS = "echo 'ok   one'; echo 'FAIL two: it was 5'; echo 'FAIL three'; " \
        "echo '1 passed, 2 failed, 0 skipped'; false"
CRASHES = "echo 'a last word'; kill -9 $$"


def once(first):
    """Fails so the first time, and passes afterwards."""
    return f"if mkdir $0.been 2>/dev/null; then {first}; else {PASSES}; fi"


def counted(**programs):
    """The lines about programs that are named FOLDER_NAME, as a script each; the exit status."""
    if not shutil.which("ctest"):
        raise Skip("ctest is not in the path")
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for name, script in programs.items():
            path = pathlib.Path(folder) / name
            path.write_text(script, encoding="utf-8")
            lines.append(f'add_test({name.replace("_", ".", 1)} "sh" "{path}")')
        (pathlib.Path(folder) / "CTestTestfile.cmake").write_text("\n".join(lines))
        done = subprocess.run(["python3", str(ROOT / "tools/run_tests.py"), folder], timeout=LIMIT,
                              capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr)
        return (pathlib.Path(folder) / "counts.txt").read_text().splitlines()


def test_cases_are_summed_up():
    lines = counted(e2e_a=PASSES, unit_b=PASSES, docs_c="true")
    expect(lines[-1] == "7 0 2 0", str(lines))
    expect("skipped: e2e.a: a case: no such thing" in lines, str(lines))


def test_what_depends_on_the_clock_and_fails_once_is_unsteady():
    for folder in ("e2e", "serve", "page", "clients", "chaos"):
        lines = counted(**{f"{folder}_a": once(FAILS), "unit_b": PASSES})
        expect(lines[-1] == "4 0 1 2", str(lines))
        expect(f"unsteady: {folder}.a: two: it was 5" in lines, str(lines))


def test_what_fails_twice_has_failed():
    lines = counted(e2e_a=FAILS, serve_b=CRASHES, chaos_c=once(CRASHES))
    expect(lines[-1] == "1 3 0 1", str(lines))
    expect("failed: e2e.a: 2 of 3: two: it was 5" in lines, str(lines))
    expect(any(line.startswith("failed: serve.b: 1 of 1: a last word") for line in lines),
           str(lines))
    expect(any(line.startswith("unsteady: chaos.c: a last word") for line in lines), str(lines))


def test_other_programs_get_no_second_run():
    for folder in ("unit", "golden", "parity", "kernels"):
        lines = counted(**{f"{folder}_a": once(FAILS)})
        expect(lines[-1] == "1 2 0 0", str(lines))
        expect(f"failed: {folder}.a: 2 of 3: two: it was 5" in lines, str(lines))


if __name__ == "__main__":
    main(globals())
