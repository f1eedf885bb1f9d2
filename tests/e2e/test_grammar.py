#!/usr/bin/env python3
"""Answers held to a form: --json-schema, --grammar, --format and requests, with models that would
write something else. What comes out is read back and checked."""
import json
import os
import pathlib
import re
import tempfile

import program
from program import (MODEL, ROOT, carat, expect, expect_error, expect_status, need_demo, need_json)
from schema_check import problems

SCHEMAS = json.loads((ROOT / "tests/golden/schemas.json").read_text())
HELLO = [{"role": "user", "content": "hello"}]
# A string goes on for long at this temperature, unless its end is favoured.
QUOTES = [json.loads(carat("tokenize", MODEL, "--json", text).stdout)["ids"][0]
          for text in ('"', "}", "]")] if program.PROGRAM else []
HOT = ["--temp", 2, "--top-k", 0, "--top-p", 1, *(f"--logit-bias={id}=6" for id in QUOTES)]


def run(*arguments, stdin=b"", model=MODEL):
    need_json()
    done = carat("run", model, *arguments, "--json", "-q", stdin=stdin)
    expect_status(done, 0)
    return json.loads(done.stdout)


def test_every_schema_is_kept():
    """A random model at temperature 2: every answer that ends by itself fits its schema."""
    n_ended = 0
    for seed, entry in enumerate(SCHEMAS):
        result = run("hello", "--json-schema", json.dumps(entry["schema"]), "-n", 200, "--seed",
                     seed, *HOT)
        if result["finish"] != "stop":
            continue
        n_ended += 1
        found = list(problems(entry["schema"], json.loads(result["text"])))
        expect(not found, f"{entry['name']}: {found}: {result['text']}")
    expect(n_ended >= len(SCHEMAS) * 3 / 4, f"{n_ended} answers of {len(SCHEMAS)} ended")


def test_a_trained_model_fills_in_a_schema():
    name = need_demo()
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                               "colour": {"enum": ["red", "green", "blue"]}},
              "required": ["name", "colour"]}
    for temperature in (0, 1, 2):
        result = run("Tell me a story about a small dog.", "-j", json.dumps(schema), "--temp",
                     temperature, "--seed", 3, model=name)
        expect(not list(problems(schema, json.loads(result["text"]))), result["text"])
        expect(result["finish_reason"] == "stop", str(result))


def test_schemas_come_from_files_too():
    schema = '{"enum":["yes","no"]}'
    options = ["-n", 20, "--seed", 1]
    inline = run("hello", "--json-schema", schema, *options)
    expect(json.loads(inline["text"]) in ("yes", "no"), inline["text"])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "schema.json")
        pathlib.Path(path).write_text(schema)
        for flag in ("--json-schema", "-j", "-jf", "--json-schema-file"):
            expect(run("hello", flag, path, *options)["text"] == inline["text"], flag)
        pathlib.Path(path).write_text('{\n "type": "king"\n}')
        expect_error(carat("run", MODEL, "x", "-jf", path), 2, path, "#/type")
        pathlib.Path(path).write_text('{\n "type": }')
        expect_error(carat("run", MODEL, "x", "-jf", path), 2, path, "line 2")
        expect_error(carat("run", MODEL, "x", "-jf", path, "-o", path), 2, "would be lost")
        expect_error(carat("run", MODEL, "x", "-jf", path + "x"), 2, path + "x")
        expect_error(carat("run", MODEL, "x", "-j", path + "x"), 2, path + "x", "hint")
    expect_error(carat("run", MODEL, "x", "-j", '{"type": 3'), 2, "--json-schema: ", "line 1")
    for option in "--json-schema", "--grammar-file":
        expect_error(carat("run", MODEL, "x", option, ""), 2, option + ": a file", "nothing found")


def test_grammars():
    grammar = "root ::= word (\", \" word)*\nword ::= [a-z]{3}"
    options = ["-n", 40, "--seed", 5, "--temp", 2]
    with tempfile.NamedTemporaryFile("w", suffix=".gbnf") as file:
        file.write(grammar)
        file.flush()
        texts = {run("hello", *flag, *options)["text"]
                 for flag in (["--grammar", grammar], ["--grammar", file.name],
                              ["--grammar-file", file.name])}
    text, = texts
    expect(re.fullmatch(r"[a-z]{3}(, [a-z]{3})*(,? ?[a-z]{0,2})", text), text)
    raw = run("hello", "--raw", "--grammar", 'root ::= "yes" | "no"', *options)
    expect(raw["text"] in ("yes", "no") and raw["finish"] == "stop", str(raw))
    expect_error(carat("run", MODEL, "x", "--grammar", "root ::= ("), 2, "--grammar: ", "line 1")
    expect_error(carat("run", MODEL, "x", "--grammar", "root ::= other"), 2, "line 1, column 10")
    expect_error(carat("run", MODEL, "x", "--grammar", "/nowhere.gbnf"), 2, "/nowhere.gbnf", "hint")


