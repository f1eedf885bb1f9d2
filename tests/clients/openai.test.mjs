// The package `openai` against carat serve: what people's tools send through it. Answers that a
// small model cannot give are scripted.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { BadRequestError } from "openai";
import { CUTS, END, collect, post, script, tool, url } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const weather = tool("get_weather", { city: { type: "string" } });
const CALL = '<|tool_call>call:get_weather{city:<|"|>Kyiv<|"|>}<tool_call|>';
const CALL_END = "<|tool_response>";

async function chat(text, more, cut = "token") {
  return client.chat.completions.create({
    model: "carat",
    messages: user("Hi"),
    x_carat_script: await script(text, cut),
    max_tokens: 4000,
    seed: 1,
    ...more,
  });
}

async function refused(request, param, words) {
  await assert.rejects(client.chat.completions.create({ model: "carat", ...request }), (error) => {
    assert.ok(error instanceof BadRequestError, `${error}`);
    assert.equal(error.type, "invalid_request_error");
    if (param) assert.equal(error.param, param);
    assert.match(error.message, words);
    return true;
  });
}

test("case 1: a call streams as id and name, then pieces of arguments", async () => {
  for (const cut of CUTS) {
    const stream = await chat(CALL + CALL_END, { tools: [weather], stream: true }, cut);
    const all = await collect(stream);
    const deltas = all.chunks.flatMap((c) => c.choices.flatMap((x) => x.delta.tool_calls ?? []));
    assert.equal(deltas[0].index, 0);
    assert.equal(deltas[0].type, "function");
    assert.equal(deltas[0].function.name, "get_weather");
    assert.equal(deltas[0].function.arguments, "");
    assert.match(deltas[0].id, /^call_/);
    assert.ok(deltas.length > 3, `${deltas.length} deltas`);
    for (const d of deltas.slice(1)) {
      assert.equal(d.id, undefined);
      assert.equal(d.function.name, undefined);
    }
    assert.deepEqual(JSON.parse(all.calls[0].arguments), { city: "Kyiv" });
    assert.equal(all.finish, "tool_calls");
    assert.equal(all.chunks[0].choices[0].delta.role, "assistant");
    assert.equal(all.chunks[0].choices[0].delta.content, "");
    assert.equal(all.text, "");
  }
});

test("case 1: the helper of the client assembles the same call", async () => {
  const runner = client.chat.completions.stream({
    model: "carat",
    messages: user("Hi"),
    tools: [weather],
    x_carat_script: await script(CALL + CALL_END),
  });
  const completion = await runner.finalChatCompletion();
  const call = completion.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Kyiv" });
  assert.equal(completion.choices[0].finish_reason, "tool_calls");
});

test("case 2: two calls have own indices and ids, in a stream and in a body", async () => {
  const text = CALL + CALL.replace("Kyiv", "Lviv") + CALL_END;
  for (const cut of CUTS) {
    const all = await collect(await chat(text, { tools: [weather], stream: true }, cut));
    assert.equal(all.calls.length, 2);
    assert.notEqual(all.calls[0].id, all.calls[1].id);
    assert.deepEqual(JSON.parse(all.calls[1].arguments), { city: "Lviv" });
    const whole = await chat(text, { tools: [weather] }, cut);
    const calls = whole.choices[0].message.tool_calls;
    assert.deepEqual(calls.map((c) => JSON.parse(c.function.arguments).city), ["Kyiv", "Lviv"]);
    assert.notEqual(calls[0].id, calls[1].id);
    assert.equal(whole.choices[0].message.content, null);
    assert.equal(whole.choices[0].finish_reason, "tool_calls");
  }
});

test("case 3: values of every kind and 10 KB of code, cut everywhere", async () => {
  const odd = 'if (a < b) { return "x\\n"; } // é 𝄞 }, [1]\n';
  const easy = "// Once upon a time there was a little girl. She was happy.\n";
  const f = tool("f", {
    code: { type: "string" },
    flag: { type: "boolean" },
    list: { type: "array", items: { type: "integer" } },
    x: { type: "number" },
  });
  for (const cut of CUTS) {
    const code = cut === "token" ? odd.repeat(8) + easy.repeat(170) : odd.repeat(8);
    const values = `code:<|"|>${code}<|"|>,flag:true,list:[1,-2],x:1e-3`;
    const text = `<|tool_call>call:f{${values}}<tool_call|>`;
    const expected = { code, flag: true, list: [1, -2], x: 1e-3 };
    const more = { tools: [f], stream: true, max_tokens: 20000 };
    const all = await collect(await chat(text + CALL_END, more, cut));
    assert.deepEqual(JSON.parse(all.calls[0].arguments), expected);
    assert.equal(all.finish, "tool_calls");
  }
});

