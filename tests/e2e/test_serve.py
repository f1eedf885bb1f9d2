#!/usr/bin/env python3
"""`carat serve` from outside: answers whole and streamed, limits, cancelling, the end.

usage: tests/e2e/test_serve.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import itertools
import json
import os
import signal
import tempfile
import time

from program import (LIMIT, Skip, Terminal, at_best, carat, expect, expect_error, is_sanitized,
                     libraries, long_model, main, wait_until)
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
        # Clients look for the version that brought an interface: 0.13.3 responses, 0.14.0 messages.
        version = tuple(int(part) for part in body["version"].split("."))
        expect(version >= (0, 14, 0), f"ollama's version: {body}")
        expect(server.stop() == 0, "a clean end")


def test_props_say_what_answers_use():
    with Server("demo", "--top-p", 0, "--temp", 2, "--top-k", 0) as server:
        params = server.ask("GET", "/props")[2]["default_generation_settings"]["params"]
        expect(params["top_p"] == 0 and params["temperature"] == 2, f"{params}")
        texts = {server.chat(STORY, max_tokens=8, seed=seed)[1]["choices"][0]["message"]["content"]
                 for seed in range(4)}
        expect(len(texts) == 1, f"the likeliest tokens: {texts}")


def test_samplers_are_options_of_the_server_and_members_of_requests():
    options = ("--dry-multiplier", "2", "--dry-sequence-breaker", "\\n", "--xtc-probability", "0.5",
               "--top-n-sigma", "1.5")

    def answer(server, path="/v1/chat/completions", **members):
        body = {"messages": [{"role": "user", "content": STORY}], "stream": False, **members}
        status, _, reply = server.ask("POST", path, body)
        expect(status == 200, f"{status} {reply}")
        return reply["message" if "message" in reply else "choices"]

    with Server("demo", *options) as server, Server("demo") as other:
        params = server.ask("GET", "/props")[2]["default_generation_settings"]["params"]
        for key, value in (("dry_multiplier", 2), ("dry_base", 1.75), ("dry_allowed_length", 2),
                           ("dry_penalty_last_n", -1), ("dry_sequence_breakers", ["\n"]),
                           ("xtc_probability", 0.5), ("xtc_threshold", 0.1), ("typical_p", 1),
                           ("top_n_sigma", 1.5), ("dynatemp_range", 0), ("dynatemp_exponent", 1),
                           ("mirostat", 0), ("mirostat_tau", 5), ("mirostat_eta", 0.1)):
            expect(params[key] == value, f"{key}: {params}")
        params = other.ask("GET", "/props")[2]["default_generation_settings"]["params"]
        expect(params["dry_sequence_breakers"] == ["\n", ":", '"', "*"], f"{params}")
        order = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "temperature", "top_p",
                 "min_p", "xtc"]
        expect(params["samplers"] == order, f"{params}")
        common = {"seed": 3, "max_tokens": 40}
        plain = answer(other, **common)
        expect(answer(server, **common) != plain, "the server's options change nothing")
        expect(answer(server, **common) ==
               answer(other, **common, dry_multiplier=2, dry_sequence_breakers=["\n"],
                      xtc_probability=0.5, top_n_sigma=1.5), "members are the options")
        off = answer(server, **common, dry_multiplier=0, xtc_probability=0, top_n_sigma=-1)
        expect(off == plain, "members switch options off")
        ollama = {"seed": 3, "num_predict": 40}
        plain = answer(other, "/api/chat", options=ollama)
        for more in ({"typical_p": 0.2}, {"mirostat": 2, "mirostat_tau": 0.5}):
            expect(answer(other, "/api/chat", options={**ollama, **more}) != plain, f"{more}")
        status, _, reply = other.ask("POST", "/v1/chat/completions",
                                     {"messages": [{"role": "user", "content": "a"}],
                                      "dry_sequence_breakers": ["a"] * 33})
        expect(status == 400 and "at most 32 strings" in reply["error"]["message"], f"{reply}")


def test_the_order_of_samplers_is_an_option_and_a_member():
    """A request wins over the option. What a list leaves out is off."""
    options = ("--samplers", "top_p;temperature", "--temp", "2", "--top-p", "0.5")
    with Server("demo", *options) as server:
        def answer(**members):
            status, reply = server.chat(STORY, max_tokens=30, seed=3, **members)
            expect(status == 200, f"{status} {reply}")
            return reply["choices"][0]["message"]["content"]

        params = server.ask("GET", "/props")[2]["default_generation_settings"]["params"]
        expect(params["samplers"] == ["top_p", "temperature"], f"{params}")
        own = answer()
        expect(answer(repeat_penalty=5, top_k=1, dry_multiplier=9) == own, "they are off")
        expect(answer(samplers="pt") == own and answer(samplers=["top_p", "temp"]) == own, "same")
        expect(answer(samplers="tp") != own, "the order makes no difference")
        expect(answer(samplers=["top_k"], top_k=1) == answer(temperature=0), "top_k alone")
        # As it is by llama.cpp's default order.
        full = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
                "temperature", "adaptive_p"]
        expect(answer(samplers=full, top_k=0) == own, "llama.cpp's order")
        expect(answer(samplers="edskypmxt", top_k=0) == own, "its letters")
        status, reply = server.chat(STORY, samplers=["top_k", "tfs_z"])
        message = reply["error"]["message"]
        expect(status == 400 and message.startswith('samplers[1]: no sampler is called "tfs_z"'),
               message)
        expect("top_n_sigma" in message, message)


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


# ---- What is answered, and how

def test_an_answer_ends_before_a_stop_string():
    with Server() as server:
        status, whole = server.chat(STORY, temperature=0, stop=[" dog"], max_tokens=100)
        choice = whole["choices"][0]
        expect(status == 200 and choice["finish_reason"] == "stop", f"{whole}")
        expect("dog" not in choice["message"]["content"], f"{choice}")
        server.wait_until(lambda: server.busy() == 0)


def test_completions_continue_text_and_ids():
    with Server() as server:
        status, _, body = server.ask("POST", "/v1/completions", {
            "prompt": ["Once upon", "A dog"], "n": 2, "max_tokens": 5, "temperature": 0})
        texts = [choice["text"] for choice in body["choices"]]
        expect(status == 200 and len(texts) == 4 and texts[0] == texts[1], f"{body}")
        ids = server.ask("POST", "/v1/completions/render", {"prompt": "Once upon"})[2]["token_ids"]
        expect(ids.count(2) == 1 and ids[0] == 2, f"one <bos>: {ids}")
        again = server.ask("POST", "/v1/completions", {
            "prompt": ids, "max_tokens": 5, "temperature": 0})[2]
        expect(again["choices"][0]["text"] == texts[0], f"{again}")


def test_three_answers_read_the_prompt_once():
    prompt = " ".join(f"The dog saw the number {i}." for i in range(60))
    with Server("demo", "--parallel", 4) as server:
        status, whole = server.chat(prompt, n=3, max_tokens=4)
        expect(status == 200 and len(whole["choices"]) == 3, f"{whole}")
        n = whole["usage"]["prompt_tokens"]
        expect(n > 300, f"{n} tokens")
        cached = server.metric("carat_prompt_tokens_cached_total")
        expect(cached >= 2 * (n - 64), f"{cached} of twice {n} were not computed again")


def test_streams_side_by_side_do_not_mix():
    with Server("demo", "--parallel", 8) as server:
        bodies = [chat_body(f"Tell me a story about {what}.", seed=9, max_tokens=60, stream=True)
                  for what in ("a dog", "a cat", "a bird", "the sea", "a tree", "a cup")]
        alone = [text_of(server.stream(CHAT, body)) for body in bodies]
        streams = [server.open(CHAT, body) for body in bodies]
        texts = [text_of(list(stream)) for stream in streams]
        for stream in streams:
            stream.close()
        expect(texts == alone, f"{texts} instead of {alone}")


def test_ids_of_requests_are_echoed_or_made():
    with Server() as server:
        for given, is_kept in (("abc-1.2_3", True), ("a" * 64, True), ("a" * 65, False),
                               ("evil\tname", False), ("a b", False)):
            headers = server.ask("GET", "/health", headers={"x-request-id": given})[1]
            found = headers["x-request-id"]
            expect((found == given) == is_kept and len(found) > 8, f"{given!r}: {found!r}")
        one = server.chat(STORY, {"x-request-id": "same"}, max_tokens=1)[1]["id"]
        two = server.chat(STORY, {"x-request-id": "same"}, max_tokens=1)[1]["id"]
        expect(one != two, "ids of answers are their own")


def test_paths_and_methods_that_are_not_there():
    with Server() as server:
        for method, path, wanted in (("GET", "/nothing", 404), ("GET", CHAT, 405),
                                     ("DELETE", "/v1/models", 405), ("POST", "/v1/embeddings", 501),
                                     ("POST", "/v1/audio/speech", 501), ("POST", "/api/pull", 501),
                                     ("POST", "/v1/images/generations", 501)):
            status, headers, body = server.ask(method, path, "{}" if method == "POST" else None)
            expect(status == wanted and "error" in body, f"{method} {path}: {status} {body}")
            expect(status != 405 or headers["Allow"], f"{path}: Allow")
        status, _, body = server.ask("POST", CHAT, "not json")
        expect(status == 400 and body["error"]["code"] == "invalid_json", f"{body}")
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        expect(server.ask("POST", CHAT, "{}", form)[0] == 415, "a form")


def test_a_prompt_that_is_too_long_is_refused_with_the_numbers():
    with Server() as server:
        for stream in (False, True):
            status, _, body = server.ask("POST", CHAT, chat_body("dog " * 3000, stream=stream))
            error = body["error"]
            expect(status == 400 and error["code"] == "context_length_exceeded", f"{error}")
            expect("exceeds the available context size" in error["message"], f"{error}")
            expect(error["n_ctx"] == 1024 and error["n_prompt_tokens"] > 3000, f"{error}")
        status, _, body = server.ask("POST", "/v1/completions", {"prompt": "dog " * 1000000})
        expect(status == 400 and body["error"]["code"] == "context_length_exceeded", f"{body}")
        expect("exceeds the available context size" in body["error"]["message"], f"{body}")


# ---- Clients that leave, or read slowly

def long_server(*options):
    return Server(long_model(), "--ctx-size", 65536, *options)


def endless(**more):
    return chat_body(ignore_eos=True, stream=True, max_tokens=60000, **more)


def is_freed_soon(server, enter, is_over, limit=0.15):
    """`enter` opens a request and returns a function that leaves it; then `is_over` becomes true
    within a step and 100 ms. What asking takes now is not the server's."""
    def seconds():
        leave = enter()
        asked = server.wait_until(lambda: not is_over() or True)
        leave()
        return server.wait_until(is_over) - 3 * asked
    at_best(limit, seconds, "seconds until what a client has left is over")


