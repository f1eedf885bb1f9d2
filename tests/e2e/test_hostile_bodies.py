#!/usr/bin/env python3
"""Bodies that are made to hurt: each is refused with a reason, or done, within a bound of time, and
the server answers afterwards.

usage: tests/e2e/test_hostile_bodies.py PROGRAM [NAME...]   (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import json
import time

import program
from program import expect
from server import Server

SECONDS = 60  # of one request, on a machine that does other things too
JSON = {"Content-Type": "application/json"}
CHATS = ("/v1/chat/completions", "/api/chat", "/v1/messages")
USER = [{"role": "user", "content": "Hi"}]
BIG = 1 << 20


def post(server, path, body, expected=(400,), headers=JSON):
    """The text of the error of a reply whose status is one of these."""
    if isinstance(body, dict):
        body = json.dumps(body)
    data = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    begin = time.monotonic()
    status, _, reply = server.ask("POST", path, data, headers)
    passed = time.monotonic() - begin
    shown = f"{path} {data[:120]!r} ({len(data)} bytes): {status} {str(reply)[:200]}"
    expect(status in expected, shown)
    expect(passed < SECONDS, f"{passed:.1f} s: {shown}")
    if status < 400:
        return ""
    error = reply["error"]
    text = error if isinstance(error, str) else error["message"]
    expect(text, f"no message: {shown}")
    expect("/root" not in text and "/home" not in text and str(program.ROOT) not in text, shown)
    return text


def chat(**members):
    return {"messages": USER, "max_tokens": 1, **members}


def check_canary(server):
    status, body = server.chat("Hi", max_tokens=2)
    expect(status == 200 and body["choices"], f"the canary: {status} {body}")


# ---- JSON -------------------------------------------------------------------------------------

def test_what_is_no_json_is_a_400():
    deep = "[" * 100000
    texts = ["", "{", "nul", deep, deep + "]" * 100000, '{"a":' * 3000 + "1" + "}" * 3000,
             '{"messages":1e400}', '{"n":NaN}', '{"a":"\\ud800"}',
             b'{"a":"\xff\xfe"}', b'\xef\xbb\xbf{"messages":[]}', '{"messages":[]} x', "[]", "7",
             '"text"', b'{"a":"\x00"}', b'{"a\\u0000b":1}', '{"messages":[]}{"messages":[]}']
    with Server("demo") as server:
        for text in texts:
            for path in (*CHATS, "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"):
                post(server, path, text)
        check_canary(server)


def test_large_documents_are_bounded():
    many_keys = "{" + ",".join(f'"k{i}":0' for i in range(BIG)) + "}"
    many_items = '{"messages":[' + ",".join(["0"] * BIG) + "]}"
    with Server("demo") as server:
        expect("members" in post(server, CHATS[0], many_keys), "the members are counted")
        expect("messages" in post(server, CHATS[0], many_items), "the messages are counted")
        long = chat(messages=[{"role": "user", "content": "x" * (8 * BIG)}])
        expect("context" in post(server, CHATS[0], long), "the context is named")
        post(server, CHATS[0], b"x" * (65 * BIG), (413,))
        many = "[" + "1," * BIG + "1]"
        call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": many}
        for path, body in ((CHATS[0], many), ("/v1/responses", {"input": [call]})):
            expect("values" in post(server, path, body), "the values are counted")
        check_canary(server)


def test_duplicate_members_and_nul_in_texts_are_done():
    with Server("demo") as server:
        body = '{"max_tokens":1,"max_tokens":2,"messages":[{"role":"user","content":"a\\u0000b"}]}'
        post(server, CHATS[0], body, (200,))
        check_canary(server)


# ---- Parameters -------------------------------------------------------------------------------

INTEGERS = ("n", "max_tokens", "max_completion_tokens", "top_k", "top_logprobs", "seed",
            "repeat_last_n", "reasoning_budget", "thinking_budget_tokens",
            "dry_allowed_length", "dry_penalty_last_n", "mirostat")
REALS = ("temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty",
         "frequency_penalty", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold",
         "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "dry_base", "mirostat_tau",
         "mirostat_eta")


def test_integers_of_every_size_are_refused_or_done():
    values = [-1 << 63, -1 << 31, -2, -1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1, 1.5, "1", True, [], {}]
    with Server("demo") as server:
        for name in INTEGERS:
            for value in values:
                more = {"max_tokens": 1, "logprobs": True, name: value}
                if name.startswith("max_"):
                    more = {**more, "stop": ["e", "a", "o", "i", "u", "n", " "]}
                post(server, CHATS[0], chat(**more), (200, 400))
            expect(name in post(server, CHATS[0], chat(**{name: "1"})), f"{name} is not named")
        check_canary(server)


def test_reals_out_of_range_are_named():
    with Server("demo") as server:
        for name in REALS:
            for value in (-1e308, 1e308, -1000, 1000, "0.5", [], True):
                text = post(server, CHATS[0], chat(**{name: value}))
                expect(text.startswith(name), f"{name}: {text}")
            post(server, CHATS[0], chat(**{name: 1}), (200,))
        check_canary(server)


def test_lists_that_are_too_long_or_wrong_are_named():
    cases = {
        "logit_bias": [{str(i): 1 for i in range(100000)}, {"-1": 1}, {"99999999": 1}, {"x": 1},
                       {"1": "x"}, [], "x", {"99999999999999999999": 1}],
        "stop": ["", [""], ["x"] * 10000, "x" * BIG, [1], {}, "a\0b"],
        "tools": [[{"type": "function", "function": {"name": f"f{i}"}} for i in range(10000)],
                  {}, "x", [1], [{"type": "function"}], [{"type": "code"}],
                  [{"type": "function", "function": {"name": "x" * BIG}}]],
        "tool_choice": ["x", {}, 7, {"type": "function"}, "required"],
        "response_format": ["json", {"type": "x"}, {"type": "json_schema"}, {}],
        "modalities": [["audio"], "text"],
        "samplers": ["-", "kk", "top_k", "\0", "k\0", "é", "k" * BIG, 7, True, {}, [7], [[]],
                     ["top_k", None], ["top_k"] * 2, ["top_k\0"], [""], ["x" * BIG],
                     ["\u202e\x1b[2J"], ["infill"], ["adaptive_p"] * 9 + ["k"]],
        "stream": ["yes", 1], "stream_options": [[], {"include_usage": 1}], "model": [7, "x" * BIG],
    }
    with Server("demo") as server:
        for name, values in cases.items():
            for value in values:
                text = post(server, CHATS[0], chat(**{name: value}))
                expect(name.split("_")[0] in text, f"{name}: {text[:200]}")
        check_canary(server)


def test_messages_that_are_wrong_are_named():
    cases = [[], 7, [7], [{}], [{"role": 7}], [{"role": "wizard", "content": "x"}],
             [{"role": "user", "content": 7}], [{"role": "user", "content": [7]}],
             [{"role": "user", "content": [{"type": "text", "text": 7}]}],
             [{"role": "user", "content": [{"type": "video_url"}]}],
             [{"role": "assistant", "tool_calls": 7}],
             [{"role": "assistant", "tool_calls": [{"function": {"name": 7}}]}],
             [{"role": "assistant",
               "tool_calls": [{"function": {"name": "f", "arguments": [7]}}]}],
             USER * 100000]
    with Server("demo") as server:
        for messages in cases:
            text = post(server, CHATS[0], chat(messages=messages))
            expect(text.startswith("messages"), f"{str(messages)[:80]}: {text}")
        orphan = [*USER, {"role": "tool", "tool_call_id": "x", "content": "y"}]
        post(server, CHATS[0], chat(messages=orphan), (200, 400))
        check_canary(server)


def test_prompts_of_completions_are_bounded():
    cases = [[], [-1], [1 << 31], [1 << 62], [10**7], [1.5], [[]], [["x"]], 7, {}, None,
             ["x"] * 1000, [1] * BIG, "x " * BIG]
    with Server("demo") as server:
        for prompt in cases:
            post(server, "/v1/completions", {"prompt": prompt, "max_tokens": 1})
        for prompt in ("", " " * 500, "\n" * 500, "<bos><turn|><|tool_call>", "\u0301" * 200):
            post(server, "/v1/completions", {"prompt": prompt, "max_tokens": 1}, (200, 400))
        check_canary(server)


# ---- Schemas and grammars ---------------------------------------------------------------------

def nested(depth):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_schemas_that_explode_are_refused_or_done():
    pairs = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    cases = [
        {"$ref": "#"}, {"$ref": "http://127.0.0.1:1/x"}, {"$ref": "#/$defs/none"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "string", "pattern": "(a*)*b"}, {"type": "string", "pattern": "a{1,1000000}"},
        {"type": "string", "pattern": "(" * 60000}, {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9}, {"enum": [str(i) for i in range(100000)]},
        {"type": "object", "properties": {f"p{i}": pairs for i in range(2000)}}, nested(60),
        {"allOf": [{"anyOf": [{"type": "object"}] * 50}] * 50}, 7, "x", {"type": "unheard-of"},
    ]
    with Server("demo") as server:
        for schema in cases:
            form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
            post(server, CHATS[0], chat(response_format=form), (200, 400))
            post(server, CHATS[0], chat(json_schema=schema), (200, 400))
            tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
            post(server, CHATS[0], chat(tools=[tool]), (200, 400))
        post(server, CHATS[0], '{"json_schema":' + '{"items":' * 10000 + "{}" + "}" * 10001)
        check_canary(server)


def test_grammars_that_explode_are_refused():
    chain = "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5000)) + 'r5000 ::= "a"'
    cases = ["", "root ::= " + "(" * 60000, 'root ::= root "a"', 'other ::= "a"',
             "x" * BIG, 'root ::= "a"{1,1000000000}', "root ::= missing", 7, {}, []]
    with Server("demo") as server:
        for grammar in cases:
            post(server, CHATS[0], chat(grammar=grammar))
        post(server, CHATS[0], chat(grammar=chain), (200, 400))
        both = chat(grammar='root ::= "a"', json_schema={"type": "object"})
        expect("one of" in post(server, CHATS[0], both), "two forms at once")
        check_canary(server)


def test_types_of_content_are_checked():
    body = json.dumps(chat())
    with Server("demo") as server:
        packed = {**JSON, "Content-Encoding": "gzip"}
        post(server, CHATS[0], body, (415,), packed)
        post(server, CHATS[0], body, (200, 415), {"Content-Type": "text/plain"})
        check_canary(server)


program.main(globals())
