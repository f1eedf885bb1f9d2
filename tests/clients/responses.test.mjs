// The responses of the package `openai` against carat serve, and what a coding agent sends there.
// Answers that a small model cannot give are scripted.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { BadRequestError } from "openai";
import { CACHED_SHARE, CUTS, END, LONG, LONG_TOKENS, post, script, url } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const THOUGHT = "<|channel>thought\nhm, <b>\n<channel|>";
const CALL = '<|tool_call>call:get_weather{city:<|"|>Kyiv<|"|>,days:2}<tool_call|>';
const CALL_END = "<|tool_response>";
const weather = {
  type: "function",
  name: "get_weather",
  description: "d",
  strict: false,
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
  },
};

async function ask(text, more, cut = "token") {
  return { model: "carat", input: "Hi", x_carat_script: await script(text, cut), ...more };
}

async function streamed(request) {
  const stream = client.responses.stream(request);
  const events = [];
  for await (const event of stream) events.push(event);
  events.forEach((event, i) => assert.equal(event.sequence_number, i));
  return { events, types: events.map((e) => e.type), response: await stream.finalResponse() };
}

async function refused(request, param, words) {
  await assert.rejects(client.responses.create({ model: "m", ...request }), (error) => {
    assert.ok(error instanceof BadRequestError, `${error}`);
    assert.equal(error.param, param);
    assert.match(error.message, words);
    return true;
  });
}

test("a text is a message, in a stream as in a body", async () => {
  for (const cut of CUTS) {
    const { types, response } = await streamed(await ask("Hello there." + END, {}, cut));
    assert.equal(response.output_text, "Hello there.");
    assert.equal(response.status, "completed");
    assert.equal(response.store, false);
    assert.deepEqual(
      types.filter((t) => t !== "response.output_text.delta"),
      [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
      ],
    );
    assert.ok(response.usage.output_tokens > 2);
  }
  const whole = await client.responses.create(await ask("Hello there." + END, { store: true }));
  assert.equal(whole.output_text, "Hello there.");
  assert.equal(whole.object, "response");
});

test("thoughts are reasoning items, which come back", async () => {
  for (const cut of CUTS) {
    const more = { reasoning: { effort: "low", summary: "auto" } };
    const { events, response } = await streamed(await ask(THOUGHT + "Yes." + END, more, cut));
    assert.deepEqual(response.output.map((o) => o.type), ["reasoning", "message"]);
    assert.equal(response.output[0].summary[0].text.trim(), "hm, <b>");
    assert.equal(response.output_text, "Yes.");
    assert.ok(response.usage.output_tokens_details.reasoning_tokens > 0);
    assert.doesNotMatch(JSON.stringify(events), /<\|?channel/);
    const input = [
      { role: "user", content: "Hi" },
      ...response.output,
      { role: "user", content: "Sure?" },
    ];
    const next = await client.responses.create(await ask("Sure." + END, { input }));
    assert.equal(next.output_text, "Sure.");
  }
  const off = { reasoning: { effort: "none" } };
  const without = await client.responses.create(await ask("Yes." + END, off));
  assert.deepEqual(without.output.map((o) => o.type), ["message"]);
});

test("calls stream their arguments, and their outputs come back", async () => {
  const tools = [weather];
  for (const cut of CUTS) {
    const request = await ask("I look." + CALL + CALL + CALL_END, { tools }, cut);
    const { types, response } = await streamed(request);
    const calls = response.output.filter((o) => o.type === "function_call");
    assert.equal(calls.length, 2);
    assert.notEqual(calls[0].call_id, calls[1].call_id);
    assert.deepEqual(JSON.parse(calls[0].arguments), { city: "Kyiv", days: 2 });
    assert.ok(types.filter((t) => t === "response.function_call_arguments.delta").length > 3);
    const output = [{ type: "input_text", text: "rain" }];
    const input = [
      { role: "user", content: "Hi" },
      ...response.output,
      { type: "function_call_output", call_id: calls[0].call_id, output: "sun" },
      { type: "function_call_output", call_id: calls[1].call_id, output },
    ];
    const next = await client.responses.create(await ask("Good." + END, { tools, input }));
    assert.equal(next.output_text, "Good.");
  }
});

