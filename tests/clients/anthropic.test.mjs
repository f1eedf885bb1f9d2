// The package `@anthropic-ai/sdk` against carat serve: streams, thoughts, tools, counts, and what a
// coding agent sends through it. Answers that a small model cannot give are scripted.
import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic, { BadRequestError } from "@anthropic-ai/sdk";
import { CACHED_SHARE, CUTS, END, LONG, LONG_TOKENS, post, script, url } from "./harness.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const THOUGHT = "<|channel>thought\nhm, <b>\n<channel|>";
const CALL = '<|tool_call>call:get_weather{city:<|"|>Kyiv<|"|>,days:2}<tool_call|>';
const CALL_END = "<|tool_response>";
const weather = {
  name: "get_weather",
  description: "d",
  input_schema: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
  },
};

async function ask(text, more, cut = "token") {
  return {
    model: "claude-next",
    max_tokens: 4000,
    messages: user("Hi"),
    x_carat_script: await script(text, cut),
    ...more,
  };
}

async function streamed(request) {
  const stream = client.messages.stream(request);
  const events = [];
  stream.on("streamEvent", (event) => events.push(event));
  const message = await stream.finalMessage();
  return { events, message, types: events.map((e) => e.type) };
}

async function refused(request, words) {
  await assert.rejects(
    client.messages.create({ model: "m", max_tokens: 9, ...request }),
    (error) => {
      assert.ok(error instanceof BadRequestError, `${error}`);
      assert.equal(error.error.type, "error");
      assert.equal(error.error.error.type, "invalid_request_error");
      assert.match(error.error.error.message, words);
      assert.ok(error.requestID);
      return true;
    },
  );
}

test("a text comes as one block, and the model's name is the client's", async () => {
  for (const cut of CUTS) {
    const { events, message, types } = await streamed(await ask("Hello there." + END, {}, cut));
    assert.deepEqual(message.content, [{ type: "text", text: "Hello there." }]);
    assert.equal(message.model, "claude-next");
    assert.equal(message.stop_reason, "end_turn");
    assert.equal(message.stop_sequence, null);
    assert.match(message.id, /^msg_/);
    assert.equal(types[0], "message_start");
    assert.equal(types.at(-1), "message_stop");
    assert.equal(types.filter((t) => t === "content_block_start").length, 1);
    assert.ok(events[0].message.usage.input_tokens > 0);
    assert.ok(message.usage.output_tokens > 2);
  }
  const whole = await client.messages.create(await ask("Hello there." + END));
  assert.deepEqual(whole.content, [{ type: "text", text: "Hello there." }]);
  assert.ok(whole._request_id);
});

test("case 22: thinking enabled, adaptive and disabled", async () => {
  for (const thinking of [{ type: "enabled", budget_tokens: 2000 }, { type: "adaptive" }]) {
    for (const cut of CUTS) {
      const { events, message } = await streamed(await ask(THOUGHT + "Yes." + END, { thinking }, cut));
      assert.deepEqual(message.content.map((b) => b.type), ["thinking", "text"]);
      assert.equal(message.content[0].thinking.trim(), "hm, <b>");
      assert.ok(message.content[0].signature.length > 0);
      assert.equal(message.content[1].text, "Yes.");
      const deltas = events.filter((e) => e.type === "content_block_delta").map((e) => e.delta.type);
      assert.ok(deltas.includes("thinking_delta") && deltas.includes("signature_delta"));
      assert.doesNotMatch(JSON.stringify(events), /<\|?channel/);
    }
  }
  const off = await client.messages.create(
    await ask("Yes." + END, { thinking: { type: "disabled" } }),
  );
  assert.deepEqual(off.content, [{ type: "text", text: "Yes." }]);
});

