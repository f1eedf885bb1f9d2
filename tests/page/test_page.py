#!/usr/bin/env python3
"""The page of `carat serve` in Chromium, in front of a server that says what a script tells it.

usage: tests/page/test_page.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Skipped where chromium or chromedriver is not installed.
"""
import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import program
from browser import BACKSPACE, CONTROL, ENTER, ESCAPE, SHIFT, TAB, browser_at
from mock import Mock, Step, policy, text
from program import LIMIT, at_best, expect

LONG_ANSWER = 20000  # tokens
ANSWER = ".assistant > .text"


@contextlib.contextmanager
def page(*scripts, key=None, **options):
    """The browser on a fresh page; at the end it must have had nothing to complain about."""
    with Mock(*scripts, key=key) as mock:
        browser = browser_at(mock.url, **options)
        if not key:
            browser.wait("document.querySelector('#model').textContent")
        yield browser, mock
        complaints = [line for line in browser.log() if not re.search(r" 4\d\d | 5\d\d ", line)]
        expect(not complaints, f"the browser complains: {complaints}")


def say(browser, words):
    """Sends a message and waits for the end of the answer."""
    browser.find("#input").type(words, ENTER)
    wait_until_over(browser)


def wait_until_over(browser):
    browser.wait("document.querySelector('#stop').hidden && document.querySelector('.actions')")


def set_value(browser, selector, value):
    browser.run("const field = document.querySelector(arguments[0]); field.value = arguments[1];"
                "field.dispatchEvent(new Event('input', {bubbles: true}))", selector, value)


# ---- Answers ----------------------------------------------------------------------------------

def test_an_answer_is_streamed_with_its_thought_folded():
    is_folded, is_begun = threading.Event(), threading.Event()
    script = [{"reasoning_content": "Let me see."}, 1.0, is_folded,
              {"content": "It is "}, is_begun, *text("**four**.")]
    with page(script) as (browser, mock):
        browser.find("#input").type("What is 2 + 2?", ENTER)
        browser.wait("document.querySelector('summary')?.innerText === 'Thinking …'")
        expect(not browser.run("return document.querySelector('details').open"), "not folded")
        is_folded.set()
        browser.wait("document.querySelector(arguments[0]).innerText === 'It is'", ANSWER)
        is_begun.set()
        wait_until_over(browser)
        expect(browser.text(ANSWER) == "It is four.", browser.text(ANSWER))
        expect(re.fullmatch(r"Thought for \d+\.\d s", browser.text("summary")),
               browser.text("summary"))
        browser.find("summary").click()
        expect(browser.text(".thought .text") == "Let me see.", "the thought")
        stats = browser.text(".stats")
        for words in ("100 tokens/s", "56 tokens", "prompt 1,234 (1,000 cached)", "first token"):
            expect(words in stats, f"{words} is not in {stats}")
        expect(mock.requests[0]["messages"] == [{"role": "user", "content": "What is 2 + 2?"}],
               str(mock.requests))


def test_a_stream_may_be_cut_anywhere_and_has_comments():
    whole = (': ping\n\n'
             'data: {"choices": [{"index": 0, "delta": {"content": "süß "}}]}\r\n\r\n'
             'event: message\ndata: {"choices": [{"index": 0,\ndata: "delta": '
             '{"content": "und gut"}}]}\n\n'
             ':\ndata: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n')
    script = [piece for letter in whole for piece in (letter, 0.001)]
    with page(script) as (browser, _):
        say(browser, "Hello")
        expect(browser.text(ANSWER) == "süß und gut", browser.text(ANSWER))
        expect(browser.texts(".failure") == [], "no failure")


