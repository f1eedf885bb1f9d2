"""What scripts share that ask through several interfaces: the same conversation in the words of
each, and what its reply says.
"""
from program import expect

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Tells the weather"}
SYSTEM, QUESTION, ANSWER, NEXT = "Be brief.", "Is it raining?", "Only in Oslo.", "Are you sure?"


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def chat(system, messages, tools, **more):
    tools = [{"type": "function", "function": {**FUNCTION, "parameters": SCHEMA}}] if tools else []
    return {"messages": [{"role": "system", "content": system}, *messages], "tools": tools, **more}


def anthropic(system, messages, tools, **more):
    return {"system": system, "messages": messages,
            "tools": [{**FUNCTION, "input_schema": SCHEMA}] if tools else [], **more}


def responses(system, messages, tools, max_tokens=None, **more):
    tools = [{"type": "function", **FUNCTION, "parameters": SCHEMA}] if tools else []
    return {"instructions": system, "input": messages, "tools": tools,
            "max_output_tokens": max_tokens, **more}


def ollama(system, messages, tools, max_tokens=None, temperature=None, ignore_eos=False, **more):
    """Ollama's requests know no ignore_eos. Greedily these prompts have no end, else by chance."""
    if ignore_eos:
        temperature = 0
    return {**chat(system, messages, tools, **more),
            "options": {"num_predict": max_tokens, "temperature": temperature}}


def said_by_anthropic(body):
    usage = body["usage"]
    return (body["content"][0]["text"], usage["input_tokens"] + usage["cache_read_input_tokens"],
            usage["cache_read_input_tokens"])


def said_by_responses(body):
    usage = body["usage"]
    return (body["output"][0]["content"][0]["text"], usage["input_tokens"],
            usage["input_tokens_details"]["cached_tokens"])


def said_by_chat(body):
    usage = body["usage"]
    return (body["choices"][0]["message"]["content"], usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"])


# Route, the body of a conversation, and what a reply says: its text, the prompt, and how much of it
# came from the cache (None: the interface has no word for that).
APIS = {
    "chat": ("/v1/chat/completions", chat, said_by_chat),
    "messages": ("/v1/messages", anthropic, said_by_anthropic),
    "responses": ("/v1/responses", responses, said_by_responses),
    "ollama": ("/api/chat", ollama,
               lambda body: (body["message"]["content"], body["prompt_eval_count"], None)),
}


def ask(server, name, system, messages, tools=False, **more):
    path, make, said = APIS[name]
    body = make(system, messages, tools, stream=False, **more)
    status, _, reply = server.ask("POST", path, body)
    expect(status == 200, f"{name}: {status} {reply}")
    return said(reply)
