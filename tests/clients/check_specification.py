#!/usr/bin/env python3
"""Requests of every kind go through a proxy that holds them and their replies to docs/openapi.yaml.

usage: check_specification.py PROGRAM FOLDER

PROGRAM is carat_scripted, FOLDER where the proxy (prism, from npm) goes. Prints ok or FAIL for
every request. Without node, npm or the registry the last line says "skipped: " and why.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import run

USER = [{"role": "user", "content": "Hi"}]
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "string"}}}}}
SPECIFICATION = run.ROOT / "docs/openapi.yaml"


def ask(address, method, path, body):
    """Status and text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, method=method,
                                     headers={"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start_proxy(folder, url):
    port = free_port()
    with open(folder / "prism.log", "w", encoding="utf-8") as log:
        proxy = subprocess.Popen(
            ["node_modules/.bin/prism", "proxy", str(SPECIFICATION), url, "--errors",
             "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            ask(address, "GET", "/health", None)
            return proxy, address
        except OSError:
            time.sleep(0.1)
    sys.exit((folder / "prism.log").read_text(encoding="utf-8")[-2000:] + "\nprism did not start")


def chats(ids):
    """Bodies for /v1/chat/completions; `ids` gives the tokens of a script."""
    call = '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|><|tool_response>'
    yield {"messages": USER, "max_tokens": 5}
    yield {"messages": USER, "max_tokens": 5, "logprobs": True, "top_logprobs": 2, "n": 2}
    yield {"messages": USER, "tools": [FUNCTION], "max_tokens": 50, "x_carat_script": ids(call)}
    yield {"messages": USER, "reasoning_effort": "low", "max_tokens": 8,
           "x_carat_script": ids("<|channel>thought\nhm ham hum hem ham hum")}
    yield {"messages": USER, "max_tokens": 5, "stream": True,
           "stream_options": {"include_usage": True}}
    yield {"messages": [*USER, {"role": "wizard", "content": "x"}][:1], "max_tokens": 1,
           "stop": ["a"], "seed": 1, "temperature": 0}


def requests(ids):
    for path in ("/health", "/v1/health", "/health/ready", "/health/live", "/metrics", "/props",
                 "/slots", "/v1/models", "/models", "/v1/models/demo", "/api/tags", "/api/ps",
                 "/api/version", "/openapi.yaml", "/"):
        yield "GET", path, None
    for body in chats(ids):
        yield "POST", "/v1/chat/completions", body
    yield "POST", "/chat/completions", {"messages": USER, "max_tokens": 2}
    for more in ({"prompt": ["a", "b"], "logprobs": 2}, {"prompt": [[5, 6], [7]]},
                 {"prompt": "a", "stream": True}, {"prompt": [5, 6], "echo": True}):
        yield "POST", "/v1/completions", {**more, "max_tokens": 3}
    for more in ({"input": "Hi"}, {"input": USER, "stream": True}):
        yield "POST", "/v1/responses", {**more, "max_output_tokens": 20}
    for path in ("/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens"):
        yield "POST", path, {"messages": USER, "max_tokens": 5}
    yield "POST", "/v1/messages", {"messages": USER, "max_tokens": 5, "stream": True}
    for more in ({}, {"stream": False}, {"messages": [], "keep_alive": 0}):
        yield "POST", "/api/chat", {"model": "demo", "messages": USER,
                                    "options": {"num_predict": 5}, **more}
    for more in ({}, {"stream": False}):
        yield "POST", "/api/generate", {"model": "demo", "prompt": "a",
                                        "options": {"num_predict": 5}, **more}
    yield "POST", "/api/show", {"model": "demo"}
    yield "POST", "/tokenize", {"content": "Hello", "with_pieces": True}
    yield "POST", "/detokenize", {"tokens": [500, 600]}
    yield "POST", "/apply-template", {"messages": USER}
    yield "POST", "/v1/chat/completions/render", {"messages": USER}
    yield "POST", "/v1/completions/render", {"prompt": "a"}
    yield "POST", "/v1/responses/input_tokens", {"input": "Hi"}
    # Routes that answer 501 are checked by themselves: the proxy makes answers up for those.
    # Errors that only the server finds.
    yield "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 40000}]}
    yield "POST", "/v1/chat/completions", {"messages": USER, "n": 99}


def absent_routes():
    """(method, path) of what the server knows and does not do."""
    text = (run.ROOT / "src/server/routes.c").read_text(encoding="utf-8")
    rows = re.findall(r'^    ABSENT\("([A-Z]+)", "([^"]+)", "([^"]+)"\)', text, re.MULTILINE)
    return [(method, path.replace("*", "x"), what) for method, path, what in rows]


def is_error(path, text):
    """Whether a body is an error of the path's interface, with all that the specification wants."""
    body = json.loads(text)
    if path.startswith("/api/"):
        return isinstance(body["error"], str)
    error = body["error"]
    if path.startswith("/v1/messages"):
        return body["type"] == "error" and isinstance(error["message"], str)
    return (all(isinstance(error[key], str) for key in ("message", "type", "code"))
            and error["param"] is None and error["type"] == "not_supported")


def check_absent(address, url):
    """The server itself says 501 and what it does not do; the proxy knows the route."""
    passed = failed = 0
    routes = absent_routes()
    for method, path, what in routes:
        status, text = ask(url, method, path, {})
        made_up = ask(address, method, path, {})[1]
        is_right = status == 501 and what in text and is_error(path, text)
        is_known = not re.search("NO_PATH_MATCHED|NO_METHOD_MATCHED", made_up)
        passed, failed = passed + (is_right and is_known), failed + (not (is_right and is_known))
        shown = "ok  " if is_right and is_known else "FAIL"
        print(f"{shown} {method} {path}: {status} {text.strip()[:200]}"
              + ("" if is_known else f"; the proxy: {made_up[:300]}"))
    if len(routes) < 10:
        print("FAIL the table of routes is not found")
        failed += 1
    return passed, failed


def check_all(address):
    def ids(text):
        body = {"content": text, "parse_special": True}
        return json.loads(ask(address, "POST", "/tokenize", body)[1])["tokens"]
    failed = passed = 0
    for method, path, body in requests(ids):
        status, text = ask(address, method, path, body)
        shown = f"{method} {path} {json.dumps(body)[:100]}"
        if "stoplight.io/prism" in text:
            failed += 1
            print(f"FAIL {shown}: {status} {text[:1500]}")
        else:
            passed += 1
            print(f"ok   {shown}: {status}")
    return passed, failed


def wrong_is_noticed(address):
    """The proxy holds requests to the specification at all."""
    text = ask(address, "POST", "/v1/chat/completions", {"messages": USER, "temperature": 1000})[1]
    return re.search("stoplight.io/prism", text) is not None


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    run.install(folder, run.HERE / "specification")
    server, url = run.start(program, run.long_demo(folder), folder)
    proxy = None
    try:
        proxy, address = start_proxy(folder, url)
        passed, failed = check_all(address)
        more = check_absent(address, url)
        passed, failed = passed + more[0], failed + more[1]
        if not wrong_is_noticed(address):
            failed += 1
            print("FAIL the proxy checks nothing")
    finally:
        if proxy:
            os.killpg(proxy.pid, signal.SIGTERM)
        run.stop(server)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