test("case 22: returned thoughts, redacted ones, cache_control and beta routes are fine", async () => {
  const messages = [
    {
      role: "user",
      content: [{ type: "text", text: "Hi", cache_control: { type: "ephemeral" } }],
    },
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "hm", signature: "Y2FyYXQ=" },
        { type: "redacted_thinking", data: "zzz" },
        { type: "text", text: "Yes." },
      ],
    },
    { role: "user", content: "Sure?" },
  ];
  const system = [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }];
  const request = await ask("Sure." + END, { messages, system });
  const reply = await client.beta.messages.create({ ...request, betas: ["context-1m-2025-08-07"] });
  assert.equal(reply.content[0].text, "Sure.");
});

test("a call streams its arguments, and its result comes back", async () => {
  const tools = [weather];
  for (const cut of CUTS) {
    const request = await ask("I look." + CALL + CALL_END, { tools }, cut);
    const { events, message } = await streamed(request);
    assert.deepEqual(message.content.map((b) => b.type), ["text", "tool_use"]);
    assert.deepEqual(message.content[1].input, { city: "Kyiv", days: 2 });
    assert.match(message.content[1].id, /^toolu_/);
    assert.equal(message.stop_reason, "tool_use");
    const pieces = events.filter((e) => e.delta?.type === "input_json_delta");
    assert.ok(pieces.length > 2, `${pieces.length} pieces`);
    const messages = [
      ...request.messages,
      { role: "assistant", content: message.content },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: message.content[1].id, content: "no", is_error: true },
        ],
      },
    ];
    const next = await client.messages.create(await ask("Sorry." + END, { tools, messages }));
    assert.equal(next.content[0].text, "Sorry.");
  }
  const whole = await client.messages.create(await ask(CALL + CALL + CALL_END, { tools }));
  assert.equal(whole.content.length, 2);
  assert.notEqual(whole.content[0].id, whole.content[1].id);
});

test("tool_choice any, tool and none are enforced, and one call where one is asked for", async () => {
  const tools = [weather, { ...weather, name: "other" }];
  const forced = await client.messages.create(
    await ask("No." + END, { tools, tool_choice: { type: "any" }, max_tokens: 300 }),
  );
  assert.ok(forced.content.some((b) => b.type === "tool_use"));
  const named = await client.messages.create(
    await ask(CALL + CALL_END, { tools, tool_choice: { type: "tool", name: "other" } }),
  );
  assert.equal(named.content.find((b) => b.type === "tool_use").name, "other");
  const none = await client.messages.create(
    await ask(CALL + CALL_END, { tools, tool_choice: { type: "none" }, max_tokens: 20 }),
  );
  assert.ok(!none.content.some((b) => b.type === "tool_use"));
  const one = await client.messages.create(
    await ask(CALL + CALL + CALL_END, {
      tools,
      tool_choice: { type: "auto", disable_parallel_tool_use: true },
    }),
  );
  assert.equal(one.content.filter((b) => b.type === "tool_use").length, 1);
});

test("case 12: an answer that ends inside a thought has max_tokens and no text", async () => {
  const text = "<|channel>thought\n" + "hm ".repeat(100);
  const more = { thinking: { type: "adaptive" }, max_tokens: 20 };
  const { message } = await streamed(await ask(text, more));
  assert.equal(message.stop_reason, "max_tokens");
  assert.deepEqual(message.content.map((b) => b.type), ["thinking"]);
  assert.equal(message.usage.output_tokens, 20);
});

test("a budget closes the thought", async () => {
  const text = "<|channel>thought\n" + "hm ".repeat(100);
  const more = { thinking: { type: "enabled", budget_tokens: 10 }, max_tokens: 60 };
  const { message } = await streamed(await ask(text, more));
  assert.ok(message.usage.output_tokens_details.thinking_tokens <= 14);
});

test("case 13: stop sequences ignore thoughts, and the one that ended the answer is said", async () => {
  const text = "<|channel>thought\nSTOP?\n<channel|>Before STOP after" + END;
  const more = { thinking: { type: "adaptive" }, stop_sequences: ["xx", "STOP"] };
  for (const cut of CUTS) {
    const { message } = await streamed(await ask(text, more, cut));
    assert.equal(message.stop_reason, "stop_sequence");
    assert.equal(message.stop_sequence, "STOP");
    assert.match(message.content[0].thinking, /STOP\?/);
    assert.equal(message.content[1].text, "Before ");
  }
});

