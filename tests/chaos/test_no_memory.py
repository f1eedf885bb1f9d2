#!/usr/bin/env python3
"""Memory that runs out at any allocation of a request: it gets its right answer or an error.

usage: tests/chaos/test_no_memory.py CARAT_SCRIPTED [WORD]...

CARAT_CHAOS_STEP says how many allocations lie between two that fail (1: each one fails once).
"""
import contextlib
import http.client
import json
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from program import LIMIT, expect, main, sized
from server import Server

STEP = int(os.environ.get("CARAT_CHAOS_STEP", "0"))
SECONDS = LIMIT  # that a reply may take
USER = [{"role": "user", "content": "Tell me of a small dog."}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
CHAT, SHORT = "/v1/chat/completions", {"temperature": 0, "max_tokens": 12}
KINDS = {
    "chat": (CHAT, {"messages": USER, **SHORT}),
    "chat_stream": (CHAT, {"messages": USER, "stream": True, **SHORT,
                           "stream_options": {"include_usage": True}}),
    "two_answers": (CHAT, {"messages": USER, "n": 2, "seed": 1, "logprobs": True,
                           "top_logprobs": 3, **SHORT}),
    "form": (CHAT, {"messages": USER, "response_format": FORM, **SHORT}),
    "tools": (CHAT, {"messages": USER, "tools": [{"type": "function", "function": TOOL}],
                     "tool_choice": "required", "stream": True, "temperature": 0,
                     "max_tokens": 40}),
    "completion": ("/v1/completions", {"prompt": ["Once", "A dog"], "echo": True, **SHORT}),
    "calls": (CHAT, {"messages": [*USER, {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "look", "arguments": json.dumps(
            {"n": 1, "text": "long " * 60})}}]}, {"role": "tool", "tool_call_id": "c",
                                                  "content": "seen " * 60}], **SHORT}),
    "call_items": ("/v1/responses", {"input": [
        *USER, {"type": "function_call", "call_id": "c", "name": "look", "arguments": json.dumps(
            {"n": 1, "text": "long " * 60})}, {"type": "function_call_output", "call_id": "c",
                                                "output": "seen"}], "temperature": 0,
                                     "max_output_tokens": 12}),
    "messages": ("/v1/messages", {"model": "m", "messages": USER, "max_tokens": 12,
                                  "temperature": 0, "stream": True, "system": "Be kind."}),
    "responses": ("/v1/responses", {"input": "Who are you?", "temperature": 0, "stream": True,
                                    "max_output_tokens": 12}),
    "ollama": ("/api/chat", {"model": "m", "messages": USER,
                             "options": {"temperature": 0, "num_predict": 12}}),
    "ollama_load": ("/api/generate", {"model": "m"}),
    "tokenize": ("/tokenize", {"content": "a small dog", "with_pieces": True}),
    "template": ("/apply-template", {"messages": USER}),
    "count": ("/v1/messages/count_tokens", {"model": "m", "messages": USER}),
    "refused": (CHAT, {"messages": [{"role": "nobody", "content": 1}]}),
    "metrics": ("/metrics", None),
    "models": ("/v1/models", None),
}
# How a stream of each path ends that is whole.
ENDS = {CHAT: [b"data: [DONE]\n\n"], "/v1/messages": [b"event: message_stop\n"],
        "/v1/responses": [b"event: response.completed\n", b"event: response.incomplete\n"],
        "/api/chat": [b'"done":true']}
VOLATILE = ("id", "created", "created_at", "usage", "timings", "total_duration", "load_duration",
            "prompt_eval_duration", "eval_duration", "completed_at", "item_id", "call_id",
            "prompt_eval_count")


def steady(value):
    """Without what differs from request to request."""
    if isinstance(value, dict):
        return {k: steady(v) for k, v in value.items() if k not in VOLATILE}
    return [steady(v) for v in value] if isinstance(value, list) else value


def lines_of(body):
    """The JSON of a reply or of its events."""
    found = []
    for line in body.decode().split("\n"):
        line = line.removeprefix("data: ")
        if line.startswith(("{", "[")) and line != "[DONE]":
            found.append(json.loads(line))
    return found


def lines_or_none(body):
    """None: what should be JSON is not."""
    try:
        return lines_of(body)
    except ValueError:
        return None


def is_whole(path, body, is_stream):
    if not is_stream:
        return True
    return any(end in body for end in ENDS[path])


