/* COMMAND_LIST: every subcommand of the program, in the order that help shows.
 *
 * X(ID, name, "arguments", "summary"). `command_<name>` is its function (command.h). The same list
 * gives dispatch, help, the man page and shell completion. */
#ifndef CLI_COMMAND_LIST_H
#define CLI_COMMAND_LIST_H

#define COMMAND_LIST(X)                                                                            \
    X(RUN, run, "MODEL [PROMPT...]", "answer one prompt")                                          \
    X(CHAT, chat, "MODEL", "talk with a model, turn by turn")                                      \
    X(SERVE, serve, "MODEL", "answer requests over HTTP as OpenAI, Anthropic and ollama do")       \
    X(PULL, pull, "NAME", "download a model, or go on with a download")                            \
    X(LS, ls, "", "list the models that can be called by name")                                    \
    X(RM, rm, "NAME", "remove a model that pull has downloaded")                                   \
    X(VERIFY, verify, "[NAME]", "compare models with their checksums")                             \
    X(SHOW, show, "MODEL", "describe a model file without loading its weights")                    \
    X(TOKENIZE, tokenize, "MODEL [TEXT...]", "turn text into token ids")                           \
    X(DETOKENIZE, detokenize, "MODEL [ID...]", "turn token ids into text")                         \
    X(TEMPLATE, template, "[MODEL] REQUEST.json", "print the prompt that a chat request becomes")  \
    X(LOGITS, logits, "MODEL --tokens IDS -o FILE", "write the logits of given tokens to a file")  \
    X(PERPLEXITY, perplexity, "MODEL -f TEXT", "score a text; compare two models' predictions")    \
    X(BENCH, bench, "MODEL...", "measure prompt processing and text generation")                   \
    X(IMATRIX, imatrix, "MODEL -f TEXT", "measure an importance matrix for quantize")              \
    X(QUANTIZE, quantize, "MODEL OUT TYPE", "write a model file with weights in another type")     \
    X(PLAN, plan, "MODEL", "print the compiled program of one step")                               \
    X(DEVICES, devices, "", "list what can compute, with its memory")                              \
    X(DOCTOR, doctor, "", "report on this machine and run a self-test")                            \
    X(CONFIG, config, "[COMMAND [MODEL]]",                                                         \
      "print the values of options, and where they came from")                                     \
    X(VERSION, version, "", "print version, commit and build type")                                \
    X(HELP, help, "[COMMAND]", "explain a command and its options")                                \
    X(COMPLETION, completion, "bash|zsh|fish", "print a shell completion script")                  \
    X(MAN, man, "", "print the manual page (roff)")

/* BORROWED_COMMAND_LIST: first words of other programs' lines. They may also be names of links to
 * carat.
 *
 * Z("word", COMMAND, "flags", "why"): the command to run, with flags before its arguments; or NONE
 * and the reason. ALONE: the next word is the command. */
#define BORROWED_COMMAND_LIST(Z)                                                                   \
    Z("llama-cli", RUN, "", "")                                                                    \
    Z("llama-completion", RUN, "", "")                                                             \
    Z("llama-bench", BENCH, "", "")                                                                \
    Z("llama-perplexity", PERPLEXITY, "", "")                                                      \
    Z("llama-tokenize", TOKENIZE, "--bos --special", "")                                           \
    Z("ollama", ALONE, "", "")                                                                     \
    Z("llama", ALONE, "", "")                                                                      \
    Z("cli", RUN, "", "")                                                                          \
    Z("list", LS, "", "")                                                                          \
    Z("llama-server", SERVE, "", "")                                                               \
    Z("ps", NONE, "", "curl http://127.0.0.1:8080/api/ps")                                         \
    Z("stop", NONE, "", "end `carat serve` by Ctrl-C")                                             \
    Z("push", NONE, "", "carat uploads nothing")                                                   \
    Z("create", NONE, "", "models are GGUF files as they are")                                     \
    Z("cp", NONE, "", "models are files: cp")                                                      \
    Z("llama-imatrix", IMATRIX, "", "")                                                            \
    Z("llama-quantize", QUANTIZE, "", "")                                                          \
    Z("llama-mtmd-cli", NONE, "", "carat takes text only")

enum command_id {
#define X(id, name, arguments, summary) COMMAND_##id,
    COMMAND_LIST(X)
#undef X
        COMMAND_COUNT,
    COMMAND_NONE = COMMAND_COUNT, /* for borrowed words */
    COMMAND_ALONE
};

#endif