def test_stop_leaves_the_server_and_keeps_what_came():
    for press in ("#stop", ESCAPE):
        with page([{"content": "begin "}, Step.FOR_EVER]) as (browser, mock):
            browser.find("#input").type("Count", ENTER)
            browser.wait("document.querySelector(arguments[0])?.innerText.includes('more')", ANSWER)
            if press == ESCAPE:
                browser.keys(ESCAPE)
            else:
                browser.find(press).click()
            expect(mock.departed.wait(LIMIT), "the server has not seen the client leave")
            wait_until_over(browser)
            expect(browser.text(ANSWER).startswith("begin more"), browser.text(ANSWER))
            expect("stopped" in browser.text(".stats"), browser.text(".stats"))
            expect(browser.texts(".failure") == [], "a stop is no failure")


def test_an_edited_message_goes_on_from_there():
    with page(text("one"), text("two"), text("three")) as (browser, mock):
        say(browser, "First")
        say(browser, "Second")
        browser.run("document.querySelectorAll('.user button')[1].click()")
        field = browser.find(".edit textarea")
        field.clear()
        field.type("Changed", ENTER)
        wait_until_over(browser)
        expect(browser.texts(".said") == ["Changed"], str(browser.texts(".said")))
        expect(browser.text(ANSWER) == "three", browser.text(ANSWER))
        expect(mock.requests[2]["messages"] == [{"role": "user", "content": "Changed"}],
               str(mock.requests[2]))


def test_a_message_is_edited_while_its_answer_comes():
    with page([{"content": "old "}, Step.FOR_EVER],
              [{"content": "new "}, Step.FOR_EVER]) as (browser, mock):
        browser.find("#input").type("First", ENTER)
        browser.wait("document.querySelector(arguments[0])?.innerText.includes('old')", ANSWER)
        browser.run("document.querySelectorAll('.user button')[1].click()")
        browser.find(".edit textarea").type(" changed", ENTER)
        browser.wait("document.querySelector(arguments[0])?.innerText.includes('new')", ANSWER)
        expect(mock.departed.wait(LIMIT), "the old answer goes on")
        mock.departed.clear()
        browser.find("#stop").click()
        expect(mock.departed.wait(LIMIT), "the new answer cannot be stopped")
        expect("old" not in browser.text(ANSWER), browser.text(ANSWER))


def test_an_edit_that_is_cancelled_changes_nothing():
    with page(text("one")) as (browser, mock):
        say(browser, "First")
        browser.run("document.querySelectorAll('.user button')[1].click()")
        browser.find(".edit textarea").type(" and more", ESCAPE)
        expect(browser.texts(".said") == ["First"], str(browser.texts(".said")))
        expect(len(mock.requests) == 1, "nothing is sent")


def test_regenerate_asks_again_for_the_same():
    with page(text("one"), text("two"), text("other")) as (browser, mock):
        say(browser, "First")
        say(browser, "Second")
        browser.run("[...document.querySelectorAll('.assistant button')].filter((one) => "
                    "one.textContent === 'Regenerate')[0].click()")
        browser.wait("document.querySelector(arguments[0])?.innerText === 'other'", ANSWER)
        expect(mock.requests[2]["messages"] == mock.requests[0]["messages"], "the same question")
        expect(browser.texts(".said") == ["First"], "what came after is gone")


def test_the_answer_to_a_chat_in_the_background_goes_on():
    may_end = threading.Event()
    with page([{"content": "slow "}, may_end, *text("done")], text("quick")) as (browser, _):
        browser.find("#input").type("Slow", ENTER)
        browser.wait("document.querySelector(arguments[0])?.innerText === 'slow'", ANSWER)
        browser.keys(CONTROL, "k")
        say(browser, "Quick")
        expect(browser.text(ANSWER) == "quick", browser.text(ANSWER))
        may_end.set()
        browser.run("[...document.querySelectorAll('#chat-list .open')].find((one) => "
                    "one.innerText === 'Slow').click()")
        browser.wait("document.querySelector(arguments[0])?.innerText === 'slow done'", ANSWER)


# ---- Settings ---------------------------------------------------------------------------------

