/* The tokens of a vocabulary by their bytes: trees for masks, texts for single checks. Built once
 * for a model, in time and memory that are linear in the vocabulary's bytes (262,144 ids: below
 * 100 ms and 30 MB). After that it does not change: any thread may use it.
 *
 * Plain characters are those that a JSON string takes as they are: printable ASCII without the
 * quotation mark and the backslash, and everything beyond ASCII. Where a grammar takes all of them
 * alike, a token's way is known from how many of them it begins with and from what follows them. So
 * there is a set of the tokens that consist of them, by length, and trees of what follows. */
#ifndef GRAMMAR_INDEX_H
#define GRAMMAR_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mask.h"
#include "carat.h"
#include "text/vocab.h"

struct tree_node {
    uint32_t first_child, first_id; /* into nodes, ids */
    uint32_t n_ids;                 /* of tokens that end here */
    uint16_t n_children;            /* neighbours, by rising byte */
    uint8_t byte;
};

/* A tree of texts. Node 0 is its root. */
struct token_tree {
    struct tree_node *nodes;
    int32_t *ids;
    uint32_t n_nodes, n_ids;
};

enum { PLAIN_MAX = 32 }; /* plain characters at a token's beginning that are counted */

struct token_index {
    int32_t n_vocab;
    uint32_t longest; /* bytes of a token */
    uint32_t *begin;  /* n_vocab + 1: into bytes. Special tokens have none */
    uint8_t *bytes;
    uint8_t *is_stop; /* n_vocab */
    int32_t *stops;   /* n_stops */
    uint32_t n_stops;
    int32_t channel_begin, channel_end;  /* ids of a thought's marks; -1: none */
    struct token_tree all;               /* by all bytes */
    uint64_t *plain;                     /* bits: tokens of 1..PLAIN_MAX plain characters alone */
    int32_t *plain_ids;                  /* the same, by rising number of characters */
    uint32_t plain_begin[PLAIN_MAX + 2]; /* into plain_ids: those of n characters from [n] */
    struct token_tree rest; /* all other tokens, by what follows the plain characters */
    struct token_tree rests[PLAIN_MAX + 1]; /* the same, by the number of those */
};

/* CARAT_EMEMORY, or CARAT_EUNSUPPORTED for a vocabulary beyond all bounds. */
int index_open(struct token_index **out, const struct vocab *vocab, struct carat_error *err);
void index_close(struct token_index *x); /* NULL is fine */

static inline size_t index_words(const struct token_index *x)
{
    return mask_words(x->n_vocab);
}

#endif
