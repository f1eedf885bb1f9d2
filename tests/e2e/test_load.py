#!/usr/bin/env python3
"""`carat bench --load`: numbers that agree with each other, requests that depend on the seed alone.

usage: tests/e2e/test_load.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

No test looks at how long something takes.
"""
import csv
import json
import os
import pathlib
import sqlite3
import tempfile

import program
from program import MODEL, carat, expect, expect_error, expect_status, need_demo
from server import Server, need_server

TIMES = ("ttft", "tpot", "itl", "e2el", "queue")
# What scripts read that were written for vLLM's benchmark.
VLLM_KEYS = ("date backend label num_prompts request_rate burstiness max_concurrency duration "
             "completed failed total_input_tokens total_output_tokens request_throughput "
             "request_goodput output_throughput total_token_throughput max_output_tokens_per_s "
             "max_concurrent_requests input_lens output_lens ttfts").split()
VLLM_KEYS += [f"{word}_{what}_ms" for what in TIMES[:4]
              for word in ("mean", "median", "std", "p99")]


def load(*specs, model=MODEL, flags=()):
    """The rows of a run, as JSON."""
    words = [word for spec in specs for word in ("--load", spec)]
    done = carat("bench", model, "-q", "-o", "json", *words, *flags)
    expect_status(done, 0)
    return json.loads(done.stdout)


def check_row(row):
    """What holds for every row."""
    done = row["completed"]
    ends = done + row["failed"] + row["cancelled"] + row["expired"]
    expect(ends == row["num_prompts"], "requests")
    expect(len(row["input_lens"]) == len(row["output_lens"]) == len(row["ttfts"]) == done, "lists")
    expect(sum(row["input_lens"]) == row["total_input_tokens"], "input tokens")
    expect(sum(row["output_lens"]) == row["total_output_tokens"], "output tokens")
    expect(row["cached_tokens"] <= row["total_input_tokens"], "cached tokens")
    for what in TIMES:
        numbers = [row[f"{word}_{what}_ms"] for word in ("median", "p90", "p99", "max")]
        if None in numbers:
            expect(numbers == [None] * 4 and row[f"mean_{what}_ms"] is None, f"{what}: {numbers}")
        else:
            expect(0 <= numbers[0] and numbers == sorted(numbers), f"{what}: {numbers}")
            expect(0 <= row[f"mean_{what}_ms"] <= numbers[3] * (1 + 1e-9), f"{what}: mean")
    if not done:
        return
    seconds = row["duration"]
    expect(abs(row["output_throughput"] * seconds - row["total_output_tokens"]) < 1e-3, "rate")
    expect(row["max_e2el_ms"] <= seconds * 1e3 * (1 + 1e-9), "the longest request")
    for word in ("mean", "median", "p99", "max"):
        expect(row[f"{word}_queue_ms"] <= row[f"{word}_ttft_ms"] <= row[f"{word}_e2el_ms"], word)
    expect(abs(sum(row["ttfts"]) / done * 1e3 - row["mean_ttft_ms"]) < 1e-6, "ttfts")


def test_a_closed_loop_is_consistent():
    rows = load("users=3,in=40,in-spread=0.5,out=6,requests=12,warmup=2,goodput=ttft:1e6,e2el:1e6")
    expect(len(rows) == 1, f"{len(rows)} rows")
    row = rows[0]
    missing = [key for key in VLLM_KEYS if key not in row]
    expect(not missing, f"without {missing}")
    check_row(row)
    expect(row["completed"] == 12 and row["output_lens"] == [6] * 12, str(row["output_lens"]))
    expect(all(20 <= n <= 60 for n in row["input_lens"]), str(row["input_lens"]))
    expect(len(set(row["input_lens"])) > 4, "lengths differ")
    expect(row["max_concurrency"] == 3 == row["max_concurrent_requests"], "users")
    expect(row["good_share"] == 1, "goals of a quarter of an hour")
    expect(row["request_rate"] == "inf" and row["cached_share"] == 0, "no rate, nothing cached")


def test_the_demo_model_under_load():
    need_demo()
    check_row(load("users=2,in=64,out=8,requests=4", model="demo")[0])


