#!/usr/bin/env python3
"""What `carat serve` must never do, where no other script has it (docs/testing.md has the whole
list): shorten a prompt, answer otherwise because of its cache, say 200 to what broke its schema,
work for who has left, let a request wait for ever, end without a reason.

usage: tests/e2e/test_never.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import contextlib
import json
import math
import signal
import tempfile

from apis import APIS, QUESTION, SYSTEM, anthropic, chat, ollama, responses, user
from program import at_best, expect, long_model, main, sized
from schema_check import problems
from server import Server

CHAT = "/v1/chat/completions"


# ---- A silently shortened prompt

# Words with which clients ask for a shorter prompt, or for a smaller context.
SHORTER = {
    "chat": [{}, {"truncate_prompt_tokens": 10}, {"truncation": "auto"}, {"n_keep": 5}],
    "messages": [{}, {"context_management": {"edits": []}}, {"truncation": "auto"}],
    "responses": [{}, {"truncation": "auto"}, {"truncation": "disabled"}],
    "ollama": [{}, {"truncate": True}, {"shift": True}, {"num_ctx": 100}, {"num_keep": 4}],
}


def test_a_prompt_is_read_whole_or_refused_in_every_interface():
    with Server("demo", "--ctx-size", 512) as server:
        for name, wishes in SHORTER.items():
            path, make, said = APIS[name]
            for wish in wishes:
                body = make(SYSTEM, [user("dog " * 2000)], False, max_tokens=1, stream=False)
                if name == "ollama" and set(wish) & {"num_ctx", "num_keep"}:
                    body["options"].update(wish)
                else:
                    body.update(wish)
                status, _, reply = server.ask("POST", path, body)
                expect(status == 400, f"{name} {wish}: {status} {str(reply)[:200]}")
                text = json.dumps(reply)
                # Which of the two it names is the interface's business, but never "context" alone.
                named = "context size" in text or any(key in text for key in wish)
                expect(named, f"{name} {wish}: {text}")
        for stream in (False, True):
            status, _, reply = server.ask("POST", "/api/generate",
                                          {"prompt": "dog " * 2000, "stream": stream})
            expect(status == 400 and "context size" in reply["error"], f"{status} {reply}")


def test_every_token_up_to_the_context_is_read():
    """Prompts of each length around the context: all of it counts, or none."""
    n_context = 512
    with Server("demo", "--ctx-size", n_context) as server:
        ids = server.ask("POST", "/tokenize", {"content": "dog " * n_context})[2]["tokens"]
        statuses = []
        for n in (1, 63, 64, 65, n_context - 2, n_context - 1, n_context, n_context + 1):
            body = {"prompt": ids[:n], "max_tokens": 4, "temperature": 0}
            status, _, reply = server.ask("POST", "/v1/completions", body)
            statuses.append(status)
            if status == 200:
                expect(reply["usage"]["prompt_tokens"] == n, f"{n}: {reply['usage']}")
                room = n_context - n
                expect(0 < reply["usage"]["completion_tokens"] <= min(4, room), f"{n}: {reply}")
                if room < 4 and reply["usage"]["completion_tokens"] == room:
                    expect(reply["choices"][0]["finish_reason"] == "length", f"{n}: {reply}")
            else:
                error = reply["error"]
                expect(status == 400 and error["n_prompt_tokens"] == n, f"{n}: {reply}")
        expect(statuses == [200] * 6 + [400] * 2, f"{statuses}")


# ---- An answer changed by the cache

def test_an_answer_is_the_same_with_and_without_the_cache():
    """Also from half of a prompt, and beside others; on a CPU to the last digit."""
    def answer(server, prompt, **more):
        body = chat(SYSTEM, [user(prompt)], False, max_tokens=12, temperature=0, logprobs=True,
                    top_logprobs=5, **more)
        status, _, reply = server.ask("POST", CHAT, body)
        expect(status == 200, f"{reply}")
        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        return (reply["choices"][0]["message"], reply["choices"][0]["logprobs"]), cached

    rules = "".join(f"Rule {i}: be kind to number {i * 7}. " for i in range(30))
    prompts = [rules + end for end in ("Who is kind?", "Is it raining?", "Tell me a story.")]
    with Server("demo", "--parallel", 4) as server:
        cold = []
        for prompt in prompts:
            said, cached = answer(server, prompt, cache_prompt=False)
            expect(cached == 0, f"{cached} of a cache that was not to be used")
            cold.append(said)
        for turn in range(3):
            for prompt, said in zip(prompts, cold):
                warm, cached = answer(server, prompt)
                expect(warm == said, f"turn {turn}, {cached} cached: {warm} instead of {said}")
        expect(cached > 64, f"only {cached} were cached at the end")
        streams = [server.open(CHAT, chat("", [user(f"{i} {rules}")], False, stream=True,
                                          ignore_eos=True, max_tokens=400)) for i in range(3)]
        warm, cached = answer(server, prompts[0])
        for stream in streams:
            stream.close()
        expect(warm == cold[0], f"beside others, {cached} cached: {warm} instead of {cold[0]}")


# ---- 200 for output that broke its schema

FORM = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
        "properties": {"name": {"type": "string", "maxLength": 8},
                       "age": {"type": "integer", "minimum": 0, "maximum": 150},
                       "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}}


def forms(prompt, n, seed):
    """(path, body, what a reply says: its text and whether it claims to be whole)"""
    talk = [user(prompt)]
    named = {"type": "json_schema", "name": "f", "schema": FORM, "strict": True}
    hot = {"seed": seed, "top_k": 0, "top_p": 1, "stream": False}
    yield CHAT, chat("", talk, False, max_tokens=n, temperature=2, response_format={
        "type": "json_schema", "json_schema": named}, **hot), \
        lambda r: (r["choices"][0]["message"]["content"],
                   r["choices"][0]["finish_reason"] == "stop")
    yield "/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 2,
                              "json_schema": FORM, **hot}, \
        lambda r: (r["choices"][0]["text"], r["choices"][0]["finish_reason"] == "stop")
    yield "/v1/responses", responses("", talk, False, max_tokens=n, temperature=2,
                                     text={"format": named}, **hot), \
        lambda r: ("".join(p["text"] for o in r["output"] for p in o.get("content", [])),
                   r["status"] == "completed")
    yield "/v1/messages", anthropic("", talk, False, max_tokens=n, temperature=1,
                                    output_format={"type": "json_schema", "schema": FORM}, **hot), \
        lambda r: ("".join(p.get("text", "") for p in r["content"]),
                   r["stop_reason"] == "end_turn")
    body = ollama("", talk, False, max_tokens=n, temperature=2, format=FORM, **hot)
    body["options"]["seed"] = seed
    yield "/api/chat", body, lambda r: (r["message"]["content"], r["done_reason"] == "stop")


def test_what_claims_to_be_whole_fits_its_schema_in_every_interface():
    whole = cut = 0
    with Server("demo") as server:
        n_seeds = sized(6)
        for seed in range(n_seeds):
            for n in (200, 5):
                for path, body, said in forms("Tell me a story about a dog.", n, seed):
                    status, _, reply = server.ask("POST", path, body)
                    expect(status == 200, f"{path}: {status} {reply}")
                    text, is_whole = said(reply)
                    if is_whole:
                        found = list(problems(FORM, json.loads(text)))
                        expect(not found, f"{path}, seed {seed}: {found}: {text}")
                    whole += is_whole
                    cut += not is_whole
    expect(whole >= 3 * n_seeds and cut >= 5 * n_seeds, f"{whole} were whole, {cut} were cut")


# ---- Work for who has left

def rows_beside(server, n_tokens):
    """Rows that were computed for others during the steps of a short answer."""
    before = server.metric("carat_rows_total")
    body = {"prompt": "a", "max_tokens": n_tokens, "ignore_eos": True, "cache_prompt": False}
    n_prompt = server.ask("POST", "/v1/completions", body)[2]["usage"]["prompt_tokens"]
    own = n_prompt + n_tokens - 1  # nothing is computed from the last token
    return server.metric("carat_rows_total") - before - own


def test_leaving_frees_a_sequence_that_waits_for_its_client():
    """Within a step and 100 ms, less what asking takes: its client does not read, and leaves."""
    with tempfile.TemporaryDirectory() as folder, \
            Server(long_model(), "--ctx-size", 65536, "--parallel", 2, "--unix",
                   f"{folder}/socket") as server:
        data = json.dumps(chat("", [user("a")], False, stream=True, ignore_eos=True,
                               max_tokens=60000, logprobs=True, top_logprobs=20))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"

        def seconds():
            with server.socket() as slow:
                slow.sendall((head + data).encode())
                server.wait_until(lambda: server.busy() == 1 and rows_beside(server, 8) == 0)
                asked = server.wait_until(lambda: server.busy() == 1)
                left = server.metric("carat_cancelled_total", phase="write")
            took = server.wait_until(lambda: server.busy() == 0) - 3 * asked
            # A pause for a moment is none: the server was slower than the engine, not the client.
            waited = server.metric("carat_cancelled_total", phase="write") > left
            return took if waited else math.inf
        at_best(0.15, seconds, "seconds until what a client has left is over")


def test_nobody_computes_for_who_left_in_any_interface():
    """After all have left no row is computed any more; a prompt that was not begun never is."""
    with Server(long_model(), "--ctx-size", 65536, "--parallel", 2) as server:
        for name, (path, make, _) in APIS.items():
            for is_stream in (False, True):
                prompt = "a b c d " * sized(2000, 200)
                body = json.dumps(make("", [user(prompt)], False, max_tokens=60000,
                                       ignore_eos=True, stream=is_stream))
                crowd = [server.socket() for _ in range(6)]
                for s in crowd:
                    s.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                               f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
                server.wait_until(lambda: server.busy() == 2)
                for s in crowd:
                    s.close()
                server.wait_until(lambda: server.metric("carat_requests_running") == 0)
                server.wait_until(lambda: server.metric("carat_requests_waiting") == 0)
                rows = server.metric("carat_rows_total")
                n = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3,
                                                           "ignore_eos": True})[2]["usage"]
                most = n["prompt_tokens"] + n["completion_tokens"]
                grown = server.metric("carat_rows_total") - rows
                expect(grown <= most, f"{name}: {grown} rows for a request of {most}")


# ---- A request that waits for ever

def test_who_waits_in_the_queue_gets_an_end_by_the_deadline():
    """One sequence, taken by an endless answer; whole and streamed answers wait for it."""
    with Server(long_model(), "--ctx-size", 65536, "--parallel", 1, "--timeout", 2) as server, \
            contextlib.ExitStack() as stack:
        first = stack.enter_context(server.open(CHAT, chat(
            "", [user("a")], False, stream=True, ignore_eos=True, max_tokens=60000)))
        next(iter(first))
        crowd = []
        for name, (path, make, _) in APIS.items():
            for is_stream in (False, True):
                body = make("", [user("a b c d " * 4000)], False, stream=is_stream,
                            ignore_eos=True, max_tokens=60000)
                crowd.append((name, is_stream,
                              stack.enter_context(server.open(path, body))))
        for name, is_stream, stream in crowd:
            text = stream.reply.read().decode()
            expect(stream.status == (200 if is_stream else 504), f"{name}: {stream.status} {text}")
            expect("timeout" in text or "longer than" in text, f"{name}: {text[-300:]}")
        server.wait_until(lambda: server.metric("carat_requests_running") == 0)


# ---- An end without a reason

def has_reason(name, text):
    """Whether the last words of a stream say how it ended."""
    lines = [x for x in text.splitlines() if x.startswith("data: ") or name == "ollama" and x]
    last = json.loads(lines[-1].removeprefix("data: ")) if lines[-1] != "data: [DONE]" else None
    if name == "chat":
        if last is not None:
            return "error" in last
        chunks = [json.loads(x[6:]) for x in lines[:-1]]
        return any(c["choices"] and c["choices"][0]["finish_reason"] for c in chunks)
    if name == "messages":
        return last["type"] == "error" or last["type"] == "message_stop" and any(
            '"stop_reason":"' in x for x in lines)
    if name == "responses":
        return last["type"] in ("response.completed", "response.incomplete", "response.failed")
    return bool(last.get("error") or last.get("done_reason"))


def test_every_stream_says_why_it_ended_also_when_the_server_does():
    for sign, seconds in ((signal.SIGTERM, 0.2), (None, 0)):
        options = ["--parallel", 8, "--shutdown-timeout", seconds] if sign else ["--parallel", 8]
        with Server(long_model(), "--ctx-size", 65536, *options) as server, \
                contextlib.ExitStack() as stack:
            streams = []
            for name, (path, make, _) in APIS.items():
                body = make(SYSTEM, [user(QUESTION)], False, stream=True, ignore_eos=True,
                            max_tokens=60000 if sign else 20)
                streams.append((name, stack.enter_context(server.open(path, body))))
            if sign:
                server.wait_until(lambda: server.busy() == len(streams))
                server.process.send_signal(sign)
            for name, stream in streams:
                text = stream.reply.read().decode()
                expect(has_reason(name, text), f"{name}, {sign}: {text[-300:]}")


main(globals())