def test_leaving_frees_a_sequence_that_decodes():
    with long_server("--parallel", 2) as server:
        def decoding():
            one = server.open(CHAT, endless())
            next(e for e in one if e["choices"][0]["delta"].get("content"))
            return one
        other, entered = decoding(), 0

        def enter():
            nonlocal entered
            entered += 1
            stream = decoding()
            server.wait_until(lambda: server.busy() == 2)
            return stream.close
        is_freed_soon(server, enter, lambda: server.busy() == 1)
        next(iter(other))  # goes on
        other.close()
        server.wait_until(lambda: server.busy() == 0)
        expect(server.metric("carat_cancelled_total", phase="decode") == entered + 1, "counted")


def test_leaving_frees_a_sequence_that_reads_its_prompt():
    with long_server("--parallel", 1) as server:
        body = endless()
        numbers = itertools.count()

        def enter():
            body["messages"][0]["content"] = f"{next(numbers)} " + "a b c d e " * 5000
            stream = server.open(CHAT, body)
            expect(stream.status == 200, f"{stream.status}")
            server.wait_until(lambda: server.busy() == 1)
            return stream.close
        # Sanitizers make steps of prompts long.
        is_freed_soon(server, enter, lambda: server.busy() == 0, 10 if is_sanitized() else 2)