test("case 4: tool_choice required, named and none are enforced", async () => {
  const other = tool("other", { a: { type: "boolean" } });
  const tools = [weather, other];
  const prose = "No call here." + END;
  const forced = await chat(prose, { tools, tool_choice: "required", max_tokens: 300 });
  assert.ok(forced.choices[0].message.tool_calls.length > 0);
  const choice = { type: "function", function: { name: "other" } };
  const named = await chat(CALL + CALL_END, { tools, tool_choice: choice, max_tokens: 300 });
  assert.equal(named.choices[0].message.tool_calls[0].function.name, "other");
  const none = await chat(CALL + CALL_END, { tools, tool_choice: "none", max_tokens: 30 });
  assert.equal(none.choices[0].message.tool_calls, undefined);
  assert.doesNotMatch(none.choices[0].message.content, /tool_call/);
});

test("case 5: parallel_tool_calls false gives one call", async () => {
  const text = CALL + CALL + CALL_END;
  const more = { tools: [weather], parallel_tool_calls: false };
  const whole = await chat(text, more);
  assert.equal(whole.choices[0].message.tool_calls.length, 1);
  assert.equal(whole.choices[0].finish_reason, "tool_calls");
});

test("case 6: a system prompt, thinking off, and tools", async () => {
  const whole = await chat(CALL + CALL_END, {
    messages: [{ role: "system", content: "Be brief." }, ...user("Hi")],
    tools: [weather],
    reasoning_effort: "none",
  });
  assert.equal(whole.choices[0].message.tool_calls[0].function.name, "get_weather");
  assert.equal(whole.choices[0].message.reasoning_content, undefined);
});

const called = (content) => ({
  role: "assistant",
  ...(content === undefined ? {} : { content }),
  tool_calls: [
    { id: "c1", type: "function", function: { name: "get_weather", arguments: '{"city":"K"}' } },
  ],
});
const result = (content) => ({ role: "tool", tool_call_id: "c1", content });

test("case 7: content beside calls may be null or absent; without both it is a 400", async () => {
  for (const content of [null, undefined, ""]) {
    const messages = [...user("Hi"), called(content), result("rain")];
    const whole = await chat("It rains." + END, { messages, tools: [weather] });
    assert.equal(whole.choices[0].message.content, "It rains.");
  }
  const messages = [...user("Hi"), { role: "assistant" }];
  await refused({ messages }, "messages[1]", /messages\[1\]: content or tool_calls expected/);
});

test("case 8: a tool's result is a string, parts or an object", async () => {
  for (const content of ["rain", [{ type: "text", text: "rain" }], { sky: "grey", mm: 3 }]) {
    const messages = [...user("Hi"), called(null), result(content)];
    const whole = await chat("It rains." + END, { messages, tools: [weather] });
    assert.equal(whole.choices[0].message.content, "It rains.");
  }
});

test("case 9: schemas with $ref, anyOf and lists of types", async () => {
  const f = tool(
    "f",
    {
      a: { $ref: "#/$defs/name" },
      b: { anyOf: [{ type: "integer" }, { type: "null" }] },
      c: { type: ["string", "null"] },
    },
    { $defs: { name: { type: "string", maxLength: 5 } } },
  );
  const text = '<|tool_call>call:f{a:<|"|>x<|"|>,b:7,c:null}<tool_call|>' + CALL_END;
  const whole = await chat(text, { tools: [f], tool_choice: "required" });
  const made = JSON.parse(whole.choices[0].message.tool_calls[0].function.arguments);
  assert.deepEqual(made, { a: "x", b: 7, c: null });
});

// Whether the prompt asks for thoughts.
async function thinks(more) {
  const reply = await post("/apply-template", { messages: user("Hi"), ...more });
  assert.equal(reply.status, 200, reply.text);
  return JSON.parse(reply.text).prompt.includes("<|think|>");
}