def test_settings_reach_the_server():
    with page() as (browser, mock):
        browser.find("#show-settings").click()
        browser.find("#system").type("Answer in rhymes.")
        values = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "max_tokens": 100,
                  "seed": 7, "reasoning_budget": 50}
        for name, value in values.items():
            browser.find(f"#{name}").type(str(value))
        browser.find(".choice label:nth-child(2)").click()
        say(browser, "Hello")
        sent = mock.requests[0]
        for name, value in values.items():
            expect(sent[name] == value, f"{name}: {sent[name]}")
        expect(sent["chat_template_kwargs"] == {"enable_thinking": True}, "thinking")
        expect(sent["messages"][0] == {"role": "system", "content": "Answer in rhymes."}, "system")
        expect(sent["model"] == "mock-model" and sent["stream"], "model and stream")


def test_without_settings_nothing_is_said_about_them():
    with page() as (browser, mock):
        say(browser, "Hello")
        expect(sorted(mock.requests[0]) == ["messages", "model", "return_progress", "stream",
                                            "stream_options"], str(sorted(mock.requests[0])))


def test_a_schema_is_sent_and_bad_json_is_said_before():
    with page(text('{"a_b": "*c*", "d_e": 1}')) as (browser, mock):
        browser.find("#show-settings").click()
        browser.find("#schema").type('{"type": ')
        expect("not JSON" in browser.text("#schema-error"), browser.text("#schema-error"))
        browser.find("#input").type("Hello", ENTER)
        expect("Not sent" in browser.text("#notice"), browser.text("#notice"))
        expect(browser.run("return document.activeElement.id") == "schema", "the field has focus")
        expect(mock.requests == [] and browser.texts(".message") == [], "nothing was sent")
        expect(browser.run("return document.querySelector('#input').value") == "Hello", "kept")
        set_value(browser, "#schema", '{"type": "object"}')
        browser.find("#input").type(ENTER)
        wait_until_over(browser)
        form = mock.requests[0]["response_format"]
        expect(form["type"] == "json_schema" and
               form["json_schema"]["schema"] == {"type": "object"}, str(form))
        expect(browser.text(".assistant code") == '{"a_b": "*c*", "d_e": 1}', "JSON as it is")


def test_a_number_out_of_range_is_not_sent():
    with page() as (browser, mock):
        browser.find("#show-settings").click()
        browser.find("#top_p").type("2")
        browser.find("#input").type("Hello", ENTER)
        expect("Not sent" in browser.text("#notice"), browser.text("#notice"))
        browser.find("#top_p").type(BACKSPACE, "e")
        browser.find("#input").type(ENTER)
        expect(browser.run("return document.activeElement.id") == "top_p", "no number at all")
        expect(mock.requests == [], "nothing was sent")


def test_calls_are_shown_and_results_sent_back():
    call = {"index": 0, "id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": ""}}
    pieces = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
              for piece in ('{"ci', 'ty": "Os', 'lo"}')]
    with page([{"tool_calls": [call]}, *pieces, Step.CALLS], text("Rain.")) as (browser, mock):
        set_value(browser, "#tools", '[{"type": "function", "function": {"name": "weather"}}]')
        say(browser, "Is it raining in Oslo?")
        expect('"city": "Oslo"' in browser.text(".call pre"), browser.text(".call"))
        browser.find(".call textarea").type("rain")
        browser.find(".call button.main").click()
        browser.wait("document.querySelectorAll('.assistant').length === 2")
        wait_until_over(browser)
        sent = mock.requests[1]["messages"]
        expect(sent[1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": {
            "name": "weather", "arguments": '{"city": "Oslo"}'}}], str(sent[1]))
        expect(sent[2] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
               str(sent[2]))
        expect(mock.requests[0]["tools"][0]["function"]["name"] == "weather", "tools")


# ---- Kept chats -------------------------------------------------------------------------------

