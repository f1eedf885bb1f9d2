#!/usr/bin/env python3
"""The config file: where it is looked for, what goes before what, and what is refused.

usage: tests/e2e/test_config.py PROGRAM [WORDS]
"""
import contextlib
import json
import os
import pathlib
import re
import tempfile

import program
from program import FIXTURES, MODEL, carat, environment, expect, expect_error, expect_status


@contextlib.contextmanager
def config(text):
    """A file with this text (str or bytes); yields its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        yield str(path)


def shown(*words, env=None):
    """{option: (value, origin, line)} of what is not built in, for `carat config`."""
    done = carat("config", *words, "--json", env=env)
    expect_status(done, 0)
    return {o["name"]: (o["value"], o["origin"], o["line"])
            for o in json.loads(done.stdout)["options"] if o["origin"] != "built-in"}


LAYERS = """temp = 0.1
[default]
top-k = 11
seed = 5
stop = a
stop = b
[e2b-q8_0]
seed = 6
stats = on
stop = c
"""


def test_flags_go_before_environment_model_and_default():
    with config(LAYERS) as path:
        env = environment(CARAT_CONFIG=path, CARAT_TOP_K="12", CARAT_STATS="off")
        values = shown("run", MODEL, env=env)
        expect(values == {"temp": ("0.1", "default", 1), "seed": ("6", "model", 8),
                          "stop": ("c", "model", 10), "top-k": ("12", "environment", None),
                          "stats": ("off", "environment", None)}, str(values))
        done = carat("run", MODEL, "hi", "--json", "-n", 2, "--seed", 7, env=env)
        expect(json.loads(done.stdout)["seed"] == 7, "a flag")
        done = carat("run", MODEL, "hi", "--json", "-n", 2, env=env)
        expect(json.loads(done.stdout)["seed"] == 6, "the section of the model")
        expect(b"tokens/s" not in done.stderr, "CARAT_STATS=off")


def test_a_section_is_a_model_as_typed_or_its_file():
    with config(LAYERS) as path:
        env = environment(CARAT_CONFIG=path, CARAT_MODELS=str(FIXTURES))
        for model in (MODEL, "e2b-q8_0", "e2b-q8_0.gguf"):
            expect(shown("run", model, env=env)["seed"] == ("6", "model", 8), model)
        expect(shown("run", "other", env=env)["seed"] == ("5", "default", 4), "another model")
        expect(shown("run", env=env)["seed"] == ("5", "default", 4), "no model")
    with config(f"model = e2b-q8_0\n{LAYERS}") as path:
        values = shown("run", env=environment(CARAT_CONFIG=path))
        expect(values["seed"] == ("6", "model", 9), f"the model of [default]: {values}")
        done = carat("run", "hi", "--json", "-n", 1,
                     env=environment(CARAT_CONFIG=path, CARAT_MODELS=str(FIXTURES)))
        expect(json.loads(done.stdout)["seed"] == 6, "a prompt where the model is configured")


def test_the_users_file_goes_before_the_systems():
    with tempfile.TemporaryDirectory() as home:
        path = pathlib.Path(home) / "carat/config"
        path.parent.mkdir()
        path.write_text("seed = 9\n", encoding="utf-8")
        env = environment(XDG_CONFIG_HOME=home, CARAT_CONFIG="")
        expect(shown("run", env=env) == {"seed": ("9", "default", 1)}, "$XDG_CONFIG_HOME")
        other = pathlib.Path(home) / ".config/carat/config"
        other.parent.mkdir(parents=True)
        other.write_text("seed = 8\n", encoding="utf-8")
        env = environment(HOME=home, CARAT_CONFIG="")
        expect(shown("run", env=env) == {"seed": ("8", "default", 1)}, "~/.config")
        expect(shown("run", "--config", str(path), env=env)["seed"][0] == "9", "--config")
        expect(shown("run", "--config", "none", env=env) == {}, "--config none")


def test_unknown_keys_name_the_line_and_what_is_near():
    with config("\ntemp = 1\ntop_k = 3\n") as path:
        expect_error(carat("run", MODEL, "hi", "--config", path), 2, f"{path}:3: unknown key top_k",
                     "did you mean top-k?")
    with config("[another]\nzebra-stripes = 3\n") as path:  # sections of other models too
        expect_error(carat("run", MODEL, "hi", "--config", path), 2, f"{path}:2: unknown key")
    for key in ("help", "config"):
        with config(f"{key} = on\n") as path:
            expect_error(carat("ls", "--config", path), 2, f"{path}:1: {key} is not for config")


def test_values_are_checked_whatever_the_command():
    with config("[default]\ntop-p = 3\n") as path:
        for words in (("run", MODEL, "hi"), ("ls",), ("config",)):
            expect_error(carat(*words, "--config", path), 2, f"{path}:2: top-p", "0 to 1")
    with config("format = csv\nctx-size = 8\nrepetitions = 2\n") as path:
        expect_status(carat("tokenize", MODEL, "hi", "--config", path), 0)  # bench has them
    with config("seed = 1\nseed = 2\n") as path:
        expect_error(carat("run", MODEL, "--config", path), 2, f"{path}:2: seed is given on line")


def test_hostile_files_are_refused():
    cases = {"a line of 1 MB": b"temp = " + b"9" * 1000000, "NUL": b"temp = 1\n\0\n",
             "no UTF-8": b"temp = \xff\n", "too long": b"#\n" * (1 << 20),
             "sections": b"[" * 100000, "keys": b"seed = 1\n" * 5000,
             "escapes": b"\x1b[2J\x07 = 3\n", "binary": bytes(range(1, 256)) * 64}
    for name, text in cases.items():
        with config(text) as path:
            done = carat("run", MODEL, "hi", "--config", path)
            expect_error(done, 2, path)
            expect(b"\x1b" not in done.stderr, f"{name}: an escape reaches the terminal")


def test_what_is_no_file_is_not_waited_for():
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        for path in (pipe, folder, "/dev/zero"):
            expect_error(carat("ls", "--config", path), 2, path, "no regular file")
        expect_error(carat("ls", "--config", folder + "/none"), 2, "No such file")


def test_a_misspelled_variable_is_named():
    env = environment(CARAT_API_KEY_FIEL="keys", CARAT_MODELS="/nosuch", CARAT_TEMP="1",
                      CARAT_LOG_FORMAT="json", CARAT_P="x")
    for command in (["config"], ["serve", "nosuch"]):
        said = carat(*command, env=env).stderr.decode()
        named = re.findall(r"(?m)^carat: note: (CARAT_\w+): no option", said)
        expect(sorted(named) == ["CARAT_API_KEY_FIEL", "CARAT_P"], said)
    expect(b"note" not in carat("config", "-q", env=env).stderr, "--quiet")


def test_config_shows_every_option_with_its_origin():
    with config("temp = 0.5\n") as path:
        done = carat("config", "run", "e4b", "--show", "--config", path)
        expect_status(done, 0)
        rows = {line.split()[0]: line for line in done.stdout.decode().splitlines()
                if not line.startswith("#")}
        expect(rows["temp"].split()[1:] == ["0.5", "[default],", "line", "1"], rows["temp"])
        expect(rows["seed"].split()[1:] == ["-1", "built", "in"], rows["seed"])
        expect("help" not in rows, "help is no setting")
    expect_error(carat("config", "nosuch"), 2, "unknown command nosuch")
    expect_error(carat("config", "run", "m", "x"), 2, "unexpected argument x")


def test_help_and_version_need_no_config():
    with config("nonsense\n") as path:
        env = environment(CARAT_CONFIG=path)
        for words in (("help",), ("version",), ("man",), ("completion", "bash"), ("run", "--help")):
            expect_status(carat(*words, env=env), 0)


if __name__ == "__main__":
    program.main(globals())
