#!/usr/bin/env python3
"""Guesses of what comes next (--draft): they change no answer.

usage: tests/e2e/test_guesses.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import re

import program
from program import DEMO, carat, expect, expect_status, need_demo


def test_guesses_change_no_answer():
    """The demo goes on repeating itself, so that guesses are right. On a busy machine or under
    sanitizers they may not pay. A stop string may come in the middle of them."""
    need_demo()

    def answers(*manner):
        story = ["run", DEMO, "--raw", "-p", "The cat sat on the mat. The cat sat", "-n", "400",
                 "--ignore-eos", "--stats", *manner]
        plain, guessed = (carat(*story, "--draft", n) for n in ("0", "7"))
        expect_status(plain, 0)
        expect(plain.stdout == guessed.stdout, f"{manner}: {plain.stdout!r} {guessed.stdout!r}")
        count, guessed_count = (re.search(rb"answer (\d+) tokens", done.stderr).group(1)
                                for done in (plain, guessed))
        expect(count == guessed_count, f"{manner}: {count} and {guessed_count} tokens")
        expect(b"guesses" not in plain.stderr, f"{plain.stderr!r}")
        made = re.search(rb" tokens \((\d+) of (\d+) guesses right\)", guessed.stderr)
        expect(not made or int(made.group(1)) <= int(made.group(2)), f"{guessed.stderr!r}")
        return plain.stdout

    text = answers("--temp", "0")
    answers("--temp", "0.3", "--seed", "5")
    for end in range(500, 900, 40):
        answers("--temp", "0", "--stop", text[end - 9:end].decode())


if __name__ == "__main__":
    program.main(globals())
