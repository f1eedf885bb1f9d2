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

from program import expect, main
from server import Server

SECONDS = float(os.environ.get("CARAT_SOAK_SECONDS", "20"))
CLIENTS = 6
SEED = 5
BODIES = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}]}),
    ("/v1/completions", {"prompt": "Once upon a time"}),
    ("/v1/messages", {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
    ("/v1/responses", {"input": "Who are you?"}),
    ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
)
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
        if kind < 0.25:
            path = chance.choice(BODIES)[0]
            return self.server.ask("POST", path, chance.choice(["", "{", "[]", '{"n": -1}']))[0]
        path, body = chance.choice(BODIES)
        body = {**body, "stream": chance.random() < 0.7, "max_tokens": chance.randrange(1, 60),
                "seed": chance.randrange(100)}
        if "chat/completions" in path and chance.random() < 0.4:
            body.update(chance.choice([{"response_format": SCHEMA}, {"n": 2}, {"logprobs": True}]))
        with self.server.open(path, body) as stream:
            stream.reply.read(chance.randrange(1, 3000) if chance.random() < 0.3 else None)
            return stream.status

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


def test_nothing_grows_under_a_mixed_load():
    with Server("demo", "--parallel", 4) as server:
        pid = server.process.pid
        server.chat("Hello", max_tokens=1)
        before = held(pid)
        begin = time.monotonic()
        load = Load(server, begin + SECONDS)
        samples = []
        while time.monotonic() < begin + SECONDS:
            time.sleep(min(0.5, SECONDS / 40))
            samples.append(resident(pid))
        load.join()
        server.wait_until(lambda: server.metric("carat_requests_running") == 0, 10)
        server.wait_until(lambda: held(pid) <= before, 10)
        third = len(samples) // 3
        early = statistics.median(samples[third:2 * third])
        late = statistics.median(samples[-third:])
        hours = SECONDS / 3600 * third / len(samples)
        print(f"seed {SEED}: {sum(load.statuses.values())} requests {load.statuses}; "
              f"{early:.1f} MB, later {late:.1f} MB: {(late - early) / hours:.1f} MB/h")
        expect(not load.problems, f"{len(load.problems)}: {load.problems[:3]}")
        expect(set(load.statuses) <= {200, 400, 429}, f"{load.statuses}")
        # The engine's memory is touched bit by bit at first, as its cache fills up.
        grown, limit = late - early, 1 if SECONDS >= 300 else 8
        expect(grown < limit, f"memory grew from {early:.1f} to {late:.1f} MB")


main(globals())
