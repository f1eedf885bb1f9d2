/* OPTION_LIST: every flag of the program, once.
 *
 * X(ID, KIND, "name", "other spellings", "default", low, high, COMMANDS, "VALUE", "help")
 *
 * KIND is FLAG, INT, COUNT (an INT that takes k, m or g after it: 8k is 8192), REAL, TEXT,
 * MEMORY (11G, and 90% where VALUE has a %), CHOICE (VALUE lists the words, separated by |;
 * brackets mean that the word may be left out, which stands for the first one) or LIST (may be
 * given again). Ranges hold for INT, COUNT and REAL; -1 as `low` usually means that the model or
 * the engine decides. Two rows may share a spelling when no command takes both.
 *
 * The table gives parsing, `carat help`, CARAT_<NAME> variables, shell completion and the manual
 * page. Other spellings are llama.cpp's, so that known commands work; the second list has options
 * of llama.cpp and ollama that carat lacks. */
#ifndef CLI_OPTION_LIST_H
#define CLI_OPTION_LIST_H

#define ON(id) (1u << COMMAND_##id)
#define ON_TALK (ON(RUN) | ON(CHAT))
#define ON_SCORE (ON(LOGITS) | ON(PERPLEXITY) | ON(IMATRIX))
#define ON_TEXT (ON(TOKENIZE) | ON(DETOKENIZE))
#define ON_ANSWER (ON_TALK | ON(SERVE))
#define ON_LLAMA (ON_ANSWER | ON(PERPLEXITY) | ON(IMATRIX) | ON(BENCH) | ON(TOKENIZE))
#define ON_ENGINE (ON_ANSWER | ON_SCORE | ON(PLAN) | ON(SHOW) | ON(DOCTOR))
#define ON_MODEL (ON_ANSWER | ON_SCORE | ON_TEXT | ON(SHOW) | ON(TEMPLATE) | ON(BENCH) | ON(PLAN))
#define ON_STORE (ON(PULL) | ON(LS) | ON(RM) | ON(VERIFY))
#define ON_ALL ((1u << COMMAND_COUNT) - 1u)
#define ON_CONFIG (ON_ALL & ~(ON(VERSION) | ON(HELP) | ON(COMPLETION) | ON(MAN)))

#define COUNT_MAX 1048576
#define SEED_MAX 9007199254740991.0 /* 2^53 - 1: whole in a double too */

