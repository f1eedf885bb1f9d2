#!/usr/bin/env python3
"""`--prompt-cache FILE`: what was read is there after a restart, for those who may have it, and a
bad file never makes a server say something else.

usage: tests/e2e/test_prompt_cache.py PROGRAM [NAME...]     (only tests whose name contains a NAME)
"""
import os
import pathlib
import random
import re
import signal
import tempfile
import time

import program
from program import LIMIT, MODEL, carat, expect, expect_error, expect_status, need_demo
from server import Server, need_server

IDS = [2] + [300 + (7 * k + k * k) % 900 for k in range(704)]
TEXT = "Tell me a story about the sea and the wind and the old ship. " * 40


def greedy(server, key=None, ids=None, **more):
    """Text, and tokens that came from the cache."""
    request = {"prompt": ids or IDS, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **more}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    status, _, body = server.ask("POST", "/v1/completions", request, headers)
    expect(status == 200, str(body))
    return (body["choices"][0]["text"],
            body["usage"]["prompt_tokens_details"]["cached_tokens"])


def end(server):
    """Ends it in order; its whole log."""
    expect(server.stop() == 0, "a clean end")
    return server.whole_log()


def test_a_restarted_server_goes_on_where_it_was():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "prompts")
        with Server("demo", "--prompt-cache", path) as server:
            text, cached = greedy(server)
            expect(cached == 0, f"{cached} cached of a new prompt")
            expect(not path.exists(), "written before the end")
            expect("prompts_kept" in end(server), "log")
        expect(path.stat().st_mode & 0o777 == 0o600, "others may read what was asked")
        expect(os.listdir(folder) == ["prompts"], f"{os.listdir(folder)}")
        with Server("demo", "--prompt-cache", path) as server:
            expect("prompts_loaded" in "".join(server.log), f"{server.log}")
            again, cached = greedy(server)
            expect(again == text, f"{again!r} instead of {text!r}")
            expect(cached >= 0.95 * len(IDS), f"{cached} of {len(IDS)} cached")
            more, cached = greedy(server, ids=IDS + [500] * 20)
            expect(cached >= 0.95 * len(IDS), f"{cached} of {len(IDS)} cached")
            expect("prompts_kept" in end(server), "log")
        with Server("demo") as server:
            expect(greedy(server, ids=IDS + [500] * 20) == (more, 0), "without the file")


def test_a_conversation_through_chat_goes_on():
    with tempfile.TemporaryDirectory() as folder:
        options = ("demo", "--prompt-cache", folder + "/prompts")
        turns = [{"role": "system", "content": TEXT[:1200]}, {"role": "user", "content": "Begin."}]
        ask = {"temperature": 0, "max_tokens": 16}
        with Server(*options) as server:
            _, _, first = server.ask("POST", "/v1/chat/completions", {"messages": turns, **ask})
            end(server)
        turns += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        with Server(*options) as server:
            _, _, body = server.ask("POST", "/v1/chat/completions", {"messages": turns, **ask})
        usage = body["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        expect(cached > usage["prompt_tokens"] - 3 * 64, f"{usage}")


def test_nobody_finds_what_another_key_or_salt_has_left():
    with tempfile.TemporaryDirectory() as folder:
        options = ("demo", "--prompt-cache", folder + "/prompts", "--api-key", "first-key")
        with Server(*options, "--api-key", "second-key") as server:
            text, _ = greedy(server, "first-key")
            greedy(server, "first-key", cache_salt="mine")
            end(server)
        with Server(*options, "--api-key", "second-key") as server:
            for more in {}, {"cache_salt": "mine"}, {"cache_salt": "first-key"}:
                expect(greedy(server, "second-key", **more) == (text, 0), f"second key, {more}")
            expect(greedy(server, "first-key", cache_salt="other") == (text, 0), "other salt")
            for more in {}, {"cache_salt": "mine"}:
                again, cached = greedy(server, "first-key", **more)
                expect(again == text and cached >= 0.95 * len(IDS), f"{cached} of {more}")
            end(server)
        with Server("demo", "--prompt-cache", folder + "/prompts") as server:
            expect(greedy(server) == (text, 0), "without keys")


def test_all_engines_begin_with_what_the_first_one_had():
    with tempfile.TemporaryDirectory() as folder:
        options = ("demo", "--replicas", "2", "--prompt-cache", folder + "/prompts")
        with Server("demo", "--prompt-cache", folder + "/prompts") as server:
            text, _ = greedy(server)
            end(server)
        for _ in range(2):
            with Server(*options) as server:
                again, cached = greedy(server)
                expect(again == text and cached >= 0.95 * len(IDS), f"{cached} cached")
                end(server)


def test_a_server_killed_while_it_writes_leaves_a_whole_file():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "prompts")
        options = ("demo", "--prompt-cache", path)
        with Server(*options) as server:
            text, _ = greedy(server)
            end(server)
        draw = random.Random(20261123)
        for _ in range(6):
            with Server(*options) as server:
                expect("prompts_loaded" in "".join(server.log), f"{server.log}")
                again, cached = greedy(server)
                expect(again == text and cached >= 0.95 * len(IDS), f"{cached} cached")
                greedy(server, ids=[2] + [draw.randrange(300, 900) for _ in range(300)])
                server.process.send_signal(signal.SIGTERM)
                time.sleep(draw.uniform(0, 0.1))  # any moment will do
                server.kill()
            expect(set(os.listdir(folder)) <= {"prompts", "prompts.part"}, f"{os.listdir(folder)}")


