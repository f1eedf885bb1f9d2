#!/usr/bin/env python3
"""Models and devices as a user finds them: ls, show, devices, CARAT_MODEL.

usage: tests/e2e/test_models.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import json
import os
import pathlib
import re
import shutil
import tempfile

import program
from program import FIXTURES, MODEL, carat, environment, expect, expect_error, expect_status


def listed(folder, *arguments):
    """`carat ls` where models are looked for in `folder` first."""
    done = carat("ls", *arguments, env=environment(CARAT_MODELS=str(folder)), cwd="/")
    expect_status(done, 0)
    return done.stdout.decode()


def make_models(folder):
    """Two models that run, a link, a broken one, parts of a split one, another architecture."""
    here = pathlib.Path(folder)
    shutil.copy(FIXTURES / "e2b-q8_0.gguf", here / "small.gguf")
    shutil.copy(FIXTURES / "12b-q4_k.gguf", here / "large.gguf")
    (here / "again.gguf").symlink_to(here / "large.gguf")
    (here / "cut.gguf").write_bytes((FIXTURES / "e2b-q8_0.gguf").read_bytes()[:5000])
    (here / "nothing.gguf").write_bytes(b"")
    (here / "notes.txt").write_text("no model")
    (here / "part-00002-of-00003.gguf").write_bytes(b"GGUF")
    (here / "folder.gguf").mkdir()
    strange = (here / "small.gguf").read_bytes().replace(b"gemma4", b"gemma9")
    (here / "strange.gguf").write_bytes(strange)


def test_ls_lists_models_and_says_which_are_broken():
    with tempfile.TemporaryDirectory() as folder:
        make_models(folder)
        rows = {row["name"]: row for row in json.loads(listed(folder, "--json"))
                if row["path"].startswith(folder)}
        names = set(rows) - {"again", "large"}
        expect(names == {"small", "cut", "nothing", "strange"}, str(sorted(rows)))
        expect(("again" in rows) != ("large" in rows), "a file with two names is listed once")
        expect(rows["small"]["quantisation"] == "Q8_0", str(rows["small"]))
        expect(not rows["small"]["broken"] and rows["small"]["problem"] is None, "small")
        expect(rows["small"]["bytes"] == (FIXTURES / "e2b-q8_0.gguf").stat().st_size, "bytes")
        expect(rows["small"]["n_ctx_train"] > 0, "context")
        for name in ("cut", "nothing"):
            expect(rows[name]["broken"] and rows[name]["problem"], str(rows[name]))
        expect(not rows["strange"]["broken"] and "gemma9" in rows["strange"]["problem"],
               str(rows["strange"]))
        text = listed(folder)
        expect(re.search(r"^small +Q8_0 +[\d.]+ MiB +\d+ +- +[\d-]+ +/", text, re.MULTILINE), text)
        expect(re.search(r"^cut +broken .*\n    broken: ", text, re.MULTILINE), text)
        expect(carat("list", env=environment(CARAT_MODELS=folder), cwd="/").stdout.decode() == text,
               "list")
        for name in rows:
            found = carat("show", name, env=environment(CARAT_MODELS=folder), cwd="/")
            expect(("no such model" in found.stderr.decode()) is False, f"{name} is not found")


def test_ls_lists_a_file_whose_time_no_calendar_has():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        model = pathlib.Path(folder) / "old.gguf"
        shutil.copy(FIXTURES / "e2b-q8_0.gguf", model)
        late = 67768036191676800 + 86400 * 2
        os.utime(model, (late, late))
        if int(model.stat().st_atime) != late:
            raise program.Skip("files here cannot have such a time")
        text = listed(folder)
        expect(re.search(r"^old +Q8_0 .* - +/", text, re.MULTILINE), text)


def test_ls_without_models_is_no_error():
    with tempfile.TemporaryDirectory() as folder:
        link = pathlib.Path(folder) / "carat"
        shutil.copy(program.PROGRAM, link)
        done = program.subprocess.run([str(link), "ls"], capture_output=True, cwd=folder,
                                      env=environment())
        expect_status(done, 0)
        expect(done.stdout == b"" and b"no model was found" in done.stderr, str(done))
    expect_error(carat("ls", "demo"), 2, "unexpected argument demo")


def test_show_names_quantisation_and_size():
    for name, quantisation in (("e2b-q8_0", "Q8_0"), ("12b-q4_k", "Q4_K"), ("26b-q4_0", "Q4_0")):
        path = FIXTURES / f"{name}.gguf"
        done = carat("show", path)
        expect_status(done, 0)
        text = done.stdout.decode()
        expect(re.search(rf"^quantisation +{quantisation}( - \w+)? \(.*\d %", text, re.MULTILINE),
               text[:600])
        expect(f"({path.stat().st_size} bytes)" in text, text[:600])
        shown = json.loads(carat("show", path, "--json").stdout)
        expect(shown["quantisation"].startswith(quantisation), shown["quantisation"])
        total = sum(t["bytes"] for t in shown["tensors"])
        first, share = re.match(r"(\w+) ([\d.]+) %", shown["types"]).groups()
        counted = sum(t["bytes"] for t in shown["tensors"] if t["type"] == first)
        expect(abs(100 * counted / total - float(share)) < 0.06, shown["types"])


def test_devices_are_readable():
    done = carat("devices")
    expect_status(done, 0)
    lines = done.stdout.decode().splitlines()
    expect(any(re.match(r"cpu 0 +\S.*, [\d.]+ GiB, [\d.]+ GiB free", line) for line in lines),
           str(lines))
    rows = json.loads(carat("devices", "--json").stdout)
    expect(len(rows) == len(lines), f"{len(rows)} devices, {len(lines)} lines")
    expect({"cpu", "ref"} <= {row["backend"] for row in rows}, str(rows))
    expect("{" not in carat("doctor").stdout.decode(), "doctor prints JSON")
    expect(carat("--list-devices").stdout.count(b"\n") == len(lines), "--list-devices")


def test_a_default_model_leaves_the_arguments_to_the_prompt():
    env = environment(CARAT_MODEL=MODEL, CARAT_MODELS=str(FIXTURES))
    by_default = carat("tokenize", "Hello there", "--json", env=env)
    expect(by_default.stdout == carat("tokenize", MODEL, "Hello there", "--json").stdout, "text")
    named = carat("tokenize", "12b-q4_k", "Hello there", "--json", env=env)
    expect(named.stdout == carat("tokenize", FIXTURES / "12b-q4_k.gguf", "Hello there",
                                 "--json").stdout, "a model's name goes first")
    expect_error(carat("show", "nosuch", env=env), 3, "nosuch: no such model")
    for command in (["show"], ["bench", "-p", "4", "-n", "0", "-r", "1"], ["detokenize", "5"],
                    ["run", "README.md", "-n", "1"], ["plan"]):
        expect_status(carat(*command, env=env), 0)


def test_what_takes_no_arguments_says_so():
    for command in ("ls", "devices", "doctor", "version", "man"):
        done = carat(command, "more")
        expect_error(done, 2, f"{command}: unexpected argument more")
        expect(done.stderr.decode().endswith(f"hint: usage: carat {command}\n"), str(done.stderr))


def test_a_download_without_a_home_says_what_to_name():
    if not {"libcurl", "gnutls", "jansson"} <= set(program.libraries().split()):
        raise program.Skip("built without libcurl, GnuTLS or jansson")
    expect_error(carat("pull", "hf:u/r", env=environment(HOME="")), 1, "HOME", "--dir")


if __name__ == "__main__":
    program.main(globals())