def test_leaving_takes_a_request_out_of_the_queue():
    with long_server("--parallel", 1) as server:
        first = server.open(CHAT, endless())
        next(iter(first))

        def waiting():
            return server.metric("carat_requests_waiting")

        def enter():
            stream = server.open(CHAT, endless())
            expect(stream.status == 200, "a stream that waits has begun")
            server.wait_until(lambda: waiting() == 1)
            return stream.close
        is_freed_soon(server, enter, lambda: waiting() == 0)
        expect(server.busy() == 1, "the other one goes on")
        first.close()


def test_leaving_frees_a_sequence_whose_whole_answer_is_awaited():
    with long_server("--parallel", 1) as server:
        def enter():
            connection = server.connect()
            connection.request("POST", CHAT, json.dumps({**endless(), "stream": False}))
            server.wait_until(lambda: server.busy() == 1)
            return connection.close
        is_freed_soon(server, enter, lambda: server.busy() == 0)


def test_leaving_while_the_end_of_an_answer_waits_to_be_sent():
    # Answers so long that not all can be sent, but short enough to end: of some of these lengths.
    with tempfile.TemporaryDirectory() as folder, \
            long_server("--parallel", 2, "--unix", f"{folder}/socket") as server:
        for n in range(150, 850, 100):
            slow = server.socket()
            body = {**endless(logprobs=True, top_logprobs=20), "max_tokens": n}
            data = json.dumps(body)
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}"
            slow.sendall((head + "\r\n\r\n" + data).encode())
            rows = [-1, server.metric("carat_rows_total")]
            least = rows[-1] + n / 2

            def goes_on_no_more():
                time.sleep(0.1)
                rows.append(server.metric("carat_rows_total"))
                return rows[-1] == rows[-2] and rows[-1] >= least
            server.wait_until(goes_on_no_more)
            slow.close()
        server.wait_until(lambda: server.metric("carat_connections") == 1)