class Case:
    """One kind of request, asked again and again."""

    def __init__(self, server, kind):
        self.server, self.kind = server, kind
        self.path, self.body = KINDS[kind]
        self.is_stream = bool(self.body) and (self.body.get("stream", False)
                                              or self.path == "/api/chat")
        self.problems, self.statuses = [], {}
        self.warm_up()
        self.right = self.ask({})
        expect(self.right is not None, f"{kind}: no answer")
        self.blocks = self.settled()

    def warm_up(self):
        """What is made once: places of sequences, grammars, rooms of buffers."""
        for _ in range(2):
            threads = [threading.Thread(target=self.ask, args=({},)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def memory(self):
        """The one that asks too early, before a request has ended without memory, is cut."""
        end = time.monotonic() + SECONDS
        while self.server.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(ConnectionError):
                return self.server.ask("GET", "/health", headers={"x-carat-memory": "1"})[2]
            time.sleep(0.01)
        raise AssertionError("the server is gone")

    def settled(self, wanted=None):
        """Blocks, once they are what is wanted, or have been the same for a tenth of a second."""
        before, same, end = None, 0, time.monotonic() + 20
        while time.monotonic() < end:
            blocks = self.memory()["blocks"]
            same = same + 1 if blocks == before else 0
            if blocks == wanted or (wanted is None and same == 20):
                return blocks
            before = blocks
            time.sleep(0.005)
        return before

    def ask(self, headers):
        """Status and bytes; None: the connection was cut before a reply."""
        connection = http.client.HTTPConnection(self.server.host, self.server.port,
                                                timeout=SECONDS)
        try:
            data = None if self.body is None else json.dumps(self.body)
            connection.request("POST" if data else "GET", self.path, data, headers)
            reply = connection.getresponse()
            try:
                return reply.status, reply.read(), True
            except http.client.IncompleteRead as error:
                return reply.status, error.partial, False
        except (ConnectionError, http.client.RemoteDisconnected):
            return None
        finally:
            connection.close()

    def judge(self, reply):
        """What is wrong with a reply; None if nothing is."""
        if reply is None or not reply[2]:
            return None  # cut: the client sees it
        status, body, _ = reply
        if lines_or_none(body) is None:
            return f"no JSON: {body!r}"
        if status >= 400:
            right_status = self.right[0]
            is_told = lines_of(body) and "error" in lines_of(body)[0]
            return None if is_told and status in (500, 503, right_status) else \
                f"{status} {body[:200]!r}"
        if self.is_stream and b'"error"' in body and not is_whole(self.path, body, True):
            return None
        if not is_whole(self.path, body, self.is_stream):
            return f"a stream without an end: {body[-200:]!r}"
        if self.path == "/metrics":
            return None if body.count(b"\n") >= self.right[1].count(b"\n") else "metrics are cut"
        if steady(lines_of(body)) != steady(lines_of(self.right[1])):
            return f"another answer: {body[-300:]!r}"
        return None

    def fail_at(self, when):
        """Asks while memory fails; returns how many allocations there were."""
        try:
            reply = self.ask({"x-carat-fail": when})
        except TimeoutError:
            self.problems.append(f"{when}: no end after {SECONDS} s")
            reply = None
        status = reply[0] if reply else "cut"
        if reply and not reply[2]:
            status = f"{status} cut"
        self.statuses[status] = self.statuses.get(status, 0) + 1
        wrong = self.judge(reply)
        if wrong:
            self.problems.append(f"{when}: {wrong}")
        blocks = self.settled(self.blocks)
        if blocks > self.blocks:
            self.problems.append(f"{when}: {blocks - self.blocks} blocks more")
        self.blocks = blocks
        return self.memory()["made"]

    def run(self):
        made = self.fail_at("1000000")
        step = STEP or max(1, made // sized(60))
        each = 40 if STEP else sized(40)  # of the first ones
        at = [*range(min(made + 2, each)), *range(each, made + 2, step)]
        for n in at:
            self.fail_at(str(n))
        for n in at[::3]:
            self.fail_at(f"{n}+")
        again = self.ask({})
        if steady(lines_of(again[1])) != steady(lines_of(self.right[1])) \
                and self.path != "/metrics":
            self.problems.append("afterwards: another answer")
        print(f"  {self.kind}: {made} allocations, {self.statuses}, "
              f"{len(self.problems)} problems", flush=True)
        return [f"{self.kind} {problem}" for problem in self.problems]


def try_kind(kind):
    """A test of one kind of request."""
    def test():
        with Server("demo", "--parallel", "2") as server:
            problems = Case(server, kind).run()
            running = server.metric("carat_requests_running")
            expect(server.process.poll() is None, "the server ended")
            expect(not problems, f"{len(problems)}: " + "\n    ".join(problems[:12]))
            expect(running == 0, f"{running} requests run still")
            expect(server.metric("carat_connections") <= 1, "calls are held")
            expect(server.stop() == 0, "did not end in order")
    return test


for name in KINDS:
    globals()[f"test_memory_fails_during_{name}"] = try_kind(name)

main(globals())
