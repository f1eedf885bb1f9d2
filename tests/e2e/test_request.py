#!/usr/bin/env python3
"""Whole chat requests: `carat run --request`, with OpenAI's members, against the same answer asked
for by options."""
import json
import math
import os
import tempfile

import program
from program import MODEL, carat, expect, expect_error, expect_status, need_json

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "now", "description": "the time", "parameters":
        {"type": "object", "properties": {"zone": {"type": "string"}}}}}


def ask(request, *arguments, status=0, **more):
    """The result of a request that comes through a pipe."""
    need_json()
    done = carat("run", MODEL, "--request", "-", "--json", *arguments,
                 stdin=json.dumps(request).encode(), **more)
    expect_status(done, status)
    return json.loads(done.stdout)


def by_options(*arguments, **more):
    done = carat("run", MODEL, "hello", "--json", *arguments, **more)
    expect_status(done, 0)
    return json.loads(done.stdout)


def same(a, b, what):
    for key in ("text", "finish", "prompt_tokens", "generated_tokens", "seed"):
        expect(a[key] == b[key], f"{what}: {key}: {a[key]!r}, {b[key]!r} expected")


def test_members_act_as_options_do():
    sampled = {"messages": HELLO, "max_tokens": 9, "seed": 5, "temperature": 0.7, "top_p": 0.8,
               "top_k": 30, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    options = ["-n", 9, "--seed", 5, "--temp", 0.7, "--top-p", 0.8, "--top-k", 30,
               "--presence-penalty", 0.5, "--frequency-penalty", 0.25]
    expected = by_options(*options)
    same(ask(sampled), expected, "all members")
    same(ask({"messages": HELLO}, *options), expected, "all options")
    same(ask({**sampled, "seed": 1, "temperature": 2, "max_tokens": 3}, *options), expected,
         "options win")
    env = program.environment(CARAT_SEED="1", CARAT_TEMP="2", CARAT_MAX_TOKENS="3")
    same(ask(sampled, env=env), expected, "a request wins over the environment")
    same(ask({"messages": HELLO, "seed": 5, "max_completion_tokens": 4, "stream": True, "n": 1,
              "model": "any", "user": "u", "store": None}), by_options("-n", 4, "--seed", 5), "new")


def test_samplers_of_llama_server_act_as_options_do():
    begun = {"messages": HELLO, "max_tokens": 24, "seed": 5, "ignore_eos": True}
    plain = by_options("-n", 24, "--seed", 5, "--ignore-eos")
    for members, options in (
            ({"typical_p": 0.3}, ["--typical", 0.3]),
            ({"top_n_sigma": 0.2}, ["--top-nsigma", 0.2]),
            ({"xtc_probability": 1, "xtc_threshold": 0.05},
             ["--xtc-probability", 1, "--xtc-threshold", 0.05]),
            ({"dynatemp_range": 1, "dynatemp_exponent": 0.1},
             ["--dynatemp-range", 1, "--dynatemp-exp", 0.1]),
            ({"dry_multiplier": 9, "dry_base": 3, "dry_allowed_length": 1,
              "dry_penalty_last_n": 30, "dry_sequence_breakers": ["\n", "x"]},
             ["--dry-multiplier", 9, "--dry-base", 3, "--dry-allowed-length", 1,
              "--dry-penalty-last-n", 30, "--dry-sequence-breaker", "\\n",
              "--dry-sequence-breaker", "x"]),
            ({"mirostat": 2, "mirostat_tau": 1, "mirostat_eta": 0.5},
             ["--mirostat", 2, "--mirostat-ent", 1, "--mirostat-lr", 0.5])):
        expected = by_options("-n", 24, "--seed", 5, "--ignore-eos", *options)
        expect(expected["text"] != plain["text"], f"{options} change nothing")
        same(ask({**begun, **members}), expected, f"{members}")
        same(ask(begun, *options), expected, f"{options}")
    names = ["dry", "xtc", "temperature"]
    heated = {**begun, "temperature": 2, "top_k": 3, "top_p": 0.5, "xtc_probability": 1}
    hot = ["--temp", 2, "--top-k", 3, "--top-p", 0.5, "--xtc-probability", 1]
    texts = set()
    for value, options in ((names, ["--samplers", ";".join(names)]), ([], ["--samplers", "none"]),
                           ("dxt", ["--sampler-seq", "dxt"]),
                           (["top_p", "temperature"], ["--samplers", "top-p;temp"]),
                           (["temperature", "top_p"], ["--sampling-seq", "tp"])):
        expected = by_options("-n", 24, "--seed", 5, "--ignore-eos", *hot, *options)
        same(ask({**heated, "samplers": value}), expected, f"{value}")
        same(ask({**heated, "samplers": "k"}, *options), expected, "an option wins")
        texts.add(expected["text"])
    expect(len(texts) == 4, f"{texts}")
    same(ask({**begun, "samplers": None}), plain, "null")
    zeros = {"dry_multiplier": 0, "xtc_probability": 0, "typical_p": 1, "top_n_sigma": -1,
             "dynatemp_range": 0, "mirostat": 0, "dry_sequence_breakers": []}
    same(ask({**begun, **zeros}), plain, "neutral values")
    same(ask({**begun, "dry_multiplier": 9, "dry_allowed_length": 1, "dry_penalty_last_n": 0}),
         plain, "DRY that looks at nothing")


def test_a_file_recommends_samplers_and_options_and_requests_win():
    need_json()
    sampled = {"xtc_probability": 1.0, "xtc_threshold": 0.05, "min_p": 0.02,
               "penalty_repeat": 1.5, "penalty_last_n": 7, "sequence": "penalties;min-p;xtc;temp"}
    options = ["--xtc-probability", 1, "--xtc-threshold", 0.05, "--min-p", 0.02,
               "--repeat-penalty", 1.5, "--repeat-last-n", 7, "--samplers",
               "penalties;min_p;xtc;temperature"]
    more = ["-n", 24, "--seed", 5, "--ignore-eos"]
    request = {"messages": HELLO, "max_tokens": 24, "seed": 5, "ignore_eos": True}
    own = ["--xtc-probability", 0, "--min-p", 0, "--repeat-penalty", 1, "--sampler-seq",
           "edskytpmx"]
    with tempfile.TemporaryDirectory() as folder:
        file = program.model_with_keys(os.path.join(folder, "a.gguf"), **sampled)

        def answer(*arguments, asked=None):
            words = ["--request", "-"] if asked else ["hello", *more]
            done = carat("run", file, "--json", *words, *arguments,
                         stdin=json.dumps(asked).encode() if asked else b"")
            expect_status(done, 0)
            return json.loads(done.stdout)

        plain = by_options(*more)
        expected = by_options(*more, *options)
        expect(expected["text"] != plain["text"], "the samplers change nothing")
        same(answer(), expected, "the file")
        same(answer(*own), plain, "options win over the file")
        same(answer(asked=request), expected, "the file, with a request")
        same(answer(asked={**request, "xtc_probability": 0, "min_p": 0, "repeat_penalty": 1,
                           "samplers": "edskytpmx"}), plain, "a request wins over the file")
        shown = carat("show", file).stdout.decode()
        for words in ("min-p 0.02, xtc-probability 1, xtc-threshold 0.05, repeat-penalty 1.5, "
                      "repeat-last-n 7\n", "samplers       penalties;min_p;xtc;temperature\n"):
            expect(words in shown, shown)

        sampled = {"mirostat": 1, "mirostat_tau": 2.0, "sequence": "top_k;infill"}
        file = program.model_with_keys(os.path.join(folder, "b.gguf"), **sampled)
        same(answer(), by_options(*more, "--mirostat", 2, "--mirostat-ent", 2, "--samplers",
                                  "top_k"), "Mirostat")
        shown = carat("show", file).stdout.decode()
        for words in ("mirostat 2, mirostat-ent 2, mirostat-lr 0.1", "gets Mirostat 2",
                      'no sampler is called "infill"'):
            expect(words in shown, shown)
        sampling = json.loads(carat("show", file, "--json").stdout)["model"]["sampling"]
        expect((sampling["mirostat_tau"], sampling["samplers"]) == (2, ["top_k"]), f"{sampling}")
        for wrong in ({"penalty_repeat": float("nan")}, {"mirostat": 3}, {"sequence": 7},
                      {"penalty_last_n": -2}, {"xtc_probability": "often"}):
            file = program.model_with_keys(os.path.join(folder, "c.gguf"), **wrong)
            expect_error(carat("run", file, "hello"), 3, *wrong, "general.sampling.")


def test_a_request_can_ignore_the_end_and_bound_thoughts():
    request = {"messages": HELLO, "seed": 7, "max_tokens": 60}
    same(ask({**request, "ignore_eos": True}),
         by_options("--seed", 7, "-n", 60, "--ignore-eos"), "ignore_eos")
    off = by_options("--seed", 7, "-n", 60, "--think", "off")
    on = by_options("--seed", 7, "-n", 60, "--think", "on")
    expect(on["prompt_tokens"] > off["prompt_tokens"], "thinking has a prompt of its own")
    for name in ("reasoning_budget", "thinking_budget_tokens"):
        same(ask({**request, "enable_thinking": True, name: 0}), off, name)
        bounded = ask({**request, "enable_thinking": True, name: 1})
        expect(bounded["prompt_tokens"] == on["prompt_tokens"], f"{name} 1 thinks")


def test_a_template_shows_what_a_request_becomes():
    need_json()

    def prompt(**more):
        done = carat("template", MODEL, "-", stdin=json.dumps({"messages": HELLO, **more}).encode())
        expect_status(done, 0)
        return done.stdout
    plain, thinking = prompt(), prompt(enable_thinking=True)
    expect(plain != thinking, "thinking")
    for more, expected in (({"reasoning_effort": "high"}, thinking),
                           ({"chat_template_kwargs": {"enable_thinking": True}}, thinking),
                           ({"enable_thinking": True, "reasoning_budget": 0}, plain)):
        expect(prompt(**more) == expected, str(more))


def test_a_file_and_a_pipe_are_the_same():
    need_json()
    request = {"messages": HELLO, "max_tokens": 5, "seed": 3}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(request, file)
        file.flush()
        done = carat("run", MODEL, "--request", file.name, "--json", stdin=b"no part of the prompt")
        expect_status(done, 0)
        same(json.loads(done.stdout), ask(request), "file")
        path = file.name
        expect_error(carat("run", MODEL, "--request", path, "-o", path), 2, "would be lost")
    expect_error(carat("run", MODEL, "--request", path), 2, path)


def test_content_is_a_string_or_parts():
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    answer = [{"messages": [{"role": "user", "content": content}], "max_tokens": 4, "seed": 1}
              for content in ("hello", parts)]
    same(ask(answer[0]), ask(answer[1]), "parts")


def test_thinking():
    def tokens(**members):
        return ask({"messages": HELLO, "max_tokens": 1, **members})["prompt_tokens"]
    off, on = tokens(), tokens(enable_thinking=True)
    expect(on > off, "the prompt says that it may think")
    expect(tokens(reasoning_effort="medium") == on, "effort")
    expect(tokens(reasoning_effort="none") == off, "no effort")
    expect(tokens(chat_template_kwargs={"enable_thinking": True}) == on, "template")
    request = {"messages": HELLO, "max_tokens": 1, "enable_thinking": False}
    expect(ask(request, "--think", "on")["prompt_tokens"] == on, "--think wins")
    env = program.environment(CARAT_THINK="on")
    expect(ask(request, env=env)["prompt_tokens"] == off, "the request wins")
    del request["enable_thinking"]
    expect(ask(request, env=env)["prompt_tokens"] == on, "said nowhere else")


def test_tools_calls_and_results():
    plain = ask({"messages": HELLO, "max_tokens": 1})["prompt_tokens"]
    declared = ask({"messages": HELLO, "max_tokens": 1, "tools": [TOOL]})["prompt_tokens"]
    expect(declared > plain + 5, "tools are declared")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([TOOL], file)
        file.flush()
        given = ask({"messages": HELLO, "max_tokens": 1, "tools": []}, "--tools", file.name)
        expect(given["prompt_tokens"] == declared, "--tools wins")

    def talk(arguments, result):
        call = {"id": "call_1", "type": "function",
                "function": {"name": "now", "arguments": arguments}}
        messages = HELLO + [{"role": "assistant", "content": None, "tool_calls": [call]},
                            {"role": "tool", "tool_call_id": "call_1", "content": result}]
        return ask({"messages": messages, "max_tokens": 4, "seed": 1, "tools": [TOOL]})
    text = talk('{"zone":"UTC"}', "noon")
    expect(text["prompt_tokens"] > declared + 5, "call and result are in the prompt")
    same(talk({"zone": "UTC"}, [{"type": "text", "text": "noon"}]), text, "objects and parts")
    same(talk('{"zo', "noon"), talk({}, "noon"), "broken arguments are none, as in the server")


def test_stop_strings_and_bias():
    text = ask({"messages": HELLO, "max_tokens": 12, "seed": 2})["text"]
    stop = text[len(text) // 2:][:3]
    for members in ({"stop": stop}, {"stop": ["never to come", stop]}):
        cut = ask({"messages": HELLO, "max_tokens": 12, "seed": 2, **members})
        expect(cut["text"] == text[:text.index(stop)] and cut["finish"] == "stop", str(cut))
    ids = [json.loads(carat("tokenize", MODEL, "--json", c).stdout)["ids"][0] for c in "ab"]
    greedy = {"messages": HELLO, "max_tokens": 1, "temperature": 0}
    expect(ask({**greedy, "logit_bias": {ids[0]: 90}})["text"] == "a", "favoured")
    both = {ids[0]: -100, ids[1]: 90}
    expect(ask({**greedy, "logit_bias": both})["text"] == "b", "-100 bans")
    both[ids[0]] = -20000
    expect(ask({**greedy, "logit_bias": both})["text"] == "b", "less bans, too")
    need_json()
    for bias, words in (({"99999": 1}, "99999"), ({ids[0]: 20000}, "at most 10000")):
        done = carat("run", MODEL, "--request", "-",
                     stdin=json.dumps({**greedy, "logit_bias": bias}).encode())
        expect_error(done, 2, "standard input", words)


def test_log_probabilities():
    request = {"messages": HELLO, "max_tokens": 6, "temperature": 0, "logprobs": True}
    result = ask({**request, "top_logprobs": 3})
    expect(len(result["logprobs"]) == result["generated_tokens"] == 6, "one for each token")
    for entry in result["logprobs"]:
        top = entry["top_logprobs"]
        expect(len(top) == 3 and top[0]["logprob"] == entry["logprob"], "the likeliest was taken")
        expect(sum(math.exp(t["logprob"]) for t in top) <= 1.0001, "probabilities")
        expect(all(bytes(t["bytes"]).decode(errors="replace") == t["token"] for t in top), "bytes")
    text = b"".join(bytes(e["bytes"]) for e in result["logprobs"]).decode(errors="replace")
    expect(text == result["text"], f"{text!r}, {result['text']!r} expected")
    expect("logprobs" not in ask({**request, "logprobs": False}), "unasked")


def test_what_is_refused_is_named():
    need_json()

    def refused(request, *words):
        text = request if isinstance(request, bytes) else json.dumps(request).encode()
        expect_error(carat("run", MODEL, "--request", "-", stdin=text), 2, "standard input", *words)
    refused(b"", "not valid JSON", "line 1")
    refused(b'{"messages": [\n  {"role": }]}', "line 2")
    refused([], "an object expected, an array found")
    refused({}, "messages")
    refused({"messages": HELLO, "n": 3}, "n: 1 expected")
    refused({"messages": HELLO, "functions": [{}]}, "functions")
    refused({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "king")
    for kind in ("image_url", "input_audio", "file"):
        content = [{"type": "text", "text": "what is this?"}, {"type": kind}]
        refused({"messages": [{"role": "user", "content": content}]}, "messages[0].content[1]",
                kind, "text only")
    huge = b'{"messages":[{"role":"user","content":"' + b"x" * (1 << 25) + b'"}]}'
    refused(huge, "33554432")


def test_options_without_a_place():
    need_json()
    for words in (["hello"], ["-p", "hello"], ["-f", os.devnull], ["--system", "x"], ["--raw"],
                  ["-sysf", os.devnull], ["-cnv"]):
        done = carat("run", MODEL, "--request", os.devnull, *words)
        expect_error(done, 2, "--request", "exclude each other")


if __name__ == "__main__":
    program.main(globals())
