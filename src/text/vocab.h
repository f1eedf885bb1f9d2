/* The vocabulary of a model file: token texts, their look-up, the BPE merges and the special
 * tokens.
 *
 * Rules
 * 1. `vocab_open` checks every list of tokenizer.ggml.*; errors are CARAT_EFORMAT and name the
 *    key and the index, or CARAT_EMEMORY. *out is NULL then.
 * 2. Token texts are borrowed from the struct gguf, which must outlive the vocabulary.
 * 3. Read-only after open: any thread may use it.
 * 4. Special tokens are known by text, not by id, and rarely by type: files disagree on types. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat.h"
#include "gguf/gguf.h"

/* X(name, text, is user-defined, is required). User-defined tokens are those that llama.cpp
 * matches in any text, even with the parsing of special tokens off. */
#define VOCAB_SPECIAL_LIST(X)                                                                      \
    X(PAD, "<pad>", 0, 0)                                                                          \
    X(EOS, "<eos>", 0, 1)                                                                          \
    X(BOS, "<bos>", 0, 1)                                                                          \
    X(UNK, "<unk>", 0, 0)                                                                          \
    X(MASK, "<mask>", 0, 0)                                                                        \
    X(TOOL_BEGIN, "<|tool>", 0, 0)                                                                 \
    X(TOOL_END, "<tool|>", 0, 0)                                                                   \
    X(CALL_BEGIN, "<|tool_call>", 1, 0)                                                            \
    X(CALL_END, "<tool_call|>", 1, 0)                                                              \
    X(RESPONSE_BEGIN, "<|tool_response>", 1, 0)                                                    \
    X(RESPONSE_END, "<tool_response|>", 1, 0)                                                      \
    X(QUOTE, "<|\"|>", 1, 0)                                                                       \
    X(THINK, "<|think|>", 0, 0)                                                                    \
    X(CHANNEL_BEGIN, "<|channel>", 1, 1)                                                           \
    X(CHANNEL_END, "<channel|>", 1, 1)                                                             \
    X(TURN_BEGIN, "<|turn>", 0, 1)                                                                 \
    X(TURN_END, "<turn|>", 0, 1)                                                                   \
    X(IMAGE_BEGIN, "<|image>", 0, 0)                                                               \
    X(IMAGE_END, "<image|>", 0, 0)                                                                 \
    X(AUDIO_BEGIN, "<|audio>", 0, 0)                                                               \
    X(AUDIO_END, "<audio|>", 0, 0)                                                                 \
    X(IMAGE, "<|image|>", 0, 0)                                                                    \
    X(AUDIO, "<|audio|>", 0, 0)                                                                    \
    X(VIDEO, "<|video|>", 0, 0)

enum vocab_special {
#define X(name, text, is_user_defined, is_required) VOCAB_##name,
    VOCAB_SPECIAL_LIST(X)
#undef X
        VOCAB_SPECIAL_COUNT
};

enum token_class {
    TOKEN_PLAIN,
    TOKEN_BYTE,         /* "<0x41>" stands for one byte */
    TOKEN_CONTROL,      /* special; shows no text */
    TOKEN_USER_DEFINED, /* special; its text is shown */
};

struct vocab;

int vocab_open(struct vocab **out, const struct gguf *g, struct carat_error *err);
void vocab_close(struct vocab *v); /* NULL is fine */

int32_t vocab_count(const struct vocab *v);
/* The text of one id as in the file. Borrowed; "" and length 0 for an id out of range. */
const char *vocab_piece(const struct vocab *v, int32_t id, size_t *length);
enum token_class vocab_class(const struct vocab *v, int32_t id); /* out of range: control */
bool vocab_is_special(const struct vocab *v, int32_t id);        /* control or user-defined */
bool vocab_is_stop(const struct vocab *v, int32_t id);

/* Id of a special token, -1 when the file has none. */
int32_t vocab_special(const struct vocab *v, enum vocab_special which);

/* Ids that must never be sampled: tokenizer.ggml.suppress_tokens. */
const int32_t *vocab_suppressed(const struct vocab *v, size_t *count);

/* What a user should know about the tokenizer keys, or "". */
const char *vocab_note(const struct vocab *v);

/* ---- For the tokenizer ---- */

/* Id with exactly this text, -1 when there is none. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t length);
/* The same, but only plain tokens: what BPE symbols may become. */
int32_t vocab_find_plain(const struct vocab *v, const char *text, size_t length);
int32_t vocab_byte(const struct vocab *v, uint8_t byte);     /* never -1 */
uint8_t vocab_byte_value(const struct vocab *v, int32_t id); /* of a TOKEN_BYTE */

/* Rank of merging two adjacent symbols and the id of the result; -1: they do not merge. */
int32_t vocab_merge(const struct vocab *v, int32_t left, int32_t right, int32_t *product);

/* Whether some merge joins the end of a word with the space after it. If none does, words merge
 * independently of each other: a space belongs to the word after it. */
bool vocab_joins_words(const struct vocab *v);

/* Longest special token whose text begins at text[0] and ends within `length`: its id, and its
 * length in *matched. -1: none. USER_DEFINED looks at user-defined tokens only, NONE at none.
 * Tokens of more than 128 bytes are never found. */
int32_t vocab_match_special(const struct vocab *v, enum carat_special special, const char *text,
                            size_t length, size_t *matched);
/* First byte at or after `from` that may begin a special token; `length` when there is none. */
size_t vocab_next_special(const struct vocab *v, const char *text, size_t from, size_t length);
size_t vocab_longest_plain(const struct vocab *v); /* bytes */

/* CARAT_ECONTEXT when this many bytes cannot fit into n_ctx positions, whatever their tokens;
 * *bytes_max (may be NULL) is the most that is not refused. */
int vocab_check_length(const struct vocab *v, size_t bytes, int32_t n_ctx, size_t *bytes_max,
                       struct carat_error *err);

#endif
