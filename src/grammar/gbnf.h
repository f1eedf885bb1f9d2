/* GBNF, the notation of llama.cpp for grammars, as expressions.
 *
 *   root ::= "a" [b-z]* ( item | other ){2,3} .   # comment
 *
 * A rule ends with its line, unless parentheses are open or the next line begins with "|". Tokens:
 * <[48]> is an id, <|tool_call> a token with that text, ! before them any other one. */
#ifndef GRAMMAR_GBNF_H
#define GRAMMAR_GBNF_H

#include "grammar/expr.h"
#include "text/vocab.h"

enum {
    GBNF_BYTES_MAX = 1 << 20,
    GBNF_DEPTH_MAX = 100, /* parentheses inside each other */
    GBNF_TIMES_MAX = 1 << 20,
};

/* Adds the rules of `text` to the builder; *root is the rule "root". CARAT_EUSAGE names line and
 * column. */
int gbnf_read(struct expr_builder *b, const struct vocab *vocab, const char *text, size_t length,
              int32_t *root, struct carat_error *err);

#endif
