#!/usr/bin/env python3
"""/metrics, read as strictly as its readers do: Prometheus, the endpoint picker of Kubernetes'
Gateway API, and the board in deploy/grafana. What it says is what was asked and answered.

usage: tests/e2e/test_metrics.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import json
import math
import re
import shutil
import subprocess

from program import ROOT, Skip, expect, long_model, main
from server import Server

CHAT = "/v1/chat/completions"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\})')
SUFFIXES = {"counter": [""], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}


def read_labels(text):
    """The labels of '{...}', which must be used up; as sorted pairs."""
    labels, at = [], 1
    while text:
        match = LABEL.match(text, at)
        expect(match, f"labels {text!r} at {at}")
        expect(match.group(1) not in dict(labels), f"label twice: {text!r}")
        value = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), match.group(2))
        labels.append((match.group(1), value))
        at = match.end()
        if match.group(3) == "}":
            expect(at == len(text), f"after the labels: {text!r}")
            break
    return tuple(sorted(labels))


def read(text):
    """{family: (kind, {(sample, labels): value})} of a whole text; fails at what no reader of the
    format takes."""
    expect(text.endswith("\n"), "the last line does not end")
    families, family, kind = {}, None, None
    for line in text.splitlines():
        comment = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
        if comment and comment.group(1) == "HELP":
            family, kind = comment.group(2), None
            expect(family not in families, f"{family} comes twice")
        elif comment:
            kind = comment.group(3)
            expect(comment.group(2) == family and family not in families, f"TYPE: {line!r}")
            expect(kind in SUFFIXES, f"kind: {line!r}")
            families[family] = (kind, {})
        else:
            sample = re.fullmatch(rf"({NAME})(\{{.*\}})? (\S+)", line)
            expect(sample and kind, f"no sample: {line!r}")
            names = [family + suffix for suffix in SUFFIXES[kind]]
            expect(sample.group(1) in names, f"{sample.group(1)} among samples of {family}")
            key = (sample.group(1), read_labels(sample.group(2) or ""))
            expect(key not in families[family][1], f"twice: {line!r}")
            families[family][1][key] = float(sample.group(3))
    for name, (kind, samples) in families.items():
        check_family(name, kind, samples)
    return families


def check_family(name, kind, samples):
    expect(samples, f"{name} has no samples")
    if kind == "counter":
        expect(name.endswith("_total"), f"counter {name}")
        expect(all(v >= 0 and math.isfinite(v) for v in samples.values()), f"{name}: {samples}")
    if kind != "histogram":
        return
    for key in {tuple(p for p in labels if p[0] != "le") for _, labels in samples}:
        buckets = [(float(dict(labels)["le"]), value) for (sample, labels), value in samples.items()
                   if sample == name + "_bucket" and set(key) < set(labels)]
        expect(buckets == sorted(buckets), f"{name}: bounds do not rise: {buckets}")
        counts = [count for _, count in buckets]
        expect(counts == sorted(counts), f"{name}: buckets are not cumulative: {counts}")
        expect(buckets[-1][0] == math.inf, f"{name}: no +Inf")
        expect(samples[(name + "_count", key)] == counts[-1], f"{name}: +Inf is not the count")
        expect((name + "_sum", key) in samples, f"{name}: no sum")


def scrape(server):
    status, headers, text = server.ask("GET", "/metrics")
    expect(status == 200, f"{status}")
    expect(headers["Content-Type"].startswith("text/plain; version=0.0.4"),
           f"{headers['Content-Type']}")
    return text


def value(families, name, **labels):
    """The sum of the samples with these labels."""
    family = next(f for f in families if name in {s for s, _ in families[f][1]})
    found = [v for (sample, pairs), v in families[family][1].items()
             if sample == name and set(labels.items()) <= set(pairs)]
    expect(found, f"no {name} {labels}")
    return sum(found)


def test_every_reader_understands_it_before_and_after_requests():
    with Server("demo", "--alias", 'a "model" \\ of ours') as server:
        before = read(scrape(server))
        server.chat("Hello", max_tokens=4)
        server.ask("GET", '/nosuch"route%0A')
        after = read(scrape(server))
        model = {dict(labels)["model"] for _, labels in after["carat_ready"][1]}
        expect(model == {'a "model" \\ of ours'}, f"{model}")
        for name, (kind, samples) in before.items():
            for key, old in samples.items():
                new = after[name][1].get(key)
                expect(kind == "gauge" or (new is not None and new >= old),
                       f"{name} {key} went from {old} to {new}")


def test_counters_are_the_sums_of_usage():
    with Server("demo", "--parallel", "2") as server:
        usages = []
        for i in range(4):
            status, body = server.chat("Tell me a story about a small dog.", max_tokens=5 + i)
            expect(status == 200, f"{body}")
            usages.append(body["usage"])
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "stream": True,
                "stream_options": {"include_usage": True}}
        usages += [event["usage"] for event in server.stream(CHAT, body)
                   if event != "[DONE]" and event.get("usage")]
        server.wait_until(lambda: server.metric("carat_requests_running") == 0)
        families = read(scrape(server))
        cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
        for name, expected in (
                ("carat_prompt_tokens_total", sum(u["prompt_tokens"] for u in usages)),
                ("carat_generation_tokens_total", sum(u["completion_tokens"] for u in usages)),
                ("carat_prompt_tokens_cached_total", cached),
                ("carat_request_success_total", len(usages)),
                ("carat_e2e_request_latency_seconds_count", len(usages)),
                ("carat_request_prompt_tokens_sum", sum(u["prompt_tokens"] for u in usages)),
                ("carat_prefix_cache_queries_total", sum(u["prompt_tokens"] for u in usages)),
                ("carat_prefix_cache_hits_total", cached)):
            got = value(families, name)
            expect(got == expected, f"{name} is {got}, {expected} expected")
        expect(value(families, "carat_requests_total", route=CHAT, status="200") == 5, "replies")
        expect(value(families, "carat_time_to_first_token_seconds_count") == 5, "first tokens")


def test_the_endpoint_picker_finds_its_names():
    with Server("demo", "--parallel", "2") as server:
        server.chat("Hello", max_tokens=4)
        families = read(scrape(server))
        for name in ("vllm:num_requests_waiting", "vllm:num_requests_running",
                     "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
            kind, samples = families[name]
            expect(kind == "gauge" and len(samples) == 1, f"{name}: {kind} {samples}")
        expect(0 <= value(families, "vllm:kv_cache_usage_perc") <= 1, "a share")
        (_, labels), one = next(iter(families["vllm:cache_config_info"][1].items()))
        facts = dict(labels)
        expect(one == 1 and int(facts["block_size"]) == 64 and int(facts["num_gpu_blocks"]) > 0,
               f"{facts}")
        for name in ("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total",
                     "vllm:prompt_tokens_total", "vllm:generation_tokens_total"):
            expect(families[name][0] == "counter", name)
        expect(value(families, "vllm:prompt_tokens_total") > 0, "prompt tokens")


def test_running_and_waiting_requests_are_counted():
    with Server(long_model(), "--parallel", "1", "--ctx-size", 65536) as server:
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True,
                "max_tokens": 60000, "ignore_eos": True}
        with server.open(CHAT, body), server.open(CHAT, body), server.open(CHAT, body):
            server.wait_until(lambda: (server.metric("vllm:num_requests_running"),
                                       server.metric("vllm:num_requests_waiting")) == (1, 2))
            expect(server.metric("carat_streams") == 3, "streams")
            expect(server.metric("vllm:kv_cache_usage_perc") > 0, "pages in use")
        server.wait_until(lambda: server.metric("carat_requests_running") == 0)
        expect(server.metric("carat_cancelled_total") == 3, "three clients left")


def test_promtool_has_no_complaint():
    if not shutil.which("promtool"):
        raise Skip("promtool (package prometheus) is not installed")
    with Server() as server:
        server.chat("Hello", max_tokens=4)
        text = scrape(server)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True)
    # The names of vLLM have a colon, which is all that may be said.
    says = [line for line in (done.stdout + done.stderr).splitlines()
            if not re.fullmatch(r"vllm:\w+ metric names should not contain ':'", line)]
    expect(not says and done.returncode in (0, 3), f"{done.returncode}: {says}")


def test_the_boards_names_exist():
    board = json.loads((ROOT / "deploy/grafana/carat.json").read_text(encoding="utf-8"))
    with Server() as server:
        server.chat("Hello", max_tokens=4)
        families = read(scrape(server))
    samples = {sample for _, found in families.values() for sample, _ in found}
    texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    texts += [v["query"] for v in board["templating"]["list"]]
    names = {n for text in texts for n in re.findall(r"\b(?:carat|process|vllm:)_?\w+", text)}
    expect(len(names) > 20, f"only {names}")
    expect(names <= samples, f"not in /metrics: {names - samples}")
    labels = {label for _, found in families.values() for _, pairs in found for label, _ in pairs}
    used = {n for text in texts for group in re.findall(r"by \(([^)]*)\)", text)
            for n in re.split(r",\s*", group)} - {"instance"}
    expect(used <= labels, f"no such labels: {used - labels}")


if __name__ == "__main__":
    main(globals())