#define OPTION_LIST(X)                                                                             \
    X(MODEL, TEXT, "model", "-m", "", 0, 0, ON_MODEL & ~ON(BENCH), "MODEL",                        \
      "model file or name, instead of the first argument")                                         \
    X(BENCH_MODEL, LIST, "model", "-m", "", 0, 0, ON(BENCH), "MODEL",                              \
      "model file or name, instead of arguments; may be repeated")                                 \
    X(HF_REPO, TEXT, "hf-repo", "-hf -hfr", "", 0, 0, ON_MODEL, "REPO",                            \
      "a model of Hugging Face, USER/REPO[:QUANT]: the same as hf:USER/REPO[:QUANT]")              \
    X(HF_FILE, TEXT, "hf-file", "-hff", "", 0, 0, ON_MODEL, "FILE",                                \
      "with --hf-repo: this file of the repository")                                               \
    X(MODEL_URL, TEXT, "model-url", "-mu", "", 0, 0, ON_MODEL, "URL",                              \
      "a model by its address, instead of the first argument")                                     \
    X(OFFLINE, FLAG, "offline", "", "", 0, 0, ON_MODEL | ON(PULL), "",                             \
      "use no network, whatever is missing (also HF_HUB_OFFLINE=1)")                               \
    X(REVISION, TEXT, "revision", "", "", 0, 0, ON(PULL), "REV",                                   \
      "branch, tag or commit of a repository of Hugging Face (default: main)")                     \
    X(QUANT, TEXT, "quant", "", "", 0, 0, ON(PULL), "QUANT",                                       \
      "which quantisation, as in hf:USER/REPO:QUANT (default: Q4_K_M)")                            \
    X(DIR, TEXT, "dir", "", "", 0, 0, ON_STORE, "DIR",                                             \
      "folder of the models, instead of ~/.local/share/carat/models")                              \
    X(VERIFY, FLAG, "verify", "", "", 0, 0, ON(PULL), "",                                          \
      "compare files that are there with their checksums, and load wrong ones again")              \
    X(TOKEN, TEXT, "token", "-hft --hf-token", "", 0, 0, ON_MODEL | ON(PULL), "TOKEN",             \
      "token of Hugging Face (better: $HF_TOKEN, or the file $HF_TOKEN_PATH)")                     \
    X(ENDPOINT, TEXT, "endpoint", "", "", 0, 0, ON_MODEL | ON(PULL), "URL",                        \
      "another server with the same interface ($HF_ENDPOINT for Hugging Face's)")                  \
    X(RETRIES, INT, "retries", "", "6", 0, 1000, ON(PULL), "N",                                    \
      "further tries after a failure of the network")                                              \
    X(JOBS, INT, "jobs", "-j", "4", 1, 16, ON(PULL), "N",                                          \
      "connections that load a file at once, where its server sends parts")                        \
    X(STALL, INT, "timeout", "", "30", 1, 3600, ON(PULL), "S",                                     \
      "seconds without bytes after which a connection counts as lost")                             \
    X(YES, FLAG, "yes", "-y", "", 0, 0, ON(RM), "", "do not ask")                                  \
    X(PROMPT, TEXT, "prompt", "-p", "", 0, 0, ON_TALK | ON(TOKENIZE), "TEXT",                      \
      "prompt, instead of arguments (chat: the first message)")                                    \
    X(PROMPT_FILE, TEXT, "file", "-f -bf --binary-file", "", 0, 0, ON(RUN) | ON(TOKENIZE), "FILE", \
      "read the prompt from a file")                                                               \
    X(ESCAPE, FLAG, "escape", "-e", "", 0, 0, ON_TALK, "",                                         \
      "\\n, \\t, \\r, \\\", \\' and \\\\ in --prompt and --system are characters")                 \
    X(SYSTEM, TEXT, "system", "-sys --system-prompt", "", 0, 0, ON_TALK, "TEXT", "system prompt")  \
    X(SYSTEM_FILE, TEXT, "system-file", "-sysf --system-prompt-file", "", 0, 0, ON_TALK, "FILE",   \
      "read the system prompt from a file")                                                        \
    X(CONVERSATION, FLAG, "conversation", "-cnv", "", 0, 0, ON(RUN), "",                           \
      "go on talking after the prompt, as `carat chat` does")                                      \
    X(SINGLE_TURN, FLAG, "single-turn", "-st", "", 0, 0, ON_TALK, "", "leave after one answer")    \
    X(THINK, CHOICE, "think", "", "off", 0, 0, ON_TALK, "[on|off]", "let the model think first")   \
    X(HIDE_THINKING, FLAG, "hide-thinking", "--hidethinking", "", 0, 0, ON_TALK, "",               \
      "do not print thoughts (they go to standard error)")                                         \
    X(NO_WRAP, FLAG, "no-wrap", "--nowordwrap", "", 0, 0, ON_TALK, "",                             \
      "let the terminal break words at its edge, instead of lines between words")                  \
    X(SHOW_THINKING, FLAG, "show-thinking", "", "", 0, 0, ON(RUN), "",                             \
      "print thoughts to standard output, before the answer")                                      \
    X(RAW, FLAG, "raw", "", "", 0, 0, ON(RUN), "",                                                 \
      "continue the text as it is: no chat template, only <bos> in front")                         \
    X(TOOLS, TEXT, "tools", "", "", 0, 0, ON(RUN), "FILE",                                         \
      "JSON array of tools the model may call; a call is printed as a JSON line")                  \
    X(REQUEST, TEXT, "request", "", "", 0, 0, ON(RUN), "FILE",                                     \
      "a whole chat request as JSON, in OpenAI's form, instead of a prompt (-: standard input)")   \
    X(JSON_SCHEMA, TEXT, "json-schema", "-j", "", 0, 0, ON_TALK, "SCHEMA|FILE",                    \
      "hold answers to JSON that fits a JSON Schema: the schema itself, or its file")              \
    X(JSON_SCHEMA_FILE, TEXT, "json-schema-file", "-jf", "", 0, 0, ON_TALK, "FILE",                \
      "the same, from a file")                                                                     \
    X(GRAMMAR, TEXT, "grammar", "", "", 0, 0, ON_TALK, "TEXT|FILE",                                \
      "hold answers to a grammar in llama.cpp's GBNF: the grammar itself, or its file")            \
    X(GRAMMAR_FILE, TEXT, "grammar-file", "", "", 0, 0, ON_TALK, "FILE", "the same, from a file")  \
    X(FORMAT, CHOICE, "format", "", "", 0, 0, ON_TALK, "json",                                     \
      "hold answers to a JSON object (not from the environment)")                                  \
    X(MAX_TOKENS, COUNT, "max-tokens", "-n --predict --n-predict", "-1", -1, 2147483647, ON_TALK,  \
      "N", "stop after N tokens (-1: at the end of the context)")                                  \
    X(CTX, COUNT, "ctx-size", "-c", "0", 0, COUNT_MAX,                                             \
      ON_ANSWER | ON(LOGITS) | ON(PLAN) | ON(DOCTOR), "N",                                         \
      "positions of the context (0: as many as the model has and memory holds)")                   \
    X(PPL_CTX, COUNT, "ctx-size", "-c", "512", 16, COUNT_MAX, ON(PERPLEXITY) | ON(IMATRIX), "N",   \
      "tokens of a chunk; its second half is scored")                                              \
    X(TEMPERATURE, REAL, "temp", "--temperature", "", 0, 100, ON_ANSWER, "T",                      \
      "temperature; 0 takes the likeliest token (default: the model's, else 1.0)")                 \
    X(TOP_K, INT, "top-k", "", "", 0, COUNT_MAX, ON_ANSWER, "K",                                   \
      "sample from the K likeliest; 0: from all (default: the model's, else 64)")                  \
    X(TOP_P, REAL, "top-p", "", "", 0, 1, ON_ANSWER, "P",                                          \
      "sample from the likeliest that sum to P (default: the model's, else 0.95)")                 \
    X(MIN_P, REAL, "min-p", "", "", 0, 1, ON_ANSWER, "P",                                          \
      "drop tokens less likely than P times the best (default: the model's, else 0, off)")         \
    X(REPEAT_PENALTY, REAL, "repeat-penalty", "", "", 0.01, 100, ON_ANSWER, "F",                   \
      "divide the scores of recent tokens by F (default: the model's, else 1, off)")               \
    X(REPEAT_LAST_N, INT, "repeat-last-n", "", "", -1, COUNT_MAX, ON_ANSWER, "N",                  \
      "tokens that the penalties look at; -1: all (default: the model's, else 64)")                \
    X(PRESENCE_PENALTY, REAL, "presence-penalty", "", "", -2, 2, ON_ANSWER, "F",                   \
      "subtract F from tokens already seen (default: 0)")                                          \
    X(FREQUENCY_PENALTY, REAL, "frequency-penalty", "", "", -2, 2, ON_ANSWER, "F",                 \
      "subtract F for each time a token was seen (default: 0)")                                    \
    X(TYPICAL_P, REAL, "typical-p", "--typical", "", 0, 1, ON_ANSWER, "P",                         \
      "sample from those nearest to the expected information that sum to P (default: 1)")          \
    X(TOP_N_SIGMA, REAL, "top-n-sigma", "--top-nsigma", "", -1, 100, ON_ANSWER, "N",               \
      "drop scores more than N standard deviations below the best (default: -1, off)")             \
    X(XTC_PROBABILITY, REAL, "xtc-probability", "", "", 0, 1, ON_ANSWER, "P",                      \
      "XTC: with probability P drop the likeliest tokens (default: the model's, else 0)")          \
    X(XTC_THRESHOLD, REAL, "xtc-threshold", "", "", 0, 1, ON_ANSWER, "P",                          \
      "those that have P each, but for the last of them; above 0.5: off (default: the "            \
      "model's, else 0.1)")                                                                        \
    X(DYNATEMP_RANGE, REAL, "dynatemp-range", "", "", 0, 100, ON_ANSWER, "T",                      \
      "dynamic temperature: up to T below or above --temp, by the entropy (default: 0, off)")      \
    X(DYNATEMP_EXP, REAL, "dynatemp-exp", "", "", 0, 100, ON_ANSWER, "E",                          \
      "exponent of the entropy for it (default: 1)")                                               \
    X(DRY_MULTIPLIER, REAL, "dry-multiplier", "", "", 0, 100, ON_ANSWER, "F",                      \
      "DRY: subtract F * BASE^(N - LENGTH) from what would repeat N tokens (default: 0, off)")     \
    X(DRY_BASE, REAL, "dry-base", "", "", 1, 100, ON_ANSWER, "BASE",                               \
      "base for DRY (default: 1.75)")                                                              \
    X(DRY_ALLOWED_LENGTH, INT, "dry-allowed-length", "", "", 1, COUNT_MAX, ON_ANSWER, "LENGTH",    \
      "repetitions of fewer tokens are not lowered by DRY (default: 2)")                           \
    X(DRY_LAST_N, INT, "dry-penalty-last-n", "", "", -1, COUNT_MAX, ON_ANSWER, "N",                \
      "tokens that DRY looks at; 0: none, -1: all of them (default: -1)")                          \
    X(DRY_BREAKER, LIST, "dry-sequence-breaker", "", "", 0, 0, ON_ANSWER, "TEXT",                  \
      "TEXT ends a repetition, with \\n for a new line; may be repeated; none: nothing does "      \
      "(default: \\n : \" *)")                                                                     \
    X(MIROSTAT, CHOICE, "mirostat", "", "", 0, 0, ON_ANSWER, "0|2",                                \
      "2: Mirostat 2 in place of top-k, top-p and all else that drops tokens (default: the "       \
      "model's, else 0, off)")                                                                     \
    X(MIROSTAT_TAU, REAL, "mirostat-ent", "", "", 0, 100, ON_ANSWER, "TAU",                        \
      "bits of surprise that Mirostat aims at (default: the model's, else 5)")                     \
    X(MIROSTAT_ETA, REAL, "mirostat-lr", "", "", 0, 100, ON_ANSWER, "ETA",                         \
      "how fast Mirostat adapts (default: the model's, else 0.1)")                                 \
    X(SAMPLERS, TEXT, "samplers", "", "", 0, 0, ON_ANSWER, "LIST",                                 \
      "run these samplers alone, in this order (default: the model's, else penalties;dry;"         \
      "top_n_sigma;top_k;typ_p;temperature;top_p;min_p;xtc)")                                      \
    X(SAMPLER_SEQ, TEXT, "sampler-seq", "--sampling-seq", "", 0, 0, ON_ANSWER, "LETTERS",          \
      "the same by letters (default: edskytpmx)")                                                  \
    X(SEED, INT, "seed", "-s", "-1", -1, SEED_MAX, ON_TALK, "N",                                   \
      "random seed; -1 draws one. Same seed and build: same answer")                               \
    X(STOP, LIST, "stop", "-r --reverse-prompt", "", 0, 0, ON_TALK, "TEXT",                        \
      "end the answer before TEXT; may be repeated")                                               \
    X(LOGIT_BIAS, LIST, "logit-bias", "-l", "", 0, 0, ON_TALK, "ID=V",                             \
      "add V to the score of token ID (-inf bans it); may be repeated")                            \
    X(IGNORE_STOP, FLAG, "ignore-eos", "", "", 0, 0, ON(RUN), "",                                  \
      "go on after the model's own end of answer")                                                 \
    X(STATS, FLAG, "stats", "--show-timings", "", 0, 0, ON_TALK, "",                               \
      "print timings to standard error")                                                           \
    X(OUTPUT, TEXT, "output", "-o --output-file", "", 0, 0, ON(RUN) | ON(LOGITS), "FILE",          \
      "write the result to a file instead of standard output (-)")                                 \
    X(NO_HISTORY, FLAG, "no-history", "", "", 0, 0, ON_TALK, "", "keep no file of typed lines")    \
    X(SPECIAL, FLAG, "special", "-sp", "", 0, 0, ON_TEXT | ON(RUN), "",                            \
      "read (run --raw, tokenize) or show (detokenize) special tokens such as <|turn>")            \
    X(PLAIN, FLAG, "plain", "", "", 0, 0, ON(TOKENIZE), "",                                        \
      "parse no special token at all, as is done with a user's message")                           \
    X(BOS, FLAG, "bos", "", "", 0, 0, ON(TOKENIZE), "", "put <bos> in front")                      \
    X(IDS, FLAG, "ids", "", "", 0, 0, ON(TOKENIZE), "", "print the ids alone, as [1, 2, 3]")       \
    X(OFFSETS, FLAG, "offsets", "", "", 0, 0, ON(TOKENIZE), "",                                    \
      "print at which byte of the text each token begins")                                         \
    X(SHOW_COUNT, FLAG, "show-count", "", "", 0, 0, ON(TOKENIZE), "", "say how many there are")    \
    X(SIZE, CHOICE, "size", "", "", 0, 0, ON(TEMPLATE), "small|large",                             \
      "template of E2B and E4B (small) or of the others (large), instead of MODEL")                \
    X(TOKENS, TEXT, "tokens", "", "", 0, 0, ON(LOGITS), "IDS", "token ids, e.g. 2,5,7")            \
    X(TOKENS_FILE, TEXT, "tokens-file", "", "", 0, 0, ON(LOGITS), "FILE",                          \
      "token ids: separated by commas, blanks or newlines, or a JSON array")                       \
    X(ALL, FLAG, "all", "", "", 0, 0, ON(LOGITS), "", "every position (default: the last)")        \
    X(AT, TEXT, "at", "", "", 0, 0, ON(LOGITS), "POSITIONS", "these positions, e.g. 0,8,16")       \
    X(TEXT_FILE, TEXT, "file", "-f", "", 0, 0, ON(PERPLEXITY) | ON(IMATRIX), "FILE",               \
      "text to score, or to measure with")                                                         \
    X(CHUNKS, INT, "chunks", "", "-1", -1, COUNT_MAX, ON(PERPLEXITY) | ON(IMATRIX), "N",           \
      "read at most N chunks (-1: all)")                                                           \
    X(IMATRIX_OUT, TEXT, "output", "-o --output-file", "imatrix.gguf", 0, 0, ON(IMATRIX), "FILE",  \
      "write the matrix here")                                                                     \
    X(SAVE_LOGITS, TEXT, "save-logits", "--save-all-logits --kl-divergence-base", "", 0, 0,        \
      ON(PERPLEXITY), "BASE", "keep all log-probabilities in a file, to compare others with")      \
    X(BASE_TYPE, CHOICE, "base-type", "", "f16", 0, 0, ON(PERPLEXITY), "f16|f32",                  \
      "numbers in BASE")                                                                           \
    X(KL, TEXT, "kl", "", "", 0, 0, ON(PERPLEXITY), "BASE",                                        \
      "compare with the file that --save-logits wrote, on the same tokens")                        \
    X(KL_DIVERGENCE, FLAG, "kl-divergence", "", "", 0, 0, ON(PERPLEXITY), "",                      \
      "compare with the file that --save-logits names: llama.cpp's spelling of --kl")              \
    X(PPL_FORMAT, CHOICE, "format", "-o --output", "md", 0, 0, ON(PERPLEXITY), "md|json",          \
      "form of the report")                                                                        \
    X(TENSOR_TYPE, LIST, "tensor-type", "", "", 0, 0, ON(QUANTIZE), "NAME=TYPE",                   \
      "this type for tensors with NAME in their names, ^NAME: at the beginning; may be repeated")  \
    X(TOKEN_TYPE, TEXT, "token-embedding-type", "--output-tensor-type", "", 0, 0, ON(QUANTIZE),    \
      "TYPE", "this type for the table of tokens, which is also the head")                         \
    X(PURE, FLAG, "pure", "", "", 0, 0, ON(QUANTIZE), "",                                          \
      "one type for all weights, except where it does not fit")                                    \
    X(IMATRIX, TEXT, "imatrix", "", "", 0, 0, ON(QUANTIZE), "FILE",                                \
      "importance matrix: which columns of weights matter more than others")                       \
    X(INCLUDE_WEIGHTS, LIST, "include-weights", "", "", 0, 0, ON(QUANTIZE), "NAME",                \
      "use its entries with NAME in their names alone; may be repeated")                           \
    X(EXCLUDE_WEIGHTS, LIST, "exclude-weights", "", "", 0, 0, ON(QUANTIZE), "NAME",                \
      "do not use its entries with NAME in their names; may be repeated")                          \
    X(ALLOW_REQUANTIZE, FLAG, "allow-requantize", "", "", 0, 0, ON(QUANTIZE), "",                  \
      "take a file that is quantised already: errors add up")                                      \
    X(DRY_RUN, FLAG, "dry-run", "", "", 0, 0, ON(QUANTIZE), "",                                    \
      "write nothing, but say what types and sizes there would be")                                \
    X(QUANTIZE_THREADS, INT, "threads", "-t", "0", 0, 512, ON(QUANTIZE), "N",                      \
      "threads (0: as many as the process may use)")                                               \
    X(BENCH_PROMPT, LIST, "n-prompt", "-p", "512", 0, 0, ON(BENCH), "LIST",                        \
      "prompt lengths; lists a,b and ranges a-b+step, a-b*factor")                                 \
    X(BENCH_GEN, LIST, "n-gen", "-n", "128", 0, 0, ON(BENCH), "LIST", "tokens to generate")        \
    X(BENCH_PAIR, LIST, "pg", "-pg", "", 0, 0, ON(BENCH), "P,G",                                   \
      "a prompt of P tokens, then G generated; may be repeated")                                   \
    X(BENCH_DEPTH, LIST, "n-depth", "-d", "0", 0, 0, ON(BENCH), "LIST",                            \
      "tokens already in the context, not counted")                                                \
    X(BENCH_USERS, LIST, "users", "-npl --parallel -np", "1", 0, 0, ON(BENCH), "LIST",             \
      "sequences decoded side by side (a load: how many the engine has room for)")                 \
    X(LOAD, LIST, "load", "", "", 0, 0, ON(BENCH), "KEY=VALUE,...",                                \
      "measure many users' requests instead of tests, such as users=32,in=1024,out=128; given "    \
      "again, a further group of requests at the same time; `carat help bench` has the keys")      \
    X(BENCH_URL, TEXT, "url", "", "", 0, 0, ON(BENCH), "URL",                                      \
      "send the load to the server there, instead of to an engine of a model here")                \
    X(BENCH_KEY, TEXT, "api-key", "", "", 0, 0, ON(BENCH), "KEY", "--url: the server's key")       \
    X(LOAD_SEED, INT, "seed", "-s", "1", 0, SEED_MAX, ON(BENCH), "N",                              \
      "of a load's requests; the same seed gives the same ones")                                   \
    X(BENCH_BATCH, LIST, "batch-size", "-b", "0", 0, 0, ON(BENCH), "LIST",                         \
      "rows of a prefill step at most, whatever --chunk says (0: no such limit)")                  \
    X(BENCH_CHUNK, LIST, "chunk", "-ub --ubatch-size", "0", 0, 0, ON(BENCH), "LIST",               \
      "rows of a prefill step (0: 512, on a GPU 2048)")                                            \
    X(BENCH_KV, LIST, "kv-type", "", "auto", 0, 0, ON(BENCH), "LIST",                              \
      "type of the KV cache: auto, f16, bf16, f32, q8_0")                                          \
    X(BENCH_KEYS, LIST, "cache-type-k", "-ctk", "", 0, 0, ON(BENCH), "LIST",                       \
      "type of the keys; values must be of the same (--cache-type-v)")                             \
    X(BENCH_VALUES, LIST, "cache-type-v", "-ctv", "", 0, 0, ON(BENCH), "LIST",                     \
      "type of the values; keys must be of the same (--cache-type-k)")                             \
    X(BENCH_GPU_LAYERS, LIST, "gpu-layers", "-ngl --n-gpu-layers", "-1", 0, 0, ON(BENCH), "LIST",  \
      "layers on the GPU, the rest on the CPU (-1 or auto: as many as fit; all)")                  \
    X(BENCH_CPU_EXPERTS, LIST, "cpu-expert-layers", "-ncmoe --n-cpu-moe", "0", 0, 0, ON(BENCH),    \
      "LIST", "GPU: experts of the first N layers stay on the CPU")                                \
    X(BENCH_THREADS, LIST, "threads", "-t", "0", 0, 0, ON(BENCH), "LIST",                          \
      "threads of the cpu backend (0: one for each physical core)")                                \
    X(REPETITIONS, INT, "repetitions", "-r", "5", 1, 1000, ON(BENCH), "N",                         \
      "runs of each test (a load: 1 by default, each with other tokens)")                          \
    X(NO_WARMUP, FLAG, "no-warmup", "", "", 0, 0, ON(BENCH), "", "skip the run before each test")  \
    X(ROOFLINE, FLAG, "roofline", "", "", 0, 0, ON(BENCH), "",                                     \
      "measure what the device can do, and each result's share of it (default, unless quiet)")     \
    X(NO_ROOFLINE, FLAG, "no-roofline", "", "", 0, 0, ON(BENCH), "", "leave that out")             \
    X(BENCH_FORMAT, CHOICE, "format", "-o --output", "md", 0, 0, ON(BENCH),                        \
      "md|csv|json|jsonl|sql", "form of the table")                                                \
    X(BENCH_ERR_FORMAT, CHOICE, "format-err", "-oe --output-err", "none", 0, 0, ON(BENCH),         \
      "none|md|csv|json|jsonl|sql", "a second table, on standard error")                           \
    X(ROWS, COUNT, "rows", "", "1", 1, COUNT_MAX, ON(PLAN), "N", "tokens of the step")             \
    X(OUTS, COUNT, "outs", "", "1", 0, COUNT_MAX, ON(PLAN), "N", "rows whose logits are wanted")   \
    X(KV, FLAG, "kv", "", "", 0, 0, ON(SHOW), "", "list the metadata")                             \
    X(TENSORS, FLAG, "tensors", "", "", 0, 0, ON(SHOW), "", "list the tensors")                    \
    X(FIT, COUNT, "fit", "", "0", 0, COUNT_MAX, ON(SHOW), "CTX", "memory that CTX positions need") \
    X(BACKEND, CHOICE, "backend", "", "auto", 0, 0,                                                \
      (ON_ENGINE & ~(ON(LOGITS) | ON(IMATRIX))) | ON(BENCH), "auto|cuda|cpu|ref",                  \
      "what computes (auto: a GPU if there is one); ref is exact, and slow")                       \
    X(LOGITS_BACKEND, CHOICE, "backend", "", "ref", 0, 0, ON(LOGITS), "ref|cpu|cuda|auto",         \
      "what computes; ref is the exact reference")                                                 \
    X(IMATRIX_BACKEND, CHOICE, "backend", "", "cpu", 0, 0, ON(IMATRIX), "cpu|ref",                 \
      "what computes; ref is exact, and slow")                                                     \
    X(DEVICE, INT, "device", "-mg --main-gpu", "0", 0, 63, ON_ENGINE | ON(BENCH), "N",             \
      "which GPU, counted from 0")                                                                 \
    X(GPU_LAYERS, INT, "gpu-layers", "-ngl --n-gpu-layers", "-1", -1, COUNT_MAX, ON_ENGINE, "N",   \
      "layers on the GPU, the rest on the CPU (-1 or auto: as many as fit; all)")                  \
    X(CPU_EXPERTS, FLAG, "cpu-experts", "-cmoe --cpu-moe", "", 0, 0, ON_ENGINE | ON(BENCH), "",    \
      "GPU: experts of 26B-A4B stay on the CPU")                                                   \
    X(CPU_EXPERT_LAYERS, INT, "cpu-expert-layers", "-ncmoe --n-cpu-moe", "0", 0, COUNT_MAX,        \
      ON_ENGINE, "N", "GPU: experts of the first N layers stay on the CPU")                        \
    X(MATMUL, CHOICE, "matmul", "", "auto", 0, 0, ON_ENGINE | ON(BENCH), "auto|int8|fp16",         \
      "GPU: arithmetic of prompt products (auto: the faster one on the chip)")                     \
    X(DECODE_MATMUL, CHOICE, "decode-matmul", "", "auto", 0, 0, ON_ENGINE | ON(BENCH),             \
      "auto|int8|fp16",                                                                            \
      "Hopper: arithmetic of products in steps of up to 64 rows (auto: int8 up to 8 rows or "      \
      "with --matmul int8, else fp16)")                                                            \
    X(MIRROR, COUNT, "mirror-budget", "", "-1", -1, 1e15, ON_ENGINE | ON(BENCH), "BYTES",          \
      "GPU: memory for fp16 copies of weights, with --matmul fp16 (-1: all but a tenth)")          \
    X(GPU_MEMORY, MEMORY, "gpu-memory", "", "", 0, 0, ON_ENGINE | ON(BENCH), "SIZE|N%",            \
      "GPU: the most memory to take for everything, such as 11G (2^30), 11GB (10^9) or 90%")       \
    X(CACHE_MEMORY, MEMORY, "cache-memory", "", "", 0, 0, ON_ENGINE | ON(BENCH), "SIZE",           \
      "the most memory for the KV cache of all sequences, such as 2G (default: what they "         \
      "need and some for earlier prompts)")                                                        \
    X(CACHE_SPLIT, COUNT, "cache-split", "", "4096", 64, 16777216, ON_ENGINE | ON(BENCH), "N",     \
      "keep one place in N positions of the KV cache from which an earlier prompt can continue")   \
    X(NO_PREFIX_CACHE, FLAG, "no-prefix-cache", "", "", 0, 0, ON_ENGINE | ON(BENCH), "",           \
      "keep no room in the KV cache for earlier prompts")                                          \
    X(PROMPT_CACHE, TEXT, "prompt-cache", "", "", 0, 0, ON_ANSWER, "FILE",                         \
      "begin with the prompts that FILE has kept, and keep those of this run there at the end")    \
    X(PROMPT_CACHE_MAX, MEMORY, "prompt-cache-max", "", "4G", 0, 0, ON_ANSWER, "SIZE",             \
      "the most that the file of --prompt-cache takes; what was used last is kept")                \
    X(PROMPT_CACHE_RO, FLAG, "prompt-cache-ro", "", "", 0, 0, ON_ANSWER, "",                       \
      "read the file of --prompt-cache and leave it as it is")                                     \
    X(MAX_ITL, REAL, "max-itl", "", "50", 0.001, 1e9, ON_ANSWER | ON(BENCH), "MS",                 \
      "milliseconds of a step at most, or twice a decode step, while an answer is written: "       \
      "prompts that come then are read in as many rows as fit")                                    \
    X(DRAFT, COUNT, "draft", "--draft-n --draft-max --spec-draft-n-max", "7", 0, COUNT_MAX,        \
      ON_ANSWER, "N",                                                                              \
      "guess up to N tokens at a time (0: none, at most 7) from what is in the context already, "  \
      "and from what a grammar leaves: what repeats something comes faster, and so does JSON; "    \
      "answers are the same")                                                                      \
    X(MODEL_DRAFT, TEXT, "model-draft", "-md --draft-model --spec-draft-model", "", 0, 0,          \
      ON_ANSWER | ON(BENCH), "MODEL",                                                              \
      "a drafter for this model (one of Google's \"assistant\" models), a file or a name: it "     \
      "guesses up to --draft N tokens at a time. auto: the one in the model's folder or "          \
      "repository, if there is one")                                                               \
    X(HF_DRAFT, TEXT, "hf-repo-draft", "-hfd -hfrd --spec-draft-hf", "", 0, 0,                     \
      ON_ANSWER | ON(BENCH), "REPO",                                                               \
      "the drafter of a repository of Hugging Face, USER/REPO[:QUANT]: the same as --model-draft " \
      "hf:USER/REPO:MTP[-QUANT]")                                                                  \
    X(BENCH_DRAFT, COUNT, "draft", "", "0", 0, COUNT_MAX, ON(BENCH), "N",                          \
      "with --load: guess up to N tokens at a time, as run and serve do with 7 (the default with " \
      "--model-draft)")                                                                            \
    X(DETERMINISTIC, FLAG, "deterministic", "", "", 0, 0, ON_ENGINE | ON(BENCH), "",               \
      "answers depend neither on other requests nor on what is cached. Hopper: prompts and "       \
      "answers take turns, and only prompts are kept in the cache; other GPUs: steps have at "     \
      "most 64 rows, so that prompts are read more slowly; CPUs with AMX: prompts are read in 8 "  \
      "bits, more slowly; other CPUs: it is always so")                                            \
    X(QUEUE, COUNT, "queue", "", "0", 0, 65536, ON(BENCH), "N",                                    \
      "requests that may wait at most (0: four for each sequence, and 64)")                        \
    X(GRAPHS, CHOICE, "graphs", "", "on", 0, 0, ON_ENGINE | ON(BENCH), "on|off",                   \
      "GPU: replay recorded steps; off: launch every step, to compare")                            \
    X(CUBLAS, CHOICE, "cublas", "", "auto", 0, 0, ON_ENGINE | ON(BENCH), "auto|on|off",            \
      "GPU: cuBLAS for fp16 products of prompts where it is installed (auto: not on Hopper); "     \
      "off: own kernels")                                                                          \
    X(FUSE, CHOICE, "fuse", "", "on", 0, 0, ON_ENGINE | ON(BENCH), "on|off",                       \
      "GPU: several operations in one launch; off: each on its own, to compare")                   \
    X(CASCADE, CHOICE, "cascade", "", "auto", 0, 0, ON_ENGINE | ON(BENCH), "auto|on|off",          \
      "GPU: sequences with the same beginning read its keys and values once for all")              \
    X(PROFILE, FLAG, "profile", "", "", 0, 0, ON(RUN) | ON(BENCH), "",                             \
      "tell at the end where the time went, on standard error")                                    \
    X(PLE, CHOICE, "ple", "", "auto", 0, 0, ON_ENGINE | ON(BENCH), "auto|gpu|pinned|host",         \
      "GPU: place of the table of per-layer embeddings (pinned: a copy in host memory that the "   \
      "GPU reads; host: in the file, rows are copied when they are needed; auto: the first with "  \
      "room)")                                                                                     \
    X(PLE_CACHE, INT, "ple-cache", "", "-1", -1, 1e15, ON_ENGINE | ON(BENCH), "BYTES",             \
      "GPU: memory for rows of that table when it is in the file (-1: up to 256 MB of what is "    \
      "free, 0: two steps' rows)")                                                                 \
    X(PRECISION, CHOICE, "precision", "", "fast", 0, 0, ON_ENGINE | ON(BENCH), "fast|fp32",        \
      "fast: 8-bit activations with quantised weights")                                            \
    X(ISA, CHOICE, "isa", "", "auto", 0, 0, ON_ENGINE | ON(BENCH),                                 \
      "auto|amx|avx512|avxvnni|avx2|i8mm|neon|asimd|plain",                                        \
      "instruction set of the cpu backend (auto: the best; carat doctor lists those that run)")    \
    X(PIN, FLAG, "pin", "", "", 0, 0, ON_ENGINE | ON(BENCH), "", "keep each thread on its core")   \
    X(BATCH, COUNT, "batch-size", "-b", "0", 0, COUNT_MAX, ON_ENGINE, "N",                         \
      "rows of a prefill step at most, whatever --chunk says (0: no such limit)")                  \
    X(CHUNK, COUNT, "chunk", "-ub --ubatch-size", "0", 0, COUNT_MAX, ON_ENGINE, "N",               \
      "rows of a prefill step (0: 512, on a GPU 2048)")                                            \
    X(KV_TYPE, CHOICE, "kv-type", "", "auto", 0, 0, ON_ENGINE, "auto|f16|bf16|f32|q8_0",           \
      "type of the KV cache (auto: f16; f32 where exact)")                                         \
    X(KEYS_TYPE, CHOICE, "cache-type-k", "-ctk", "f16", 0, 0, ON_ENGINE, "f16|bf16|f32|q8_0",      \
      "type of the keys; values must be of the same (--cache-type-v)")                             \
    X(VALUES_TYPE, CHOICE, "cache-type-v", "-ctv", "f16", 0, 0, ON_ENGINE, "f16|bf16|f32|q8_0",    \
      "type of the values; keys must be of the same (--cache-type-k)")                             \
    X(THREADS, INT, "threads", "-t", "0", 0, 512, ON_ENGINE, "N",                                  \
      "threads of the cpu backend (0: one for each physical core)")                                \
    X(HOST, TEXT, "host", "", "127.0.0.1", 0, 0, ON(SERVE), "ADDRESS", "address to listen on")     \
    X(PORT, INT, "port", "", "8080", 0, 65535, ON(SERVE), "N",                                     \
      "port to listen on (0: any free one)")                                                       \
    X(UNIX, TEXT, "unix", "", "", 0, 0, ON(SERVE), "PATH", "listen on a unix socket instead")      \
    X(API_KEY, LIST, "api-key", "", "", 0, 0, ON(SERVE), "KEY",                                    \
      "a key that requests must bring; may be repeated (better: --api-key-file)")                  \
    X(API_KEY_FILE, TEXT, "api-key-file", "", "", 0, 0, ON(SERVE), "FILE",                         \
      "keys, one a line; read again on SIGHUP")                                                    \
    X(TLS_CERT, TEXT, "tls-cert", "--ssl-cert-file", "", 0, 0, ON(SERVE), "FILE",                  \
      "certificate (PEM): serve HTTPS; read again on SIGHUP")                                      \
    X(TLS_KEY, TEXT, "tls-key", "--ssl-key-file", "", 0, 0, ON(SERVE), "FILE",                     \
      "its private key (PEM)")                                                                     \
    X(KEY_REQUESTS, COUNT, "requests-per-key", "", "0", 0, 1048576, ON(SERVE), "N",                \
      "requests of a key at the same time; more get 429 (0: no limit)")                            \
    X(CORS_ORIGIN, LIST, "cors-origin", "", "", 0, 0, ON(SERVE), "ORIGIN",                         \
      "pages of this origin may ask too, such as https://chat.example.org; may be repeated")       \
    X(ALLOWED_HOST, LIST, "allowed-host", "", "", 0, 0, ON(SERVE), "NAME",                         \
      "a name of this server that requests may use, besides localhost and addresses; may be "      \
      "repeated")                                                                                  \
    X(INSECURE, FLAG, "insecure", "", "", 0, 0, ON(SERVE), "",                                     \
      "listen beyond this machine without keys")                                                   \
    X(ALIAS, TEXT, "alias", "-a", "", 0, 0, ON(SERVE), "NAME",                                     \
      "name of the model in replies (default: that of its file)")                                  \
    X(STRICT_MODEL, FLAG, "strict-model", "", "", 0, 0, ON(SERVE), "",                             \
      "refuse requests for models of other names")                                                 \
    X(REASONING_FIELD, CHOICE, "reasoning-field", "", "reasoning_content", 0, 0, ON(SERVE),        \
      "reasoning_content|reasoning", "member of chat replies that has the thoughts")               \
    X(PARALLEL, INT, "parallel", "-np", "0", 0, 1024, ON(SERVE), "N",                              \
      "answers that are computed side by side (0: 4 if they fit, else 1)")                         \
    X(KV_EVENTS, TEXT, "kv-events", "", "", 0, 0, ON(SERVE), "ADDRESS",                            \
      "publish what is cached for routers, by ZeroMQ: tcp://127.0.0.1:5557")                       \
    X(KV_EVENTS_REPLAY, TEXT, "kv-events-replay", "", "", 0, 0, ON(SERVE), "ADDRESS",              \
      "where routers ask for messages that they have missed")                                      \
    X(KV_EVENTS_TOPIC, TEXT, "kv-events-topic", "", "", 0, 0, ON(SERVE), "TOPIC",                  \
      "topic of the messages (default: kv@HOST@MODEL)")                                            \
    X(OTLP, TEXT, "otlp", "--otlp-traces-endpoint", "", 0, 0, ON(SERVE), "URL",                    \
      "send a trace of each request to a collector of OpenTelemetry: http://127.0.0.1:4318")       \
    X(GPUS, TEXT, "gpus", "", "", 0, 0, ON(SERVE), "LIST",                                         \
      "an engine on each of these GPUs, such as 0,1, or all: each has the whole model")            \
    X(REPLICAS, INT, "replicas", "", "1", 1, 16, ON(SERVE), "N",                                   \
      "engines on the same device, which share its threads (for tests of several GPUs)")           \
    X(MAX_QUEUE, COUNT, "max-queue", "", "256", 1, 65536, ON(SERVE), "N",                          \
      "requests that may wait; more get 429")                                                      \
    X(MAX_BODY, MEMORY, "max-body", "", "64M", 0, 0, ON(SERVE), "SIZE",                            \
      "the largest body of a request")                                                             \
    X(BODY_MEMORY, MEMORY, "body-memory", "", "256M", 0, 0, ON(SERVE), "SIZE",                     \
      "memory of all bodies that are being read; more get 503")                                    \
    X(MAX_CONNECTIONS, COUNT, "max-connections", "", "16384", 1, 1048576, ON(SERVE), "N",          \
      "connections at a time")                                                                     \
    X(TIMEOUT, REAL, "timeout", "-to", "600", 0, 1e6, ON(SERVE), "SECONDS",                        \
      "the longest that a request may take (0: no limit)")                                         \
    X(PING, REAL, "ping", "--sse-ping-interval", "15", 0, 1e6, ON(SERVE), "SECONDS",               \
      "a comment after this much silence of a stream (0: none)")                                   \
    X(SHUTDOWN_TIMEOUT, REAL, "shutdown-timeout", "", "30", 0, 1e6, ON(SERVE), "SECONDS",          \
      "what running requests get after SIGTERM")                                                   \
    X(METRICS_OPEN, FLAG, "metrics-open", "", "", 0, 0, ON(SERVE), "",                             \
      "GET /metrics needs no key")                                                                 \
    X(LOG_FORMAT, CHOICE, "log-format", "", "text", 0, 0, ON(SERVE), "text|json",                  \
      "form of the log, on standard error")                                                        \
    X(JSON, FLAG, "json", "", "", 0, 0,                                                            \
      ON_TEXT | ON(RUN) | ON(SHOW) | ON(LS) | ON(VERIFY) | ON(DEVICES) | ON(DOCTOR) |              \
          ON(VERSION) | ON(CONFIG) | ON(QUANTIZE),                                                 \
      "", "print the result as JSON")                                                              \
    X(MARKDOWN, FLAG, "markdown", "", "", 0, 0, ON(HELP), "", "all options as a document")         \
    X(VERBOSE, FLAG, "verbose", "", "", 0, 0, ON_ANSWER | ON(BENCH), "",                           \
      "print timings and the whole memory table to standard error")                                \
    X(CONFIG, TEXT, "config", "", "", 0, 0, ON_CONFIG, "FILE",                                     \
      "config file (none: read none; default: $XDG_CONFIG_HOME/carat/config, else "                \
      "/etc/carat/config)")                                                                        \
    X(SHOW_CONFIG, FLAG, "show", "", "", 0, 0, ON(CONFIG), "",                                     \
      "print each value and where it came from (what this command does anyway)")                   \
    X(QUIET, FLAG, "quiet", "-q", "", 0, 0, ON_ALL, "", "no progress, no notes")                   \
    X(HELP, FLAG, "help", "-h", "", 0, 0, ON_ALL, "", "explain the command")