def test_a_format_and_what_excludes_it():
    result = run("hello", "--format", "json", "-n", 200, "--seed", 2, *HOT)
    if result["finish"] == "stop":
        expect(isinstance(json.loads(result["text"]), dict), result["text"])
    expect(result["text"].startswith("{"), result["text"])
    need_json()
    expect_error(carat("run", MODEL, "x", "--format", "xml"), 2, "xml", "json")
    for pair in (["--format", "json", "-j", "{}"], ["--grammar", 'root ::= "a"', "-j", "{}"]):
        expect_error(carat("run", MODEL, "x", *pair), 2, "exclude each other")
    env = program.environment(CARAT_FORMAT="md", CARAT_GRAMMAR='root ::= "b"')
    done = carat("run", MODEL, "x", "-q", env=env)
    expect(done.stdout == b"b\n", str(done))
    done = carat("run", MODEL, "x", "-q", "-j", '{"const":1}', env=env)
    expect(done.stdout == b"1\n", "flags win over the environment")


def test_requests_have_a_form():
    need_json()

    def ask(request, *flags):
        done = carat("run", MODEL, "--request", "-", "--json", "-q", *flags,
                     stdin=json.dumps({"messages": HELLO, "max_tokens": 40, "seed": 3, **request})
                     .encode())
        expect_status(done, 0)
        return json.loads(done.stdout)
    schema = {"enum": ["yes", "no"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}
    expect(json.loads(ask({"response_format": form})["text"]) in ("yes", "no"), "response_format")
    expect(ask({"response_format": {"type": "json_object"}})["text"].startswith("{"), "object")
    expect(ask({"response_format": form}, "-j", '{"const":7}')["text"] == "7", "flags win")
    expect(ask({"grammar": 'root ::= "b"'})["text"] == "b", "grammar")
    done = carat("run", MODEL, "--request", "-", stdin=json.dumps(
        {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema":
                                                {"schema": {"not": {}}}}}).encode())
    expect_error(done, 2, "standard input", "response_format.json_schema.schema", "not")


def test_calls_are_forced_and_fit():
    """A random model at temperature 2 calls a tool, and its arguments fit."""
    need_json()
    entries = [e for e in SCHEMAS[::2] if e["schema"].get("type") == "object"
               and "patternProperties" not in json.dumps(e)]
    n_called = 0
    for seed, entry in enumerate(entries):
        tool = {"type": "function", "function": {"name": "act", "parameters": entry["schema"],
                                                 "strict": True}}
        request = {"messages": HELLO, "tools": [tool], "tool_choice": "required",
                   "parallel_tool_calls": False, "seed": seed, "max_tokens": 300,
                   "temperature": 2, "top_k": 0, "top_p": 1,
                   "logit_bias": {str(id): 6 for id in [*QUOTES, 52]}}
        done = carat("run", MODEL, "--request", "-", "--json", "-q",
                     stdin=json.dumps(request).encode())
        expect_status(done, 0)
        result = json.loads(done.stdout)
        if result["finish"] != "stop":
            continue
        call, = result["tool_calls"]
        expect(call["name"] == "act" and call.get("complete", True), str(call))
        found = list(problems(entry["schema"], call["arguments"]))
        expect(not found, f"{entry['name']}: {found}: {call}")
        expect(result["finish_reason"] == "tool_calls" and result["text"] == "", str(result))
        n_called += 1
    expect(n_called >= len(entries) / 2, f"{n_called} of {len(entries)}")


def test_no_call_where_none_may_be():
    need_json()
    tool = {"type": "function", "function": {"name": "act"}}
    request = {"messages": HELLO, "tools": [tool], "seed": 1, "max_tokens": 20,
               "logit_bias": {"48": 90}}  # <|tool_call>
    outputs = {}
    for choice in ("auto", "none"):
        done = carat("run", MODEL, "--request", "-", "--json", "-q",
                     stdin=json.dumps({**request, "tool_choice": choice}).encode())
        expect_status(done, 0)
        outputs[choice] = json.loads(done.stdout)
    expect(outputs["none"]["tool_calls"] == [], "banned")
    calls = outputs["auto"]["tool_calls"]
    expect(calls and calls[0] == {"name": "act", "arguments": {}}, str(calls))


def test_chat_takes_a_form():
    need_json()
    done = carat("chat", MODEL, "-j", '{"const":[1,2]}', "-q", stdin=b"hi\nagain\n")
    expect_status(done, 0)
    values = [json.loads(line) for line in done.stdout.splitlines() if line]
    expect(values == [[1, 2], [1, 2]], str(done.stdout))


if __name__ == "__main__":
    program.main(globals())