test("case 10: reasoning_effort, enable_thinking and chat_template_kwargs", async () => {
  assert.equal(await thinks({ reasoning_effort: "none" }), false);
  for (const reasoning_effort of ["minimal", "low", "medium", "high", "xhigh"])
    assert.equal(await thinks({ reasoning_effort }), true, reasoning_effort);
  assert.equal(await thinks({ reasoning_effort: "high", enable_thinking: false }), false);
  assert.equal(await thinks({ reasoning_effort: "none", enable_thinking: true }), true);
  assert.equal(await thinks({ chat_template_kwargs: { enable_thinking: true } }), true);
  assert.equal(await thinks({}), false);
  await refused({ messages: user("Hi"), reasoning_effort: "much" }, "reasoning_effort", /"none"/);
});

const THOUGHT = "<|channel>thought\nhm, <b>\n<channel|>";

test("case 11: thoughts are in reasoning_content, and both spellings come back", async () => {
  for (const cut of CUTS) {
    const more = { reasoning_effort: "low", stream: true };
    const all = await collect(await chat(THOUGHT + "Hello." + END, more, cut));
    assert.equal(all.text, "Hello.");
    assert.match(all.thought, /^hm, <b>\s*$/);
    assert.doesNotMatch(JSON.stringify(all.chunks), /channel|thought\\n/);
    const whole = await chat(THOUGHT + "Hello." + END, { reasoning_effort: "low" }, cut);
    assert.equal(whole.choices[0].message.content, "Hello.");
    assert.match(whole.choices[0].message.reasoning_content, /^hm, <b>/);
    assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 0);
  }
  const prompts = [];
  for (const key of ["reasoning", "reasoning_content"]) {
    const answer = { ...called(null), [key]: "I should look." };
    const messages = [...user("Hi"), answer, result("rain")];
    const reply = await post("/apply-template", { messages, tools: [weather] });
    prompts.push(JSON.parse(reply.text).prompt);
    assert.match(prompts.at(-1), /I should look\./);
  }
  assert.equal(prompts[0], prompts[1]);
});

test("case 12: a limit inside a thought ends with length and an empty text", async () => {
  const text = "<|channel>thought\n" + "hm ".repeat(200);
  const more = { reasoning_effort: "low", max_tokens: 20 };
  const whole = await chat(text, more);
  assert.equal(whole.choices[0].finish_reason, "length");
  assert.equal(whole.choices[0].message.content, "");
  assert.match(whole.choices[0].message.reasoning_content, /^hm/);
  assert.equal(whole.choices[0].reasoning_truncated, true);
  const all = await collect(await chat(text, { ...more, stream: true }));
  assert.equal(all.finish, "length");
  assert.equal(all.text, "");
});

test("case 13: stop strings ignore thoughts and are no part of the answer", async () => {
  const text = "<|channel>thought\nSTOP here?\n<channel|>Before STOP after" + END;
  for (const cut of CUTS) {
    const more = { reasoning_effort: "low", stop: ["STOP"] };
    const whole = await chat(text, more, cut);
    assert.equal(whole.choices[0].message.content, "Before ");
    assert.match(whole.choices[0].message.reasoning_content, /STOP here/);
    assert.equal(whole.choices[0].finish_reason, "stop");
    const all = await collect(await chat(text, { ...more, stream: true }, cut));
    assert.equal(all.text, "Before ");
  }
});

