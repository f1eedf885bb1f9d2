#!/usr/bin/env python3
"""Whole requests as chat pages and coding agents send them: long system prompts, twenty tools,
blocks of earlier turns, and members that mean something to a provider alone. Each is answered, by
two turns that share what was read, also while another client has a long prompt read.

usage: tests/e2e/test_agents.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import json
import threading

from program import carat, expect, long_model, main
from server import Server

# With sanitizers long prompts take minutes; of a short one the last page is a larger part.
IS_FAST = json.loads(carat("version", "--json").stdout)["build_type"] == "Release"
N_RULES, N_TOOLS, SHARE, WORDS = (60, 20, 0.9, 32000) if IS_FAST else (20, 4, 0.7, 3000)
RULES = "\n".join(f"Rule {i}: be careful with file number {i * 7}." for i in range(N_RULES))
SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
          "properties": {"path": {"type": "string", "description": "Where."},
                         "limit": {"type": "integer", "minimum": 1, "default": 2000},
                         "mode": {"enum": ["read", "write"]},
                         "todos": {"type": "array", "items": {
                             "type": "object", "required": ["content"],
                             "properties": {
                                 "status": {"type": "string", "enum": ["pending", "done"]},
                                 "content": {"type": "string", "minLength": 1}},
                             "additionalProperties": False}}},
          "required": ["path"], "additionalProperties": False}
NAMES = [f"Tool{i}" for i in range(N_TOOLS)]
CACHED = {"type": "ephemeral", "ttl": "1h"}


def blocks_agent(turn, **more):
    """Anthropic's messages with betas; the first line of the system prompt changes every time."""
    billing = f"x-anthropic-billing-header: cc_version=2.{turn}; cch={turn}"
    system = [{"type": "text", "text": billing},
              {"type": "text", "text": "You are an agent.", "cache_control": CACHED},
              {"type": "text", "text": RULES, "cache_control": CACHED}]
    messages = [{"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>\nToday is Sunday.\n</system-reminder>"},
        {"type": "text", "text": "Read a file.", "cache_control": {"type": "ephemeral"}}]}]
    if turn > 1:
        messages += [
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I read it.", "signature": "c2lnbmVk"},
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "toolu_1", "name": "Tool0", "input": {"path": "/a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "Tool1", "input": {"path": "/b"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1",
                 "content": [{"type": "text", "text": "1: hello"},
                             {"type": "tool_reference", "tool_name": "Tool1"}]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True,
                 "content": "no such file", "cache_control": {"type": "ephemeral"}}]}]
    tools = [{"name": name, "description": f"Does {name}.", "input_schema": SCHEMA}
             for name in NAMES]
    tools.append({"type": "web_search_20250305", "name": "web_search", "max_uses": 8})
    return {"model": "some-model-4-5", "max_tokens": 8, "stream": True, "temperature": 1,
            "system": system, "messages": messages, "tools": tools,
            "metadata": {"user_id": "user_1_account__session_2"}, "betas": ["interleaved-thinking"],
            "thinking": {"type": "enabled", "budget_tokens": 31999},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"}, "service_tier": "auto", **more}


def items_agent(turn, **more):
    """OpenAI's responses with a custom tool, a hosted one, and items of the turn before."""
    def text(role, words):
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": words}]}
    items = [text("developer", RULES), text("user", "<cwd>/work</cwd>"), text("user", "Fix it.")]
    if turn > 1:
        items += [
            {"type": "reasoning", "id": "rs_1", "content": None, "encrypted_content": "gAAAA",
             "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
             "content": [{"type": "output_text", "text": "I look.", "annotations": [],
                          "logprobs": []}]},
            {"type": "function_call", "id": "fc_1", "name": "Tool0", "call_id": "call_1",
             "status": "completed", "arguments": json.dumps({"path": "/a"})},
            {"type": "function_call_output", "call_id": "call_1", "output": json.dumps(
                {"output": "hello", "metadata": {"exit_code": 0}})},
            {"type": "custom_tool_call", "id": "ctc_1", "name": "apply_patch", "call_id": "call_2",
             "input": "*** Begin Patch\n*** End Patch\n", "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done."},
            {"type": "agent_message", "author": "/root/helper", "recipient": "/root", "content": [
                {"type": "input_text", "text": "Message Type: FINAL_ANSWER"},
                {"type": "encrypted_content", "encrypted_content": "It is done."}]}]
    tools = [{"type": "function", "name": name, "description": "Does.", "strict": False,
              "parameters": SCHEMA} for name in NAMES]
    tools += [{"type": "custom", "name": "apply_patch", "description": "Edits files.",
               "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE+"}},
              {"type": "web_search", "external_web_access": False}]
    return {"model": "some-model-5", "instructions": "You are an agent.", "input": items,
            "tools": tools, "tool_choice": "auto", "parallel_tool_calls": False,
            "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0198-7f",
            "text": {"verbosity": "medium"}, "client_metadata": {"x": "y"}, "max_output_tokens": 8,
            **more}


