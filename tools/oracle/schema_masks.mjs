// Writes tests/golden/fixtures/schema-masks.json: what another implementation of constrained output,
// xgrammar, allows at each step of random walks through each schema of tests/golden/schemas.json,
// over the vocabulary of models/demo.gguf.
//
//     npm install @mlc-ai/web-xgrammar@0.1.27        (in any folder)
//     node tools/oracle/schema_masks.mjs FOLDER/node_modules
//
// A mask is a list of ranges of ids, "!" in front: of all others. Schemas that it refuses are listed
// under "refused".
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const OUT = "tests/golden/fixtures/schema-masks.json";
// Schemas that it takes for others, and what it makes of them.
const UNLIKE = { "all-of": "any value", "any-of-required": "any value" };
const STOPS = [1, 50, 106];
const WALKS = 3;
const SEED = 20260;
const SOON = 24; // steps after which a walk takes the shortest way out
const STEPS_MAX = 60;

/* ---- The vocabulary of a GGUF file ---- */

function readVocabulary(file) {
  const data = readFileSync(file);
  let at = 8;
  const u32 = () => data.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(data.readBigUInt64LE((at += 8) - 8));
  const text = () => { const n = u64(); return data.toString("utf8", at, (at += n)); };
  const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
  const value = (type) => {
    if (type === 8) return text();
    if (type === 9) {
      const of = u32(), n = u64();
      return Array.from({ length: n }, () => value(of));
    }
    at += SIZES[type];
    return type === 5 ? data.readInt32LE(at - 4) : null;
  };
  u64(); // tensors
  const keys = {};
  for (let n = u64(); n > 0; n--) {
    const key = text();
    keys[key] = value(u32());
  }
  const types = keys["tokenizer.ggml.token_type"];
  return keys["tokenizer.ggml.tokens"].map((piece, id) => ({ piece, type: types[id] }));
}

const SPECIAL = /^<\|?(pad|eos|bos|unk|mask|tool|tool_call|tool_response|"|think|channel|turn|image|audio|video)\|?>$/;

/* Special tokens have no text: the other side never allows them. */
function textOf({ piece, type }) {
  return type === 3 || type === 4 || SPECIAL.test(piece) ? "" : piece;
}

/* ---- Walks ---- */

function generator(seed) { // mulberry32
  return (n) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

/* Line ends and tabs between two tokens of JSON are not in carat's language. */
const ODD_BLANK = /[\n\t]|^<0x0[9A]>$/;

function choose(all, texts, step, random) {
  const allowed = all.filter((id) => !ODD_BLANK.test(texts[id]));
  const short = allowed.filter((id) => texts[id].length === 1);
  if (step >= SOON) {
    for (const wanted of ['"', "}", "]"]) {
      const found = short.find((id) => texts[id] === wanted);
      if (found !== undefined) return found;
    }
  }
  const from = short.length && random(2) ? short : allowed;
  return from[random(from.length)];
}

function ranges(ids) {
  const parts = [];
  for (let i = 0; i < ids.length;) {
    let k = i;
    while (k + 1 < ids.length && ids[k + 1] === ids[k] + 1) k++;
    parts.push(k === i ? `${ids[i]}` : `${ids[i]}-${ids[k]}`);
    i = k + 1;
  }
  return parts.join(",");
}

function shorter(allowed, refused) {
  const a = ranges(allowed), b = `!${ranges(refused)}`;
  return a.length <= b.length ? a : b;
}

async function walk(xgrammar, compiled, texts, random, maskIndex) {
  const matcher = await xgrammar.GrammarMatcher.createGrammarMatcher(compiled);
  const ids = [], masks = [];
  for (let step = 0; step < STEPS_MAX; step++) {
    const bits = await matcher.getNextTokenBitmask();
    const no = Array.from(await xgrammar.Testings.debugGetMaskedTokensFromBitmask(bits, texts.length));
    const isRefused = new Set(no);
    const yes = texts.map((_, id) => id).filter((id) => !isRefused.has(id));
    masks.push(maskIndex(shorter(yes, no)));
    const going = yes.filter((id) => !STOPS.includes(id));
    if (going.length === 0 || (yes.length > going.length && (step >= SOON || random(4) === 0))) break;
    const id = choose(going, texts, step, random);
    if (!matcher.acceptToken(id)) throw new Error(`token ${id} is allowed and refused`);
    ids.push(id);
  }
  matcher.dispose();
  return { ids, masks };
}

/* ---- All schemas ---- */

async function load(folder) {
  globalThis.require = createRequire(import.meta.url);
  globalThis.__dirname = globalThis.__filename = "";
  await import(path.resolve(folder, "@mlc-ai/web-xgrammar/lib/index.js"));
  return globalThis.xgrammar;
}

async function main(folder) {
  const xgrammar = await load(folder);
  const texts = readVocabulary(path.join(ROOT, "models/demo.gguf")).map(textOf);
  const info = await xgrammar.TokenizerInfo.createTokenizerInfo(
    texts, "byte_fallback", false, texts.length, STOPS);
  const compiler = await xgrammar.GrammarCompiler.createGrammarCompiler(info, false);
  const schemas = JSON.parse(readFileSync(path.join(ROOT, "tests/golden/schemas.json")));
  const masks = new Map(), cases = [], refused = [];
  const maskIndex = (mask) => masks.get(mask) ?? (masks.set(mask, masks.size), masks.size - 1);
  for (const [number, { name, schema }] of schemas.entries()) {
    if (UNLIKE[name]) {
      refused.push({ name, why: `taken for ${UNLIKE[name]}` });
      continue;
    }
    let compiled;
    try {
      compiled = await compiler.compileJSONSchema(
        JSON.stringify(schema), true, undefined, undefined, true, 1);
    } catch (error) {
      refused.push({ name, why: `${error.message ?? error}`.slice(0, 200) });
      continue;
    }
    const random = generator(SEED + number), walks = [];
    for (let i = 0; i < WALKS; i++)
      walks.push(await walk(xgrammar, compiled, texts, random, maskIndex));
    cases.push({ name, walks });
    compiled.dispose();
  }
  const lines = (list) => list.map((item) => JSON.stringify(item)).join(",\n");
  writeFileSync(path.join(ROOT, OUT),
    `{"made by":"tools/oracle/schema_masks.mjs, xgrammar 0.1.27",\n"refused":[\n${lines(refused)}],\n` +
    `"masks":[\n${lines([...masks.keys()])}],\n"cases":[\n${lines(cases)}]}\n`);
  const steps = cases.flatMap((c) => c.walks).reduce((n, w) => n + w.masks.length, 0);
  console.log(`${cases.length} schemas, ${steps} masks, ${masks.size} of them different; ` +
    `${refused.length} schemas refused`);
}

await main(process.argv[2] ?? "node_modules");