def test_a_client_that_does_not_read_pauses_its_sequence_alone():
    # A unix socket holds less than one of TCP does.
    with tempfile.TemporaryDirectory() as folder, \
            long_server("--parallel", 2, "--unix", f"{folder}/socket") as server:
        slow = server.socket()
        data = json.dumps(endless(logprobs=True, top_logprobs=20))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        slow.sendall((head + data).encode())

        def has_stopped():
            """Another one gets all its tokens, and meanwhile no other row is computed."""
            before = server.metric("carat_rows_total")
            status, whole = server.chat(STORY, max_tokens=20, ignore_eos=True)
            usage = whole["usage"]
            expect(status == 200 and usage["completion_tokens"] == 20, "others go on")
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            own = usage["prompt_tokens"] - cached + 20 - 1
            return server.metric("carat_rows_total") - before == own
        server.wait_until(has_stopped)
        slow.close()
        server.wait_until(lambda: server.metric("carat_cancelled_total", phase="write") == 1)
        server.wait_until(lambda: server.metric("carat_requests_running") == 0)


def test_a_slow_reader_gets_everything():
    with long_server("--parallel", 1) as server:
        body = {**endless(seed=1), "max_tokens": 1000}
        fast = text_of(server.stream(CHAT, body))
        with server.open(CHAT, body) as stream:
            events = []
            for event in stream:
                events.append(event)
                if len(events) % 100 == 1:
                    time.sleep(0.1)
        expect(text_of(events) == fast and events[-1] == "[DONE]", "the same text")


