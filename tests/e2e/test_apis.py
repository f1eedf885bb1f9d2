#!/usr/bin/env python3
"""`carat serve` through six interfaces, without anybody's client: the same conversation is the same
prompt, turns share the cache, every stream and every failure has the form of its interface.

usage: tests/e2e/test_apis.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import json
import threading

from apis import (APIS, ANSWER, NEXT, QUESTION, SYSTEM, ask, assistant, chat, ollama, user)
from program import expect, is_sanitized, long_model, main
from server import Server


def test_the_same_conversation_is_the_same_in_every_interface():
    talk = [user(QUESTION), assistant(ANSWER), user(NEXT)]
    with Server("demo", "--parallel", 2) as server:
        for tools in (False, True):
            found = {name: ask(server, name, SYSTEM, talk, tools, max_tokens=12, temperature=0)[:2]
                     for name in APIS}
            expect(len(set(found.values())) == 1, f"tools {tools}: {found}")


def test_counts_are_those_of_the_prompt():
    with Server("demo") as server:
        for name, path in (("messages", "/v1/messages/count_tokens"),
                           ("responses", "/v1/responses/input_tokens")):
            body = APIS[name][1](SYSTEM, [user(QUESTION)], True)
            count = server.ask("POST", path, body)[2]["input_tokens"]
            read = ask(server, name, SYSTEM, [user(QUESTION)], True, max_tokens=1)[1]
            expect(count == read, f"{name}: {count} counted, {read} read")


def test_the_second_turn_comes_from_the_cache():
    # With sanitizers long prompts take minutes; of a short one the last page is a larger part.
    lines, share, least = (330, 0.95, 4000) if not is_sanitized() else (70, 0.75, 700)
    rules = "\n".join(f"Rule {i}: be kind to number {i * 7}." for i in range(lines))
    with Server(long_model(), "--ctx-size", 16384, "--parallel", 2) as server:
        for name in APIS:
            system = f"For {name} only.\n{rules}"
            text, n, _ = ask(server, name, system, [user(QUESTION)], max_tokens=8, temperature=0)
            expect(n > least, f"{n} tokens")
            before = server.metric("carat_prompt_tokens_cached_total")
            talk = [user(QUESTION), assistant(text), user(NEXT)]
            _, n, cached = ask(server, name, system, talk, max_tokens=1, temperature=0)
            counted = server.metric("carat_prompt_tokens_cached_total") - before
            expect(cached in (None, counted), f"{name}: {cached} said, {counted} counted")
            expect(counted >= share * n, f"{name}: {counted} of {n}")


def test_strict_names_hold_on_every_route_that_takes_one():
    said = [{"role": "user", "content": "Hi"}]
    bodies = {
        "/v1/chat/completions": {"messages": said, "max_tokens": 1},
        "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
        "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
        "/v1/messages": {"messages": said, "max_tokens": 1},
        "/api/chat": {"messages": said, "stream": False, "options": {"num_predict": 1}},
        "/api/generate": {"prompt": "Hi", "stream": False, "options": {"num_predict": 1}},
        "/v1/chat/completions/render": {"messages": said},
        "/v1/completions/render": {"prompt": "Hi"},
        "/v1/messages/count_tokens": {"messages": said},
        "/v1/responses/input_tokens": {"input": "Hi"},
        "/apply-template": {"messages": said},
        "/tokenize": {"content": "Hi"},
        "/detokenize": {"tokens": [2]},
    }
    with Server("demo", "--alias", "mine", "--strict-model") as server:
        for path, body in bodies.items():
            for model, wanted in (({"model": "mine"}, 200), ({}, 200), ({"model": "other"}, 400)):
                status, _, reply = server.ask("POST", path, {**body, **model})
                expect(status == wanted, f"{path} {model}: {status} {reply}")
            expect('"mine" expected' in str(reply), f"{path}: {reply}")


def test_a_salt_shares_what_was_read_with_nobody_else():
    with Server("demo") as server:
        def cached(**more):
            system = "Be kind to everybody. " * 30
            return ask(server, "chat", system, [user(QUESTION)], max_tokens=1, **more)[2]
        expect(cached(cache_salt="a") == 0, "the first")
        expect(cached(cache_salt="a") > 64, "the same salt")
        expect(cached(cache_salt="b") == 0, "another salt")
        expect(cached() == 0, "no salt")
        expect(cached() > 64, "no salt again")
        for salt in ("", 5, "x" * 600):
            status, _, reply = server.ask("POST", APIS["chat"][0],
                                          chat("", [user("a")], False, cache_salt=salt))
            expect(status == 400 and reply["error"]["param"] == "cache_salt", f"{salt}: {reply}")


def test_a_request_steps_back_but_not_ahead():
    """One sequence: of two that wait, the one that came later goes first."""
    path, make, _ = APIS["chat"]
    # So long that none ends by itself while somebody looks, on a busy machine either.
    long = make(SYSTEM, [user("a")], False, stream=True, ignore_eos=True, max_tokens=250000)
    with Server(long_model(), "--ctx-size", 262144, "--parallel", 1) as server:
        first = server.open(path, long)
        next(event for event in first if event["choices"][0]["delta"].get("content"))
        back = threading.Thread(target=ask, args=(server, "chat", SYSTEM, [user(QUESTION)]),
                                kwargs={"max_tokens": 1, "priority": 5})
        back.start()
        server.wait_until(lambda: server.metric("carat_requests_waiting") == 1)
        with server.open(path, long) as later:
            server.wait_until(lambda: server.metric("carat_requests_waiting") == 2)
            first.close()
            next(event for event in later if event["choices"][0]["delta"].get("content"))
            expect(server.metric("carat_requests_waiting") == 1, "it went ahead")
        back.join()
        status, _, reply = server.ask("POST", path, make("", [user("a")], False, priority=-1))
        expect(status == 400 and reply["error"]["param"] == "priority", f"{reply}")
        expect("not ahead of others" in reply["error"]["message"], f"{reply}")


def test_every_stream_begins_and_ends_in_its_own_words():
    first_last = {
        "chat": (lambda e: e["choices"][0]["delta"]["role"] == "assistant",
                 lambda e: e == "[DONE]"),
        "messages": (lambda e: e["type"] == "message_start", lambda e: e["type"] == "message_stop"),
        "responses": (lambda e: e["type"] == "response.created",
                      lambda e: e["type"] == "response.incomplete"),
    }
    with Server("demo") as server:
        for name, (is_first, is_last) in first_last.items():
            path, make, _ = APIS[name]
            events = server.stream(path, make(SYSTEM, [user(QUESTION)], False, stream=True,
                                              max_tokens=3))
            expect(is_first(events[0]) and is_last(events[-1]), f"{name}: {events}")
        body = ollama(SYSTEM, [user(QUESTION)], False, max_tokens=3)
        status, headers, text = server.ask("POST", "/api/chat", body)
        lines = [json.loads(line) for line in text.splitlines()]
        expect(status == 200 and headers["Content-Type"] == "application/x-ndjson", f"{headers}")
        expect([line["done"] for line in lines] == [False] * 3 + [True], f"{lines}")


def times(text):
    """{"queue": 0.1, ...} of Server-Timing."""
    return {part.split(";dur=")[0]: float(part.split(";dur=")[1]) for part in text.split(", ")}


def test_a_stream_tells_its_times_at_its_end():
    known = {"queue", "prefill", "decode", "total"}
    with Server("demo") as server:
        for name in ("chat", "messages", "responses"):
            path, make, _ = APIS[name]
            body = make(SYSTEM, [user(QUESTION)], False, stream=True, max_tokens=3)
            with server.open(path, body) as stream:
                list(stream)
                head = times(stream.reply.headers["Server-Timing"])
                ends = [c for c in stream.comments if c.startswith(": server-timing ")]
            expect(set(head) == {"prepare"}, f"{name}: {head}")
            expect(len(ends) == 1, f"{name}: {stream.comments}")
            told = times(ends[0].removeprefix(": server-timing "))
            expect(set(told) == known and told["total"] >= told["decode"] > 0, f"{name}: {told}")
            body = make(SYSTEM, [user(QUESTION)], False, max_tokens=3)
            head = times(server.ask("POST", path, body)[1]["Server-Timing"])
            expect(set(head) == known, f"{name}: {head}")


def test_a_failure_has_the_form_of_its_interface():
    with Server("demo") as server:
        for path, is_right in (
                ("/v1/chat/completions", lambda e: e["error"]["type"] == "invalid_request_error"),
                ("/v1/responses", lambda e: e["error"]["param"] == "input"),
                ("/v1/messages", lambda e: e["type"] == "error" and
                 e["error"]["type"] == "invalid_request_error"),
                ("/v1/messages/count_tokens", lambda e: e["type"] == "error"),
                ("/api/chat", lambda e: isinstance(e["error"], str))):
            status, headers, body = server.ask("POST", path, {"messages": 7, "input": 7})
            expect(status == 400 and is_right(body), f"{path}: {status} {body}")
            expect(headers["x-request-id"], "has an id")


def test_a_failure_in_a_stream_is_an_event():
    """--timeout ends answers that take too long."""
    with Server(long_model(), "--ctx-size", 65536, "--timeout", 2) as server:
        for name, is_failure in (("messages", lambda e: e["type"] == "error"),
                                 ("responses", lambda e: e["type"] == "response.failed"),
                                 ("chat", lambda e: "error" in e)):
            path, make, _ = APIS[name]
            body = make(SYSTEM, [user(QUESTION)], False, stream=True, ignore_eos=True,
                        max_tokens=60000)
            events = server.stream(path, body)
            expect(len(events) > 3 and is_failure(events[-1]), f"{name}: {events[-1]}")
        body = ollama(SYSTEM, [user("a b c d " * 6000)], False, max_tokens=60000,
                      ignore_eos=True)
        with server.open("/api/chat", body) as stream:
            last = json.loads(list(stream.reply)[-1])
        expect("error" in last, f"{last}")


HOSTILE = {
    "/v1/messages": [
        {"messages": [user([{"type": "image", "source": {"type": "url", "url": "file:///"}}])]},
        {"messages": [user([{"type": "tool_result", "tool_use_id": "a"}])]},
        {"messages": [user("a")], "max_tokens": 2 ** 63 - 1},
        {"messages": [user("a")], "tools": [{"name": "f\n\"", "input_schema": {"type": "object"}}]},
        {"messages": [user("a")], "tools": [{"name": "x" * 10 ** 6, "input_schema": {}}]},
        {"messages": [user("a")], "stop_sequences": ["a" * 10 ** 6]},
        {"messages": [user("a")], "output_format": {"type": "json_schema", "schema": {
            "$ref": "http://127.0.0.1/"}}},
        {"messages": [user("a")], "output_format": {"type": "json_schema", "schema": {
            "type": "array", "minItems": 10 ** 9}}},
    ],
    "/v1/responses": [
        {"input": [{"type": "item_reference", "id": "a"}]},
        {"input": "a", "previous_response_id": "a"},
        {"input": "a", "top_logprobs": 10 ** 9},
        {"input": "a", "tool_choice": "required"},
        {"input": [{"type": "function_call", "call_id": "a", "name": "f",
                    "arguments": ["{"] * 10 ** 5}]},
        {"input": "a", "text": {"format": {"type": "json_schema", "schema": {
            "type": "string", "pattern": "(?=a)b"}}}},
    ],
    "/api/chat": [
        {"messages": [{"role": "user", "content": "a", "images": ["x"]}]},
        {"messages": [user("a")], "options": {"temperature": -1}},
        {"messages": [user("a")], "options": {"num_predict": -(2 ** 31)}},
        {"messages": [user("a")], "format": {"type": "object", "properties": 7}},
        {"messages": [{"role": "tool", "content": "a"}]},
    ],
    "/api/generate": [
        {"prompt": "a", "suffix": "b"},
        {"prompt": "a", "template": "{{ range . }}"},
        {"prompt": "a", "raw": "yes"},
    ],
}


def test_hostile_bodies_are_refused_by_a_name_and_harm_nobody():
    with Server("demo") as server:
        canary = ask(server, "chat", SYSTEM, [user(QUESTION)], max_tokens=8, temperature=0)[0]
        for path, bodies in HOSTILE.items():
            for body in bodies:
                status, _, reply = server.ask("POST", path, body)
                error = reply.get("error")
                text = error["message"] if isinstance(error, dict) else error
                expect(status == 400, f"{path} {str(body)[:200]}: {status} {reply}")
                name = text.split(":")[0].split("[")[0].split(".")[0]
                expect(name in body, f"{path} {str(body)[:200]}: {text}")
        after = ask(server, "chat", SYSTEM, [user(QUESTION)], max_tokens=8, temperature=0)[0]
        expect(after == canary, f"{after!r}, {canary!r} before")


main(globals())
