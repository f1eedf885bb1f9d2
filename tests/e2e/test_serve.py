#!/usr/bin/env python3
"""`carat serve` from outside: answers whole and streamed, limits, cancelling, the end.

usage: tests/e2e/test_serve.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
from program import carat, expect, expect_error, libraries, main, Skip
from server import Server, need_server, text_of

STORY = "Tell me a story about a small dog."
CHAT = "/v1/chat/completions"


def chat_body(prompt=STORY, **more):
    return {"messages": [{"role": "user", "content": prompt}], **more}


def test_without_the_library_it_says_what_to_install():
    if "libmicrohttpd" in libraries():
        raise Skip("built with libmicrohttpd")
    expect_error(carat("serve", "demo", "--port", "0"), 2, "libmicrohttpd")


def test_health_and_facts_of_the_model():
    with Server("demo", "--alias", "little") as server:
        for path in ("/health", "/v1/health", "/health/live", "/health/ready"):
            status, headers, body = server.ask("GET", path)
            expect(status == 200 and body == {"status": "ok"}, f"{path}: {status} {body}")
            expect(headers["x-request-id"], "has an id")
        models = server.ask("GET", "/v1/models")[2]
        expect([m["id"] for m in models["data"]] == ["little"], f"{models}")
        expect(models["data"][0]["meta"]["n_ctx"] == 1024, f"{models}")
        for path, key in (("/v1/models/little", "id"), ("/props", "total_slots"),
                          ("/api/tags", "models"), ("/api/ps", "models"),
                          ("/api/version", "version")):
            status, _, body = server.ask("GET", path)
            expect(status == 200 and key in body, f"{path}: {status} {body}")
        expect(server.stop() == 0, "a clean end")


def test_whole_and_streamed_answers_are_the_same():
    with Server() as server:
        body = chat_body(max_tokens=30, seed=3)
        status, _, whole = server.ask("POST", CHAT, body)
        expect(status == 200, f"{whole}")
        text = whole["choices"][0]["message"]["content"]
        expect(len(text) > 20 and whole["choices"][0]["finish_reason"] == "length", f"{whole}")
        expect(whole["usage"]["completion_tokens"] == 30, f"{whole['usage']}")
        events = server.stream(CHAT, {**body, "stream": True})
        expect(events[-1] == "[DONE]", f"{events[-1]}")
        expect(text_of(events) == text, f"{text_of(events)!r}, {text!r} expected")


def test_tokens_of_a_text_and_back():
    need_server()
    with Server() as server:
        tokens = server.ask("POST", "/tokenize", {"content": STORY})[2]["tokens"]
        text = server.ask("POST", "/detokenize", {"tokens": tokens})[2]["content"]
        expect(text == STORY, f"{text!r}")


main(globals())