def test_chats_survive_a_reload():
    with page(text("one"), text("two"), text("three")) as (browser, mock):
        say(browser, "First chat")
        browser.keys(CONTROL, "k")
        browser.find("#show-settings").click()
        browser.find("#system").type("Be brief.")
        say(browser, "Second chat")
        browser.reload()
        browser.wait("document.querySelector(arguments[0])?.innerText === 'two'", ANSWER)
        expect(browser.texts("#chat-list .open") == ["Second chat", "First chat"],
               str(browser.texts("#chat-list .open")))
        browser.run("document.querySelectorAll('#chat-list .open')[1].click()")
        expect(browser.text(ANSWER) == "one", browser.text(ANSWER))
        say(browser, "Go on")
        sent = [message["content"] for message in mock.requests[2]["messages"]]
        expect(sent == ["First chat", "one", "Go on"],
               "its own messages and no system prompt of another chat")


def test_a_deleted_chat_comes_back_by_undo_and_else_is_gone():
    with page(text("one")) as (browser, _):
        say(browser, "First chat")
        browser.run("document.querySelector('#chat-list .remove').click()")
        expect(browser.texts("#chat-list li") == [], "still listed")
        browser.find("#notice button").click()
        expect(browser.text(ANSWER) == "one", "undone")
        browser.run("document.querySelector('#chat-list .remove').click()")
        browser.reload()
        browser.wait("document.querySelector('#model').textContent")
        expect(browser.texts("#chat-list li") == [], "gone after a reload")


def test_exported_chats_are_imported_in_another_browser():
    with page(text("It is **bold**.")) as (browser, _):
        say(browser, "Say it boldly")
        exported = browser.call("POST", "/execute/async", args=[], script="""
            const back = arguments[0], make = URL.createObjectURL;
            URL.createObjectURL = (blob) => {
                blob.text().then(back);
                return make.call(URL, blob);
            };
            document.querySelector('#export').click();""")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chats.json")
        pathlib.Path(path).write_text(exported, encoding="utf-8")
        broken = os.path.join(folder, "broken.json")
        pathlib.Path(broken).write_text('{"chats": 3}', encoding="utf-8")
        with page() as (browser, _):
            browser.find("#import-file").type(path)
            browser.wait("document.querySelector('#chat-list .open')")
            browser.find("#chat-list .open").click()
            expect(browser.text(ANSWER) == "It is bold.", browser.text(ANSWER))
            browser.find("#import-file").type(broken)
            browser.wait("document.querySelector('#notice').innerText.includes('no file that')")


# ---- Refusals ---------------------------------------------------------------------------------

def test_a_key_is_asked_for_and_kept_for_the_tab():
    with page(text("Welcome."), text("Again."), key="sesame") as (browser, _):
        browser.wait("document.querySelector('#key-dialog').open")
        browser.find("#key").type("wrong", ENTER)
        browser.wait("document.querySelector('#key-text').innerText.includes('did not take')")
        browser.find("#key").type("sesame", ENTER)
        browser.wait("document.querySelector('#model').textContent === 'mock-model'")
        say(browser, "Hello")
        expect(browser.text(ANSWER) == "Welcome.", browser.text(ANSWER))
        browser.reload()
        browser.wait("document.querySelector('#model').textContent === 'mock-model'")
        kept = browser.run("return JSON.stringify(localStorage)")
        expect("sesame" not in kept, "the key is kept beyond the tab")


def test_without_a_key_the_refusal_is_shown():
    with page(key="sesame") as (browser, mock):
        browser.wait("document.querySelector('#key-dialog').open")
        browser.keys(ESCAPE)
        browser.wait("!document.querySelector('#key-dialog').open")
        browser.find("#input").type("Hello", ENTER)
        browser.wait("document.querySelector('#key-dialog').open")
        browser.find("#key-cancel").click()
        browser.wait("document.querySelector('.failure')?.innerText.includes('key is needed')")
        expect(mock.requests == [], "nothing was answered")


