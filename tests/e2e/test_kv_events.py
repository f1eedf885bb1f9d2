#!/usr/bin/env python3
"""serve --kv-events: what is cached, as a router on libzmq gets it (kv_subscriber.c).

usage: tests/e2e/test_kv_events.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import pathlib
import queue
import signal
import struct
import subprocess
import tempfile
import threading

from program import LIMIT, PROGRAM, Skip, carat, expect, expect_error, libraries, main, wait_until
from server import Server

SUBSCRIBER = pathlib.Path(PROGRAM).resolve().parent / "tests/kv_subscriber"
PAGE = 64
LONG = "One two three four five six seven eight nine ten. " * 20


def unpack(data):
    """A MessagePack value, as far as publishers use it; the bytes must end with it."""
    value, end = unpack_at(data, 0)
    expect(end == len(data), f"{len(data) - end} bytes follow")
    return value


def unpack_at(data, at):
    head = data[at]
    numbers = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xCB: ">d", 0xD9: ">B", 0xDA: ">H",
               0xDC: ">H", 0xDD: ">I"}
    at += 1
    if head < 0x80:
        return head, at
    if head == 0xC0:
        return None, at
    if head in numbers:
        n = struct.unpack_from(numbers[head], data, at)[0]
        at += struct.calcsize(numbers[head])
    elif 0x90 <= head < 0xC0:
        n = head & (0x0F if head < 0xA0 else 0x1F)
    else:
        raise AssertionError(f"byte {head:#x}")
    if 0xA0 <= head < 0xC0 or head in (0xD9, 0xDA):
        return data[at:at + n].decode(), at + n
    if head < 0xA0 or head in (0xDC, 0xDD):
        values = []
        for _ in range(n):
            value, at = unpack_at(data, at)
            values.append(value)
        return values, at
    return n, at


class Router:
    """A subscriber in a process of its own, and what it knows."""

    def __init__(self, events, replay):
        self.process = subprocess.Popen([SUBSCRIBER, events, replay], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.live, self.again = {}, queue.Queue()
        self.topics = set()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "live":
                self.topics.add(words[1])
                self.live[int(words[2])] = bytes.fromhex(words[3])
            else:
                self.again.put((int(words[1]), bytes.fromhex(words[2]) if words[2:] else b""))

    def replay(self, number=0):
        """All batches from a number on, as the second address has them."""
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        found = {}
        while True:
            n, data = self.again.get(timeout=LIMIT)
            if n == -1:
                return found
            found[n] = data

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class World:
    """A server that publishes, and a router."""

    def __init__(self, *options):
        if "libzmq" not in libraries() or not SUBSCRIBER.exists():
            raise Skip("built without libzmq")
        self.folder = tempfile.TemporaryDirectory()
        self.addresses = [f"ipc://{self.folder.name}/{name}" for name in ("events", "replay")]
        self.server = Server("demo", "--kv-events", self.addresses[0], "--kv-events-replay",
                             self.addresses[1], *options)
        self.router = Router(*self.addresses)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.router.close()
        self.server.stop()
        self.folder.cleanup()

    def ask(self, prompt, n=1):
        body = {"prompt": prompt, "max_tokens": n, "temperature": 0}
        status, _, text = self.server.ask("POST", "/v1/completions", body)
        expect(status == 200, text)

    def ids(self, text):
        status, _, answer = self.server.ask("POST", "/tokenize", {"content": text,
                                                                "add_special": True})
        expect(status == 200, str(answer))
        return answer["tokens"]


class Mirror:
    """What is cached, as events say; each event is checked against what was said before."""

    def __init__(self, batches):
        self.blocks = {}  # engine and name: parent, tokens
        self.stored = self.removed = self.cleared = 0
        for number in sorted(batches):
            seconds, events, engine = unpack(batches[number])
            expect(1.7e9 < seconds < 5e9, f"{seconds} seconds")
            for event in events:
                getattr(self, event[0])(engine, *event[1:])

    def AllBlocksCleared(self, engine):
        self.cleared += 1
        self.blocks = {key: value for key, value in self.blocks.items() if key[0] != engine}

    def BlockStored(self, engine, names, parent, ids, size, lora, medium, lora_name):
        expect(len(ids) == size * len(names) and names, f"{len(ids)} ids for {len(names)}")
        expect(size == PAGE and medium == "GPU" and lora is None and lora_name is None, "facts")
        for i, name in enumerate(names):
            expect(parent is None or (engine, parent) in self.blocks, "the parent is unknown")
            expect((engine, name) not in self.blocks, "it was stored before")
            self.blocks[engine, name] = parent, ids[i * size:(i + 1) * size]
            self.stored += 1
            parent = name

    def BlockRemoved(self, engine, names, medium):
        expect(medium == "GPU" and names, "facts")
        for name in names:
            expect((engine, name) in self.blocks, "it was not there")
            del self.blocks[engine, name]
            self.removed += 1
            expect(all((engine, p) in self.blocks for (e, _), (p, _) in self.blocks.items()
                       if p is not None and e == engine), "a child is left")

    def path(self, key):
        """All tokens down to a block."""
        ids = []
        while key[1] is not None:
            parent, own = self.blocks[key]
            ids, key = own + ids, (key[0], parent)
        return ids


def wait_for(router, has):
    """What the router knows once that holds."""
    found = {}

    def look():
        found.update(router.replay())
        return has(Mirror(found))
    wait_until(look, "the events")
    return Mirror(found)


def test_blocks_of_prompts_are_published_with_their_tokens():
    with World() as world:
        ids = world.ids(LONG)
        expect(len(ids) > 3 * PAGE, f"{len(ids)} tokens")
        world.ask(LONG)
        n = len(ids) // PAGE
        mirror = wait_for(world.router, lambda m: any(m.path(k) == ids[:n * PAGE]
                                                      for k in m.blocks))
        expect(mirror.cleared == 1 and not mirror.removed, "clears and removals")
        before = len(mirror.blocks)
        world.ask(LONG)  # nothing is new
        more = ids + world.ids("And now for something completely different. " * 20)[1:]
        world.ask(more)
        mirror = wait_for(world.router, lambda m: any(
            m.path(k) == more[:len(more) // PAGE * PAGE] for k in m.blocks))
        expect(mirror.stored == len(mirror.blocks), "blocks were stored twice")
        expect(len(mirror.blocks) - before <= len(more) // PAGE - n + 1, "the beginning is new")


def test_live_messages_are_those_that_can_be_asked_for_again():
    with World("--replicas", "2") as world:
        asked = iter(range(1000))

        def hears():
            world.ask(f"Story {next(asked)}. " + LONG)
            return len(world.router.live) >= 3
        wait_until(hears, "messages")
        again = world.router.replay()
        expect(sorted(again) == list(range(len(again))), f"numbers {sorted(again)}")
        for number, data in dict(world.router.live).items():
            expect(again.get(number, data) == data, f"message {number} is another one")
        expect(Mirror(again).cleared == 2, "each engine begins with nothing")
        last = max(again)
        expect(min(world.router.replay(last)) == last, "older ones were not asked for")
        topic = world.router.topics.pop()
        expect(topic.startswith("kv@") and topic.endswith("@demo"), topic)


def test_what_is_evicted_is_removed():
    with World("--ctx-size", "1024", "--parallel", "1", "--cache-memory", "10M") as world:
        asked = iter(range(1000))

        def evicts():
            world.ask(f"Number {next(asked)}: " + LONG)
            return Mirror(world.router.replay()).removed > 8
        wait_until(evicts, "removals")


def test_a_router_that_does_not_read_holds_nobody_up():
    with World() as world:
        world.router.process.send_signal(signal.SIGSTOP)
        for i in range(5):
            world.ask(f"Number {i}: " + LONG)
        world.router.process.send_signal(signal.SIGCONT)
        wait_for(world.router, lambda m: m.stored > 10)


def test_requests_for_messages_that_are_none_harm_nobody():
    with World() as world:
        world.ask(LONG)
        expect(world.router.replay(2 ** 64 - 2) == {}, "messages from the future")
        strange = Router(world.addresses[1], world.addresses[0])  # the wrong way round
        world.ask("Again. " + LONG)
        wait_for(world.router, lambda m: m.stored > 5)
        strange.close()


def test_addresses_that_others_can_read_are_refused():
    if "libzmq" not in libraries():
        if "libmicrohttpd" in libraries():
            done = carat("serve", "demo", "--port", "0", "--kv-events", "tcp://127.0.0.1:*")
            expect(done.returncode and b"libzmq3-dev" in done.stderr, done.stderr.decode())
            return
        raise Skip("built without libmicrohttpd")
    for address, words in (("tcp://0.0.0.0:5557", "--insecure"), ("tcp://*:5557", "--insecure"),
                           ("tcp://192.0.2.1:1", "--insecure"),
                           (">tcp://192.0.2.1:1", "--insecure"),
                           ("http://127.0.0.1:1", "expected"), ("5557", "expected"),
                           ("tcp://127.0.0.1.example:1", "--insecure")):
        done = carat("serve", "demo", "--port", "0", "--kv-events", address)
        expect(done.returncode in (1, 2) and words.encode() in done.stderr, f"{address}: "
               f"{done.returncode} {done.stderr.decode()}")
    done = carat("serve", "demo", "--port", "0", "--kv-events", "tcp://127.0.0.1:*",
                 "--kv-events-replay", "tcp://0.0.0.0:1")
    expect_error(done, 2, "--kv-events-replay", "--insecure")
    done = carat("serve", "demo", "--port", "0", "--kv-events-replay", "tcp://127.0.0.1:*")
    expect_error(done, 2, "--kv-events")


if __name__ == "__main__":
    main(globals())
