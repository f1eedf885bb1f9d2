#!/usr/bin/env python3
"""Guesses of what comes next (--draft), from the context and by a drafter (--model-draft): they
change no answer.

usage: tests/e2e/test_guesses.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import re

import program
from program import DEMO, ROOT, carat, expect, expect_error, expect_status, need_demo
from server import Server

FIXTURES = ROOT / "tests/golden/fixtures"
MODEL, DRAFTER = str(FIXTURES / "12b-q4_k.gguf"), str(FIXTURES / "12b-q4_k.draft.gguf")
OTHER = str(FIXTURES / "e4b-q4_0.draft.gguf")


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


def test_a_drafter_changes_no_answer():
    """A random drafter of a random model: it is asked, and hardly ever right."""
    asked = 0
    for manner in (["--temp", "0"], ["--temp", "1", "--seed", "5"]):
        story = ["run", MODEL, "--raw", "-p", "the quick brown fox", "-n", "120", "--ignore-eos",
                 "--stats", *manner]
        plain, drafted = carat(*story, "--draft", "0"), carat(*story, "-md", DRAFTER)
        expect_status(plain, 0)
        expect_status(drafted, 0)
        expect(plain.stdout == drafted.stdout, f"{manner}: {plain.stdout!r} {drafted.stdout!r}")
        made = re.search(rb" of (\d+) guesses right\)", drafted.stderr)
        asked += int(made.group(1)) if made else 0
    expect(asked > 0, "nothing was guessed")


def test_a_server_with_a_drafter_gives_the_same_answers():
    body = {"prompt": "the quick brown fox", "max_tokens": 60, "temperature": 0,
            "ignore_eos": True}

    def answer(*manner):
        with Server(MODEL, *manner) as server:
            status, _, reply = server.ask("POST", "/v1/completions", body)
            expect(status == 200, f"{status}: {reply!r}")
            return reply["choices"][0]["text"]

    plain, drafted = answer("--draft", "0"), answer("-md", DRAFTER, "--parallel", "2")
    expect(plain == drafted, f"{plain!r} {drafted!r}")


def test_files_that_are_no_drafter_of_this_model_are_refused():
    for arguments, words in (
            ((MODEL, "-md", OTHER), ("another model", "width of the model")),
            ((MODEL, "-md", MODEL), ("gemma4-assistant", "found")),
            ((DRAFTER,), ("this is a drafter", "--model-draft"))):
        expect_error(carat("run", *arguments, "-p", "x", "-n", "4"), 3, *words)
    expect_error(carat("run", MODEL, "-md", "nosuch.gguf", "-p", "x"), 3, "nosuch.gguf")


if __name__ == "__main__":
    program.main(globals())
