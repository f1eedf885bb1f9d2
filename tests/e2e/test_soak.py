#!/usr/bin/env python3
"""The server under a mixed load for some time: nothing may grow, and nothing may go wrong.

usage: tests/e2e/test_soak.py PROGRAM       (CARAT_SOAK_SECONDS says how long; ./dev soak sets it)
"""
import http.client
import os
import random
import statistics
import threading
import time

from program import at_best, expect, main, sized
from server import Server

# AddressSanitizer keeps what was freed; here only a little of it, as memory is looked at.
KEPT = "quarantine_size_mb=1:thread_local_quarantine_size_kb=16"
os.environ["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), KEPT]))
SECONDS = float(os.environ.get("CARAT_SOAK_SECONDS", sized(20.0)))
CLIENTS = 6
SEED = 5
BODIES = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}]}),
    ("/v1/completions", {"prompt": "Once upon a time"}),
    ("/v1/messages", {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
    ("/v1/responses", {"input": "Who are you?"}),
    ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"]}}}]
CANARY = {"messages": [{"role": "user", "content": "Tell me about a bird."}], "temperature": 0,
          "max_tokens": 40}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}


class Load:
    """Clients that ask, read, leave and send nonsense, until `end`."""

    def __init__(self, server, end):
        self.server, self.end = server, end
        self.statuses, self.problems = {}, []
        self.threads = [threading.Thread(target=self.work, args=(SEED + i,))
                        for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def work(self, seed):
        chance = random.Random(seed)
        while time.monotonic() < self.end:
            try:
                status = self.ask(chance)
                self.statuses[status] = self.statuses.get(status, 0) + 1
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.problems.append(repr(error))

    def ask(self, chance):
        kind = chance.random()
        if kind < 0.1:
            path = chance.choice(["/metrics", "/slots", "/v1/models", "/"])
            return self.server.ask("GET", path)[0]
        if kind < 0.2:
            content = "dog " * chance.randrange(900)
            return self.server.ask("POST", "/tokenize", {"content": content})[0]
        if kind < 0.23:
            time.sleep(chance.random())  # idle for a while
            return 200
        if kind < 0.3:
            return self.talk(chance)
        if kind < 0.35:
            path = chance.choice(BODIES)[0]
            return self.server.ask("POST", path, chance.choice(["", "{", "[]", '{"n": -1}']))[0]
        path, body = chance.choice(BODIES)
        body = {**body, "stream": chance.random() < 0.7, "max_tokens": chance.randrange(1, 60),
                "seed": chance.randrange(100)}
        if "chat/completions" in path and chance.random() < 0.6:
            body.update(chance.choice([
                {"response_format": SCHEMA}, {"n": 2}, {"logprobs": True}, {"tools": TOOLS},
                {"tools": TOOLS, "tool_choice": "required"}]))
        with self.server.open(path, body) as stream:
            stream.reply.read(chance.randrange(1, 3000) if chance.random() < 0.3 else None)
            return stream.status

    def talk(self, chance):
        """A few turns of one conversation: each reads the cache of the last one."""
        messages = []
        for turn in range(chance.randrange(2, 5)):
            messages.append({"role": "user", "content": f"Question {turn}: what is a dog?"})
            status, _, body = self.server.ask("POST", BODIES[0][0], {
                "messages": messages, "max_tokens": chance.randrange(1, 40)})
            if status != 200:
                return status
            messages.append({"role": "assistant",
                             "content": body["choices"][0]["message"]["content"] or "-"})
        return 200

    def join(self):
        for thread in self.threads:
            thread.join()


def resident(pid):
    """MB of memory that a process has."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def held(pid):
    """Descriptors and threads."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def fill_cache(server):
    """The engine's memory is touched bit by bit, until the cache has been full once."""
    for i in range(sized(40, 8)):
        ids = [2] + [(i * 7 + k * 13) % 1000 + 500 for k in range(900)]
        status = server.ask("POST", "/v1/completions", {"prompt": ids, "max_tokens": 1})[0]
        expect(status == 200, f"{status}")


def growth(server, seconds):
    """A mixed load for this time; MB that the last third has more than the one before it."""
    begin, samples = time.monotonic(), []
    load = Load(server, begin + seconds)
    while time.monotonic() < begin + seconds:
        time.sleep(min(0.5, seconds / 40))
        samples.append(resident(server.process.pid))
    load.join()
    third = len(samples) // 3
    early = statistics.median(samples[third:2 * third])
    late = statistics.median(samples[-third:])
    hours = seconds / 3600 * third / len(samples)
    print(f"seed {SEED}: {sum(load.statuses.values())} requests {load.statuses}; "
          f"{early:.1f} MB, later {late:.1f} MB: {(late - early) / hours:.1f} MB/h")
    expect(not load.problems, f"{len(load.problems)}: {load.problems[:3]}")
    expect(set(load.statuses) <= {200, 400, 429}, f"{load.statuses}")
    return late - early


def test_nothing_grows_under_a_mixed_load():
    with Server("demo", "--parallel", 4) as server:
        pid = server.process.pid
        fill_cache(server)
        canary = server.ask("POST", BODIES[0][0], CANARY)[2]["choices"]
        before = held(pid)
        # On a busy machine the first round may be warming up still. What leaks does so in all.
        at_best(1 if SECONDS >= 300 else 3, lambda: growth(server, SECONDS), "MB more", 3)
        server.wait_until(lambda: server.metric("carat_requests_running") == 0)
        server.wait_until(lambda: all(now <= then for now, then in zip(held(pid), before)))
        again = server.ask("POST", BODIES[0][0], CANARY)[2]["choices"]
        expect(again == canary, f"{again} instead of {canary}")
        expect(server.metric("carat_kv_cells_used") == 0, "nobody holds pages")


main(globals())
