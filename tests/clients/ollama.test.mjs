// The package `ollama` against carat serve: chat, generate, and what tools that list models ask.
// Answers that a small model cannot give are scripted.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ollama } from "ollama";
import { CACHED_SHARE, CUTS, END, LONG, LONG_TOKENS, post, script, url } from "./harness.mjs";

const client = new Ollama({ host: url });
const user = (content) => [{ role: "user", content }];
const THOUGHT = "<|channel>thought\nhm, <b>\n<channel|>";
const CALL = '<|tool_call>call:get_weather{city:<|"|>Kyiv<|"|>,days:2}<tool_call|>';
const CALL_END = "<|tool_response>";
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "d",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city"],
    },
  },
};

async function ask(text, more, cut = "token") {
  return {
    model: "gemma4:e4b",
    messages: user("Hi"),
    x_carat_script: await script(text, cut),
    ...more,
  };
}

async function streamed(request) {
  const all = { lines: [], text: "", thought: "", calls: [] };
  for await (const line of await client.chat({ ...request, stream: true })) {
    all.lines.push(line);
    all.text += line.message.content;
    all.thought += line.message.thinking ?? "";
    all.calls.push(...(line.message.tool_calls ?? []));
    all.last = line;
  }
  return all;
}

async function refused(path, body, words) {
  const reply = await post(path, { model: "m", ...body });
  assert.equal(reply.status, 400, reply.text);
  assert.deepEqual(Object.keys(JSON.parse(reply.text)), ["error"]);
  assert.match(JSON.parse(reply.text).error, words);
}

test("a chat streams lines, and the last one has the counts", async () => {
  for (const cut of CUTS) {
    const all = await streamed(await ask("Hello there." + END, {}, cut));
    assert.equal(all.text, "Hello there.");
    assert.ok(all.lines.length > 3);
    assert.ok(all.lines.slice(0, -1).every((line) => line.done === false));
    assert.equal(all.last.done, true);
    assert.equal(all.last.done_reason, "stop");
    assert.equal(all.last.model, "gemma4:e4b");
    assert.ok(all.last.prompt_eval_count > 0 && all.last.eval_count > 2);
    for (const key of ["total_duration", "prompt_eval_duration", "eval_duration"])
      assert.ok(Number.isInteger(all.last[key]), key);
    assert.ok(!Number.isNaN(Date.parse(all.last.created_at)));
  }
  const whole = await client.chat(await ask("Hello there." + END));
  assert.equal(whole.message.content, "Hello there.");
  const plain = await post("/api/chat", { messages: user("Hi"), options: { num_predict: 2 } });
  assert.equal(plain.headers.get("content-type"), "application/x-ndjson");
});

test("case 25: think true, false and a level", async () => {
  for (const think of [true, "low"]) {
    for (const cut of CUTS) {
      const all = await streamed(await ask(THOUGHT + "Yes." + END, { think }, cut));
      assert.equal(all.thought.trim(), "hm, <b>");
      assert.equal(all.text, "Yes.");
      assert.doesNotMatch(JSON.stringify(all.lines), /<\|?channel/);
    }
  }
  const off = await client.chat(await ask("Yes." + END, { think: false }));
  assert.equal(off.message.thinking, undefined);
});

test("case 25: arguments are an object, and results find their calls", async () => {
  const tools = [weather];
  for (const cut of CUTS) {
    const request = await ask("I look." + CALL + CALL + CALL_END, { tools, think: false }, cut);
    const all = await streamed(request);
    assert.equal(all.text, "I look.");
    assert.equal(all.calls.length, 2);
    assert.deepEqual(all.calls[0].function.arguments, { city: "Kyiv", days: 2 });
    assert.equal(all.last.done_reason, "stop");
    const messages = [
      ...user("Hi"),
      { role: "assistant", content: all.text, tool_calls: all.calls },
      { role: "tool", tool_name: "get_weather", content: "sun" },
      { role: "tool", tool_name: "get_weather", content: "rain" },
    ];
    const next = await client.chat(await ask("Good." + END, { tools, messages }));
    assert.equal(next.message.content, "Good.");
  }
});

test("case 25: format json, and a schema", async () => {
  const json = await client.chat(await ask('{"x": [1]}' + END, { format: "json" }));
  assert.deepEqual(JSON.parse(json.message.content), { x: [1] });
  const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
  const forced = await client.chat(
    await ask(THOUGHT + '{"a": 5}' + END, { format: schema, think: true, tools: [weather] }),
  );
  assert.deepEqual(JSON.parse(forced.message.content), { a: 5 });
  const bad = { format: { type: "string", pattern: "(a" } };
  await refused("/api/chat", { messages: user("a"), ...bad }, /^format/);
});

test("case 12: an answer that ends inside a thought has length and no text", async () => {
  const text = "<|channel>thought\n" + "hm ".repeat(100);
  const all = await streamed(await ask(text, { think: true, options: { num_predict: 20 } }));
  assert.equal(all.text, "");
  assert.equal(all.last.done_reason, "length");
  assert.equal(all.last.eval_count, 20);
});