def test_errors_are_shown_and_can_be_tried_again():
    error = 'data: {"error": {"message": "the device failed", "type": "server_error"}}\n\n'
    scripts = ((503, "all places are taken"), [{"content": "Half an ans"}, error, Step.CUT],
               [{"content": "Half"}, Step.CUT], text("Whole."))
    with page(*scripts) as (browser, mock):
        say(browser, "Hello")
        for words in ("all places are taken (Try again in 2 s.)", "the device failed",
                      "cut before the answer had ended"):
            browser.wait("document.querySelector('.failure')?.innerText.includes(arguments[0])",
                         words)
            browser.find(".failure button").click()
        browser.wait("document.querySelector(arguments[0])?.innerText === 'Whole.'", ANSWER)
        expect(browser.texts(".failure") == [], "the failure is gone")
        expect(len({json.dumps(r["messages"]) for r in mock.requests}) == 1, "the same question")


def test_an_answer_that_never_came_is_not_sent_back():
    with page((503, "not now"), text("Hello.")) as (browser, mock):
        say(browser, "One")
        say(browser, "Two")
        browser.wait("document.querySelectorAll('.assistant').length === 2")
        expect([m["content"] for m in mock.requests[1]["messages"]] == ["One", "Two"],
               str(mock.requests[1]))


# ---- Hostile output ---------------------------------------------------------------------------

HOSTILE = r"""<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>
</div></article><style>body{display:none}</style>
[one](javascript:window.hacked=3) [two](JaVaScRiPt:alert(1)) [three](data:text/html,x)
[four](//evil.example) ![five](https://evil.example/x.png) [six](https://ok.example/"onclick="x)
[seven](vbscript:x) <https://ok.example/a> [eight](https://user:pass@ok.example)

| <b>a</b> | <img onerror=x> |
|---|---|
| <svg onload=window.hacked=4> | `<i>` |

# <iframe src=javascript:1>
- <a href=javascript:1>
> <object>

```"><script>window.hacked=5</script>
</code></pre><img src=x onerror=window.hacked=6>
```
"""


def test_markup_in_answers_stays_text():
    script = [{"reasoning_content": HOSTILE},
              *text(*(HOSTILE[i:i + 3] for i in range(0, len(HOSTILE), 3)))]
    with page(script, text("x")) as (browser, _):
        say(browser, HOSTILE.split("\n", maxsplit=1)[0])
        tags = set(browser.run("return [...document.querySelectorAll('#log *')]"
                               ".map((one) => one.localName)"))
        for tag in ("img", "script", "style", "iframe", "svg", "object", "b", "i"):
            expect(tag not in tags, f"{tag} was made of text")
        links = browser.run("return [...document.querySelectorAll('#log a')]"
                            ".map((one) => [one.href, one.rel, one.target])")
        for href, rel, target in links:
            expect(href.startswith("https://"), href)
            expect(rel == "noopener noreferrer" and target == "_blank", f"{rel} {target}")
        expect(links, "some are links")
        attributes = browser.run("return [...document.querySelectorAll('#log *')].flatMap((one) => "
                                 "one.getAttributeNames())")
        expect(not [a for a in attributes if a.startswith("on") or a == "style"], str(attributes))
        expect(browser.run("return window.hacked ?? 0") == 0, "it was run")
        expect("<img src=x onerror=" in browser.text(ANSWER), "the text is there")


def test_names_of_chats_and_calls_and_errors_stay_text():
    evil = "<img src=x onerror=window.hacked=1>"
    call = {"index": 0, "id": evil, "function": {"name": evil, "arguments": evil}}
    with page([{"tool_calls": [call]}, Step.CALLS], (500, evil)) as (browser, _):
        say(browser, evil)
        browser.keys(CONTROL, "k")
        say(browser, evil)
        expect(browser.run("return document.images.length + (window.hacked ?? 0)") == 0, "made")
        expect(evil in browser.text(".failure"), browser.text(".failure"))
        expect(browser.texts("#chat-list .open")[0] == evil, str(browser.texts("#chat-list .open")))