def chat_page(turn, **more):
    """OpenAI's chat with what its page adds: who asks as an object, its own ids, native tools."""
    messages = [{"role": "system", "content": f"User Context:\n\n{RULES}"},
                {"role": "user", "content": [{"type": "text", "text": "What is in it?"}]}]
    if turn > 1:
        messages += [
            {"role": "assistant", "content": "", "reasoning_content": "I look.", "tool_calls": [
                {"id": "call_a", "index": 0, "type": "function",
                 "function": {"name": "Tool0", "arguments": json.dumps({"path": "/a"})}}]},
            {"role": "tool", "tool_call_id": "call_a",
             "content": [{"type": "text", "text": "hello"}]}]
    tools = [{"type": "function", "function": {"name": name, "description": "Does.",
                                               "parameters": SCHEMA}} for name in NAMES]
    return {"model": "demo", "messages": messages, "stream": True, "tools": tools,
            "stream_options": {"include_usage": True}, "parallel_tool_calls": True, "store": False,
            "metadata": {"chat_id": "c", "message_id": "m"}, "features": {"web_search": False},
            "user": {"name": "A", "id": "1", "email": "a@example.org", "role": "admin"},
            "chat_id": "c", "session_id": "s", "temperature": 0.8, "top_p": 0.9, "seed": 7.0,
            "max_tokens": 8.0, "reasoning_effort": "low", **more}


AGENTS = {
    "/v1/messages?beta=true": (blocks_agent, lambda e: e["type"] == "message_stop"),
    "/v1/responses": (items_agent, lambda e: e["type"] in ("response.completed",
                                                           "response.incomplete")),
    "/v1/chat/completions": (chat_page, lambda e: e == "[DONE]"),
}
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "agents-2025-02-19,x",
           "x-api-key": "none", "User-Agent": "agent/1.0", "originator": "agent_cli",
           "Content-Type": "application/json"}


def run_turn(server, path, turn, **more):
    make, is_last = AGENTS[path]
    with server.open(path, make(turn, **more), HEADERS) as stream:
        expect(stream.status == 200, f"{path} {turn}: {stream.status}")
        events = list(stream)
        ignored = stream.reply.headers["x-carat-ignored-tools"]
    expect(is_last(events[-1]), f"{path} {turn}: {events[-1]}")
    expect(ignored == (None if "chat" in path else "1"), f"{path}: {ignored} tools left out")
    for mark in ("<|channel", "<channel|", "<|tool_call", "<tool_call|", '<|\\"|>'):
        expect(mark not in json.dumps(events), f"{path}: {mark} is shown")
    return events


def test_whole_requests_of_agents_are_answered():
    with Server(long_model(), "--ctx-size", 16384, "--parallel", 2) as server:
        for path in AGENTS:
            for turn in (1, 2):
                run_turn(server, path, turn)
        expect(server.metric("carat_billing_header_stripped_total") == 2, "lines that change")


def test_the_second_turn_shares_what_the_first_one_read():
    with Server(long_model(), "--ctx-size", 16384, "--parallel", 2) as server:
        for path in AGENTS:
            run_turn(server, path, 1)
            names = ("carat_prompt_tokens_total", "carat_prompt_tokens_cached_total")
            before = [server.metric(name) for name in names]
            run_turn(server, path, 2)
            read, cached = (server.metric(name) - old for name, old in zip(names, before))
            expect(cached > SHARE * read, f"{path}: {cached} of {read}")


