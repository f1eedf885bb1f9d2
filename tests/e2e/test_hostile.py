#!/usr/bin/env python3
"""Requests and texts that are made to cost much: each is done or refused with a reason, within a
bound of memory. The unit tests compare what they cost.

usage: tests/e2e/test_hostile.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import json
import resource
import tempfile

import program
from program import (MODEL, carat, environment, expect, expect_error, expect_status,
                     is_sanitized, need_demo, need_json)

MB = 1 << 20
FEW = environment(CARAT_THREADS="2")  # each takes address space for its stack


def bounded(megabytes):
    """For the child: limits its address space."""
    is_bounded = not is_sanitized()

    def limit():
        if is_bounded:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes * MB, megabytes * MB))
    return limit


def template(request, megabytes=300):
    """The prompt of a request: a text of JSON, or what becomes one."""
    need_json()
    text = request if isinstance(request, str) else json.dumps(request)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        return carat("template", "--size", "small", file.name, env=FEW,
                     preexec_fn=bounded(megabytes))


def with_tools(*schemas):
    return {"messages": [{"role": "user", "content": "x"}],
            "tools": [{"function": {"name": "f", "parameters": s}} for s in schemas]}


def with_results(calls, results):
    return {"messages": [{"role": "assistant", "tool_calls": calls}] +
            [{"role": "tool", "tool_call_id": "a", "content": "x"}] * results}


# ---- Requests that amplify --------------------------------------------------------------------

def test_references_to_many_keys_are_refused():
    tool = {"$defs": {"d": {f"k{i}": 0 for i in range(4090)}},
            "allOf": [{"$ref": "#/$defs/d"}] * 62}
    expect_error(template(with_tools(*[tool] * 4)), 2, "tools[0].function: parameters: at most",
                 "at most 16384 keys expected in all tools")


def test_a_long_description_after_many_references_is_refused():
    tool = {"$defs": {"d": {"type": "string", "description": "x" * 500000}}, "type": "object",
            "properties": {f"p{i}": {"$ref": "#/$defs/d"} for i in range(2400)}}
    expect_error(template(with_tools(tool)), 2, "at most 33554432 bytes", "repeated each time")


def test_references_that_double_are_refused():
    tool = {"$defs": {f"d{i}": {"type": "object", "properties":
                                {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "lr"}}
                      for i in range(40)} | {"d40": {"type": "string"}},
            "properties": {"x": {"$ref": "#/$defs/d0"}}}
    expect_error(template(with_tools(tool)), 2, "nesting of at most 64")


def test_many_properties_are_refused():
    tool = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(100000)}}
    expect_error(template(with_tools(tool)), 2, "at most 16384 keys")


def test_a_long_name_of_a_call_is_refused():
    calls = [{"id": "a", "function": {"name": "n" * 500000}}]
    expect_error(template(with_results(calls, 8000)), 2,
                 "tool_calls[0].function: name: at most 256 bytes expected, 500000 found")


def test_results_of_many_calls_are_rendered():
    calls = [{"id": "a", "function": {"name": f"f{i}"}} for i in range(1024)]
    done = template(with_results(calls, 20000))
    expect_status(done, 0)
    expect(done.stdout.count(b"response:f1023{") == 20000, "results")
    calls.append(calls[0])
    expect_error(template(with_results(calls, 1)), 2, "at most 1024 expected, 1025 found")


def test_large_honest_requests_are_rendered():
    done = template({"messages": [{"role": "user", "content": "x" * 10000000}]})
    expect_status(done, 0)
    expect(len(done.stdout) > 10000000, "one long text")
    done = template({"messages": [{"role": "user", "content": "x"}] * 50000})
    expect_status(done, 0)
    expect(done.stdout.count(b"<|turn>user") == 50000, "many messages")
    done = template({"messages": [{"role": "user", "content": "x"}],
                     "tools": [{"function": {"name": f"f{i}"}} for i in range(10000)]})
    expect_status(done, 0)
    expect(done.stdout.count(b"<|tool>") == 10000, "many tools")


# ---- JSON -------------------------------------------------------------------------------------

def test_json_that_is_none_is_refused_with_its_place():
    for text in ("", "\0" * 100, "\ufeff{}", "null", "1", '"x"', '{"messages":[]} x',
                 '{"x":1e999}', '{"x":' + "9" * 400 + "}", '{"a\\u0000b":1}',
                 '{"messages":[{"role":"user","content":"\\ud800"}]}', "[" * 1000000,
                 '{"a":' * 100000, "[" * 2049 + "]" * 2049):
        expect_error(template(text), 2, "not valid JSON: line 1, column ")


def test_json_that_is_too_long_is_refused():
    expect_error(template("[" + "1," * (1 << 24) + "1]"), 2,
                 "JSON: at most 33554432 bytes expected, 33554435 found")


def test_json_of_too_many_values_is_refused_before_it_takes_memory():
    """Commas of texts are none of values; the arguments of all calls count together."""
    most = 1 << 20
    expect_error(template("[" + "1," * most + "1]"), 2,
                 f"JSON: at most {most} values expected, {most + 1} found")
    text = {"messages": [{"role": "user", "content": "\\\"," * (2 * most)}]}
    expect_status(template(text), 0)
    arguments = '{"a":[' + "1," * (most // 2) + "1]}"
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}}] * 2
    expect_error(template({"messages": [{"role": "user", "content": "x"},
                                        {"role": "assistant", "tool_calls": calls}]}), 2,
                 f"messages: at most {most} values expected")


def test_deep_json_is_refused():
    for text in ("[" * 2000 + "]" * 2000, '{"messages":' + "[" * 200 + "]" * 200 + "}"):
        expect_error(template(text), 2, "nesting of at most 128")


def test_requests_of_wrong_kinds_are_refused_by_field():
    for request, words in (([], "request"), ({}, "messages"), ({"messages": {}}, "messages"),
                           ({"messages": []}, "messages"), ({"messages": [1]}, "messages[0]"),
                           ({"messages": [{"role": 1}]}, "messages[0].role"),
                           (with_tools(5), "tools[0].function: parameters"),
                           (with_tools({"properties": [1]}), "properties"),
                           (with_tools({"properties": {"x": {"$ref": "http://x/y"}}}), "$ref")):
        expect_error(template(request), 2, words + ":", "expected")


# ---- Prompts ----------------------------------------------------------------------------------

def test_a_prompt_that_cannot_fit_is_refused_before_it_is_read_whole():
    text = b"a" * (100 * MB)
    done = carat("run", need_demo(), "-q", stdin=text[:20 * MB], env=FEW, preexec_fn=bounded(300))
    expect_error(done, 2, "prompt: ", "tokens of at most", "bytes or more found")
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        for more in ([], ["--raw"]):
            done = carat("run", need_demo(), "-q", "-f", file.name, *more,
                         env=FEW, preexec_fn=bounded(300))
            expect_error(done, 2, "prompt: ", "tokens of at most")


def test_a_smaller_context_refuses_shorter_prompts():
    text = b"a" * 100000
    done = carat("run", MODEL, "-q", "-c", "64", "-n", "1", stdin=text)
    expect_error(done, 2, "63 tokens of at most")


def test_odd_texts_of_a_megabyte_are_tokenized():
    for unit in (b"a", b" ", b"\n", b"<", b"<|turn>", b"\xff", b"\0", "\u2581".encode(), b"\t1"):
        done = carat("tokenize", MODEL, "--json", "--special", stdin=unit * (MB // len(unit) // 4),
                     env=FEW, preexec_fn=bounded(400))
        expect_status(done, 0)
        expect(len(json.loads(done.stdout)["ids"]) > 1000, repr(unit))


if __name__ == "__main__":
    program.main(globals())