def test_the_policy_forbids_what_is_not_ours():
    expect(policy() == "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
           "form-action 'none'", policy())
    with page() as (browser, _):
        browser.run("const script = document.createElement('script');"
                    "script.textContent = 'window.hacked = 1'; document.body.append(script)")
        expect(browser.run("return window.hacked ?? 0") == 0, "an inline script ran")
        expect(any("Content Security Policy" in line for line in browser.log()), "no complaint")


# ---- Markdown ---------------------------------------------------------------------------------

MARKDOWN = [
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# A *b* #\n###### C", "<h2>A <em>b</em></h2><h4>C</h4>"),
    ("#no\n#", "<p>#no<br>#</p>"),
    ("**a** __b__ *c* _d_ ~~e~~ ***f***", "<p><strong>a</strong> <strong>b</strong> <em>c</em> "
     "<em>d</em> <del>e</del> <strong><em>f</em></strong></p>"),
    ("**a *b* c** and *a **b** c*", "<p><strong>a <em>b</em> c</strong> and "
     "<em>a <strong>b</strong> c</em></p>"),
    ("2 * 3 * 4, a_b_c, **open, *x", "<p>2 * 3 * 4, a_b_c, **open, *x</p>"),
    ("`a*b*` ``c`d`` `e", "<p><code>a*b*</code> <code>c`d</code> `e</p>"),
    ("*a `b*` c*", "<p><em>a <code>b*</code> c</em></p>"),
    (r"\*a\* \# \x", r"<p>*a* # \x</p>"),
    ("- a\n- b\n  - c\n\n  d\n- e", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul>"
     "<p>d</p></li><li><p>e</p></li></ul>"),
    ("3. a\n4. b\n   lazy\nline\n\ntext", '<ol start="3"><li><p>a</p></li><li><p>b<br>lazy<br>'
     'line</p></li></ol><p>text</p>'),
    ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"
     "<p>c</p>"),
    ("a\n***\n- - -\nb", "<p>a</p><hr><hr><p>b</p>"),
    ("a | b\n:-|-:\n1 | `x\\|y`\n2 |\n\nc", '<div class="table"><table><thead><tr><th class="">a'
     '</th><th class="right">b</th></tr></thead><tbody><tr><td class="">1</td><td class="right">'
     '<code>x|y</code></td></tr><tr><td class="">2</td></tr></tbody></table></div><p>c</p>'),
    ("a | b\nno table", "<p>a | b<br>no table</p>"),
    ("[a](https://x.example/(b)_c_ \"t\"), https://y.example/?q=1.", '<p><a href="https://x.example'
     '/(b)_c_" target="_blank" rel="noopener noreferrer">a</a>, <a href="https://y.example/?q=1" '
     'target="_blank" rel="noopener noreferrer">https://y.example/?q=1</a>.</p>'),
    ("[a] (b) [c](d e)", "<p>[a] (b) [c](d e)</p>"),
]
CODE = "```c\nint x;\n\n- no *list*\n```"


def draw(browser, source, pieces):
    """The HTML that the page makes of Markdown that comes in pieces of this many characters."""
    return browser.call("POST", "/execute/async", args=[source, pieces], script="""
        const [source, size, back] = arguments;
        import('/ui/app.js').then(({ Markdown }) => {
            const host = document.createElement('div');
            const markdown = new Markdown(host);
            for (let at = 0; at < source.length; at += size)
                markdown.append(source.slice(at, at + size));
            markdown.append('', true);
            back(host.innerHTML);
        });""")


