#!/usr/bin/env python3
"""Guesses of what comes next (--draft), from the context and by a drafter (--model-draft): they
change no answer.

usage: tests/e2e/test_guesses.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import json
import pathlib
import re
import shutil
import tempfile

import hub
import program
from hub_place import Place
from program import (DEMO, ROOT, carat, expect, expect_error, expect_status, need_demo,
                     need_json)
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


def test_guesses_change_no_answer_of_any_sampler():
    """DRY follows from the tokens so far, Mirostat has a state, and XTC takes a random number more;
    with a grammar too."""
    need_demo()
    digits = 'root ::= ("one " | "two " | "three ")+'
    plain = {}
    for form in (["--ignore-eos"], ["--grammar", digits]):
        for manner in ([], ["--dry-multiplier", "2", "--dry-allowed-length", "3"],
                       ["--mirostat", "2", "--mirostat-ent", "0.5"],
                       ["--xtc-probability", "0.1", "--xtc-threshold", "0.3"],
                       ["--typical", "0.5", "--dynatemp-range", "0.25", "--top-n-sigma", "2"],
                       ["--sampler-seq", "tpekd", "--top-p", "0.9", "--repeat-penalty", "1.2",
                        "--dry-multiplier", "1"]):
            story = ["run", DEMO, "--raw", "-p", "The cat sat on the mat. The cat sat", "-n", "200",
                     "--temp", "0.4", "--seed", "5", *form, *manner]
            first, guessed = (carat(*story, "--draft", n) for n in ("0", "7"))
            expect_status(first, 0)
            expect(first.stdout == guessed.stdout, f"{story}: {first.stdout} {guessed.stdout}")
            plain.setdefault(str(form), first.stdout)
            expect(not manner or first.stdout != plain[str(form)], f"{manner} change nothing")


def test_guesses_of_what_a_schema_leaves_change_no_answer():
    need_demo()
    need_json()
    text = {"type": "string", "maxLength": 12}
    schema = {"type": "object", "required": ["full_name", "home_address", "tags"], "properties": {
        "full_name": text, "tags": {"type": "array", "items": text, "minItems": 2, "maxItems": 2},
        "home_address": {"type": "object", "required": ["street", "postal_code"],
                         "properties": {"street": text, "postal_code": text}}}}
    made = 0
    for manner in (["--temp", "0"], ["--temp", "1", "--seed", "3"], ["--temp", "1", "--seed", "4"]):
        story = ["run", DEMO, "--json-schema", json.dumps(schema), "-p", "Who?", "-n", "200",
                 "--stats", *manner]
        plain, guessed = (carat(*story, "--draft", n) for n in ("0", "7"))
        expect_status(plain, 0)
        expect(plain.stdout == guessed.stdout, f"{manner}: {plain.stdout!r} {guessed.stdout!r}")
        expect(set(json.loads(plain.stdout)) == set(schema["required"]), f"{plain.stdout!r}")
        found = re.search(rb" of (\d+) guesses right\)", guessed.stderr)
        made += int(found.group(1)) if found else 0
    expect(made > 0, "nothing was guessed")


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


STORY = ("--raw", "-p", "the quick brown fox", "-n", "40", "--ignore-eos", "--temp", "0",
         "-c", "256")


def expect_drafter(done, path):
    """`path`: of the drafter that was taken; None: none was, with a note."""
    expect_status(done, 0)
    note = "no drafter: " if path is None else f"drafter: {path}\n"
    expect(note in done.stderr.decode(), f"{note} expected: {done.stderr!r}")


def test_auto_takes_the_drafter_that_lies_beside_the_model():
    plain = carat("run", MODEL, *STORY, "--draft", "0")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "MTP").mkdir()
        (folder / "UD").mkdir()
        model = shutil.copy(MODEL, folder / "m-12B-Q4_K.gguf")
        below = shutil.copy(MODEL, folder / "UD/m-12B-Q4_K.gguf")

        def found(path, model=model, *manner):
            done = carat("run", str(model), *STORY, *(manner or ("-md", "auto")))
            expect_drafter(done, path)
            expect(done.stdout == plain.stdout, f"{plain.stdout!r} {done.stdout!r}")

        found(None)
        shutil.copy(OTHER, folder / "mtp-other.gguf")
        (folder / "mtp-broken.gguf").write_bytes(b"GGUF")
        found(None)  # neither opens
        f16 = shutil.copy(DRAFTER, folder / "MTP/m-it-F16.gguf")
        found(f16)
        found(f"{folder}/UD/../MTP/m-it-F16.gguf", below)
        eight = shutil.copy(DRAFTER, folder / "MTP/m-it-Q8_0.gguf")
        found(eight)
        own = shutil.copy(DRAFTER, folder / "mtp-m-it.gguf")
        found(own)
        found(own, model, "--spec-type", "draft-mtp", "--spec-draft-n-max", "4")
        for manner in (("--spec-type", "draft-mtp", "-md", f16), ("-md", f16, "--spec-type",
                                                                  "draft-mtp")):
            done = carat("run", model, *STORY, *manner)  # the one that is named
            expect_status(done, 0)
            expect(b"drafter: " not in done.stderr, f"{done.stderr!r}")


def test_a_repositorys_drafter_is_pulled_and_found_by_its_name():
    with Place() as place:
        for name, path in (("m-Q4_K_M.gguf", MODEL), ("MTP/m-it-MTP-Q8_0.gguf", DRAFTER),
                           ("MTP/m-it-MTP-F16.gguf", DRAFTER)):
            place.hub.files[name] = hub.File(pathlib.Path(path).read_bytes())
        done = place.pull("hf:u/r")
        expect_status(done, 0)
        expect(b"carat pull hf:u/r:MTP" in done.stderr, f"{done.stderr!r}")
        done = place.run("run", "hf:u/r", *STORY, "-md", "auto")  # nobody can be asked here
        expect_drafter(done, None)
        expect(b"carat pull hf:u/r:MTP" in done.stderr, f"{done.stderr!r}")
        done = place.pull("hf:u/r:MTP")
        drafter = place.path("MTP/m-it-MTP-Q8_0.gguf")
        expect(done.stdout.decode().strip() == str(drafter), f"{done}")
        expect(b"a drafter too" not in done.stderr, f"{done.stderr!r}")
        listed = place.run("ls").stdout.decode()
        expect("hf:u/r/MTP/m-it-MTP-Q8_0.gguf " in listed and "this is a drafter" in listed, listed)
        for manner in (("-md", "auto"), ("--spec-type", "draft-mtp")):
            expect_drafter(place.run("run", "hf:u/r", *STORY, *manner), drafter)
        for manner in (("-hfd", "u/r"), ("-hfd", "u/r:Q8_0"), ("-md", "hf:u/r:MTP"),
                       ("-hfd", "u/r", "--spec-type", "draft-mtp")):
            expect_status(place.run("run", "-hf", "u/r", *STORY, *manner), 0)
        done = place.run("run", "hf:u/r", *STORY, "-hfd", "u/r:F16")
        expect_error(done, 3, "hf:u/r:MTP-F16", "carat pull")
        expect_error(place.run("run", "hf:u/r", *STORY, "-hfd", "u"), 2, "USER/REPO")
        expect_status(place.pull("hf:u/r:MTP-F16"), 0)
        expect_status(place.run("rm", "hf:u/r:MTP-F16", "-y"), 0)
        expect(not place.path("MTP/m-it-MTP-F16.gguf").exists(), "still there")
        expect(drafter.exists(), "another drafter is gone")


def test_a_drafter_of_another_version_of_the_repository_is_found():
    """The repository got its drafter after the model was pulled."""
    with Place() as place:
        place.hub.files["m-Q4_K_M.gguf"] = hub.File(pathlib.Path(MODEL).read_bytes())
        expect_status(place.pull("hf:u/r"), 0)
        place.hub.commit = "b" * 40
        place.hub.files["mtp-m-it.gguf"] = hub.File(pathlib.Path(DRAFTER).read_bytes())
        done = place.pull("hf:u/r:MTP")
        expect_status(done, 0)
        drafter = done.stdout.decode().strip()
        expect("bbbbbbbbbbbb" in drafter, drafter)
        expect_drafter(place.run("run", "hf:u/r", *STORY, "-md", "auto"), drafter)


if __name__ == "__main__":
    program.main(globals())