def test_the_seed_alone_decides():
    """Neither the number of users nor that of sequences changes a request or an answer."""
    def digests(users, *flags):
        row = load(f"users={users},in=30,in-spread=0.3,out=8,out-spread=0.5,requests=8",
                   flags=flags)[0]
        check_row(row)
        return row["prompts_digest"], row["answers_digest"], sorted(row["input_lens"])
    first = digests(1)
    expect(digests(1) == first, "the same again")
    expect(digests(4) == first, "four users")
    expect(digests(4, "--users", "2") == first, "four users, two sequences")
    other = digests(1, "--seed", "2")
    expect(all(a != b for a, b in zip(first, other)), "another seed")


def test_repetitions_have_other_tokens():
    rows = load("in=20,out=4,requests=3", flags=["-r", "2"])
    expect([row["repetition"] for row in rows] == [0, 1], "rows")
    expect(rows[0]["input_lens"] == rows[1]["input_lens"], "lengths")
    expect(rows[0]["prompts_digest"] != rows[1]["prompts_digest"], "tokens")


def test_more_requests_than_sequences_wait():
    row = load("in=20,out=5,requests=9", flags=["--users", "2"])[0]
    check_row(row)
    expect(row["n_seq"] == 2 and row["completed"] == 9, "all are answered")
    expect(row["max_concurrent_requests"] == 9, "all arrive at once")
    expect(row["max_queue_ms"] > row["median_itl_ms"], "the last ones wait")


def test_cancelled_requests_count_for_nothing_else():
    row = load("users=3,in=60,out=20,requests=30,cancel=0.5", flags=["--chunk", "16"])[0]
    check_row(row)
    expect(5 < row["cancelled"] < 25 and row["failed"] == 0, f"{row['cancelled']} cancelled")
    expect(row["cancelled_output_tokens"] < row["cancelled"] * 20, "none has its whole answer")
    row = load("users=2,in=20,out=9,requests=6,cancel=1,turns=2")[0]
    check_row(row)
    expect(row["cancelled"] == 6 and row["output_throughput"] == 0, "all are cancelled")


def test_turns_grow_by_the_answer():
    row = load("users=1,chats=2,turns=3,in=20,in-next=7,out=5,requests=6,think=0.001")[0]
    check_row(row)
    expect(row["input_lens"] == [20, 20, 32, 32, 44, 44], str(row["input_lens"]))
    expect(row["reusable_tokens"] == 2 * (25 + 37), str(row["reusable_tokens"]))
    expect(row["mean_next_turn_ttft_ms"] > 0, "later turns")
    shared = load("users=1,in=10,out=2,prefix=30,prefixes=2,requests=6")[0]
    expect(shared["input_lens"] == [40] * 6 and shared["reusable_tokens"] == 120, "four of six")


def test_what_repeats_comes_from_the_cache():
    """Later turns and shared prefixes: all but the last pages. Answers stay the same."""
    turns = "users=2,turns=3,in=150,in-next=20,out=10,requests=6"
    warm, cold = load(turns)[0], load(turns + ",cache=off")[0]
    check_row(warm)
    check_row(cold)
    expect(cold["cached_tokens"] == 0 == cold["cache_hits"], "cache=off")
    expect(warm["cached_tokens"] >= warm["reusable_tokens"] - 4 * 64, str(warm["cached_tokens"]))
    expect(warm["prompt_rows"] <= warm["total_input_tokens"] - warm["cached_tokens"], "rows")
    expect(warm["answers_digest"] == cold["answers_digest"], "answers")
    prefix = "users=1,prefix=200,in=20,out=5,requests=8"
    warm, cold = load(prefix)[0], load(prefix + ",cache=off")[0]
    expect(warm["cached_tokens"] >= 6 * 128, str(warm["cached_tokens"]))
    expect(warm["answers_digest"] == cold["answers_digest"], "answers")
    apart = load(prefix + ",salts=8")[0]
    expect(apart["cached_tokens"] == 0, "each has a salt of its own")
    expect(apart["answers_digest"] == cold["answers_digest"], "a salt changes no answer")


def test_priorities_keys_and_deadlines_change_no_answer():
    plain = load("in=30,out=6,requests=8", flags=["--users", "2"])[0]
    keyed = load("in=30,out=6,requests=8,keys=3,priority=2,deadline=3600",
                 flags=["--users", "2"])[0]
    check_row(keyed)
    expect(keyed["answers_digest"] == plain["answers_digest"] and keyed["expired"] == 0, "answers")
    late = load("in=400,out=50,requests=20,deadline=0.001", flags=["--users", "1"])[0]
    check_row(late)
    expect(late["expired"] > 0, "a millisecond is not enough for 20 requests")


