/* carat tokenize, carat detokenize. */
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/session.h"
#include "cli/terminal.h"

/* The exact bytes of --prompt, --file or the arguments, else all of standard input. */
static int read_input(const struct options *o, const struct session *s, struct buf *out,
                      struct carat_error *err)
{
    bool has_arguments = s->next_argument < o->n_arguments;
    bool has_option = o->command == COMMAND_TOKENIZE &&
                      (opt_is_set(o, OPT_PROMPT) || opt_is_set(o, OPT_PROMPT_FILE));
    if (has_option && has_arguments) return no_more_arguments(o, s->next_argument, err);
    if (has_option) buf_add_text(out, opt_text(o, OPT_PROMPT));
    if (has_option && opt_is_set(o, OPT_PROMPT_FILE))
        return file_read(opt_text(o, OPT_PROMPT_FILE), out, err);
    if (!has_option && !has_arguments) return file_read("-", out, err);
    join_arguments(o, s->next_argument, out);
    return out->failed ? err_no_memory(err, "arguments", out->length) : CARAT_OK;
}

/* ---- Where tokens begin ----------------------------------------------------------------- */

/* Bytes of text that a token stands for. U+2581 in a piece is a space of the text or itself; a
 * piece that the text does not begin with is the name of a byte. */
static size_t bytes_of(const char *piece, size_t length, const char *text, size_t n_text)
{
    static const char mark[] = "\xE2\x96\x81";
    size_t at = 0;
    for (size_t i = 0; i < length; at++) {
        if (at == n_text) return 1;
        bool is_space = text[at] == ' ' && length - i >= 3 && !memcmp(piece + i, mark, 3);
        if (!is_space && text[at] != piece[i]) return 1;
        i += is_space ? 3 : 1;
    }
    return at;
}

/* Is ids[0] the <bos> of --bos? None is added where the text begins with one that counts. */
static bool has_added_bos(const struct options *o, const carat_model *model, const struct buf *text,
                          const int32_t *ids)
{
    size_t length;
    if (!opt_is_set(o, OPT_BOS)) return false;
    if (!opt_is_set(o, OPT_SPECIAL)) return true;
    const char *bos = carat_token_piece(model, ids[0], &length);
    return text->length < length || memcmp(buf_text(text), bos, length) != 0;
}

/* The byte of the text at which each token begins, owned by the caller; <bos> put in front by
 * --bos has no bytes. NULL: out of memory. */
static size_t *token_offsets(const carat_model *model, const struct buf *text, const int32_t *ids,
                             size_t n, bool is_first_added)
{
    size_t *offsets = mem_alloc(n + 1, sizeof *offsets);
    for (size_t i = 0, at = 0; offsets && i < n; i++) {
        size_t length;
        const char *piece = carat_token_piece(model, ids[i], &length);
        offsets[i] = at;
        if (i > 0 || !is_first_added)
            at += bytes_of(piece, length, buf_text(text) + at, text->length - at);
    }
    return offsets;
}

/* ---- Text to ids ------------------------------------------------------------------------ */

static void print_ids_json(const int32_t *ids, const size_t *offsets, size_t n)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_array(&j, "ids");
    for (size_t i = 0; i < n; i++) json_int(&j, ids[i]);
    json_end_array(&j);
    if (offsets) {
        json_key_array(&j, "offsets");
        for (size_t i = 0; i < n; i++) json_int(&j, (int64_t)offsets[i]);
        json_end_array(&j);
    }
    json_end_object(&j);
    out_write(buf_text(&b), b.length);
    out_text("\n");
    buf_deinit(&b);
}

/* The form of llama-tokenize --ids: a Python list. */
static void print_ids(const int32_t *ids, size_t n)
{
    out_text("[");
    for (size_t i = 0; i < n; i++) out_printf("%s%d", i ? ", " : "", ids[i]);
    out_text("]\n");
}

static void print_pieces(const carat_model *model, const int32_t *ids, const size_t *offsets,
                         size_t n)
{
    struct buf b = {0};
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *piece = carat_token_piece(model, ids[i], &length);
        buf_clear(&b);
        add_escaped(&b, piece, length, false);
        out_printf("%7d  ", ids[i]);
        if (offsets) out_printf("%7zu  ", offsets[i]);
        out_printf("%s%s\n", buf_text(&b),
                   carat_token_is_control(model, ids[i]) ? "  (special)" : "");
    }
    buf_deinit(&b);
}

static int check_flags(const struct options *o, struct carat_error *err)
{
    if (opt_is_set(o, OPT_PLAIN) && opt_is_set(o, OPT_SPECIAL))
        return err_set(err, CARAT_EUSAGE, "tokenize: --plain and --special exclude each other");
    if (opt_is_set(o, OPT_IDS) && opt_is_set(o, OPT_OFFSETS))
        return err_set(err, CARAT_EUSAGE, "tokenize: --ids and --offsets exclude each other");
    return CARAT_OK;
}

int command_tokenize(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    struct buf text = {0};
    int32_t *ids = NULL;
    size_t *offsets = NULL;
    size_t n = 0;
    enum carat_special special = CARAT_SPECIAL_USER_DEFINED;
    if (opt_is_set(o, OPT_PLAIN)) special = CARAT_SPECIAL_NONE;
    if (opt_is_set(o, OPT_SPECIAL)) special = CARAT_SPECIAL_ALL;
    int status = check_flags(o, &err);
    if (status == CARAT_OK) status = session_open(&s, o, &err);
    if (status == CARAT_OK) status = read_input(o, &s, &text, &err);
    if (status == CARAT_OK)
        status = carat_tokenize(s.model, buf_text(&text), text.length, special,
                                opt_is_set(o, OPT_BOS), &ids, &n, &err);
    if (status == CARAT_OK && opt_is_set(o, OPT_OFFSETS)) {
        offsets = token_offsets(s.model, &text, ids, n, has_added_bos(o, s.model, &text, ids));
        if (!offsets) status = err_no_memory(&err, "offsets of tokens", n * sizeof *offsets);
    }
    if (status == CARAT_OK) {
        if (opt_is_set(o, OPT_JSON))
            print_ids_json(ids, offsets, n);
        else if (opt_is_set(o, OPT_IDS))
            print_ids(ids, n);
        else
            print_pieces(s.model, ids, offsets, n);
        if (opt_is_set(o, OPT_SHOW_COUNT) && !opt_is_set(o, OPT_JSON))
            out_printf("Total number of tokens: %zu\n", n);
    }
    mem_free(offsets);
    carat_free(ids);
    buf_deinit(&text);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}

/* ---- Ids to text ------------------------------------------------------------------------ */

int command_detokenize(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    struct buf input = {0};
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, length = 0;
    int status = session_open(&s, o, &err);
    if (status == CARAT_OK) status = read_input(o, &s, &input, &err);
    if (status == CARAT_OK)
        status = parse_ids(buf_text(&input), input.length, "detokenize", &ids, &n, &err);
    if (status == CARAT_OK)
        status =
            carat_detokenize(s.model, ids, n, opt_is_set(o, OPT_SPECIAL), &text, &length, &err);
    if (status == CARAT_OK && opt_is_set(o, OPT_JSON)) {
        struct buf b = {0};
        struct json j = {.out = &b};
        json_begin_object(&j);
        json_key_text(&j, "text", text, length);
        json_end_object(&j);
        out_printf("%s\n", buf_text(&b));
        buf_deinit(&b);
    } else if (status == CARAT_OK) {
        out_model_text(text, length);
        if (out_is_terminal()) out_text("\n");
    }
    mem_free(ids);
    carat_free(text);
    buf_deinit(&input);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}
