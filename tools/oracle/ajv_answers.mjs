// Lets a model answer under each schema of tests/golden/schemas.json, at temperature 2, and has ajv
// judge what ends by itself.
//
//     npm install ajv ajv-formats                    (in any folder)
//     node tools/oracle/ajv_answers.mjs FOLDER/node_modules build/release/carat [MODEL [SEEDS]]
import { readFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const [FOLDER, PROGRAM, MODEL = "models/demo.gguf", SEEDS = "10"] = process.argv.slice(2);
const ENDS = ['"', "}", "]"]; // favoured, so that strings and lists end
const LENGTH = 400;

const load = createRequire(path.resolve(FOLDER, "x.js"));
const Ajv = load("ajv/dist/2020").default;
const ajv = new Ajv({ strict: false });
load("ajv-formats").default(ajv);

function carat(...words) {
  return JSON.parse(execFileSync(PROGRAM, words.map(String),
    { input: "", maxBuffer: 1 << 26, cwd: ROOT }));
}

const favoured = ENDS.map((text) => `${carat("tokenize", MODEL, "--json", text).ids[0]}=5`)
  .flatMap((bias) => ["--logit-bias", bias]);
const schemas = JSON.parse(readFileSync(path.join(ROOT, "tests/golden/schemas.json")));
let ended = 0, cut = 0;
const wrong = [];
for (const [number, { name, schema }] of schemas.entries()) {
  const fits = ajv.compile({ ...schema, $id: undefined });
  for (let seed = 0; seed < Number(SEEDS); seed++) {
    const result = carat("run", MODEL, "Tell me a story about a small dog.", "--json", "-q",
      "--json-schema", JSON.stringify(schema), "-n", LENGTH, "--temp", 2, "--top-k", 0, "--top-p", 1,
      "--seed", 1000 * number + seed, ...favoured);
    if (result.finish !== "stop") { cut++; continue; }
    ended++;
    let value, why = null;
    try {
      value = JSON.parse(result.text);
      if (!fits(value)) why = ajv.errorsText(fits.errors);
    } catch (error) {
      why = `${error}`;
    }
    if (why) wrong.push(`${name}, seed ${seed}: ${why}: ${result.text.slice(0, 200)}`);
  }
}
console.log(wrong.join("\n"));
console.log(`${schemas.length} schemas, ${ended} answers ended, ${cut} were cut at ${LENGTH} tokens, ` +
  `${wrong.length} do not fit`);
process.exitCode = wrong.length ? 1 : 0;
