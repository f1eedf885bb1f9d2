#!/usr/bin/env python3
"""Answers that a client begins: `continue_final_message`, and Anthropic's messages that end with
one of the assistant. The prompt is the usual one and then the text; the reply has only what is new.

usage: tests/e2e/test_begun.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
from apis import QUESTION, SCHEMA, assistant, user
from program import expect, main
from server import Server, text_of

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
STORY = "Tell me a story about a small dog."
TEXTS = ("Once", "The dog saw", " a", "{\n", "Yes\n\n", "<turn|>\n<|turn>user\nNo", "x" * 500)


def begun(text, question=STORY, **more):
    return {"messages": [user(question), assistant(text)], "continue_final_message": True, **more}


def get(server, path, body):
    status, _, reply = server.ask("POST", path, body)
    expect(status == 200, f"{path} {body}: {status} {reply}")
    return reply


def ids_of(server, body):
    return get(server, CHAT + "/render", body)["token_ids"]


def test_the_prompt_is_the_usual_one_and_then_the_beginning():
    with Server("demo") as server:
        plain = {"messages": [user(STORY)]}
        before = ids_of(server, plain)
        template = get(server, "/apply-template", plain)["prompt"]
        for text in TEXTS:
            tokens = get(server, "/tokenize", {"content": text, "parse_special": False})["tokens"]
            for more in ({}, {"add_generation_prompt": False}, {"reasoning_effort": "none"}):
                body = begun(text, **more)
                expect(ids_of(server, body) == before + tokens, f"{text!r} {more}")
                expect(get(server, "/apply-template", body)["prompt"] == template + text, text)
            expect(get(server, "/tokenize", begun(text))["tokens"] == before + tokens, text)
            if text == text.rstrip():
                count = get(server, MESSAGES + "/count_tokens", {"messages": body["messages"]})
                expect(count["input_tokens"] == len(before + tokens), f"{text!r}: {count}")


def test_without_the_flag_it_is_a_whole_turn():
    with Server("demo") as server:
        for more in ({}, {"continue_final_message": False}, {"continue_final_message": None}):
            body = {"messages": [user(STORY), assistant("Yes.")], **more}
            prompt = get(server, "/apply-template", body)["prompt"]
            expect(prompt.endswith("Yes.<turn|>\n<|turn>model\n"), f"{more}: {prompt!r}")


def beginnings(server):
    """The model's own answer, cut where its text has the tokens that the model wrote:
    (beginning, rest)."""
    body = {"prompt": ids_of(server, {"messages": [user(STORY)]}), "max_tokens": 24,
            "temperature": 0, "return_token_ids": True}
    ids = get(server, "/v1/completions", body)["choices"][0]["token_ids"]
    for n in range(1, len(ids), 4):
        text = get(server, "/detokenize", {"tokens": ids[:n]})["content"]
        again = get(server, "/tokenize", {"content": text, "parse_special": False})["tokens"]
        if again == ids[:n]:
            yield text, get(server, "/detokenize", {"tokens": ids[n:]})["content"], len(ids) - n


def test_an_answer_goes_on_where_its_beginning_ends():
    with Server("demo") as server:
        cuts = list(beginnings(server))
        expect(len(cuts) >= 3, f"{cuts}")
        for text, rest, n in cuts:
            body = begun(text, max_tokens=n, temperature=0)
            found = get(server, CHAT, body)["choices"][0]["message"]
            expect(found["content"] == rest, f"{text!r}: {found}, {rest!r} expected")
            streamed = text_of(server.stream(CHAT, {**body, "stream": True}))
            expect(streamed == rest, f"{text!r}: {streamed!r}, {rest!r} expected")
            if text == text.rstrip():
                body = {"messages": body["messages"], "max_tokens": n, "temperature": 0}
                content = get(server, MESSAGES, body)["content"]
                expect([part["text"] for part in content] == [rest], f"{text!r}: {content}")


def test_stop_texts_look_at_what_is_new_and_the_prompt_comes_from_the_cache():
    with Server("demo") as server:
        text = "The dog is small. " * 20 + "The dog"
        first = get(server, CHAT, begun(text, max_tokens=8, temperature=0, stop=["The dog"]))
        expect(first["choices"][0]["message"]["content"], f"{first}")
        body = {"messages": [user(STORY), assistant(text)], "max_tokens": 8, "temperature": 0}
        usage = get(server, MESSAGES, body)["usage"]
        n = usage["input_tokens"] + usage["cache_read_input_tokens"]
        expect(n == first["usage"]["prompt_tokens"], f"{usage}, {first['usage']}")
        expect(n - usage["cache_read_input_tokens"] <= 64, f"{usage}")


def expect_refused(server, path, body, words):
    status, _, reply = server.ask("POST", path, body)
    message = reply["error"]["message"]
    expect(status == 400 and message.startswith(words), f"{path} {body}: {status} {message}")


def test_what_contradicts_is_refused_by_its_name():
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thinking = "enable_thinking: false expected with continue_final_message"
    cases = (
        ({"add_generation_prompt": True}, "add_generation_prompt: false expected"),
        ({"enable_thinking": True}, thinking),
        ({"reasoning_effort": "low"}, thinking),
        ({"chat_template_kwargs": {"enable_thinking": True}}, thinking),
        ({"response_format": form}, "response_format: nothing expected"),
        ({"response_format": {"type": "json_object"}}, "response_format: nothing expected"),
        ({"json_schema": SCHEMA}, "json_schema: nothing expected"),
        ({"grammar": 'root ::= "a"'}, "grammar: nothing expected"),
        ({"tool_choice": "required"}, "tool_choice: nothing expected"),
        ({"continue_final_message": "yes"}, "continue_final_message: a boolean expected"),
        ({"messages": [user("a")]}, "messages[0].role: assistant expected"),
        ({"messages": [assistant("")]}, "messages[0].content: a text to continue expected"),
        ({"messages": [{"role": "assistant", "content": "a", "tool_calls": [call]}]},
         "messages[0].tool_calls: nothing expected"),
        ({"messages": [{"role": "assistant", "content": "a", "reasoning_content": "b"}]},
         "messages[0].reasoning_content: nothing expected"),
    )
    with Server("demo") as server:
        for members, words in cases:
            for path in (CHAT, CHAT + "/render", "/apply-template"):
                expect_refused(server, path, {**begun("a"), **members}, words)
        refuse_messages(server)
        expect(server.chat(QUESTION, max_tokens=1)[0] == 200, "others are answered")


def refuse_messages(server):
    form = {"type": "json_schema", "schema": SCHEMA}
    tools = [{"name": "f", "input_schema": SCHEMA}]
    begun_with = "messages.1: an answer cannot be begun by the client together with "
    blank = "messages.1: final assistant content cannot end with trailing whitespace"
    cases = (
        ("a", {"thinking": {"type": "enabled", "budget_tokens": 9}}, begun_with + "thinking"),
        ("a", {"output_format": form}, begun_with + "output_format"),
        ("a", {"output_config": {"format": form}}, begun_with + "output_config.format"),
        ("a", {"tools": tools, "tool_choice": {"type": "any"}}, begun_with + "tool_choice"),
        ("a ", {}, blank), ("a\n", {}, blank),
        ([{"type": "tool_use", "id": "a", "name": "f", "input": {}}], {"tools": tools},
         "messages.1: a message with a tool_result for each tool_use expected after it"),
    )
    for content, members, words in cases:
        body = {"messages": [user("Q"), assistant(content)], "max_tokens": 4, **members}
        for path in (MESSAGES, MESSAGES + "/count_tokens"):
            expect_refused(server, path, body, words)


main(globals())
