// serve: --timeout 3
// An answer that fails while it streams: every client throws, with the server's words.
import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { script, url } from "./harness.mjs";

const messages = [{ role: "user", content: "Hi" }];
const slow = { x_carat_delay: 250, x_carat_script: await script("one two ".repeat(20)) };
const WORDS = /took longer than the 3 seconds/;

test("openai: a chat and a completion throw after what has come", async () => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const asks = [
    client.chat.completions.create({ model: "carat", messages, stream: true, ...slow }),
    client.completions.create({ model: "carat", prompt: "a", stream: true, ...slow,
                                max_tokens: 40 }),
    client.responses.create({ model: "carat", input: "Hi", stream: true, ...slow }),
  ];
  for (const ask of asks) {
    let n = 0, failed = null;
    try {
      for await (const chunk of await ask) {
        n += 1;
        if (chunk.type === "response.failed") failed = chunk.response.error.message;
        if (chunk.type === "error") failed = chunk.message;
      }
    } catch (error) {
      failed = error.message;
    }
    assert.ok(n > 0, `${n} chunks`);
    assert.match(failed ?? "no error", WORDS);
  }
});

test("ai-sdk: a stream has an error part", async () => {
  const carat = createOpenAICompatible({
    name: "carat",
    baseURL: `${url}/v1`,
    fetch: (address, options) =>
      fetch(address, {
        ...options,
        body: JSON.stringify({ ...JSON.parse(options.body), ...slow }),
      }),
  });
  const errors = [];
  const stream = streamText({
    model: carat("carat"),
    prompt: "Hi",
    maxRetries: 0,
    onError: () => {},
  });
  for await (const part of stream.fullStream)
    if (part.type === "error") errors.push(part.error?.message ?? String(part.error));
  assert.equal(errors.length, 1);
  assert.match(errors[0], WORDS);
});

test("anthropic: a stream throws", async () => {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const stream = client.messages.stream({ model: "carat", max_tokens: 99, messages, ...slow });
  await assert.rejects(stream.finalMessage(), WORDS);
});

test("ollama: a stream throws", async () => {
  const client = new Ollama({ host: url });
  const stream = await client.chat({ model: "carat", messages, stream: true, ...slow });
  await assert.rejects(async () => {
    for await (const part of stream) assert.ok(part.message || part.done);
  }, WORDS);
});

test("a body that fails has the status 504", async () => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  await assert.rejects(
    client.chat.completions.create({ model: "carat", messages, ...slow }),
    (error) => error.status === 504 && WORDS.test(error.message),
  );
});
