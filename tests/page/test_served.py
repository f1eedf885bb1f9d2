#!/usr/bin/env python3
"""The page in Chromium in front of `carat serve` with the demo model.

usage: tests/page/test_served.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Skipped where chromium or chromedriver is not installed.
"""
import contextlib
import gzip
import json
import pathlib
import re
import sys
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import program
from browser import ENTER, browser_at
from mock import FILES, PAGE, policy
import server as servers
from program import PROGRAM, Skip, expect
from server import Server

ANSWER = ".assistant > .text"
STORY = "Tell me a story about a small dog."
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ella", "Tom"]},
                                           "age": {"type": "integer", "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


@contextlib.contextmanager
def page(*options, model="demo", key=None):
    """The page of a server of its own; the browser must have had nothing to complain about."""
    with Server(model, *options) as server:
        browser = browser_at(f"http://127.0.0.1:{server.port}/")
        if not key:
            browser.wait("document.querySelector('#model').textContent")
        yield browser, server
        complaints = [line for line in browser.log() if " 401 " not in line]
        expect(not complaints, f"the browser complains: {complaints}")


def say(browser, words):
    browser.find("#input").type(words, ENTER)
    browser.wait("document.querySelector('#stop').hidden && document.querySelector('.stats')")


def test_the_files_are_those_of_the_checkout():
    with Server() as server:
        for path, (name, kind) in FILES.items():
            wanted = (PAGE / name).read_bytes()
            for encoding in ("identity", "gzip;q=0, identity", "gzip"):
                connection = server.connect()
                fields = {"Accept-Encoding": encoding, "Accept": "text/html"}
                connection.request("GET", path, headers=fields)
                reply = connection.getresponse()
                body = reply.read()
                connection.close()
                if encoding == "gzip":
                    expect(reply.getheader("Content-Encoding") == "gzip", f"{path} is not packed")
                    expect(body[4:8] == bytes(4), f"{path} has a time in it")
                    body = gzip.decompress(body)
                expect(body == wanted, f"{path} as {encoding} is not the file")
                expect(reply.getheader("Content-Security-Policy") == policy(), f"{path}: policy")
                expect(reply.getheader("X-Content-Type-Options") == "nosniff", f"{path}: nosniff")
                expect(reply.getheader("Content-Type").startswith(kind), f"{path}: type")
            tag = reply.getheader("ETag")
            for known in tag, tag.removeprefix("W/"), f'"other", {tag}', "*":
                status, _, body = server.ask("GET", path, headers={
                    "If-None-Match": known, "Accept": "text/html"})
                expect(status == 304 and not body, f"{path}: {status} for {known}")
            status, _, body = server.ask("GET", path, headers={
                "If-None-Match": '"other"', "Accept": "text/html"})
            expect(status == 200 and body, f"{path}: {status} for another tag")


def test_an_answer_comes_and_a_second_turn_is_cached():
    with page() as (browser, _):
        say(browser, STORY)
        first = browser.text(ANSWER)
        expect(len(first) > 20, first)
        stats = browser.text(".stats")
        expect(re.search(r"[\d.,]+ tokens/s · \d+ tokens · prompt \d+ · first token", stats), stats)
        say(browser, "Tell me more.")
        expect("cached)" in browser.texts(".stats")[1], browser.texts(".stats")[1])
        browser.reload()
        browser.wait("document.querySelectorAll('.assistant').length === 2")
        expect(browser.text(ANSWER) == first, "the chat is still there")


def test_the_system_prompt_and_the_seed_reach_the_model():
    with page() as (browser, server):
        system = "You are a cat. You answer in one sentence."
        for name, value in (("system", system), ("seed", "7"), ("max_tokens", "40")):
            browser.run("const field = document.getElementById(arguments[0]);"
                        "field.value = arguments[1];"
                        "field.dispatchEvent(new Event('input', {bubbles: true}))", name, value)
        say(browser, STORY)
        whole = server.chat(STORY, seed=7, max_tokens=40, messages=[
            {"role": "system", "content": system}, {"role": "user", "content": STORY}])[1]
        expect(browser.text(ANSWER) == whole["choices"][0]["message"]["content"].strip(),
               f"{browser.text(ANSWER)!r} is not the answer of {whole}")
        expect(f"prompt {whole['usage']['prompt_tokens']}" in browser.text(".stats"),
               f"{browser.text('.stats')}: {whole['usage']}")
        expect("ended at the limit of tokens" in browser.text(".stats"), browser.text(".stats"))


def test_an_answer_by_a_schema_fits_it():
    with page() as (browser, _):
        browser.run("const field = document.querySelector('#schema'); field.value = arguments[0];"
                    "field.dispatchEvent(new Event('input', {bubbles: true}))", json.dumps(SCHEMA))
        say(browser, "Who is it?")
        answer = json.loads(browser.text(".assistant code"))
        expect(answer["name"] in ("Ella", "Tom") and isinstance(answer["age"], int), str(answer))


def test_a_schema_that_the_server_refuses_is_explained():
    with page() as (browser, _):
        browser.run("const field = document.querySelector('#schema'); field.value = arguments[0];"
                    "field.dispatchEvent(new Event('input', {bubbles: true}))", '{"type": "tree"}')
        browser.find("#input").type("Hello", ENTER)
        browser.wait("document.querySelector('.failure')")
        expect("type" in browser.text(".failure p"), browser.text(".failure p"))
        browser.log()  # it has noted the status 400


# What the model is made to say: a member of the request that only carat_scripted has.
SCRIPT = """const ids = arguments[0], send = window.fetch;
    window.fetch = (path, options) => send(path, options?.body ? { ...options, body: JSON.stringify(
        { ...JSON.parse(options.body), x_carat_script: ids, x_carat_delay: 5 }) } : options);"""
SPEECH = ("<|channel>thought\nI need the <b>weather</b>.\n<channel|>I look.<|tool_call>"
          'call:weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|><|tool_response>')


def test_a_thought_and_a_call_of_the_model_are_shown_apart():
    program_with_scripts = pathlib.Path(PROGRAM).parent / "tests/carat_scripted"
    if not program_with_scripts.exists():
        raise Skip("carat_scripted is not built")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"]}}}]
    with unittest.mock.patch.object(servers, "PROGRAM", str(program_with_scripts)), \
            page() as (browser, server):
        ids = server.ask("POST", "/tokenize", {"content": SPEECH, "parse_special": True})[2]
        browser.run(SCRIPT, ids["tokens"])
        browser.run("const field = document.querySelector('#tools'); field.value = arguments[0];"
                    "field.dispatchEvent(new Event('input', {bubbles: true}));"
                    "document.querySelector('.choice label:nth-child(2)').click()",
                    json.dumps(tools))
        say(browser, "Is it raining in Oslo?")
        expect(browser.text(ANSWER) == "I look.", browser.text(ANSWER))
        browser.find("summary").click()
        expect(browser.text(".thought .text") == "I need the <b>weather</b>.",
               browser.text(".thought .text"))
        expect(json.loads(browser.text(".call pre")) == {"city": "Oslo", "days": 2},
               browser.text(".call"))
        expect("<|" not in browser.text("#log") and "|>" not in browser.text("#log"), "raw marks")


def test_stop_frees_the_sequence():
    with page(model=program.long_model()) as (browser, server):
        browser.run("const field = document.querySelector('#temperature'); field.value = '0';"
                    "field.dispatchEvent(new Event('input', {bubbles: true}))")
        browser.find("#input").type("Write", ENTER)  # the likeliest tokens never come to an end
        browser.wait("document.querySelector(arguments[0])?.innerText.length > 100", ANSWER)
        expect(server.busy() == 1, "it is at work")
        browser.find("#stop").click()
        server.wait_until(lambda: server.busy() == 0)
        expect("stopped" in browser.text(".stats"), browser.text(".stats"))


def test_a_server_with_a_key_asks_for_it():
    with page("--api-key", "sesame-open-now", key=True) as (browser, _):
        browser.wait("document.querySelector('#key-dialog').open")
        browser.find("#key").type("sesame-open-now", ENTER)
        browser.wait("document.querySelector('#model').textContent")
        say(browser, STORY)
        expect(len(browser.text(ANSWER)) > 20, browser.text(ANSWER))


def test_a_server_that_is_gone_is_named():
    with page() as (browser, server):
        server.kill()
        browser.find("#input").type("Hello", ENTER)
        browser.wait("document.querySelector('.failure')?.innerText.includes('not be reached')")
        browser.log()  # it has noted the refused connection


if __name__ == "__main__":
    program.main(globals())