def test_answers_are_held_to_a_schema():
    """Such answers end by themselves, unless a thought comes first, which is free."""
    program.need_json()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "schema.json")
        pathlib.Path(path).write_text('{"enum": ["yes", "no"]}')
        row = load(f"users=3,in=30,out=40,requests=9,schema={path}", model=need_demo())[0]
        check_row(row)
        expect(row["completed"] == 9 and min(row["output_lens"]) < 8, str(row["output_lens"]))
        pathlib.Path(path).write_text('{"type": ')
        expect_error(carat("bench", MODEL, "--load", f"schema={path}"), 2, "--load load1", "line 1")
    expect_error(carat("bench", MODEL, "--load", "schema=/nowhere/x"), 2, "load1", "/nowhere/x")


def test_groups_run_together():
    rows = load("name=talk,users=2,requests=2,in=10,out=60,during=long",
                "name=long,in=50,out=3,after=talk,requests=2", "rate=200,requests=5,in=5,out=2")
    expect([row["label"] for row in rows] == ["all", "talk", "long", "load3"], "rows")
    for row in rows:
        check_row(row)
    for key in ("num_prompts", "completed", "total_input_tokens", "total_output_tokens"):
        expect(rows[0][key] == sum(row[key] for row in rows[1:]), key)
    expect(rows[0]["duration"] >= max(row["duration"] for row in rows[1:]), "the longest")
    expect(rows[2]["max_ttft_ms"] < rows[1]["max_e2el_ms"], "the long ones come in between")
    expect(rows[3]["request_rate"] == 200 and rows[3]["max_concurrency"] is None, "open loop")


def test_formats_say_the_same():
    words = ["bench", MODEL, "-q", "--load", "name=a,requests=2,in=8,out=3", "-o"]
    table = carat(*words, "md").stdout.decode()
    expect("2 of 2 requests" in table and "to the first token" in table, table)
    rows = list(csv.DictReader(carat(*words, "csv").stdout.decode().splitlines()))
    expect(len(rows) == 1 and rows[0]["completed"] == "2", str(rows))
    expect(rows[0]["load"] == "name=a,requests=2,in=8,out=3", rows[0]["load"])
    expect(rows[0]["request_goodput"] == "" and None not in rows[0], "as many values as keys")
    row = json.loads(carat(*words, "jsonl").stdout)
    expect(row["label"] == "a" and row["completed"] == 2, "one object")
    base = sqlite3.connect(":memory:")
    base.executescript(carat(*words, "sql").stdout.decode())
    found = base.execute("select label, completed, request_goodput from carat_load").fetchall()
    expect(found == [("a", 2, None)], str(found))
    both = carat(*words, "jsonl", "-oe", "csv")
    expect(len(both.stderr.splitlines()) == 2, "a second table")


def test_wrong_loads_are_refused_by_name():
    for spec, *words in (("user=2", "user", "keys: ", "users"), ("users", "users", "missing"),
                         ("users=0", "users=0", "from 1"), ("in=x", "in=x"), ("in=-5", "in=-5"),
                         ("in=1e3", "in=1e3", "whole"), ("rate=nan", "rate=nan"),
                         ("rate=", "rate="),
                         ("in-spread=2", "from 0 to 1"), ("users=2,rate=5", "users", "rate"),
                         ("name=a b", "letters"), ("name=" + "x" * 40, "31"),
                         ("goodput=ttft", "goodput"), ("goodput=xy:3", "xy:3"),
                         ("goodput=ttft:0", "ttft:0"), ("after=later", "later"),
                         ("during=none", "none"), ("in=1m,out=1m", "tokens"), (",", "key"),
                         ("cache=maybe", "cache=maybe", "on or off"),
                         ("in=99999999999999999999", "in=9"), ("turns=1024,in=2k", "tokens")):
        expect_error(carat("bench", MODEL, "--load", spec), 2, "--load", *words)
    expect_error(carat("bench", MODEL, "--load", "name=a", "--load", "name=a"), 2, "two groups")
    expect_error(carat("bench", MODEL, "--load", "in=5", "-p", "64"), 2, "--n-prompt", "--load")
    expect_error(carat("bench", MODEL, "--load", "in=5", "--users", "1,2"), 2, "--users")
    expect_error(carat("bench", MODEL, *["--load", "in=5"] * 17), 2, "16 groups")
    expect_error(carat("bench", MODEL, "--load", "in=900k,requests=1"), 2, "context")
    expect_error(carat("bench", "--load", "in=5"), 2, "MODEL is missing")


