/* OPTION_LIST: every flag of the program, once.
 *
 * X(ID, KIND, "name", "other spellings", "default", low, high, COMMANDS, "VALUE", "help")
 *
 * KIND is FLAG, INT, REAL, TEXT, MEMORY (11G or 90%), CHOICE (VALUE lists the words, separated
 * by |) or LIST (may be given again). Ranges hold for INT and REAL; -1 as `low` usually means
 * "as the model or the engine likes". Two rows may share a spelling when no command takes both.
 * The table gives parsing, `carat help`, CARAT_<NAME> variables, shell completion and the manual
 * page. Other spellings are llama.cpp's, so that known commands work. */
#ifndef CLI_OPTION_LIST_H
#define CLI_OPTION_LIST_H

#define ON(id) (1u << COMMAND_##id)
#define ON_TALK (ON(RUN) | ON(CHAT))
#define ON_SCORE (ON(LOGITS) | ON(PERPLEXITY))
#define ON_TEXT (ON(TOKENIZE) | ON(DETOKENIZE))
#define ON_ENGINE (ON_TALK | ON_SCORE | ON(PLAN) | ON(SHOW) | ON(DOCTOR))
#define ON_MODEL (ON_TALK | ON_SCORE | ON_TEXT | ON(SHOW) | ON(TEMPLATE) | ON(BENCH) | ON(PLAN))
#define ON_ALL ((1u << COMMAND_COUNT) - 1u)

#define COUNT_MAX 1048576
#define SEED_MAX 9007199254740991.0 /* 2^53 - 1: whole in a double too */