def test_markdown_becomes_elements():
    with page() as (browser, _):
        for source, wanted in MARKDOWN:
            made = draw(browser, source, 1 << 20)
            expect(made == wanted, f"{source!r}\nmakes  {made}\nwanted {wanted}")
        made = draw(browser, CODE, 1 << 20)
        expect("<pre><code>int x;\n\n- no *list*</code></pre>" in made, made)


def test_markdown_that_comes_in_pieces_is_the_same():
    whole = "\n\n".join([source for source, _ in MARKDOWN] + [CODE, HOSTILE, "end " + CODE, CODE])
    with page() as (browser, _):
        wanted = draw(browser, whole, 1 << 20)
        for size in (1, 2, 3, 7, 64):
            made = draw(browser, whole, size)
            at = len(os.path.commonprefix([made, wanted]))
            expect(made == wanted, f"pieces of {size}: {made[at - 40:at + 40]!r} is not "
                   f"{wanted[at - 40:at + 40]!r}")


def test_hostile_markdown_takes_no_time():
    patterns = ["*a", "**", "_a_", "`", "[", "[a](", "![", "> ", "- ", "|", "a|b\n-|-\n", "\\",
                "https://", "~~", "*", "[a](" + "(" * 20, "``", "1. ", "# ", "  - a\n", " \t",
                "a* *", "[a]( ", "```\n"]
    with page() as (browser, _):
        for pattern in patterns:
            def seconds(source=pattern * (60000 // len(pattern))):
                begin = time.monotonic()
                draw(browser, source, 1 << 20)
                return time.monotonic() - begin
            at_best(10, seconds, f"seconds for {pattern!r}", 3)


# ---- Looks and access -------------------------------------------------------------------------

def background(browser):
    return sum(map(int, re.findall(r"\d+", browser.run(
        "return getComputedStyle(document.body).backgroundColor"))[:3]))


def test_dark_and_light_follow_the_system_or_the_switch():
    with page() as (browser, _):
        for scheme, is_dark in (("dark", True), ("light", False)):
            browser.colours(scheme)
            expect((background(browser) < 200) == is_dark, f"{scheme}: {background(browser)}")
        browser.find("#theme").click()
        browser.find("#theme").click()
        expect(background(browser) < 200, "the switch makes it dark")
        browser.reload()
        expect(background(browser) < 200, "it stays dark")


def long_answer():
    kinds = ["A sentence with a few words in it, some of them **bold**. ", "\n\n- item `code` \n",
             "\n\n```python\nprint('a line of code that is so long that it must scroll')\n```\n",
             "\n\nwordthatdoesnotend" * 2 + "x" * 90 + "\n\n",
             "| a | b |\n|---|---|\n| 1 | 2 |\n\n"]
    steps, n = [], 0
    while n < LONG_ANSWER:
        for token in re.findall(r"\S+|\s+", kinds[len(steps) // 9 % len(kinds)]):
            steps += [{"content": token}, *([0.02] if n % 50 == 0 else [])]
            n += 1
    return [*steps, Step.STOP]


def test_a_long_answer_on_a_phone_is_smooth_and_not_wider_than_it():
    with page(long_answer(), size=(360, 740)) as (browser, _):
        browser.run("""window.tasks = [];
            new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) =>
                one.duration))).observe({type: 'longtask'});
            window.widest = 0;
            setInterval(() => { widest = Math.max(widest, document.documentElement.scrollWidth,
                document.querySelector('#scroller').scrollWidth); }, 50);""")
        browser.devtools("Performance.enable", timeDomain="threadTicks")
        begin = time.monotonic()
        browser.find("#input").type("Write a lot")
        browser.find("#send").click()
        wait_until_over(browser)
        seconds = time.monotonic() - begin
        metrics = browser.devtools("Performance.getMetrics")["metrics"]
        work = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
        browser.devtools("Performance.disable")
        print(f"     {LONG_ANSWER} tokens in {seconds:.1f} s, the page's work {work:.1f} s; "
              f"the longest task took {max(browser.run('return tasks'), default=0):.0f} ms")
        expect(browser.run("return widest") <= 360, f"{browser.run('return widest')} pixels wide")
        expect(work < LONG_ANSWER * 1e-3, f"more than a millisecond of work a token: {work:.1f} s")
        browser.wait("(s => s.scrollHeight - s.scrollTop - s.clientHeight < 48)"
                     "(document.querySelector('#scroller'))")
        expect(len(browser.text(ANSWER)) > 3 * LONG_ANSWER, "all of it is there")


def test_who_reads_further_up_is_left_there():
    may_end = threading.Event()
    with page([*text("line\n\n" * 200)[:-1], may_end, *text("the end")]) as (browser, _):
        browser.find("#input").type("Write", ENTER)
        browser.wait("document.querySelector('#scroller').scrollTop > 1000")
        browser.run("document.querySelector('#scroller').scrollTop = 500")
        may_end.set()
        wait_until_over(browser)
        expect(browser.run("return document.querySelector('#scroller').scrollTop") == 500, "moved")
        browser.find("#to-end").click()
        browser.wait("document.querySelector('#to-end').hidden")


def test_everything_is_done_with_the_keyboard_alone():
    with page(text("one"), text("two")) as (browser, mock):
        browser.keys("H"), browser.keys("i")
        browser.keys(SHIFT, ENTER)
        browser.keys("!")
        browser.keys(ENTER)
        wait_until_over(browser)
        expect(mock.requests[0]["messages"][0]["content"] == "Hi\n!", str(mock.requests[0]))
        seen = []
        for _ in range(60):
            browser.keys(TAB)
            seen.append(browser.run("""const one = document.activeElement;
                const style = getComputedStyle(one);
                return [one.id || one.textContent.trim() || one.className, style.outlineStyle];"""))
            if seen[-1][0] == "input":
                break
            if browser.run("return document.activeElement === document.body"):
                seen.pop()  # the browser's own controls
        names = [name for name, _ in seen]
        for name in ("new-chat", "Hi", "export", "import", "show-chats", "theme", "show-settings",
                     "Copy", "Edit", "Regenerate"):
            expect(name in names, f"{name} is not reached by Tab: {names}")
        hidden = [name for name, outline in seen if outline == "none" and name != "input"]
        expect(not hidden, f"the focus does not show on {hidden}")
        browser.keys(CONTROL, "k")
        expect(browser.run("return document.activeElement.id") == "input", "ready to write")
        expect(browser.texts(".message") == [], "a new chat")


def test_panels_on_a_phone_take_the_focus_and_give_it_back():
    with page(size=(360, 740)) as (browser, _):
        expect(not browser.run("return document.querySelector('#chats').checkVisibility()"), "open")
        browser.find("#show-settings").click()
        expect(browser.run("return document.activeElement.closest('#settings') !== null"), "focus")
        expect(browser.run("return document.querySelector('main').inert"), "what is below is off")
        browser.keys(ESCAPE)
        expect(browser.run("return document.activeElement.id") == "show-settings", "focus is back")
        expect(not browser.run("return document.querySelector('main').inert"), "on again")


def test_controls_have_names():
    with page(text("one")) as (browser, _):
        say(browser, "Hello")
        browser.find("#show-settings").click()
        found = browser.call("POST", "/elements", using="css selector",
                             value="button, input:not([type=file]), textarea, summary")
        for one in found:
            element = browser.find("body")
            element.name = next(iter(one.values()))
            if not browser.run("return arguments[0].checkVisibility()", one):
                continue
            label = element.call("GET", "/computedlabel")
            expect(label, browser.run("return arguments[0].outerHTML", one))
        roles = browser.run("return ['#log', '#notice'].map((one) => "
                            "document.querySelector(one).role)")
        expect(roles == ["log", "status"], str(roles))


if __name__ == "__main__":
    program.main(globals())