# ---- A server

def need_url():
    need_server()
    if "libcurl" not in program.libraries():
        raise program.Skip("built without libcurl")


def load_url(server, *specs, flags=()):
    words = [word for spec in specs for word in ("--load", spec)]
    done = carat("bench", "-q", "-o", "json", "--url", f"http://127.0.0.1:{server.port}", *words,
                 *flags)
    expect_status(done, 0)
    return json.loads(done.stdout)


def test_a_server_gives_the_answers_of_the_engine():
    need_url()
    with Server("demo", "--parallel", "4") as server:
        for spec in ("users=3,in=40,in-spread=0.5,out=12,out-spread=0.5,requests=9,warmup=2",
                     "users=2,turns=3,in=150,in-next=20,out=10,requests=6",
                     "in=20,out=4,requests=6,temp=1",
                     "users=1,prefix=200,in=20,out=5,requests=4,cache=off"):
            here, there = load(spec, model="demo")[0], load_url(server, spec)[0]
            check_row(there)
            for key in ("prompts_digest", "answers_digest", "input_lens", "output_lens",
                        "completed", "reusable_tokens"):
                expect(here[key] == there[key], f"{spec}: {key}: {here[key]}, {there[key]}")
            expect(there["n_seq"] == 4 and there["backends"] == "http", "the server's facts")
        turns = load_url(server, "users=2,turns=3,in=150,in-next=20,out=10,requests=6",
                         flags=["--seed", "5"])[0]
        expect(turns["cached_tokens"] >= turns["reusable_tokens"] - 4 * 64, "later turns")
        table = carat("bench", "--url", f"http://127.0.0.1:{server.port}/v1/", "--load",
                      "in=9,out=3").stdout.decode()
        expect("demo on http, 4 sequences" in table and "1 of 1 requests" in table, table)


def test_requests_to_a_server_are_cancelled_by_leaving():
    need_url()
    with Server("demo", "--parallel", "2") as server:
        row = load_url(server, "users=3,in=200,out=30,requests=20,cancel=0.5")[0]
        check_row(row)
        expect(3 < row["cancelled"] < 17 and row["failed"] == 0, f"{row['cancelled']} cancelled")
        server.wait_until(lambda: server.busy() == 0)
        row = load_url(server, "in=20,out=900,requests=3,deadline=0.05")[0]
        expect(row["expired"] > 0 and row["failed"] == 0, f"{row['expired']} past their deadline")


def test_a_server_is_sent_the_schema():
    need_url()
    program.need_json()
    with tempfile.TemporaryDirectory() as folder, Server("demo") as server:
        path = os.path.join(folder, "schema.json")
        pathlib.Path(path).write_text('{"enum": ["yes", "no"]}')
        row = load_url(server, f"users=3,in=30,out=40,requests=9,schema={path}")[0]
        check_row(row)
        expect(row["completed"] == 9 and min(row["output_lens"]) < 8, str(row["output_lens"]))


def test_what_a_server_refuses_is_said():
    need_url()
    with Server("demo", "--api-key", "secret") as server:
        url = f"http://127.0.0.1:{server.port}"
        expect(load_url(server, "in=9,out=3", flags=["--api-key", "secret"])[0]["completed"] == 1,
               "with the key")
        expect_error(carat("bench", "--url", url, "--load", "in=9"), 6, "--url", "401")
        done = carat("bench", "--url", url, "--api-key", "secret", "-q", "--load",
                     "in=5000,out=3")
        expect(done.returncode == 1 and b"1 FAILED" in done.stdout, str(done.stdout))
        for word in ("1 requests have failed", "400", "context"):
            expect(word in done.stderr.decode(), done.stderr.decode())
    expect_error(carat("bench", "--url", url, "--load", "in=9"), 6, "--url", url)
    expect_error(carat("bench", MODEL, "--url", url, "--load", "in=9"), 2, "--url", "model")
    expect_error(carat("bench", "--url", url), 2, "--url", "--load")


if __name__ == "__main__":
    program.main(globals())