test("case 13: stop strings ignore thoughts", async () => {
  const text = "<|channel>thought\nSTOP?\n<channel|>Before STOP after" + END;
  for (const cut of CUTS) {
    const options = { stop: ["STOP"] };
    const all = await streamed(await ask(text, { think: true, options }, cut));
    assert.match(all.thought, /STOP\?/);
    assert.equal(all.text, "Before ");
    assert.equal(all.last.done_reason, "stop");
  }
});

test("case 25: empty messages load and unload", async () => {
  const unload = await post("/api/chat", { model: "m", messages: [], keep_alive: 0 });
  assert.equal(unload.status, 200);
  assert.equal(JSON.parse(unload.text).done_reason, "unload");
  assert.equal(JSON.parse(unload.text).done, true);
  const load = await client.generate({ model: "m", prompt: "" });
  assert.equal(load.done_reason, "load");
});

test("generate answers a question, and continues a raw text", async () => {
  const request = async (text, more) => {
    return { model: "m", prompt: "Hi", x_carat_script: await script(text), ...more };
  };
  const whole = await client.generate(await request(THOUGHT + "Yes." + END, { think: true }));
  assert.equal(whole.response, "Yes.");
  assert.equal(whole.thinking.trim(), "hm, <b>");
  let text = "";
  const stream = await client.generate({
    ...(await request("Yes." + END, { system: "Be brief." })),
    stream: true,
  });
  for await (const line of stream) text += line.response;
  assert.equal(text, "Yes.");
  const raw = await client.generate(await request("once more" + END, { raw: true }));
  assert.equal(raw.response, "once more");
  await refused("/api/generate", { prompt: "a", suffix: "b" }, /^suffix: not supported/);
  await refused("/api/generate", { prompt: "a", images: ["aaaa"] }, /^images: not supported/);
});

test("tokens are reported where they are asked for", async () => {
  const more = { logprobs: true, top_logprobs: 2 };
  const whole = await client.chat(await ask("Hello there." + END, more));
  assert.equal(whole.logprobs.map((t) => t.token).join(""), "Hello there.");
  assert.equal(whole.logprobs[0].top_logprobs.length, 2);
  const all = await streamed(await ask("Hello there." + END, more));
  const tokens = all.lines.flatMap((line) => line.logprobs ?? []);
  assert.equal(tokens.map((t) => t.token).join(""), "Hello there.");
});

test("case 25: models, their capabilities and their context", async () => {
  const { models } = await client.list();
  assert.equal(models.length, 1);
  assert.match(models[0].digest, /^[0-9a-f]{64}$/); // its own program shows the first 12
  assert.ok(models[0].size > 0 && models[0].name && models[0].details.quantization_level);
  const shown = await client.show({ model: models[0].name });
  assert.deepEqual(shown.capabilities, ["completion", "tools", "thinking"]);
  assert.ok(shown.model_info["gemma4.context_length"] > 0);
  assert.equal(shown.details.family, "gemma4");
  assert.equal((await client.ps()).models.length, 1);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+/);
});

test("what cannot be read is refused by its path", async () => {
  const image = [{ role: "user", content: "a", images: ["aaaa"] }];
  await refused("/api/chat", { messages: image }, /^messages\[0\]\.images: not supported/);
  await refused("/api/chat", { messages: user("a"), think: "hard" }, /^think: /);
  const options = { temperature: -1 };
  await refused("/api/chat", { messages: user("a"), options }, /^options\.temperature: 0 to 100/);
  await refused("/api/chat", { messages: user("x ".repeat(60000)) }, /available context size/);
  await assert.rejects(client.chat({ model: "m", messages: image }), /not supported/);
});

// What a page for chats sends.
test("the second turn after a long one comes from the cache", async () => {
  const page = {
    keep_alive: "5m",
    options: { num_ctx: 8192, temperature: 0.7, top_k: 40, stop: null, num_gpu: 1 },
    metadata: { chat_id: "c" },
  };
  const system = { role: "system", content: `${Math.random()}\n${LONG}` };
  const messages = [system, ...user("Hi")];
  const first = await streamed(await ask("Yes." + END, { ...page, messages }));
  assert.ok(first.last.prompt_eval_count > LONG_TOKENS);
  messages.push({ role: "assistant", content: first.text }, ...user("And now?"));
  const body = await ask("No." + END, { ...page, messages, stream: false });
  const reply = await post("/api/chat", body);
  assert.equal(JSON.parse(reply.text).message.content, "No.");
  // ollama has no word for the cache; the same prompt through OpenAI's API has.
  const chat = { messages, max_tokens: 1 };
  const { usage } = JSON.parse((await post("/v1/chat/completions", chat)).text);
  const share = usage.prompt_tokens_details.cached_tokens / usage.prompt_tokens;
  assert.ok(share >= CACHED_SHARE, `${share}`);
});
