// What the scripts of clients share: where the server is, and answers in its model's own tokens.
import assert from "node:assert/strict";

export const url = process.env.CARAT_URL ?? "http://127.0.0.1:8080";
export const END = "<turn|>";

// A long beginning of a prompt, and how much of it the second turn has from the cache. Sanitizers make
// long prompts too slow; of a short one the last page, which is never shared, is a larger part.
const isSlow = process.env.CARAT_SLOW === "1";
export const LONG = Array.from(
  { length: isSlow ? 60 : 320 },
  (_, i) => `Rule ${i}: be kind to number ${i * 7}.`,
).join("\n");
export const LONG_TOKENS = isSlow ? 700 : 4000;
export const CACHED_SHARE = isSlow ? 0.75 : 0.95;

export async function post(path, body, headers = {}) {
  const reply = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: reply.status, headers: reply.headers, text: await reply.text() };
}

async function tokens(content, isTemplate) {
  const reply = await post("/tokenize", {
    content,
    parse_special: isTemplate,
    with_pieces: true,
  });
  assert.equal(reply.status, 200, reply.text);
  return JSON.parse(reply.text).tokens;
}

const characters = new Map();
async function idsOfCharacter(c) {
  if (!characters.has(c)) characters.set(c, (await tokens(c, false)).map((t) => t.id));
  return characters.get(c);
}

const isMark = (piece) => typeof piece === "string" && /^<.+>$/.test(piece);

// Ids of what the model is to say. "token": as its vocabulary cuts it; "character": text comes
// character by character, or in parts of one.
export async function script(text, cut = "token") {
  const whole = await tokens(text, true);
  if (cut === "token") return whole.map((t) => t.id);
  const ids = [];
  for (const part of text.split(/(<\|?[a-z_"]+\|?>|<\|"\|>)/)) {
    if (part === "") continue;
    const one = await tokens(part, true);
    if (one.length === 1 && isMark(one[0].piece)) ids.push(one[0].id);
    else for (const c of part) ids.push(...(await idsOfCharacter(c)));
  }
  return ids;
}

export const CUTS = ["token", "character"];

// Everything of a stream, and what it says taken together.
export async function collect(stream) {
  const all = { chunks: [], text: "", thought: "", calls: [], finish: null, usage: null };
  for await (const chunk of stream) {
    all.chunks.push(chunk);
    if (chunk.usage) all.usage = chunk.usage;
    for (const choice of chunk.choices) {
      all.text += choice.delta.content ?? "";
      all.thought += choice.delta.reasoning_content ?? "";
      if (choice.finish_reason) all.finish = choice.finish_reason;
      for (const call of choice.delta.tool_calls ?? []) {
        all.calls[call.index] ??= { id: call.id, name: call.function.name, arguments: "" };
        all.calls[call.index].arguments += call.function.arguments;
      }
    }
  }
  return all;
}

export const tool = (name, properties, more = {}) => ({
  type: "function",
  function: {
    name,
    description: "d",
    parameters: { type: "object", properties, required: Object.keys(properties), ...more },
  },
});