/* BORROWED_LIST: options of llama.cpp and ollama that carat lacks, so that a line from their pages
 * runs, or carat says why not.
 *
 * Y("spellings", "VALUE", COMMANDS, "accepted", TARGET, "value", "why")
 *
 * VALUE is "" where none follows; in brackets it may be left out. "accepted" lists values,
 * separated by |. Numbers are compared as numbers, blanks do not count, and * is any value or none.
 * An accepted value acts as TARGET=value. With TARGET NONE it changes nothing, and a note names it.
 * Any other value is refused with "why". A spelling may have several rows. If it is also one of
 * carat's own, that option takes what no row accepts. Help lists these options apart; completion
 * leaves them out. */
#define BORROWED_LIST(Y)                                                                           \
    /* Nothing to do: how files are read, threads are placed, logs are written. */                 \
    Y("--mlock --perf --no-perf --no-warmup --warmup --log-disable --log-prefix "                  \
      "--no-log-prefix --log-timestamps --no-log-timestamps --check-tensors "                      \
      "--op-offload --no-op-offload --repack -nr --no-repack -kvo --kv-offload --swa-full -v "     \
      "--log-verbose --verbose-prompt --no-escape",                                                \
      "", ON_LLAMA & ~ON(BENCH), "*", NONE, "", "")                                                \
    Y("--mmap --no-mmap --no-host -nkvo --no-kv-offload -dio --direct-io -ndio --no-direct-io",    \
      "", ON_LLAMA & ~ON(BENCH), "*", NONE, "", "")                                                \
    Y("-mmp --mmap -nkvo --no-kv-offload -nopo --no-op-offload --no-host -dio --direct-io "        \
      "--repack --delay --n-gen-warmup",                                                           \
      "N", ON(BENCH), "*", NONE, "", "")                                                           \
    Y("-v --progress --warmup -nr --no-repack --mlock", "", ON(BENCH), "*", NONE, "", "")          \
    Y("-tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch "       \
      "-Crb --cpu-range-batch --cpu-strict-batch --prio --prio-batch --poll --poll-batch "         \
      "--numa -lm --load-mode -dt --defrag-thold -fit --fit -fitt --fit-target -fitc --fit-ctx "   \
      "-lv --verbosity --log-verbosity --log-colors",                                              \
      "VALUE", ON_LLAMA, "*", NONE, "", "")                                                        \
    /* Nothing to do: what carat always does, or never does. */                                    \
    Y("-fa --flash-attn", "[on|off|auto|1|0]", ON_LLAMA & ~ON(BENCH), "*", NONE, "", "")           \
    Y("-fa --flash-attn", "LIST", ON(BENCH), "*", NONE, "", "")                                    \
    Y("--keep -np --parallel -ctxcp --ctx-checkpoints --swa-checkpoints -cram --cache-ram "        \
      "-gan --grp-attn-n -gaw --grp-attn-w --image-min-tokens --image-max-tokens --keepalive "     \
      "--reasoning-budget-message",                                                                \
      "VALUE", ON_TALK | ON(PERPLEXITY), "*", NONE, "", "")                                        \
    Y("--prompt-cache", "FILE", ON(PERPLEXITY), "*", NONE, "", "")                                 \
    Y("--prompt-cache-ro", "", ON(PERPLEXITY), "*", NONE, "", "")                                  \
    Y("--jinja --simple-io --no-context-shift --display-prompt --no-display-prompt "               \
      "--no-show-timings -mli --multiline-input --prompt-cache-all -cb "                           \
      "--cont-batching -bs --backend-sampling --no-mmproj --no-mmproj-auto --mmproj-auto "         \
      "--mmproj-offload --no-mmproj-offload --reasoning-preserve --no-reasoning-preserve "         \
      "--no-skip-chat-parsing --insecure",                                                         \
      "", ON_TALK | ON(PERPLEXITY), "*", NONE, "", "")                                             \
    Y("-co --color", "[on|off|auto]", ON_TALK, "*", NONE, "", "")                                  \
    Y("--stdin --no-jinja", "", ON(TOKENIZE), "*", NONE, "", "")                                   \
    /* llama-server's: what carat always or never does. */                                         \
    Y("--jinja --metrics --no-metrics --slots --no-slots --props --no-props -cb "                  \
      "--cont-batching --no-context-shift --webui --no-webui --no-mmproj --no-ui "                 \
      "--ui --cache-prompt --kv-unified -kvu --no-kv-unified --reasoning-preserve "                \
      "--no-prefill-assistant",                                                                    \
      "", ON(SERVE), "*", NONE, "", "")                                                            \
    Y("--prefill-assistant", "", ON(SERVE), "", NONE, "",                                          \
      "requests say it: "                                                                          \
      "\"continue_final_message\": true; in Anthropic's API it is always so")                      \
    Y("--threads-http -cram --cache-ram -ctxcp --ctx-checkpoints --swa-checkpoints "               \
      "--cache-reuse -sps --slot-prompt-similarity --log-verbosity --sleep-idle-seconds --keep "   \
      "--cpu-moe-batch --image-min-tokens --image-max-tokens",                                     \
      "VALUE", ON(SERVE), "*", NONE, "", "")                                                       \
    /* llama-server's defaults for requests, which say these things themselves. */                 \
    Y("-s --seed", "N", ON(SERVE), "-1", NONE, "", "requests say it: \"seed\"")                    \
    Y("-n --predict --n-predict", "N", ON(SERVE), "-1|-2", NONE, "",                               \
      "requests say it: \"max_tokens\"")                                                           \
    Y("-r --reverse-prompt", "TEXT", ON(SERVE), "", NONE, "", "requests say it: \"stop\"")         \
    Y("--grammar --grammar-file -j --json-schema -jf --json-schema-file", "VALUE", ON(SERVE), "",  \
      NONE, "", "requests say it: \"response_format\", \"grammar\"")                               \
    Y("-rea --reasoning", "[on|off|auto]", ON(SERVE), "off|auto", NONE, "",                        \
      "requests say it: \"enable_thinking\": true")                                                \
    Y("--reasoning-budget", "N", ON(SERVE), "0", NONE, "",                                         \
      "requests say it: \"enable_thinking\", \"reasoning_budget\"")                                \
    Y("--chat-template-kwargs", "JSON", ON(SERVE), "{\"enable_thinking\":false}", NONE, "",        \
      "requests say it: \"enable_thinking\": true")                                                \
    Y("--no-cache-prompt", "", ON(SERVE), "", NONE, "", "use --no-prefix-cache")                   \
    Y("-nocb --no-cont-batching --reuse-port", "", ON(SERVE), "", NONE, "", "leave it out")        \
    Y("-np --parallel", "N", ON(SERVE), "auto|-1", PARALLEL, "0", "")                              \
    Y("--reasoning-format", "NAME", ON(SERVE), "auto|deepseek", NONE, "",                          \
      "thoughts are in "                                                                           \
      "reasoning_content")                                                                         \
    Y("--chat-template", "NAME", ON(SERVE), "gemma|gemma4", NONE, "",                              \
      "Gemma 4's template is "                                                                     \
      "built in: leave this out")                                                                  \
    Y("--chat-template-file", "FILE", ON(SERVE), "", NONE, "",                                     \
      "Gemma 4's template is built "                                                               \
      "in: leave this out")                                                                        \
    Y("--embedding --reranking --rerank", "", ON(SERVE), "", NONE, "",                             \
      "carat "                                                                                     \
      "answers text with text: there are no embeddings")                                           \
    Y("--slot-save-path", "PATH", ON(SERVE), "", NONE, "",                                         \
      "--prompt-cache FILE keeps "                                                                 \
      "what was read for the next start")                                                          \
    Y("--path --api-prefix --lora --lora-scaled --control-vector", "VALUE", ON(SERVE), "", NONE,   \
      "", "leave it out")                                                                          \
    /* Other spellings of carat's own options. */                                                  \
    Y("-i --interactive -if --interactive-first", "", ON(RUN), "*", CONVERSATION, "on", "")        \
    Y("-i --interactive -if --interactive-first -cnv --conversation", "", ON(CHAT), "*", NONE, "", \
      "")                                                                                          \
    Y("-no-cnv --no-conversation -nocnv", "", ON(RUN), "*", RAW, "on", "")                         \
    Y("--thinking", "", ON_TALK, "*", THINK, "on", "")                                             \
    Y("--no-thinking --nothink --no-think", "", ON_TALK, "*", THINK, "off", "")                    \
    Y("--think", "[on|off]", ON_TALK, "true|1|yes", THINK, "on", "")                               \
    Y("--think", "[on|off]", ON_TALK, "false|0|no", THINK, "off", "")                              \
    Y("-rea --reasoning", "[on|off|auto]", ON_TALK, "on", THINK, "on", "")                         \
    Y("-rea --reasoning", "[on|off|auto]", ON_TALK, "off", THINK, "off", "")                       \
    Y("-rea --reasoning", "[on|off|auto]", ON_TALK, "auto", NONE, "", "")                          \
    Y("--reasoning-budget", "N", ON_TALK, "0", THINK, "off", "")                                   \
    Y("--reasoning-budget", "N", ON_TALK, "-1", THINK, "on",                                       \
      "thoughts have no budget here: 0 (off) or -1 (on)")                                          \
    Y("--chat-template-kwargs", "JSON", ON_TALK, "{\"enable_thinking\":true}", THINK, "on", "")    \
    Y("--chat-template-kwargs", "JSON", ON_TALK, "{\"enable_thinking\":false}", THINK, "off",      \
      "only {\"enable_thinking\":true} or false; --think does it too")                             \
    Y("-ngl --gpu-layers --n-gpu-layers", "N", ON_ENGINE, "auto", GPU_LAYERS, "-1", "")            \
    Y("-ngl --gpu-layers --n-gpu-layers", "N", ON_ENGINE, "all|-2", GPU_LAYERS, "1048576", "")     \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA0", DEVICE, "0", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA1", DEVICE, "1", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA2", DEVICE, "2", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA3", DEVICE, "3", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA4", DEVICE, "4", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA5", DEVICE, "5", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA6", DEVICE, "6", "")                       \
    Y("-dev --device", "N", ON_ENGINE | ON(BENCH), "CUDA7", DEVICE, "7", "")                       \
    Y("-dev --device", "N", (ON_ENGINE & ~ON(LOGITS)) | ON(BENCH), "none", BACKEND, "cpu",         \
      "one GPU computes: --device N, or -dev CUDA0; `carat devices` lists them")                   \
    Y("--no-bos", "", ON(TOKENIZE), "*", BOS, "off", "")                                           \
    Y("--no-parse-special", "", ON(TOKENIZE), "*", SPECIAL, "off", "")                             \
    /* Accepted only with values that change nothing. */                                           \
    Y("-sm --split-mode", "MODE", ON_LLAMA, "none|layer", NONE, "",                                \
      "one GPU computes, or a GPU and the CPU: none or layer")                                     \
    Y("-ts --tensor-split", "LIST", ON_LLAMA, "0|1", NONE, "",                                     \
      "one GPU computes, or a GPU and the CPU")                                                    \
    Y("-embd --embeddings", "N", ON(BENCH), "0", NONE, "", "there are no embeddings yet")          \
    Y("--chat-template", "NAME", ON_TALK, "gemma|gemma4", NONE, "",                                \
      "Gemma 4's template is built in: leave this out")                                            \
    Y("--adaptive-target", "N", ON_ANSWER, "-1", NONE, "", "there is no adaptive-p: -1 is off")    \
    Y("--adaptive-decay", "N", ON_ANSWER, "*", NONE, "", "")                                       \
    Y("--rope-scaling", "MODE", ON_ANSWER | ON(PERPLEXITY), "none", NONE, "",                      \
      "positions are turned as the file says: none")                                               \
    Y("--rope-scale --rope-freq-scale", "N", ON_ANSWER | ON(PERPLEXITY), "1", NONE, "",            \
      "positions are turned as the file says: 1")                                                  \
    Y("--rope-freq-base --yarn-orig-ctx", "N", ON_ANSWER | ON(PERPLEXITY), "0", NONE, "",          \
      "positions are turned as the file says: 0")                                                  \
    Y("--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", "N",               \
      ON_ANSWER | ON(PERPLEXITY), "-1", NONE, "", "positions are turned as the file says: -1")     \
    Y("--reasoning-format", "NAME", ON_TALK, "auto|deepseek", NONE, "",                            \
      "thoughts go to standard error; see --show-thinking")                                        \
    Y("--reasoning-effort", "LEVEL", ON_TALK, "default", NONE, "",                                 \
      "thinking is on or off: --think")                                                            \
    Y("--spec-type", "NAME", ON_ANSWER, "none|ngram-simple|ngram-mod", NONE, "",                   \
      "guesses come from what is in the context: --draft N; and from a drafter: draft-mtp")        \
    Y("--spec-type", "NAME", ON_ANSWER,                                                            \
      "draft-mtp|draft-mtp,ngram-simple|ngram-simple,draft-mtp|draft-mtp,ngram-mod|"               \
      "ngram-mod,draft-mtp",                                                                       \
      MODEL_DRAFT, "auto", "")                                                                     \
    Y("--no-jinja", "", ON_ANSWER, "", NONE, "", "Gemma 4's template is built in: leave this out") \
    Y("-ofreq --output-frequency --save-frequency", "N", ON(IMATRIX), "*", NONE, "", "")           \
    Y("--ppl --no-ppl", "", ON(IMATRIX), "*", NONE, "", "")                                        \
    Y("--output-format", "NAME", ON(IMATRIX), "gguf", NONE, "", "matrices are GGUF files")         \
    /* Refused. */                                                                                 \
    Y("--in-file --chunk --from-chunk", "VALUE", ON(IMATRIX), "", NONE, "",                        \
      "a matrix is measured from the beginning of a text")                                         \
    Y("--process-output --parse-special --show-statistics", "", ON(IMATRIX), "", NONE, "",         \
      "a matrix holds sums of squares, of plain text and of layers")                               \
    Y("--override-kv --prune-layers --tensor-type-file", "VALUE", ON(QUANTIZE), "", NONE, "",      \
      "carat leaves keys and layers as they are")                                                  \
    Y("--leave-output-tensor", "", ON(QUANTIZE), "", NONE, "", "use --token-embedding-type")       \
    Y("--keep-split", "", ON(QUANTIZE), "", NONE, "", "the new file has one part")                 \
    Y("-dr --docker-repo", "REPO", ON_LLAMA, "", NONE, "",                                         \
      "carat pull loads from Hugging Face, ollama's registry and addresses")                       \
    Y("--lora --lora-scaled", "FILE", ON_TALK | ON(PERPLEXITY), "", NONE, "",                      \
      "there are no LoRA adapters here: merge it into the model first")                            \
    Y("--control-vector --control-vector-scaled", "FILE", ON_TALK | ON(PERPLEXITY), "", NONE, "",  \
      "there are no control vectors here")                                                         \
    Y("-mm --mmproj -mmu --mmproj-url --image --audio --video", "FILE", ON_LLAMA, "", NONE, "",    \
      "carat takes text only")                                                                     \
    Y("-hfd -hfrd --hf-repo-draft --spec-draft-hf", "REPO", ON(PERPLEXITY), "", NONE, "",          \
      "a drafter changes no number here: leave it out")                                            \
    /* A drafter is where the keys are that it reads, and has no cache of its own. */              \
    Y("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl -devd --device-draft "       \
      "--spec-draft-device -td --threads-draft --spec-draft-threads -tbd --threads-batch-draft "   \
      "--spec-draft-threads-batch -cd --ctx-size-draft -ctkd --cache-type-k-draft "                \
      "--spec-draft-type-k -ctvd --cache-type-v-draft --spec-draft-type-v -ncmoed "                \
      "--n-cpu-moe-draft --draft-min --draft-n-min --draft-p-min --draft-p-split "                 \
      "--spec-draft-n-min --spec-draft-p-min --spec-draft-p-split",                                \
      "VALUE", ON_ANSWER | ON(PERPLEXITY), "*", NONE, "", "")                                      \
    Y("-cmoed --cpu-moe-draft", "", ON_ANSWER | ON(PERPLEXITY), "*", NONE, "", "")                 \
    Y("--spec-default --context-shift --skip-chat-parsing", "", ON_ANSWER | ON(PERPLEXITY), "",    \
      NONE, "", "leave it out")                                                                    \
    Y("--chat-template-file", "FILE", ON_TALK, "", NONE, "",                                       \
      "Gemma 4's template is built in: leave this out")                                            \
    Y("--in-prefix --in-suffix", "TEXT", ON_TALK, "", NONE, "",                                    \
      "the chat template says what stands around a message; --raw takes none")                     \
    Y("--override-kv -ot --override-tensor", "VALUE", ON_LLAMA, "", NONE, "",                      \
      "what the file says is taken as it is; experts go to the CPU by --cpu-experts")              \
    Y("--rpc -rpc", "SERVERS", ON_LLAMA, "", NONE, "", "carat computes on this machine only")      \
    Y("--server-base", "URL", ON_TALK, "", NONE, "", "carat computes on this machine only")        \
    Y("--log-file", "FILE", ON_LLAMA, "", NONE, "", "notes go to standard error: 2>FILE")          \
    Y("--hellaswag --winogrande --multiple-choice", "", ON(PERPLEXITY), "", NONE, "",              \
      "perplexity and --kl are what is scored")                                                    \
    Y("--ppl-stride", "N", ON(PERPLEXITY), "0", NONE, "", "chunks do not overlap: 0")              \
    Y("--host --port --api-key --alias", "VALUE", ON_TALK, "", NONE, "",                           \
      "`carat serve` has these")                                                                   \
    Y("--modelfile --license --parameters", "", ON(SHOW), "", NONE, "",                            \
      "carat show --kv lists what the file says")

enum option_id {
#define X(id, kind, name, aliases, preset, low, high, commands, value, help) OPT_##id,
    OPTION_LIST(X)
#undef X
        OPT_COUNT,
    OPT_NONE = OPT_COUNT /* a TARGET that is no option */
};

#endif