test("every tool_choice is enforced", async () => {
  const tools = [weather, { ...weather, name: "other" }];
  const names = async (text, more) => {
    const r = await client.responses.create(await ask(text, { tools, max_output_tokens: 300, ...more }));
    return r.output.filter((o) => o.type === "function_call").map((o) => o.name);
  };
  const prose = "No." + END;
  assert.ok((await names(prose, { tool_choice: "required" })).length > 0);
  const named = { tool_choice: { type: "function", name: "other" } };
  assert.deepEqual(await names(CALL + CALL_END, named), ["other"]);
  const allowed = {
    type: "allowed_tools",
    mode: "required",
    tools: [{ type: "function", name: "other" }],
  };
  assert.ok((await names(CALL + CALL_END, { tool_choice: allowed })).every((n) => n === "other"));
  assert.deepEqual(await names(CALL, { tool_choice: "none", max_output_tokens: 20 }), []);
  assert.equal((await names(CALL + CALL + CALL_END, { parallel_tool_calls: false })).length, 1);
});

test("case 12: an answer that ends inside a thought is incomplete", async () => {
  const text = "<|channel>thought\n" + "hm ".repeat(100);
  const more = { reasoning: { effort: "high" }, max_output_tokens: 20 };
  const { types, response } = await streamed(await ask(text, more));
  assert.equal(types.at(-1), "response.incomplete");
  assert.equal(response.status, "incomplete");
  assert.equal(response.incomplete_details.reason, "max_output_tokens");
  assert.equal(response.output_text, "");
});

test("cases 14 and 15: a schema with thinking and tools at once", async () => {
  const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
  const more = {
    reasoning: { effort: "low" },
    tools: [weather],
    text: { format: { type: "json_schema", name: "n", schema, strict: true } },
  };
  const answer = await client.responses.create(await ask(THOUGHT + '{"a": 5}' + END, more));
  assert.deepEqual(JSON.parse(answer.output_text), { a: 5 });
  const call = await client.responses.create(await ask(THOUGHT + CALL + CALL_END, more));
  assert.equal(call.output.at(-1).type, "function_call");
  const forced = { text: { format: { type: "json_object" } }, max_output_tokens: 200 };
  const loose = await client.responses.create(await ask('{"x": [1]}' + END, forced));
  assert.deepEqual(JSON.parse(loose.output_text), { x: [1] });
  const bad = { type: "json_schema", name: "n", schema: { type: "string", pattern: "(a" } };
  await refused({ input: "Hi", text: { format: bad } }, "text.format.schema.pattern", /^400 text\.format/);
});

test("tokens are reported where they are asked for", async () => {
  const more = { include: ["message.output_text.logprobs"], top_logprobs: 2 };
  const whole = await client.responses.create(await ask("Hello there." + END, more));
  const { logprobs } = whole.output[0].content[0];
  assert.equal(logprobs.map((t) => t.token).join(""), "Hello there.");
  assert.equal(logprobs[0].top_logprobs.length, 2);
  const { events } = await streamed(await ask("Hello there." + END, more));
  const pieces = events.filter((e) => e.type === "response.output_text.delta");
  assert.equal(pieces.flatMap((e) => e.logprobs).map((t) => t.token).join(""), "Hello there.");
});

test("case 21: what needs a store is refused", async () => {
  await refused({ input: "a", previous_response_id: "resp_1" }, "previous_response_id", /stored/);
  await refused({ input: "a", conversation: "c" }, "conversation", /stored/);
  const item = { type: "item_reference", id: "i" };
  await refused({ input: [item] }, "input[0].type", /item_reference.*"store": false/);
  const image = { type: "input_image", image_url: "http://127.0.0.1/a.png", detail: "auto" };
  const content = [{ type: "input_text", text: "a" }, image];
  await refused({ input: [{ role: "user", content }] }, "input[0].content[1].type", /input_image/);
  const lost = { type: "function_call_output", call_id: "c", output: "x" };
  await refused({ input: [lost] }, "input[0].call_id", /call in the answer before it/);
});