test("cases 14 and 15: a schema with thinking and tools at once", async () => {
  const a = { type: "integer", minimum: 0, maximum: 99 };
  const schema = { type: "object", properties: { a }, required: ["a"] };
  const more = {
    thinking: { type: "adaptive" },
    tools: [weather],
    output_config: { format: { type: "json_schema", schema } },
  };
  const answer = await client.messages.create(await ask(THOUGHT + '{"a": 5}' + END, more));
  assert.equal(answer.content[0].type, "thinking");
  assert.deepEqual(JSON.parse(answer.content[1].text), { a: 5 });
  const call = await client.messages.create(await ask(THOUGHT + CALL + CALL_END, more));
  assert.deepEqual(call.content[1].input, { city: "Kyiv", days: 2 });
  // Without thoughts, or the model could think instead for as long as it likes.
  const plain = { ...more, tools: [], thinking: { type: "disabled" } };
  const forced = await client.messages.create(await ask("Plain prose" + END, plain));
  JSON.parse(forced.content.find((b) => b.type === "text").text);
  const bad = { type: "json_schema", schema: { type: "string", pattern: "(a" } };
  await refused({ messages: user("Hi"), output_format: bad }, /^output_format\.schema/);
  await refused(
    {
      messages: user("Hi"),
      tools: [{ type: "web_search_20250305", name: "w" }, { ...weather, strict: true,
        input_schema: { type: "object", properties: { a: { type: "string", pattern: "(a" } } } }],
    },
    /^tools\.1\.input_schema\.properties\.a\.pattern: /,
  );
});

test("case 23: count_tokens counts what usage says", async () => {
  const request = {
    model: "m",
    system: `Be brief. ${Math.random()}`,
    messages: user("Why is the sky blue?"),
    tools: [weather],
    thinking: { type: "enabled", budget_tokens: 1024 },
  };
  const count = await client.messages.countTokens(request);
  const { events, message } = await streamed({ ...request, max_tokens: 2 });
  const { usage } = message;
  assert.equal(events[0].message.usage.input_tokens, count.input_tokens);
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens, count.input_tokens);
  const whole = await client.messages.create({ ...request, max_tokens: 2 });
  assert.equal(
    whole.usage.input_tokens + whole.usage.cache_read_input_tokens,
    count.input_tokens,
  );
});

test("the second turn after a long one comes from the cache", async () => {
  const system = `${Math.random()}\n${LONG}`;
  const first = await client.messages.create(await ask("Yes." + END, { system }));
  const size = first.usage.input_tokens + first.usage.cache_read_input_tokens;
  assert.ok(size > LONG_TOKENS, `${size} tokens`);
  const messages = [
    ...user("Hi"),
    { role: "assistant", content: first.content },
    { role: "user", content: "And now?" },
  ];
  const { usage } = (await streamed(await ask("No." + END, { system, messages }))).message;
  const share = usage.cache_read_input_tokens / (usage.cache_read_input_tokens + usage.input_tokens);
  assert.ok(share >= CACHED_SHARE, `${share}`);
});

// What a coding agent sends: accounting that changes in front, reminders, tools, a result.
function agentRequest(count, messages) {
  return {
    model: "claude-next",
    max_tokens: 32000,
    temperature: 1,
    metadata: { user_id: "user_ab_account__session_1234" },
    system: [
      {
        type: "text",
        text: `x-anthropic-billing-header: cc_version=2.1.${count}; cc_entrypoint=cli; cch=a${count};`,
      },
      { type: "text", text: "You are an agent.", cache_control: { type: "ephemeral" } },
      { type: "text", text: LONG, cache_control: { type: "ephemeral" } },
    ],
    tools: [
      weather,
      { type: "web_search_20250305", name: "web_search", max_uses: 8 },
      {
        name: "Bash",
        description: "Runs a command",
        input_schema: {
          $schema: "https://json-schema.org/draft/2020-12/schema",
          type: "object",
          properties: {
            command: { type: "string", description: "what" },
            timeout: { type: "number" },
            run_in_background: { type: "boolean" },
          },
          required: ["command"],
          additionalProperties: false,
        },
      },
    ],
    thinking: { type: "enabled", budget_tokens: 31999 },
    context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
    messages,
  };
}