#define OPTION_LIST(X)                                                                             \
    X(MODEL, TEXT, "model", "-m", "", 0, 0, ON_MODEL, "MODEL",                                     \
      "model file or name, instead of the first argument")                                         \
    X(PROMPT, TEXT, "prompt", "-p", "", 0, 0, ON(RUN), "TEXT", "prompt, instead of arguments")     \
    X(PROMPT_FILE, TEXT, "file", "-f", "", 0, 0, ON(RUN), "FILE", "read the prompt from a file")   \
    X(SYSTEM, TEXT, "system", "-sys --system-prompt", "", 0, 0, ON_TALK, "TEXT", "system prompt")  \
    X(THINK, CHOICE, "think", "", "off", 0, 0, ON_TALK, "on|off", "let the model think first")     \
    X(HIDE_THINKING, FLAG, "hide-thinking", "", "", 0, 0, ON_TALK, "",                             \
      "do not print thoughts (they go to standard error)")                                         \
    X(SHOW_THINKING, FLAG, "show-thinking", "", "", 0, 0, ON(RUN), "",                             \
      "print thoughts to standard output, before the answer")                                      \
    X(RAW, FLAG, "raw", "", "", 0, 0, ON(RUN), "",                                                 \
      "continue the text as it is: no chat template, only <bos> in front")                         \
    X(TOOLS, TEXT, "tools", "", "", 0, 0, ON(RUN), "FILE",                                         \
      "JSON array of tools the model may call; a call is printed as a JSON line")                  \
    X(MAX_TOKENS, INT, "max-tokens", "-n --predict --n-predict", "-1", -1, 2147483647, ON_TALK,    \
      "N", "stop after N tokens (-1: at the end of the context)")                                  \
    X(CTX, INT, "ctx-size", "-c", "0", 0, COUNT_MAX,                                               \
      ON_TALK | ON(LOGITS) | ON(PLAN) | ON(DOCTOR), "N",                                           \
      "positions of the context (0: as many as the model has and memory holds)")                   \
    X(PPL_CTX, INT, "ctx-size", "-c", "512", 16, COUNT_MAX, ON(PERPLEXITY), "N",                   \
      "tokens of a chunk; its second half is scored")                                              \
    X(TEMPERATURE, REAL, "temp", "--temperature", "", 0, 100, ON_TALK, "T",                        \
      "temperature; 0 takes the likeliest token (default: the model's, else 1.0)")                 \
    X(TOP_K, INT, "top-k", "", "", 0, COUNT_MAX, ON_TALK, "K",                                     \
      "sample from the K likeliest; 0: from all (default: the model's, else 64)")                  \
    X(TOP_P, REAL, "top-p", "", "", 0, 1, ON_TALK, "P",                                            \
      "sample from the likeliest that sum to P (default: the model's, else 0.95)")                 \
    X(MIN_P, REAL, "min-p", "", "", 0, 1, ON_TALK, "P",                                            \
      "drop tokens less likely than P times the best (default: 0, off)")                           \
    X(REPEAT_PENALTY, REAL, "repeat-penalty", "", "", 0.01, 100, ON_TALK, "F",                     \
      "divide the scores of recent tokens by F (default: 1, off)")                                 \
    X(REPEAT_LAST_N, INT, "repeat-last-n", "", "", -1, COUNT_MAX, ON_TALK, "N",                    \
      "tokens that the penalties look at; -1: all of them (default: 64)")                          \
    X(PRESENCE_PENALTY, REAL, "presence-penalty", "", "", -2, 2, ON_TALK, "F",                     \
      "subtract F from tokens already seen (default: 0)")                                          \
    X(FREQUENCY_PENALTY, REAL, "frequency-penalty", "", "", -2, 2, ON_TALK, "F",                   \
      "subtract F for each time a token was seen (default: 0)")                                    \
    X(SEED, INT, "seed", "-s", "-1", -1, SEED_MAX, ON_TALK, "N",                                   \
      "random seed; -1 draws one. Same seed and build: same answer")                               \
    X(STOP, LIST, "stop", "-r --reverse-prompt", "", 0, 0, ON_TALK, "TEXT",                        \
      "end the answer before TEXT; may be repeated")                                               \
    X(LOGIT_BIAS, LIST, "logit-bias", "-l", "", 0, 0, ON_TALK, "ID=V",                             \
      "add V to the score of token ID (-inf bans it); may be repeated")                            \
    X(IGNORE_STOP, FLAG, "ignore-eos", "", "", 0, 0, ON(RUN), "",                                  \
      "go on after the model's own end of answer")                                                 \
    X(STATS, FLAG, "stats", "", "", 0, 0, ON(RUN), "", "print timings to standard error")          \
    X(OUTPUT, TEXT, "output", "-o", "", 0, 0, ON(RUN) | ON(LOGITS), "FILE",                        \
      "write the result to a file instead of standard output (-)")                                 \
    X(NO_HISTORY, FLAG, "no-history", "", "", 0, 0, ON(CHAT), "", "keep no file of typed lines")   \
    X(SPECIAL, FLAG, "special", "", "", 0, 0, ON_TEXT | ON(RUN), "",                               \
      "read (run --raw, tokenize) or show (detokenize) special tokens such as <|turn>")            \
    X(PLAIN, FLAG, "plain", "", "", 0, 0, ON(TOKENIZE), "",                                        \
      "parse no special token at all, as is done with a user's message")                           \
    X(BOS, FLAG, "bos", "", "", 0, 0, ON(TOKENIZE), "", "put <bos> in front")                      \
    X(SIZE, CHOICE, "size", "", "", 0, 0, ON(TEMPLATE), "small|large",                             \
      "template of E2B and E4B (small) or of the others (large), instead of MODEL")                \
    X(TOKENS, TEXT, "tokens", "", "", 0, 0, ON(LOGITS), "IDS", "token ids, e.g. 2,5,7")            \
    X(TOKENS_FILE, TEXT, "tokens-file", "", "", 0, 0, ON(LOGITS), "FILE",                          \
      "token ids: separated by commas, blanks or newlines, or a JSON array")                       \
    X(ALL, FLAG, "all", "", "", 0, 0, ON(LOGITS), "", "every position (default: the last)")        \
    X(AT, TEXT, "at", "", "", 0, 0, ON(LOGITS), "POSITIONS", "these positions, e.g. 0,8,16")       \
    X(TEXT_FILE, TEXT, "file", "-f", "", 0, 0, ON(PERPLEXITY), "FILE", "text to score")            \
    X(CHUNKS, INT, "chunks", "", "-1", -1, COUNT_MAX, ON(PERPLEXITY), "N",                         \
      "score at most N chunks (-1: all)")                                                          \
    X(SAVE_LOGITS, TEXT, "save-logits", "--save-all-logits", "", 0, 0, ON(PERPLEXITY), "BASE",     \
      "keep all log-probabilities in a file, to compare others with")                              \
    X(BASE_TYPE, CHOICE, "base-type", "", "f16", 0, 0, ON(PERPLEXITY), "f16|f32",                  \
      "numbers in BASE")                                                                           \
    X(KL, TEXT, "kl", "--kl-divergence-base", "", 0, 0, ON(PERPLEXITY), "BASE",                    \
      "compare with the file that --save-logits wrote, on the same tokens")                        \
    X(PPL_FORMAT, CHOICE, "format", "-o --output", "md", 0, 0, ON(PERPLEXITY), "md|json",          \
      "form of the report")                                                                        \
    X(BENCH_PROMPT, LIST, "n-prompt", "-p", "512", 0, 0, ON(BENCH), "LIST",                        \
      "prompt lengths; lists a,b and ranges a-b+step, a-b*factor")                                 \
    X(BENCH_GEN, LIST, "n-gen", "-n", "128", 0, 0, ON(BENCH), "LIST", "tokens to generate")        \
    X(BENCH_PAIR, LIST, "pg", "-pg", "", 0, 0, ON(BENCH), "P,G",                                   \
      "a prompt of P tokens, then G generated; may be repeated")                                   \
    X(BENCH_DEPTH, LIST, "n-depth", "-d", "0", 0, 0, ON(BENCH), "LIST",                            \
      "tokens already in the context, not counted")                                                \
    X(BENCH_USERS, LIST, "users", "-npl --parallel -np", "1", 0, 0, ON(BENCH), "LIST",             \
      "sequences decoded side by side")                                                            \
    X(BENCH_CHUNK, LIST, "chunk", "-b -ub --batch-size --ubatch-size", "0", 0, 0, ON(BENCH),       \
      "LIST", "rows of a prefill step (0: 512, on a GPU 2048)")                                    \
    X(BENCH_KV, LIST, "kv-type", "-ctk -ctv --cache-type-k --cache-type-v", "auto", 0, 0,          \
      ON(BENCH), "LIST", "type of the KV cache: auto, f16, bf16, f32, q8_0")                       \
    X(BENCH_THREADS, LIST, "threads", "-t", "0", 0, 0, ON(BENCH), "LIST",                          \
      "threads of the cpu backend (0: one for each physical core)")                                \
    X(REPETITIONS, INT, "repetitions", "-r", "5", 1, 1000, ON(BENCH), "N", "runs of each test")    \
    X(NO_WARMUP, FLAG, "no-warmup", "", "", 0, 0, ON(BENCH), "", "skip the run before each test")  \
    X(ROOFLINE, FLAG, "roofline", "", "", 0, 0, ON(BENCH), "",                                     \
      "also measure what the device can do, and each result's share of it")                        \
    X(BENCH_FORMAT, CHOICE, "format", "-o --output", "md", 0, 0, ON(BENCH),                        \
      "md|csv|json|jsonl|sql", "form of the table")                                                \
    X(ROWS, INT, "rows", "", "1", 1, COUNT_MAX, ON(PLAN), "N", "tokens of the step")               \
    X(OUTS, INT, "outs", "", "1", 0, COUNT_MAX, ON(PLAN), "N", "rows whose logits are wanted")     \
    X(KV, FLAG, "kv", "", "", 0, 0, ON(SHOW), "", "list the metadata")                             \
    X(TENSORS, FLAG, "tensors", "", "", 0, 0, ON(SHOW), "", "list the tensors")                    \
    X(FIT, INT, "fit", "", "0", 0, COUNT_MAX, ON(SHOW), "CTX", "memory that CTX positions need")   \
    X(BACKEND, CHOICE, "backend", "", "auto", 0, 0, (ON_ENGINE & ~ON(LOGITS)) | ON(BENCH),         \
      "auto|cuda|cpu|ref", "what computes (auto: a GPU if there is one); ref is exact, and slow")  \
    X(LOGITS_BACKEND, CHOICE, "backend", "", "ref", 0, 0, ON(LOGITS), "ref|cpu|cuda|auto",         \
      "what computes; ref is the exact reference")                                                 \
    X(DEVICE, INT, "device", "-mg --main-gpu", "0", 0, 63, ON_ENGINE | ON(BENCH), "N",             \
      "which GPU, counted from 0")                                                                 \
    X(GPU_LAYERS, INT, "gpu-layers", "-ngl --n-gpu-layers", "-1", -1, COUNT_MAX,                   \
      ON_ENGINE | ON(BENCH), "N",                                                                  \
      "layers on the GPU, the rest on the CPU (-1: as many as fit)")                               \
    X(CPU_EXPERTS, FLAG, "cpu-experts", "--cpu-moe", "", 0, 0, ON_ENGINE | ON(BENCH), "",          \
      "GPU: experts of 26B-A4B stay on the CPU")                                                   \
    X(MATMUL, CHOICE, "matmul", "", "auto", 0, 0, ON_ENGINE | ON(BENCH), "auto|int8|fp16",         \
      "GPU: arithmetic of prompt products (auto: the faster one on the chip)")                     \
    X(MIRROR, INT, "mirror-budget", "", "-1", -1, 1e15, ON_ENGINE | ON(BENCH), "BYTES",            \
      "GPU: memory for fp16 copies of weights, with --matmul fp16 (-1: all but a tenth)")          \
    X(GPU_MEMORY, MEMORY, "gpu-memory", "", "", 0, 0, ON_ENGINE | ON(BENCH), "SIZE|N%",            \
      "GPU: at most so much of its memory for everything, such as 11G (2^30), 11GB (10^9) or 90%") \
    X(GRAPHS, CHOICE, "graphs", "", "on", 0, 0, ON_ENGINE | ON(BENCH), "on|off",                   \
      "GPU: replay recorded steps; off launches each anew, to compare")                            \
    X(CUBLAS, CHOICE, "cublas", "", "on", 0, 0, ON_ENGINE | ON(BENCH), "on|off",                   \
      "GPU: cuBLAS for fp16 products of prompts where it is installed; off: own kernels")          \
    X(FUSE, CHOICE, "fuse", "", "on", 0, 0, ON_ENGINE | ON(BENCH), "on|off",                       \
      "GPU: several operations in one launch; off: each on its own, to compare")                   \
    X(PROFILE, FLAG, "profile", "", "", 0, 0, ON(RUN) | ON(BENCH), "",                             \
      "tell at the end where the time went, on standard error")                               \
    X(PLE, CHOICE, "ple", "", "auto", 0, 0, ON_ENGINE | ON(BENCH), "auto|gpu|pinned|host",         \
      "GPU: place of the table of per-layer embeddings (pinned: a copy in host memory that the "   \
      "GPU reads; host: in the file, rows of a chunk copied while the GPU has the one before)")    \
    X(PRECISION, CHOICE, "precision", "", "fast", 0, 0, ON_ENGINE | ON(BENCH), "fast|fp32",        \
      "fast: 8-bit activations with quantised weights")                                            \
    X(PIN, FLAG, "pin", "", "", 0, 0, ON_ENGINE | ON(BENCH), "", "keep each thread on its core")   \
    X(CHUNK, INT, "chunk", "-b -ub --batch-size --ubatch-size", "0", 0, COUNT_MAX, ON_ENGINE,      \
      "N", "rows of a prefill step (0: 512, on a GPU 2048)")                                       \
    X(KV_TYPE, CHOICE, "kv-type", "-ctk -ctv --cache-type-k --cache-type-v", "auto", 0, 0,         \
      ON_ENGINE, "auto|f16|bf16|f32|q8_0", "type of the KV cache (auto: f16; f32 where exact)")\
    X(THREADS, INT, "threads", "-t", "0", 0, 512, ON_ENGINE, "N",                                  \
      "threads of the cpu backend (0: one for each physical core)")                                \
    X(JSON, FLAG, "json", "", "", 0, 0, ON_TEXT | ON(RUN) | ON(SHOW) | ON(DOCTOR) | ON(VERSION),   \
      "", "print the result as JSON")                                                              \
    X(MARKDOWN, FLAG, "markdown", "", "", 0, 0, ON(HELP), "", "all options as a document")         \
    X(VERBOSE, FLAG, "verbose", "", "", 0, 0, ON_TALK | ON(BENCH), "",                             \
      "print the whole memory table to standard error, not a line of it")                          \
    X(QUIET, FLAG, "quiet", "-q", "", 0, 0, ON_ALL, "", "no progress, no notes")                   \
    X(HELP, FLAG, "help", "-h", "", 0, 0, ON_ALL, "", "explain the command")

enum option_id {
#define X(id, kind, name, aliases, preset, low, high, commands, value, help) OPT_##id,
    OPTION_LIST(X)
#undef X
    OPT_COUNT
};

#endif
