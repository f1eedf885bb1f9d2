#!/usr/bin/env python3
"""What README.md shows is what the program does.

usage: tests/e2e/test_readme.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import re
import shutil
import subprocess
import tempfile

from program import (DEMO, LIMIT, PROGRAM, ROOT, Skip, carat, environment, expect, expect_status,
                     is_sanitized, main, need_demo)
from server import Server

README = (ROOT / "README.md").read_text(encoding="utf-8")


def without_breaks(text):
    return re.sub(r"\s+", "", text)


def calls():
    """Each `$ curl` and what is shown below it."""
    for block in re.findall(r"(?s)```\n(\$ curl.*?)```", README):
        for part in re.split(r"(?m)^\$ ", block)[1:]:
            lines = part.split("\n")
            n = next(i for i in range(1, len(lines)) if "\n".join(lines[:i]).count("'") % 2 == 0)
            yield "\n".join(lines[:n]), "\n".join(lines[n:])


def test_the_calls_give_what_is_shown():
    if not shutil.which("curl"):
        raise Skip("curl is not installed")
    found = list(calls())
    expect(len(found) == 3, f"{len(found)} calls")
    with Server() as server:
        for command, shown in found:
            command = command.replace(":8080/", f":{server.port}/")
            done = subprocess.run(command, shell=True, capture_output=True, text=True,
                                  timeout=LIMIT, check=True)
            said = re.sub(r"[0-9a-f]{24}", "ID", without_breaks(done.stdout))
            for piece in re.split(r"\.\.\.", re.sub(r"[0-9a-f]{24}", "ID", shown)):
                piece = without_breaks(piece).removeprefix("data:{")
                expect(piece in said, f"{command}\ndoes not say {piece!r}, but {said}")


def test_the_story_is_the_one_that_is_shown():
    prompt = re.search(r'==> build/release/carat run demo (".*?") --seed 7', README)[1].strip('"')
    done = carat("run", need_demo(), prompt, "--seed", "7", "-q")
    expect_status(done, 0)
    expect(without_breaks(done.stdout.decode()) in without_breaks(README), done.stdout.decode())


def test_the_examples_of_help_run():
    need_demo()
    if is_sanitized():
        raise Skip("sanitizers make the benchmarks slow")
    found = set()
    for command in ("run", "tokenize", "detokenize", "logits", "bench"):
        text = carat("help", command).stdout.decode()
        for line in re.findall(r"(?m)^  (carat \w+ demo\b.*|.*\| carat \w+ demo\b.*)$", text):
            found.add(command)
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(line.replace("carat ", f"{PROGRAM} "), shell=True,
                                      cwd=folder, capture_output=True, timeout=LIMIT,
                                      env=environment(CARAT_MODELS=str(DEMO.parent)))
            expect(done.returncode == 0, f"{line}: {done.stderr[-200:]}")
    expect(len(found) == 5, f"{found}")


if __name__ == "__main__":
    main(globals())