test("case 24: an agent's changing first line costs no reuse", async () => {
  const question = {
    role: "user",
    content: [
      { type: "text", text: "<system-reminder>\nBe careful.\n</system-reminder>\n" },
      { type: "text", text: "List the files.", cache_control: { type: "ephemeral" } },
    ],
  };
  const bash = '<|tool_call>call:Bash{command:<|"|>ls "-l"<|"|>}<tool_call|>' + CALL_END;
  const send = async (request, text) => {
    const body = { ...request, x_carat_script: await script(text) };
    const stream = client.beta.messages.stream({
      ...body,
      betas: ["interleaved-thinking-2025-05-14"],
    });
    const { response } = await stream.withResponse();
    assert.equal(response.headers.get("x-carat-ignored-tools"), "1");
    return stream.finalMessage();
  };
  const first = await send(agentRequest(1, [question]), THOUGHT + bash);
  const call = first.content.at(-1);
  assert.deepEqual(call.input, { command: 'ls "-l"' });
  const messages = [
    question,
    { role: "assistant", content: first.content },
    {
      role: "user",
      content: [
        { tool_use_id: call.id, type: "tool_result", content: "a.c\nb.c", is_error: false },
        { type: "text", text: "<system-reminder>\nNone.\n</system-reminder>" },
      ],
    },
  ];
  const { usage } = await send(agentRequest(2, messages), "fine\n<channel|>Two files." + END);
  const share = usage.cache_read_input_tokens / (usage.cache_read_input_tokens + usage.input_tokens);
  assert.ok(share >= CACHED_SHARE, `${share}`);
});

test("a tool runner, which would leave the conversation to the server, sends all of it", async () => {
  const scripts = [await script(CALL + CALL_END), await script("Sunny." + END)];
  const sent = [];
  const scripted = new Anthropic({
    baseURL: url,
    apiKey: "none",
    maxRetries: 0,
    fetch: (address, options) => {
      const body = JSON.parse(options.body);
      sent.push(body);
      if (!body.thread) body.x_carat_script = scripts.shift();
      return fetch(address, { ...options, headers: undefined, body: JSON.stringify(body) });
    },
  });
  const tools = [{ ...weather, run: async ({ city }) => `sun in ${city}` }];
  const answer = await scripted.beta.messages.toolRunner({ model: "m", max_tokens: 99, messages: user("Hi"), tools });
  assert.equal(answer.content.at(-1).text, "Sunny.");
  assert.equal(sent.at(-1).messages.length, 3);
  await refused({ messages: user("a"), thread: { type: "create" } }, /^thread: not supported; /);
});

test("models: the list and one model have what the client's type promises", async () => {
  const page = await client.models.list();
  const [one] = page.data;
  assert.equal(page.data.length, 1);
  assert.equal(page.first_id, one.id);
  assert.equal(page.last_id, one.id);
  assert.equal(page.has_more, false);
  for (const model of [one, await client.models.retrieve(one.id)]) {
    assert.equal(model.type, "model");
    assert.equal(new Date(model.created_at).getTime(), model.created * 1000);
    assert.ok(model.display_name.length > 0);
  }
});

test("what cannot be read is refused by its path", async () => {
  const image = { type: "base64", media_type: "image/png", data: "aaaa" };
  await refused({ messages: user([{ type: "image", source: image }]) }, /^messages\.0\.content\.0\.type: "image"/);
  await refused({ messages: [{ role: "tool", content: "a" }] }, /^messages\.0\.role: user/);
  await refused({ messages: user("a"), max_tokens: 0 }, /^max_tokens: 1 to/);
  await refused({ messages: user("x ".repeat(60000)) }, /exceeds the available context size/);
  const reply = await post("/v1/messages", "{");
  assert.equal(reply.status, 400);
  assert.equal(JSON.parse(reply.text).type, "error");
});
