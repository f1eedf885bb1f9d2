"""`carat serve` under many clients at once: each gets its own answer to its end, and what the
server counts is what was sent and received.

CARAT_CROWD_SECONDS: how long each crowd lasts (2 by default; 60 to look for what is rare).
"""
import collections
import os
import random
import threading
import time

import program
from program import expect, quick_model, sized
from server import Server

SECONDS = float(os.environ.get("CARAT_CROWD_SECONDS", "2"))
SEED, ROUTE, TOKENS_MAX = 41, "/v1/completions", 40
WORDS = 30  # different prompts


class Crowd:
    """Clients as threads. Of ten requests seven are streamed, two are not, one is left."""

    def __init__(self, server, n):
        self.server, self.n = server, n
        self.lock = threading.Lock()
        self.counts = collections.Counter()  # of requests, by how they ended
        self.tokens, self.prompts = 0, 0     # of answers that ended
        self.answers = {}                    # prompt and length -> text: the same for everybody
        self.problems = []
        self.gap = 0.0                       # the longest between two pieces of a stream
        self.end = 0.0

    def run(self, seconds):
        self.end = time.monotonic() + seconds
        threads = [threading.Thread(target=self.use, args=(random.Random(SEED * 1000 + i),))
                   for i in range(self.n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(not self.problems, str(self.problems[:3]))

    def use(self, rng):
        try:
            while time.monotonic() < self.end:
                self.ask(rng, rng.randrange(10))
        except Exception as error:  # a thread's failure is the test's
            self.problems.append(repr(error))

    def ask(self, rng, kind):
        number, length = rng.randrange(WORDS), rng.randrange(1, TOKENS_MAX + 1)
        body = {"prompt": f"Story number {number} begins with", "temperature": 0,
                "max_tokens": length, "ignore_eos": True}
        if kind < 7:
            self.stream(number, body)
        elif kind < 9:
            self.whole(number, body)
        else:
            self.leave(rng, body)

    def note(self, how, number, body, text, usage):
        with self.lock:
            self.counts[how] += 1
            self.tokens += usage["completion_tokens"]
            self.prompts += usage["prompt_tokens"]
            before = self.answers.setdefault((number, body["max_tokens"]), text)
        expect(before == text, f"another answer to {body}: {text!r}, before {before!r}")
        expect(usage["completion_tokens"] == body["max_tokens"], f"{usage} of {body}")

    def whole(self, number, body):
        status, _, reply = self.server.ask("POST", ROUTE, body)
        expect(status == 200, f"status {status}: {reply}")
        choice = reply["choices"][0]
        expect(choice["finish_reason"] == "length", str(choice))
        self.note("whole", number, body, choice["text"], reply["usage"])

    def stream(self, number, body):
        text, reason, usage, last = "", None, None, None
        with self.server.open(ROUTE, {**body, "stream": True,
                                      "stream_options": {"include_usage": True}}) as stream:
            expect(stream.status == 200, f"status {stream.status}")
            for event in stream:
                now = time.monotonic()
                self.gap = max(self.gap, now - (last or now))
                last = now
                if event == "[DONE]":
                    break
                expect("error" not in event, str(event))
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    text += choice["text"]
                    reason = choice["finish_reason"] or reason
            else:
                raise AssertionError("a stream without its end")
        expect(reason == "length" and usage, f"{reason}, {usage}")
        self.note("stream", number, body, text, usage)

    def leave(self, rng, body):
        """Before the first piece or after some."""
        pieces, n = rng.randrange(4), 0
        body = {**body, "max_tokens": 4 * TOKENS_MAX, "stream": True, "return_token_ids": True}
        with self.server.open(ROUTE, body) as stream:
            expect(stream.status == 200, f"status {stream.status}")
            while n < pieces:
                n += len(next(iter(stream))["choices"][0]["token_ids"])
        with self.lock:
            self.counts["left"] += 1


def crowd(n, *options):
    with Server(quick_model(), "--ctx-size", 256, *options) as server:
        one = Crowd(server, n)
        one.run(SECONDS)
        server.wait_until(lambda: server.busy() == 0)
        all_ended = lambda: server.metric("carat_requests_total", route=ROUTE) == sum(
            one.counts.values())
        server.wait_until(all_ended)
        check_counts(server, one)
        print(f"    {n} clients: {dict(one.counts)}, {one.tokens} tokens, "
              f"longest gap {one.gap:.2f} s")
        return one


def check_counts(server, one):
    ended = one.counts["whole"] + one.counts["stream"]
    expect(ended > 0, "nothing was answered")
    expect(server.metric("carat_request_success_total", finish_reason="length") == ended,
           f"{ended} answers ended by their length")
    expect(server.metric("carat_request_success_total") == ended, "no other ends")
    left = server.metric("carat_cancelled_total")
    expect(left == one.counts["left"], f"{left} cancelled, {one.counts['left']} were left")
    for status in ("500", "502", "503", "504"):
        try:
            expect(server.metric("carat_requests_total", status=status) == 0, f"status {status}")
        except AssertionError as error:
            expect("no metric" in str(error), str(error))
    for name, count in (("generation", one.tokens), ("prompt", one.prompts)):
        found = server.metric(f"carat_{name}_tokens_total")
        expect(found == count, f"{found} {name} tokens, {count} were told")
    expect(server.metric("carat_kv_cells_used") == 0, "pages of nobody")
    expect(server.metric("carat_streams") == 0, "streams of nobody")


def test_one_client():
    crowd(1)


def test_eight_clients_and_two_sequences():
    crowd(8, "--parallel", 2)


def test_sixty_four_clients_and_as_many_sequences():
    n = sized(64, 16)
    gap = crowd(n, "--parallel", n).gap
    expect(SECONDS < 60 or gap < 2, f"the longest gap is {gap:.2f} s")  # on an idle machine


def test_many_more_clients_than_sequences():
    crowd(sized(200, 24), "--parallel", 16)


def test_two_engines():
    crowd(24, "--parallel", 4, "--replicas", 2)


if __name__ == "__main__":
    program.main(globals())
