/* Grammars under test: a vocabulary with tokens as a trained one has them, texts byte by byte, and
 * walks of random tokens. */
#ifndef SUPPORT_GRAMMARS_H
#define SUPPORT_GRAMMARS_H

#include "base/rng.h"
#include "grammar/grammar.h"
#include "grammar/state.h"
#include "support/text_fixture.h"

struct grammar_fixture {
    struct text_fixture text;
    struct token_index *index;
};

/* The first 1024 ids are those of the made-up vocabulary of text_fixture; the others are words,
 * numbers, foreign letters, and pieces of JSON and code, drawn from a fixed seed. */
void grammar_fixture_open(struct grammar_fixture *f, int n_vocab);
void grammar_fixture_deinit(struct grammar_fixture *f);

int gbnf_open(carat_grammar **out, const struct grammar_fixture *f, const char *text, size_t length,
              struct carat_error *err);
int json_schema_open(carat_grammar **out, const struct grammar_fixture *f, const char *text,
                     size_t length, struct carat_error *err);

/* Whether the grammar takes the whole text, given as byte tokens. `_reads` also tells whether the
 * machine has ever dropped alternatives because there were too many: then what it takes is right,
 * but it may refuse too much. */
bool grammar_takes(const carat_grammar *g, const struct grammar_fixture *f, const char *text,
                   size_t length);
bool grammar_reads(const carat_grammar *g, const struct grammar_fixture *f, const char *text,
                   size_t length, bool *was_cut);

/* One random token that the bits allow, or -1. Stop ids come only if `may_stop`. */
int32_t draw_allowed(struct rng *r, const struct grammar_fixture *f, const uint64_t *bits,
                     bool may_stop);

/* What a token adds to the text. */
void add_token_text(const struct grammar_fixture *f, int32_t id, struct buf *text);

#endif
