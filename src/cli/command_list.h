/* COMMAND_LIST: every subcommand of the program, in the order that help shows.
 *
 * X(ID, name, "arguments", "summary"). `command_<name>` is its function (command.h). The same list
 * gives dispatch, help, the man page and shell completion. */
#ifndef CLI_COMMAND_LIST_H
#define CLI_COMMAND_LIST_H

#define COMMAND_LIST(X)                                                                            \
    X(RUN, run, "MODEL [PROMPT...]", "answer one prompt")                                          \
    X(CHAT, chat, "MODEL", "talk with a model, turn by turn")                                      \
    X(SHOW, show, "MODEL", "describe a model file without loading its weights")                    \
    X(TOKENIZE, tokenize, "MODEL [TEXT...]", "turn text into token ids")                           \
    X(DETOKENIZE, detokenize, "MODEL [ID...]", "turn token ids into text")                         \
    X(TEMPLATE, template, "[MODEL] REQUEST.json", "print the prompt that a chat request becomes")  \
    X(LOGITS, logits, "MODEL --tokens IDS -o FILE", "write the logits of given tokens to a file")  \
    X(PERPLEXITY, perplexity, "MODEL -f TEXT", "score a text; compare two models' predictions")    \
    X(BENCH, bench, "MODEL", "measure prompt processing and text generation")                      \
    X(PLAN, plan, "MODEL", "print the compiled program of one step")                               \
    X(DOCTOR, doctor, "", "report on this machine and run a self-test")                            \
    X(VERSION, version, "", "print version, commit and build type")                                \
    X(HELP, help, "[COMMAND]", "explain a command and its options")                                \
    X(COMPLETION, completion, "bash|zsh|fish", "print a shell completion script")                  \
    X(MAN, man, "", "print the manual page (roff)")

enum command_id {
#define X(id, name, arguments, summary) COMMAND_##id,
    COMMAND_LIST(X)
#undef X
    COMMAND_COUNT
};

#endif