// What a coding agent sends: instructions, permissions, an environment, and tools of every kind.
function agentRequest(input, key) {
  const text = (role, t) => ({ type: "message", role, content: [{ type: "input_text", text: t }] });
  return {
    model: "gpt-next-codex",
    instructions: `${key}\n${LONG}`,
    input: [
      text("developer", "<permissions instructions>none</permissions instructions>"),
      text("user", "<environment_context>\n  <cwd>/a</cwd>\n</environment_context>"),
      text("user", "List the files."),
      ...input,
    ],
    tools: [
      {
        type: "function",
        name: "shell_command",
        description: "Runs a command",
        strict: false,
        parameters: {
          type: "object",
          properties: { command: { type: "string" }, timeout_ms: { type: "number" } },
          required: ["command"],
          additionalProperties: false,
        },
      },
      {
        type: "custom",
        name: "apply_patch",
        description: "Edits files. FREEFORM: do not wrap it in JSON.",
        format: { type: "grammar", syntax: "lark", definition: 'start: begin_patch\nbegin_patch: "*** Begin Patch" LF' },
      },
      { type: "web_search", external_web_access: true },
      { type: "image_generation", output_format: "png" },
      {
        type: "namespace",
        name: "mcp__git",
        description: "Git",
        tools: [{ type: "function", name: "log", description: "l", strict: false, parameters: { type: "object", properties: {} } }],
      },
    ],
    tool_choice: "auto",
    parallel_tool_calls: true,
    reasoning: { effort: "medium", summary: "auto" },
    store: false,
    include: ["reasoning.encrypted_content"],
    prompt_cache_key: key,
    text: { verbosity: "medium" },
    client_metadata: { "x-codex-installation-id": "i" },
  };
}

test("case 21: a coding agent's tools, and its second turn comes from the cache", async () => {
  const key = `k${Math.random()}`;
  const send = async (input, text) => {
    const body = { ...agentRequest(input, key), x_carat_script: await script(text) };
    return streamed(body);
  };
  const patch =
    '<|tool_call>call:apply_patch{input:<|"|>*** Begin Patch\n+"a"\n*** End Patch<|"|>}<tool_call|>';
  const log = "<|tool_call>call:mcp__git__log{}<tool_call|>";
  const first = await send([], THOUGHT + patch + log + CALL_END);
  const [thought, custom, call] = first.response.output;
  assert.equal(custom.type, "custom_tool_call");
  assert.equal(custom.name, "apply_patch");
  assert.equal(custom.input, '*** Begin Patch\n+"a"\n*** End Patch');
  assert.ok(first.types.includes("response.custom_tool_call_input.delta"));
  assert.equal(call.name, "log");
  assert.equal(call.namespace, "mcp__git");
  const size = first.response.usage.input_tokens;
  assert.ok(size > LONG_TOKENS, `${size} tokens`);
  const second = await send(
    [
      thought,
      custom,
      call,
      { type: "custom_tool_call_output", call_id: custom.call_id, output: "done" },
      { type: "function_call_output", call_id: call.call_id, output: "abc" },
    ],
    "fine\n<channel|>Two files." + END,
  );
  assert.equal(second.response.output_text, "Two files.");
  const { usage } = second.response;
  const share = usage.input_tokens_details.cached_tokens / usage.input_tokens;
  assert.ok(share >= CACHED_SHARE, `${share}`);
  const reply = await post("/v1/responses", { ...agentRequest([], key), max_output_tokens: 1 });
  assert.equal(reply.headers.get("x-carat-ignored-tools"), "2");
});

test("the count of tokens is that of usage", async () => {
  const request = { input: "Why is the sky blue?", instructions: "Be brief.", tools: [weather] };
  const count = JSON.parse((await post("/v1/responses/input_tokens", request)).text);
  const { usage } = await client.responses.create({ model: "m", ...request, max_output_tokens: 1 });
  assert.equal(count.input_tokens, usage.input_tokens);
});