const schema = {
  type: "object",
  properties: { ok: { type: "boolean" }, n: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["ok", "n"],
  additionalProperties: false,
};
const format = { type: "json_schema", json_schema: { name: "s", strict: true, schema } };

test("case 14: a schema binds after the thought; an unknown keyword is named", async () => {
  for (const cut of CUTS) {
    const text = THOUGHT + "{This is prose, not JSON." + END;
    const more = { reasoning_effort: "low", response_format: format, max_tokens: 400 };
    const whole = await chat(text, more, cut);
    assert.match(whole.choices[0].message.reasoning_content, /^hm/);
    assert.equal(whole.choices[0].finish_reason, "stop");
    const made = JSON.parse(whole.choices[0].message.content);
    assert.deepEqual(Object.keys(made).sort(), ["n", "ok"]);
  }
  const bad = { type: "object", properties: { a: { type: "string", unheardOf: 1 } } };
  bad.properties.a.not = { const: "x" };
  const response_format = { type: "json_schema", json_schema: { name: "s", schema: bad } };
  await refused({ messages: user("Hi"), response_format }, null, /properties.*a.*not/);
});

test("case 15: a schema and tools together", async () => {
  const more = { tools: [weather], response_format: format, max_tokens: 400 };
  const call = await chat(CALL + CALL_END, more);
  assert.equal(call.choices[0].message.tool_calls[0].function.name, "get_weather");
  const text = await chat('{"ok":true,"n":3}' + END, more);
  assert.deepEqual(JSON.parse(text.choices[0].message.content), { ok: true, n: 3 });
  assert.equal(text.choices[0].finish_reason, "stop");
  const all = { ...more, reasoning_effort: "low", stream: true };
  const thought = await collect(await chat(THOUGHT + CALL + CALL_END, all));
  assert.match(thought.thought, /^hm/);
  assert.deepEqual(JSON.parse(thought.calls[0].arguments), { city: "Kyiv" });
  const formed = await collect(await chat(THOUGHT + '{"ok":false,"n":4}' + END, all));
  assert.match(formed.thought, /^hm/);
  assert.deepEqual(JSON.parse(formed.text), { ok: false, n: 4 });
});

test("case 16: usage is in one last chunk if asked for, and nowhere else", async () => {
  const more = { stream: true, stream_options: { include_usage: true } };
  const asked = await collect(await chat("Hello." + END, more));
  const last = asked.chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens);
  assert.equal(asked.chunks.filter((c) => c.usage).length, 1);
  const unasked = await collect(await chat("Hello." + END, { stream: true }));
  assert.ok(unasked.chunks.every((c) => !c.usage && c.choices.length === 1));
});

test("case 17: log-probabilities with a stream and tools have bytes", async () => {
  const more = { stream: true, logprobs: true, top_logprobs: 2, tools: [weather] };
  const all = await collect(await chat("Grüße 𝄞!" + END, more, "character"));
  const entries = all.chunks.flatMap((c) => c.choices.flatMap((x) => x.logprobs?.content ?? []));
  const bytes = Buffer.from(entries.flatMap((e) => e.bytes));
  assert.equal(bytes.toString("utf8"), all.text);
  assert.equal(all.text, "Grüße 𝄞!");
  for (const e of entries) {
    assert.equal(e.top_logprobs.length, 2);
    assert.ok(e.logprob <= 0 && Array.isArray(e.top_logprobs[0].bytes));
  }
});

// Tokens of prompts that were computed, not found in the cache, since the server began.
async function computed() {
  const text = await (await fetch(`${url}/metrics`)).text();
  const sum = (name) =>
    [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "gm"))]
      .reduce((total, match) => total + Number(match[1]), 0);
  return sum("carat_prompt_tokens_total") - sum("carat_prompt_tokens_cached_total");
}

test("case 18: n answers read the prompt once; too many are a 400", async () => {
  const messages = user("word ".repeat(300));
  const one = await script("One." + END), two = await script("Two." + END);
  const before = await computed();
  const whole = await client.chat.completions.create({
    model: "carat",
    messages,
    n: 3,
    x_carat_script: [one, two, one],
    max_tokens: 20,
  });
  assert.deepEqual(whole.choices.map((c) => c.index), [0, 1, 2]);
  assert.deepEqual(whole.choices.map((c) => c.message.content), ["One.", "Two.", "One."]);
  assert.ok(whole.usage.prompt_tokens > 300 && whole.usage.prompt_tokens < 1000);
  const read = (await computed()) - before;
  const once = whole.usage.prompt_tokens;
  assert.ok(read > 300 && read < 1.5 * once, `${read} of ${once}`);
  for (const n of [1e9, 9, 0, -1]) await refused({ messages, n }, "n", /n: 1 to 8 expected/);
});

test("case 19: developer role, several system messages, parts; an unknown role is a 400", async () => {
  const messages = [
    { role: "developer", content: "Be kind." },
    { role: "system", content: [{ type: "text", text: "Be " }, { type: "text", text: "brief." }] },
    { role: "user", content: [{ type: "text", text: "Hi" }, { type: "text", text: " there" }] },
  ];
  const whole = await chat("Hello." + END, { messages });
  assert.equal(whole.choices[0].message.content, "Hello.");
  const wrong = [{ role: "wizard", content: "Hi" }];
  await refused({ messages: wrong }, "messages[0].role", /messages\[0\]\.role/);
});

