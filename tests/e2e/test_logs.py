#!/usr/bin/env python3
"""The server's log, whatever clients send: every line is one event, and neither prompts nor answers
nor keys are in it.

usage: tests/e2e/test_logs.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import contextlib
import json
import os
import re
import socket
import subprocess
import tempfile

from program import LIMIT, PROGRAM, ROOT, environment, expect, main
from server import Server, need_server

CHAT = "/v1/chat/completions"
KEY, WRONG = "sk-right-4711", "sk-wrong-0815"
SECRET = "xylophone"  # of prompts
FORGED = "forged-line"


def disturb(server):
    """Requests of all kinds, with secrets and forged lines wherever a client can write."""
    headers = {"Authorization": f"Bearer {KEY}", "x-request-id": "my-id.1"}
    body = {"messages": [{"role": "user", "content": f"Say {SECRET}"}], "max_tokens": 8,
            "temperature": 0}
    answer = server.ask("POST", CHAT, body, headers)
    expect(answer[0] == 200 and answer[1]["x-request-id"] == "my-id.1", f"{answer}")
    server.stream(CHAT, {**body, "stream": True, "user": SECRET}, headers)
    server.ask("POST", CHAT, {**body, "temperature": SECRET}, headers)
    server.ask("POST", CHAT, f'{{"{SECRET}": \n{FORGED}', headers)
    server.ask("POST", CHAT, {**body, "model": f"{SECRET}\n{FORGED}"}, headers)
    server.ask("POST", "/tokenize", {"content": SECRET}, headers)
    server.ask("POST", CHAT, body, {"Authorization": f"Bearer {WRONG}"})
    server.ask("POST", CHAT, body, {"x-api-key": WRONG})
    server.ask("GET", f"/v1/models?api_key={KEY}&q={SECRET}", None, headers)
    server.ask("GET", f"/{SECRET}%0A{FORGED}%1b%5b2J", None, headers)
    server.ask("BREW", "/v1/models", None, {**headers, "User-Agent": f"{SECRET} {FORGED}"})
    for raw in (f"GET /v1/models HTTP/1.1\r\nHost: a\r\nx-request-id: {FORGED}\x1b[31m\r\n\r\n",
                f"{FORGED}\n{FORGED}\r\n\r\n", f"POST {CHAT} HTTP/1.1\r\nHost: {SECRET}\r\n"
                f"Content-Length: 100\r\n\r\n{SECRET}"):
        with server.socket() as s, contextlib.suppress(OSError):
            s.settimeout(LIMIT)
            s.sendall(raw.encode("latin-1"))
            s.shutdown(socket.SHUT_WR)
            s.recv(4096)
    return [answer[2]["choices"][0]["message"]["content"]]


def logged(*options):
    """The lines of a server that was disturbed, and the texts of its answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{KEY}\n")
        with Server("demo", "--api-key-file", path, *options) as server:
            texts = disturb(server)
            expect(server.stop() == 0, "a clean end")
            lines = server.whole_log().split("\n")
    expect(lines.pop() == "", "the last line does not end")
    return lines, texts


def expect_no_secret(lines, texts):
    for line in lines:
        for word in (KEY, WRONG, SECRET, *(t for t in texts if len(t) > 3)):
            expect(word not in line, f"{word!r} is in the log: {line!r}")
        expect(not line.startswith(FORGED), f"forged: {line!r}")
        expect(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line), f"a control character: {line!r}")


def test_text_has_no_secret_and_no_forged_line():
    lines, texts = logged()
    expect_no_secret(lines, texts)
    events = [line for line in lines
              if re.match(r"\d{4}-\d\d-\d\dT\S+Z (info|warning|error) ", line)]
    expect(len(events) >= 10, f"{len(events)} events: {lines[-3:]}")
    expect(any("id=my-id.1" in line and f"route={CHAT}" in line for line in events),
           f"{events[:3]}")


def test_json_lines_parse_and_have_no_secret():
    lines, texts = logged("--log-format", "json")
    expect_no_secret(lines, texts)
    events = [json.loads(line) for line in lines if line.startswith("{")]
    expect(len(events) >= 10, f"{len(events)} events")
    others = [line for line in lines if not line.startswith(("{", "carat: "))]
    expect(not others, f"no JSON: {others[:2]}")
    for event in events:
        expect({"time", "level", "event"} <= event.keys(), f"{event}")
    answers = [e for e in events if e["event"] == "request" and e.get("id") == "my-id.1"]
    expect(answers and answers[0]["status"] == 200, f"{answers[:1]}")


def test_a_journal_gets_priorities():
    need_server()
    with tempfile.TemporaryFile() as journal:
        facts = os.fstat(journal.fileno())
        env = environment(JOURNAL_STREAM=f"{facts.st_dev}:{facts.st_ino}")
        # A port that nobody may take: it ends by itself.
        with socket.create_server(("127.0.0.1", 0)) as taken:
            subprocess.run([PROGRAM, "serve", "demo", "--port", str(taken.getsockname()[1])],
                           env=env, cwd=ROOT, stderr=journal, stdin=subprocess.DEVNULL, timeout=60)
        server = subprocess.Popen([PROGRAM, "serve", "demo", "--port", "0"], env=env, cwd=ROOT,
                                  stdin=subprocess.DEVNULL, stderr=journal)
        try:
            for _ in range(1200):
                journal.seek(0)
                text = journal.read().decode()
                if "answers on" in text:
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(0.05)
        finally:
            server.terminate()
            server.wait(60)
        journal.seek(0)
        text = journal.read().decode()
    events = [line for line in text.splitlines() if line.startswith("<")]
    expect(events and all(re.match(r"<[3467]>[a-z_]+( |$)", line) for line in events),
           f"{text[-500:]}")


def test_every_event_is_documented():
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    logs = text[text.index("\n## Logs\n"):]
    found = set()
    for path in (ROOT / "src/server").glob("*.c"):
        calls = re.findall(r"\blog_(?:event|problem|counts)\((.*?);", path.read_text("utf-8"), re.S)
        for call in calls:
            words = re.findall(r'"(\w+)"', re.split(r"LOG_\w+\(|\{", call)[0])
            found |= set(words)
    expect({"request", "refused", "prompts_kept", "kv_events"} <= found, f"{found}")
    missing = {event for event in found if f"`{event}`" not in logs}
    expect(not missing, f"docs/operations.md lacks {sorted(missing)}")


if __name__ == "__main__":
    main(globals())