def test_a_client_with_a_long_prompt_stops_nobody():
    """Its prompt is being read, or is read, while each agent has two turns."""
    with Server(long_model(), "--ctx-size", 40000, "--parallel", 2) as server:
        long = {"messages": [{"role": "user", "content": "a " * WORDS}], "max_tokens": 1}
        found = []
        reader = threading.Thread(target=lambda: found.append(
            server.ask("POST", "/v1/chat/completions", long)))
        reader.start()
        for path in AGENTS:
            for turn in (1, 2):
                run_turn(server, path, turn)
        reader.join()
        status, _, body = found[0]
        expect(status == 200, f"{status} {body}")
        expect(body["usage"]["prompt_tokens"] > WORDS / 2, f"{body['usage']}")


def test_a_form_tools_and_thinking_go_together():
    form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    with Server(long_model(), "--ctx-size", 16384) as server:
        body = chat_page(1, stream=False, max_tokens=400, tool_choice="none", stream_options=None,
                          reasoning_budget=20, response_format={
                              "type": "json_schema", "json_schema": {"name": "a", "schema": form}})
        status, _, reply = server.ask("POST", "/v1/chat/completions", body)
        expect(status == 200, f"{status} {reply}")
        choice = reply["choices"][0]
        if choice["finish_reason"] == "stop":
            expect(set(json.loads(choice["message"]["content"])) == {"n"}, f"{choice}")
        expect(not choice["message"].get("tool_calls"), f"{choice}")


def test_a_provider_tool_that_is_forced_is_refused_with_the_reason():
    """As in an agent's search of the web. Its model reads the message as the result."""
    body = {"messages": [{"role": "user", "content": "Search"}], "max_tokens": 1,
            "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]}
    with Server() as server:
        for choice in ({"type": "tool", "name": "web_search"}, {"type": "any"}):
            status, _, reply = server.ask("POST", "/v1/messages", {**body, "tool_choice": choice})
            message = reply["error"]["message"]
            expect(status == 400 and message.endswith(
                "; tools that a provider runs itself do not count"), f"{status} {reply}")


def test_the_same_talk_has_the_same_ids_in_every_interface():
    tools = [("look", SCHEMA), ("write", SCHEMA)]
    chat = {"messages": [{"role": "system", "content": RULES}, {"role": "user", "content": "Hi"},
                         {"role": "assistant", "content": "Yes?"},
                         {"role": "user", "content": "No"}],
            "tools": [{"type": "function", "function": {"name": n, "description": "d",
                                                        "parameters": s}} for n, s in tools]}
    messages = {"system": RULES, "messages": chat["messages"][1:], "max_tokens": 1,
                "tools": [{"name": n, "description": "d", "input_schema": s} for n, s in tools]}
    items = {"instructions": RULES, "input": chat["messages"][1:], "max_output_tokens": 1,
             "tools": [{"type": "function", "name": n, "description": "d", "parameters": s}
                       for n, s in tools]}
    with Server(long_model(), "--ctx-size", 16384) as server:
        ids = server.ask("POST", "/v1/chat/completions/render", chat)[2]["token_ids"]
        for path, body in (("/v1/messages", messages), ("/v1/responses", items)):
            server.ask("POST", "/v1/completions", {"prompt": ids, "max_tokens": 1})
            before = server.metric("carat_prompt_tokens_cached_total")
            status, _, reply = server.ask("POST", path, {**body, "temperature": 0})
            expect(status == 200, f"{path}: {status} {reply}")
            cached = server.metric("carat_prompt_tokens_cached_total") - before
            count = "/v1/messages/count_tokens" if "messages" in path else \
                "/v1/responses/input_tokens"
            n = server.ask("POST", count, body)[2]["input_tokens"]
            expect(n == len(ids), f"{path}: {n} tokens, {len(ids)} expected")
            expect(cached >= len(ids) - 64, f"{path}: {cached} of {len(ids)} are the same")


main(globals())