test("case 20: images, audio and files are a 400 that names the part", async () => {
  const parts = [
    { type: "image_url", image_url: { url: "http://127.0.0.1:9/x.png" } },
    { type: "input_audio", input_audio: { data: "", format: "wav" } },
    { type: "file", file: { file_id: "f" } },
  ];
  for (const part of parts) {
    const messages = [{ role: "user", content: [{ type: "text", text: "Look" }, part] }];
    const words = new RegExp(`messages\\[0\\]\\.content\\[1\\]\\.type.*${part.type}`);
    await refused({ messages }, "messages[0].content[1].type", words);
  }
});

test("a prompt that is too long says so as agents recognise it", async () => {
  const messages = user("word ".repeat(60000));
  await assert.rejects(client.chat.completions.create({ model: "m", messages }), (error) => {
    assert.equal(error.status, 400);
    assert.equal(error.code, "context_length_exceeded");
    assert.match(error.message, /exceeds the available context size/);
    assert.ok(error.error.n_ctx > 0);
    return true;
  });
});

test("completions: several prompts, echo, token ids and old log-probabilities", async () => {
  const ids = await script("Once upon");
  const whole = await client.completions.create({
    model: "carat",
    prompt: ["Once upon", "Twice"],
    max_tokens: 4,
    echo: true,
    seed: 1,
  });
  assert.equal(whole.choices.length, 2);
  assert.ok(whole.choices[0].text.startsWith("Once upon"));
  assert.ok(whole.choices[1].text.startsWith("Twice"));
  const echoed = await client.completions.create({
    model: "carat",
    prompt: ids,
    max_tokens: 2,
    echo: true,
  });
  assert.ok(echoed.choices[0].text.startsWith("Once upon"));
  const probable = await client.completions.create({
    model: "carat",
    prompt: ids,
    max_tokens: 3,
    logprobs: 2,
    ignore_eos: true,
  });
  const logprobs = probable.choices[0].logprobs;
  assert.equal(logprobs.tokens.length, 3);
  assert.equal(logprobs.text_offset[0], 0);
  assert.ok(logprobs.token_logprobs.every((x) => x <= 0));
  assert.equal(Object.keys(logprobs.top_logprobs[0]).length, 2);
  let text = "";
  const stream = await client.completions.create({
    model: "carat",
    prompt: "Once upon",
    max_tokens: 4,
    stream: true,
    stream_options: { include_usage: true },
  });
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.text ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.ok(text.length > 0);
  assert.equal(usage.completion_tokens, 4);
});

test("models: the list and one model by its name", async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  const one = await client.models.retrieve(list.data[0].id);
  assert.equal(one.object, "model");
  assert.ok(one.meta.n_ctx > 0);
});

test("embeddings are a 501 that says so", async () => {
  const reply = await post("/v1/embeddings", { input: "a", model: "m" });
  assert.equal(reply.status, 501);
  assert.equal(JSON.parse(reply.text).error.code, "not_supported");
});

test("a second turn through the cache reuses what was read", async () => {
  const messages = user("word ".repeat(4000));
  await chat("Fine." + END, { messages });
  const next = [...messages, { role: "assistant", content: "Fine." }, ...user("More?")];
  const whole = await chat("Yes." + END, { messages: next });
  const share = whole.usage.prompt_tokens_details.cached_tokens / whole.usage.prompt_tokens;
  assert.ok(share >= 0.95, `${share}`);
});

test("a budget of thoughts closes the thought, and the answer follows", async () => {
  const text = "<|channel>thought\n" + "hm ".repeat(30);
  for (const name of ["reasoning_budget", "thinking_budget_tokens"]) {
    const more = { reasoning_effort: "low", [name]: 10, max_tokens: 60 };
    const whole = await chat(text, more);
    const { reasoning_content: thought } = whole.choices[0].message;
    assert.ok(thought.startsWith("hm hm") && thought.length < 40, thought);
    assert.ok(whole.usage.completion_tokens_details.reasoning_tokens <= 12);
    assert.equal(whole.choices[0].reasoning_truncated, undefined);
    assert.ok(whole.choices[0].message.content.length > 0);
  }
  assert.equal(await thinks({ reasoning_effort: "high", reasoning_budget: 0 }), false);
});