def test_two_servers_may_have_one_file():
    with tempfile.TemporaryDirectory() as folder:
        options = ("demo", "--prompt-cache", folder + "/prompts")
        with Server(*options) as one, Server(*options) as other:
            text, _ = greedy(one)
            greedy(other)
            for server in one, other:
                server.process.send_signal(signal.SIGTERM)
            for server in one, other:
                expect(server.process.wait(LIMIT) == 0, "a clean end")
            logs = [one.whole_log(), other.whole_log()]
        expect(any("prompts_kept" in log for log in logs), f"{logs}")
        for log in logs:
            expect("prompts_kept" in log or "another process" in log, log)
        with Server(*options) as server:
            again, cached = greedy(server)
            expect(again == text and cached >= 0.95 * len(IDS), f"{cached} cached")


def test_a_file_of_another_model_or_a_cut_one_is_replaced():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "prompts")
        ids = [2] + [300 + k * k % 400 for k in range(200)]
        with Server(MODEL, "--prompt-cache", path) as server:
            greedy(server, ids=ids)
            end(server)
        data = path.read_bytes()
        for wrong in data, data[:len(data) // 2], data[:-1] + bytes([data[-1] ^ 1]), b"":
            path.write_bytes(wrong)
            with Server("demo", "--prompt-cache", path) as server:
                log = "".join(server.log)
                expect("prompts_refused" in log and str(path) in log, log)
                _, cached = greedy(server)
                expect(cached == 0, f"{cached} cached")
                end(server)
            with Server("demo", "--prompt-cache", path) as server:
                _, cached = greedy(server)
                expect(cached >= 0.95 * len(IDS), f"{cached} of {len(IDS)} cached")


def expect_wrong_files_refused(*command):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "letter")
        path.write_text("Dear reader")
        done = carat(*command, "--prompt-cache", path)
        expect_status(done, 2)
        expect("something else found" in done.stderr.decode(), f"{done.stderr}")
        expect_error(carat(*command, "--prompt-cache", folder + "/no/file"), 1,
                     "no file can be made in")
        expect_error(carat(*command, "--prompt-cache-ro"), 2, "goes with")
        expect_error(carat(*command, "--prompt-cache", path, "--no-prefix-cache"), 2,
                     "contradicts")
        expect(path.read_text() == "Dear reader", "the file of a person")


def test_other_files_and_folders_that_are_not_there_are_errors_of_run():
    need_demo()
    expect_wrong_files_refused("run", "demo", "Hello", "-n", "4")


def test_other_files_and_folders_that_are_not_there_are_errors_of_serve():
    need_server()
    expect_wrong_files_refused("serve", "demo", "--port", "0")


def test_a_second_run_reads_its_prompt_from_the_file():
    need_demo()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "prompts")
        # As it is pasted from pages of llama.cpp.
        command = ("run", "demo", "-n", 12, "--temp", 0, "--stats", "--prompt-cache", path,
                   "--prompt-cache-all", "-p", TEXT)
        first, second = carat(*command), carat(*command)
        expect_status(first, 0)
        expect(first.stdout == second.stdout, f"{second.stdout} instead of {first.stdout}")
        n, cached = map(int, re.search(r"prompt (\d+) tokens, (\d+) of them from the cache",
                                       second.stderr.decode()).groups())
        expect(cached >= 0.95 * n, f"{cached} of {n} cached")
        expect("from the cache" not in first.stderr.decode(), "a new file")
        before = path.stat()
        expect_status(carat(*command, "--prompt-cache-ro"), 0)
        expect(path.stat().st_ino == before.st_ino, "written in spite of --prompt-cache-ro")
        little = carat(*command, "--prompt-cache-max", "1M")
        expect_status(little, 0)
        expect(path.stat().st_size <= 1 << 20, f"{path.stat().st_size} bytes")


def test_a_chat_goes_on_after_a_restart():
    need_demo()
    with tempfile.TemporaryDirectory() as folder:
        command = ("chat", "demo", "--temp", 0, "-n", 8, "--stats", "--prompt-cache",
                   folder + "/prompts")
        first = carat(*command, stdin=TEXT.encode() + b"\n")
        second = carat(*command, stdin=TEXT.encode() + b"\nAnd then?\n")
        expect_status(second, 0)
        expect(second.stdout.startswith(first.stdout.rstrip()[:8]), f"{second.stdout}")
        expect("of them from the cache" in second.stderr.decode(), f"{second.stderr}")


if __name__ == "__main__":
    program.main(globals())