# ---- Limits

def events_of(stream):
    """All events of a stream, which is closed then."""
    with stream:
        return list(stream)


def test_a_full_queue_says_so():
    with long_server("--parallel", 1, "--max-queue", 1) as server:
        first = server.open(CHAT, endless())
        next(iter(first))
        second = server.open(CHAT, endless())
        expect(second.status == 200, "waits")
        status, headers, body = server.ask("POST", CHAT, chat_body(max_tokens=1))
        expect(status == 429 and int(headers["Retry-After"]) > 0, f"{status} {body}")
        expect(body["error"]["code"] == "queue_full", f"{body}")
        second.close()
        first.close()
        server.wait_until(lambda: server.chat(STORY, max_tokens=1)[0] == 200)


def test_an_idle_server_takes_more_answers_than_may_wait():
    with Server("demo", "--parallel", 2, "--max-queue", 4) as server:
        status, _, body = server.ask("POST", CHAT, chat_body(n=8, max_tokens=4))
        expect(status == 200 and len(body["choices"]) == 8, f"{status} {body}")
        body = {"prompt": ["Once", "Twice"], "n": 32, "max_tokens": 2}
        status, _, body = server.ask("POST", "/v1/completions", body)
        expect(status == 200 and len(body["choices"]) == 64, f"{status} {body}")


def test_what_takes_too_long_ends_by_a_deadline():
    with long_server("--parallel", 1, "--timeout", 1.5) as server:
        status, _, body = server.ask("POST", CHAT, {**endless(), "stream": False})
        expect(status == 504 and body["error"]["code"] == "timeout", f"{status} {body}")
        events = events_of(server.open(CHAT, endless()))
        expect("[DONE]" not in events and "timeout" in str(events[-1]), f"{events[-1]}")


def test_silent_streams_are_kept_alive():
    with long_server("--parallel", 1, "--ping", 0.3) as server:
        first = server.open(CHAT, endless(logprobs=False))
        next(iter(first))
        waiting = server.open(CHAT, chat_body(stream=True, max_tokens=1))
        comments = 0
        while comments < 2:
            line = waiting.reply.readline()
            expect(line and b"[DONE]" not in line, f"ended after {comments} comments")
            comments += line.startswith(b":")
        first.close()
        expect(list(waiting)[-1] == "[DONE]", "answered in the end")
        waiting.close()


# ---- Who may ask

def test_keys_close_everything_but_health_and_the_page():
    key = "secret-key-of-tests"
    with Server("demo", "--api-key", key) as server:
        for path in ("/v1/models", "/props", "/slots", "/nothing", "/api/tags", "/openapi.yaml/"):
            status, _, body = server.ask("GET", path)
            expect(status == 401, f"{path}: {status} {body}")
        expect(server.ask("POST", CHAT, chat_body())[0] == 401, "no key")
        for path in ("/health", "/metrics"):
            expect(server.ask("GET", path)[0] == 200, f"{path} is open on this machine")
        bearer = {"Authorization": f"Bearer {key}"}
        for headers, wanted in ((bearer, 200), ({"x-api-key": key}, 200),
                                ({"x-api-key": key + "x"}, 401), ({"x-api-key": ""}, 401)):
            status = server.chat(STORY, headers, max_tokens=1)[0]
            expect(status == wanted, f"{headers}: {status}")
        server.stop()
        log = server.whole_log()
        expect(key not in log and STORY not in log, "neither keys nor prompts are in the log")


def test_keys_are_read_again():
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("first-key-of-tests\n")
        file.flush()
        with Server("demo", "--api-key-file", file.name) as server:
            first = {"x-api-key": "first-key-of-tests"}
            second = {"x-api-key": "second-key-of-tests"}
            expect(server.ask("GET", "/props", headers=first)[0] == 200, "the first key")
            file.seek(0)
            file.write("second-key-of-tests\n")
            file.flush()
            server.process.send_signal(signal.SIGHUP)
            server.wait_until(lambda: server.ask("GET", "/props", headers=second)[0] == 200)
            expect(server.ask("GET", "/props", headers=first)[0] == 401, "the first is gone")


