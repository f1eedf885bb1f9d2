/* A made-up vocabulary in the shape of the real one (ids of the model family's special
 * tokens, runs and byte tokens), with words over a-z so that plain text is encoded in pieces
 * of two to four letters: every word of n letters is its first n-1 letters merged with the
 * last, alone and after a space. */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "support/gemma_file.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, BYTE = 6 };
enum {
    ID_NEWLINES = 107, /* runs of 1 to 31 */
    ID_SPACES = 138,   /* runs of 2 to 31 */
    ID_BYTES = 238,
    ID_WORDS = 494,
    ID_CHARACTERS = 236743, /* in a vocabulary of the real size */
    REAL_SIZE = 262144
};

static const struct {
    int id, type;
    const char *text;
} specials[] = {
    {0, CONTROL, "<pad>"},
    {1, CONTROL, "<eos>"},
    {2, CONTROL, "<bos>"},
    {3, CONTROL, "<unk>"},
    {4, CONTROL, "<mask>"},
    {46, CONTROL, "<|tool>"},
    {47, CONTROL, "<tool|>"},
    {48, USER_DEFINED, "<|tool_call>"},
    {49, USER_DEFINED, "<tool_call|>"},
    {50, USER_DEFINED, "<|tool_response>"},
    {51, USER_DEFINED, "<tool_response|>"},
    {52, USER_DEFINED, "<|\"|>"},
    {98, CONTROL, "<|think|>"},
    {100, USER_DEFINED, "<|channel>"},
    {101, USER_DEFINED, "<channel|>"},
    {105, CONTROL, "<|turn>"},
    {106, CONTROL, "<turn|>"},
    {212, NORMAL, "</s>"},
    {255999, CONTROL, "<|image>"},
    {256000, CONTROL, "<|audio>"},
    {258880, CONTROL, "<|image|>"},
    {258881, CONTROL, "<|audio|>"},
    {258882, CONTROL, "<image|>"},
    {258883, CONTROL, "<audio|>"},
    {258884, CONTROL, "<|video|>"},
};

struct vocabulary {
    struct arena arena;
    int n;
    struct gguf_string *tokens; /* data NULL: not set yet */
    int32_t *types;
    struct gguf_string *merges;
    size_t n_merge;
    bool failed;
};

static struct gguf_string copy(struct vocabulary *v, const char *text, size_t length)
{
    struct gguf_string s = {.data = arena_copy_text(&v->arena, text, length), .length = length};
    if (!s.data) v->failed = true;
    return s;
}

static void set(struct vocabulary *v, int id, int type, const char *text, size_t length)
{
    if (id >= v->n) return;
    v->tokens[id] = copy(v, text, length);
    v->types[id] = type;
}

static void add_merge(struct vocabulary *v, const char *text, size_t left, size_t length)
{
    char pair[512];
    int n = snprintf(pair, sizeof pair, "%.*s %.*s", (int)left, text, (int)(length - left),
                     text + left);
    v->merges[v->n_merge++] = copy(v, pair, (size_t)n);
}

/* Runs of `unit`, the shortest of `first` units; a run is the one before it plus one unit. */
static void set_runs(struct vocabulary *v, int id, const char *unit, int first, int last)
{
    char text[128] = "";
    size_t length = strlen(unit);
    for (int n = 1; n <= last; n++) {
        memcpy(text + (size_t)(n - 1) * length, unit, length);
        if (n >= first) set(v, id + n - first, NORMAL, text, (size_t)n * length);
        if (n > 1) add_merge(v, text, (size_t)(n - 1) * length, (size_t)n * length);
    }
}

static void set_fixed(struct vocabulary *v)
{
    char text[32];
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        set(v, specials[i].id, specials[i].type, specials[i].text, strlen(specials[i].text));
    set_runs(v, ID_NEWLINES, "\n", 1, 31);
    set_runs(v, ID_SPACES, "\xe2\x96\x81", 2, 31);
    for (int i = 0; i < 256; i++) {
        int n = snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        set(v, ID_BYTES + i, BYTE, text, (size_t)n);
    }
    for (int id = 0; id < ID_WORDS; id++) {
        if (v->tokens[id].data) continue;
        int n = snprintf(text, sizeof text, "<unused%d>", id);
        set(v, id, NORMAL, text, (size_t)n);
    }
}

