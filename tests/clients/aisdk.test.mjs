// The packages `ai` and `@ai-sdk/openai-compatible` against carat serve: they check the shape of
// every event.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { CUTS, END, script, url } from "./harness.mjs";

// The script of the next request.
let next = null;
const carat = createOpenAICompatible({
  name: "carat",
  baseURL: `${url}/v1`,
  includeUsage: true,
  fetch: (address, options) => {
    const body = JSON.parse(options.body);
    if (next) body.x_carat_script = next;
    next = null;
    return fetch(address, { ...options, body: JSON.stringify(body) });
  },
});
const model = carat("carat");
const tools = {
  get_weather: tool({
    description: "d",
    inputSchema: jsonSchema({
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    }),
  }),
};
const CALL = '<|tool_call>call:get_weather{city:<|"|>Kyiv<|"|>}<tool_call|><|tool_response>';

test("ai-sdk: a call in a stream has its input and its reason", async () => {
  for (const cut of CUTS) {
    next = await script(CALL, cut);
    const stream = streamText({ model, prompt: "Hi", tools, maxRetries: 0 });
    const kinds = [];
    for await (const part of stream.fullStream) {
      assert.notEqual(part.type, "error", `${part.error}`);
      kinds.push(part.type);
    }
    const calls = await stream.toolCalls;
    assert.equal(calls.length, 1);
    assert.deepEqual(calls[0].input, { city: "Kyiv" });
    assert.equal(await stream.finishReason, "tool-calls");
    assert.ok(kinds.includes("tool-input-delta"));
    assert.ok((await stream.usage).inputTokens > 0);
  }
});

test("ai-sdk: thoughts and text come apart", async () => {
  next = await script("<|channel>thought\nhm\n<channel|>Hello." + END);
  const stream = streamText({
    model,
    prompt: "Hi",
    maxRetries: 0,
    providerOptions: { carat: { reasoningEffort: "low" } },
  });
  let text = "", thought = "";
  for await (const part of stream.fullStream) {
    assert.notEqual(part.type, "error", `${part.error}`);
    if (part.type === "text-delta") text += part.text;
    if (part.type === "reasoning-delta") thought += part.text;
  }
  assert.equal(text, "Hello.");
  assert.match(thought, /^hm/);
});

test("ai-sdk: a body gives the same", async () => {
  next = await script("Hello." + END);
  const whole = await generateText({ model, prompt: "Hi", maxRetries: 0 });
  assert.equal(whole.text, "Hello.");
  assert.equal(whole.finishReason, "stop");
  next = await script(CALL);
  const call = await generateText({ model, prompt: "Hi", tools, maxRetries: 0 });
  assert.deepEqual(call.toolCalls[0].input, { city: "Kyiv" });
});

test("ai-sdk: an error has the server's words", async () => {
  await assert.rejects(
    generateText({ model, prompt: "Hi", maxRetries: 0, temperature: 1000 }),
    /temperature: 0 to 100 expected/,
  );
});