def test_other_names_and_origins_are_refused():
    with Server() as server:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            status, _, body = server.ask("POST", CHAT, chat_body(max_tokens=1), headers)
            expect(status == 403, f"{headers}: {status} {body}")


# ---- Beginning and end

def test_a_closed_window_ends_the_server():
    need_server()
    terminal = Terminal("serve", "demo", "--port", "0")
    terminal.wait_for("answers on ")
    os.kill(terminal.pid, signal.SIGHUP)
    terminal.wait_for("reloaded")  # the window is still there
    os.close(terminal.fd)  # SIGHUP
    ends = []

    def has_ended():
        pid, status = os.waitpid(terminal.pid, os.WNOHANG)
        ends.append(status)
        return pid

    try:
        wait_until(has_ended, "the end of the server")
    except AssertionError:
        os.kill(terminal.pid, signal.SIGKILL)
        raise
    expect(ends[-1] == 0, f"a clean end: {ends[-1]}")


def test_running_requests_end_before_the_server_does():
    with long_server("--parallel", 1, "--shutdown-timeout", LIMIT) as server:
        with server.open(CHAT, {**endless(), "max_tokens": 500}) as stream:
            events = iter(stream)
            next(events)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_line("stopping")
            server.wait_until(lambda: not server.listens())
            expect(list(events)[-1] == "[DONE]", "the stream came to its end")
        expect(server.process.wait(LIMIT) == 0, "a clean end")


def test_what_runs_too_long_at_the_end_gets_an_error_event():
    with long_server("--parallel", 1, "--shutdown-timeout", 0.5) as server:
        with server.open(CHAT, endless()) as stream:
            server.process.send_signal(signal.SIGINT)
            events = events_of(stream)
        expect("shutting_down" in str(events[-1]), f"{events[-1]}")
        expect(server.process.wait(LIMIT) == 0, "a clean end")


def test_a_second_signal_ends_at_once():
    with long_server("--parallel", 1) as server:
        with server.open(CHAT, endless()) as stream:
            next(iter(stream))
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_line("stopping")
            server.process.send_signal(signal.SIGTERM)
            expect(server.process.wait(LIMIT) == 143, f"status {server.process.returncode}")


def test_draining_refuses_what_is_new():
    with long_server("--parallel", 1) as server:
        with server.open(CHAT, endless()) as stream:
            events = iter(stream)
            next(events)
            status, _, body = server.ask("POST", "/drain", headers={"X-Forwarded-For": "192.0.2.1"})
            expect(status == 403, f"somebody else's, through a proxy: {status} {body}")
            expect(server.ask("POST", "/drain")[0] == 200, "drain")
            expect(server.ask("GET", "/health")[0] == 503, "not ready")
            expect(server.ask("GET", "/health/live")[0] == 200, "but alive")
            status, headers, _ = server.ask("POST", CHAT, chat_body(max_tokens=1))
            expect(status == 503 and int(headers["Retry-After"]) > 0, f"{status}")
            next(events)  # goes on


def test_an_address_in_use_has_a_status_of_its_own():
    with Server() as server:
        done = carat("serve", "demo", "--port", server.port)
        expect_error(done, 7, str(server.port))


def test_a_unix_socket_is_listened_to():
    with tempfile.TemporaryDirectory() as folder, \
            Server("demo", "--unix", f"{folder}/socket") as server:
        expect(server.chat(STORY, max_tokens=1)[0] == 200, "it answers")


def test_a_path_of_a_unix_socket_that_is_too_long_is_wrong_usage():
    need_server()
    for path, found in (("", "0 found"), ("/tmp/" + "x" * 103, "108 found")):
        expect_error(carat("serve", "demo", "--unix", path), 2, "--unix: a path of 1 to 107", found)


main(globals())