/* The next free id from *id on, or n. */
static int next_free(const struct vocabulary *v, int *id)
{
    while (*id < v->n && v->tokens[*id].data) ++*id;
    return *id;
}

/* The space mark, printable ASCII, then letters of ever more scripts up to id `end`. */
static void set_characters(struct vocabulary *v, int *id, int end)
{
    static const uint32_t ranges[][2] = {{0x2581, 0x2581},   {0x21, 0x7e},     {0xa1, 0xac},
                                         {0xae, 0x17f},      {0x391, 0x3a1},   {0x3a3, 0x3c9},
                                         {0x410, 0x44f},     {0x3041, 0x3096}, {0x30a1, 0x30fa},
                                         {0x1f600, 0x1f64f}, {0xac00, 0xd7a3}, {0x4e00, 0x9fff}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        for (uint32_t c = ranges[r][0]; c <= ranges[r][1]; c++) {
            char text[4];
            if (next_free(v, id) >= end) return;
            set(v, *id, NORMAL, text, (size_t)utf8_write(c, text));
        }
    }
}

/* The words of `letters` letters, "aaa", "baa", ... , up to id `end`. Counting with the first
 * letter fastest spreads an incomplete set over the alphabet. */
static void set_words(struct vocabulary *v, int *id, int end, int letters, bool after_space)
{
    long count = 1;
    for (int i = 0; i < letters; i++) count *= 26;
    for (long word = 0; word < count; word++) {
        if (next_free(v, id) >= end) return;
        char text[16];
        size_t length = 0;
        if (after_space) {
            memcpy(text, "\xe2\x96\x81", 3);
            length = 3;
        }
        long rest = word;
        for (int i = 0; i < letters; i++, rest /= 26) text[length++] = (char)('a' + rest % 26);
        set(v, *id, NORMAL, text, length);
        add_merge(v, text, length - 1, length);
    }
}

static void build(struct vocabulary *v)
{
    set_fixed(v);
    int id = ID_WORDS, words_end = v->n;
    if (v->n == REAL_SIZE) {
        int characters = words_end = ID_CHARACTERS;
        set_characters(v, &characters, v->n);
    } else {
        set_characters(v, &id, ID_WORDS + 1 + 94 + 14);
    }
    for (int letters = 1; letters <= 5; letters++) {
        if (letters > 1) set_words(v, &id, words_end, letters, false);
        set_words(v, &id, words_end, letters, true);
    }
}

static void put(struct gguf_writer *w, const struct vocabulary *v)
{
    gguf_put_text(w, "tokenizer.ggml.model", "gemma4");
    gguf_put_strings(w, "tokenizer.ggml.tokens", v->tokens, (size_t)v->n);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->types, (size_t)v->n);
    gguf_put_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merge);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 106);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 3);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", 0);
    gguf_put_u32(w, "tokenizer.ggml.mask_token_id", 4);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

static void put_scores(struct gguf_writer *w, struct vocabulary *v)
{
    float *scores = arena_take(&v->arena, (size_t)v->n, sizeof *scores);
    if (!scores) {
        v->failed = true;
        return;
    }
    for (int i = 0; i < v->n; i++) scores[i] = -1000.0f;
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, (size_t)v->n);
}

void gemma_put_vocabulary(struct gguf_writer *w, int n_vocab)
{
    struct vocabulary v = {.n = n_vocab};
    v.tokens = arena_take(&v.arena, (size_t)n_vocab, sizeof *v.tokens);
    v.types = arena_take(&v.arena, (size_t)n_vocab, sizeof *v.types);
    v.merges = arena_take(&v.arena, (size_t)n_vocab + 64, sizeof *v.merges);
    if (v.tokens && v.types && v.merges) {
        build(&v);
        put(w, &v);
        put_scores(w, &v);
    }
    if (!v.tokens || !v.types || !v.merges || v.failed) w->failed = true;
    arena_deinit(&v.arena);
}
