/* libedit edits the line. We add
 * - a reader of characters. Events while a line is typed (Ctrl-C, a new window size, the return
 *   from Ctrl-Z) reach libedit as keys, so that functions bound to them can act;
 * - bracketed paste (ESC[200~ ... ESC[201~) and Alt-Enter, whose newlines do not end the line.
 *
 * What libedit cannot do:
 * - redraw after a new window size: el_resize learns the size and forgets what it has drawn. We go
 *   back to the first row, counted in the new width, because most terminals rewrap lines;
 * - show a line that is taller than the screen while the cursor is above the last screenful: the
 *   text stays right, but the cursor is drawn in a wrong row until it comes down again;
 * - ignore an unknown key: the end of ESC[15~ would be taken as text. Hence the list of keys that
 *   do nothing. */
#include "cli/line_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/history_file.h"
#include "cli/signals.h"
#include "cli/terminal.h"

#ifdef CARAT_HAVE_EDIT
#include <histedit.h>
#endif

struct line_reader {
    bool is_terminal;
    const char *prompt;
#ifdef CARAT_HAVE_EDIT
    EditLine *edit;
    History *history;
    char *history_path;
    bool is_interrupted, is_history_noted;
    struct buf newest; /* what was remembered last */
    complete_fn complete;
    void *complete_user;
#endif
};

/* ---- Plain lines ------------------------------------------------------------------------ */

static void show_plain_prompt(const struct line_reader *reader)
{
    fputs(reader->prompt, stdout);
    fflush(stdout);
}

/* Waits for a person; false when Ctrl-C came. */
static bool wait_for_key(const struct line_reader *reader)
{
    for (;;) {
        switch (wait_for_input()) {
        case INPUT_READY: return true;
        case INPUT_INTERRUPTED: return false;
        case INPUT_RESUMED: show_plain_prompt(reader); break;
        case INPUT_RESIZED: break;
        }
    }
}

static enum line_end read_plain(struct line_reader *reader, struct buf *out)
{
    if (reader->is_terminal) show_plain_prompt(reader);
    for (;;) {
        if (reader->is_terminal && !wait_for_key(reader)) return LINE_INTERRUPTED;
        int c = getc(stdin);
        bool is_windows = c == '\n' && out->length && out->data[out->length - 1] == '\r';
        if (is_windows) out->data[--out->length] = '\0';
        if (c == '\n') return LINE_READ;
        if (c != EOF) {
            buf_add_char(out, (char)c);
            continue;
        }
        bool is_interrupted = ferror(stdin) && errno == EINTR;
        clearerr(stdin);
        if (is_interrupted) return LINE_INTERRUPTED;
        return out->length ? LINE_READ : LINE_EOF;
    }
}

#ifdef CARAT_HAVE_EDIT

/* ---- Events as keys --------------------------------------------------------------------- */

enum { HISTORY_MAX = 1000, PASTE_MAX = 1 << 20 };

/* Characters that no key sends. libedit looks up characters below 256 in its table of keys, and
 * these are not printable. */
#define KEY_INTERRUPT 0x03
#define KEY_RESIZE 0x80
#define KEY_RESUME 0x81
#define KEY_OLDER L"\x82" /* these call libedit's own functions */
#define KEY_NEWER L"\x83"
#define KEY_LINE_UP L"\x84"
#define KEY_LINE_DOWN L"\x85"

static struct line_reader *edit_reader(EditLine *edit)
{
    void *reader = NULL;
    el_get(edit, EL_CLIENTDATA, &reader);
    return reader;
}

static const char *show_prompt(EditLine *edit)
{
    return edit_reader(edit)->prompt;
}

/* A byte of standard input; returns 0 at its end, -1 on an error or on Ctrl-C. */
static ssize_t read_byte(char *out)
{
    ssize_t got;
    do got = read(STDIN_FILENO, out, 1);
    while (got < 0 && errno == EINTR && !interrupt_wanted());
    return got;
}

/* One character of standard input, for libedit: 1, 0 at the end, -1 on an error. */
static int read_character(EditLine *edit, wchar_t *out)
{
    (void)edit;
    switch (wait_for_input()) {
    case INPUT_INTERRUPTED: *out = KEY_INTERRUPT; return 1;
    case INPUT_RESIZED: *out = KEY_RESIZE; return 1;
    case INPUT_RESUMED: *out = KEY_RESUME; return 1;
    case INPUT_READY: break;
    }
    char bytes[4];
    for (size_t n = 0; n < sizeof bytes;) {
        ssize_t got = read_byte(bytes + n);
        if (got <= 0) return (int)got;
        n++;
        uint32_t code_point;
        if (utf8_read(bytes, n, &code_point) > 0) {
            *out = (wchar_t)code_point;
            return 1;
        }
        if (utf8_incomplete_tail(bytes, n) != n) break;
    }
    *out = L'?'; /* not UTF-8 */
    return 1;
}

/* ---- Functions for keys ----------------------------------------------------------------- */

/* Ctrl-C empties the line; on an empty line it ends reading. */
static unsigned char on_interrupt(EditLine *edit, int key)
{
    (void)key;
    const LineInfoW *line = el_wline(edit);
    int length = (int)(line->lastchar - line->buffer);
    if (length == 0) {
        edit_reader(edit)->is_interrupted = true;
        return CC_EOF;
    }
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    el_deletestr(edit, length);
    return CC_REFRESH;
}

static int window_columns(void)
{
    struct winsize window;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    return is_known ? window.ws_col : 80;
}

/* Rows from the beginning of the prompt to the cursor. */
static int rows_above_cursor(EditLine *edit, int columns)
{
    const LineInfoW *line = el_wline(edit);
    int row = 0, column = (int)strlen(edit_reader(edit)->prompt);
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        int width = *c == L'\t' ? 8 - column % 8 : wcwidth(*c);
        bool is_wrapped = column + width > columns;
        if (*c == L'\n' || is_wrapped) {
            row++;
            column = 0;
        }
        if (*c != L'\n' && width > 0) column += width;
    }
    return row + column / columns;
}

/* Clears from the cursor on and draws the line there, for the present width of the terminal. */
static unsigned char draw_anew(EditLine *edit)
{
    fputs("\x1B[J", stdout);
    el_resize(edit);
    el_set(edit, EL_REFRESH);
    return CC_NORM;
}

static unsigned char on_resize(EditLine *edit, int key)
{
    (void)key;
    int rows = rows_above_cursor(edit, window_columns());
    fputs("\r", stdout);
    if (rows > 0) fprintf(stdout, "\x1B[%dA", rows);
    return draw_anew(edit);
}

/* After Ctrl-Z and `fg`. The cursor is in a row of its own. After SIGSTOP we had no chance to
 * restore the terminal's modes, and the shell may have changed them: so they are set again. */
static unsigned char on_resume(EditLine *edit, int key)
{
    (void)key;
    el_set(edit, EL_PREP_TERM, 0);
    el_set(edit, EL_PREP_TERM, 1);
    signals_set_paste_marks(true);
    fputs("\r", stdout);
    return draw_anew(edit);
}

static unsigned char on_newline(EditLine *edit, int key)
{
    (void)key;
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* Arrows move from line to line within a block, and beyond its ends through the history. */
static unsigned char on_up(EditLine *edit, int key)
{
    (void)key;
    const LineInfoW *line = el_wline(edit);
    bool is_inside = wmemchr(line->buffer, L'\n', (size_t)(line->cursor - line->buffer));
    el_wpush(edit, is_inside ? KEY_LINE_UP : KEY_OLDER);
    return CC_NORM;
}

static unsigned char on_down(EditLine *edit, int key)
{
    (void)key;
    const LineInfoW *line = el_wline(edit);
    bool is_inside = wmemchr(line->cursor, L'\n', (size_t)(line->lastchar - line->cursor));
    el_wpush(edit, is_inside ? KEY_LINE_DOWN : KEY_NEWER);
    return CC_NORM;
}

/* Prints the words in columns below the line. */
static void list_words(EditLine *edit, const struct completions *c)
{
    size_t width = 0, column = 0, columns = (size_t)window_columns();
    for (size_t i = 0; i < c->n; i++)
        if (c->words[i].length > width) width = c->words[i].length;
    for (size_t i = 0; i < c->n; i++) {
        bool is_new = column == 0 || column + width + 2 > columns;
        fprintf(stdout, "%s%-*s", is_new ? "\r\n" : "  ", (int)width, buf_text(&c->words[i]));
        column = (is_new ? 0 : column + 2) + width;
    }
    fputs("\r\n", stdout);
    el_set(edit, EL_REFRESH);
}

/* Inserts the common beginning of all words; if that is typed already, lists the words. */
static unsigned char complete(EditLine *edit, const struct completions *c, size_t typed)
{
    if (c->n == 0) return CC_ERROR;
    size_t common = completions_common(c);
    struct buf more = {0};
    if (common > typed) buf_add(&more, buf_text(&c->words[0]) + typed, common - typed);
    if (c->n == 1 && c->has_blank) buf_add_char(&more, ' ');
    unsigned char result = CC_ERROR;
    if (more.length) {
        result = el_insertstr(edit, buf_text(&more)) == 0 ? CC_REFRESH : CC_ERROR;
    } else if (c->n > 1) {
        list_words(edit, c);
        result = CC_NORM;
    }
    buf_deinit(&more);
    return result;
}

static unsigned char on_tab(EditLine *edit, int key)
{
    (void)key;
    struct line_reader *reader = edit_reader(edit);
    struct completions *c = mem_alloc(1, sizeof *c);
    if (!c) return CC_ERROR;
    const LineInfo *line = el_line(edit);
    size_t length = (size_t)(line->cursor - line->buffer);
    c->is_text = true;
    if (reader->complete) reader->complete(reader->complete_user, line->buffer, length, c);
    unsigned char result;
    if (c->is_text)
        result = el_winsertstr(edit, L"\t") == 0 ? CC_REFRESH : CC_ERROR;
    else
        result = complete(edit, c, length - c->begin);
    completions_deinit(c);
    mem_free(c);
    return result;
}

/* ---- Pasted blocks ---------------------------------------------------------------------- */

/* Reads up to ESC[201~, and keeps at most PASTE_MAX bytes. False when more came. */
static bool read_paste(struct buf *out)
{
    static const char end[] = "\x1B[201~";
    enum { END_LENGTH = sizeof end - 1 };
    bool is_whole = true;
    char c;
    while (read_byte(&c) == 1) {
        if (out->length == PASTE_MAX + END_LENGTH) { /* keeps the newest bytes for the end mark */
            memmove(out->data + PASTE_MAX, out->data + PASTE_MAX + 1, END_LENGTH - 1);
            out->length--;
            is_whole = false;
        }
        buf_add_char(out, c);
        if (out->length < END_LENGTH) continue;
        if (memcmp(out->data + out->length - END_LENGTH, end, END_LENGTH) == 0) {
            out->length -= END_LENGTH;
            break;
        }
    }
    return is_whole;
}

/* The block in the form that libedit takes: lines end with \n, no control characters. */
static wchar_t *paste_text(const struct buf *b)
{
    wchar_t *text = mem_alloc(b->length + 1, sizeof *text);
    if (!text) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < b->length;) {
        uint32_t c = '?';
        int bytes = utf8_read(b->data + i, b->length - i, &c);
        bool is_pair = c == '\r' && i + 1 < b->length && b->data[i + 1] == '\n';
        bool is_control = (c < 0x20 && c != '\t') || (c >= 0x7F && c < 0xA0);
        if (c == '\n' || (c == '\r' && !is_pair))
            text[n++] = L'\n';
        else if (!is_control)
            text[n++] = (wchar_t)c;
        i += bytes > 0 ? (size_t)bytes : 1;
    }
    return text;
}

/* Bound to ESC[200~. */
static unsigned char on_paste(EditLine *edit, int key)
{
    (void)key;
    struct buf b = {0};
    bool is_whole = read_paste(&b);
    if (b.length > PASTE_MAX) b.length = PASTE_MAX;
    wchar_t *text = b.failed ? NULL : paste_text(&b);
    bool is_inserted = text && el_winsertstr(edit, text) == 0;
    mem_free(text);
    buf_deinit(&b);
    if (is_whole && is_inserted) return CC_REFRESH;
    fputs("\r\n", stdout);
    fflush(stdout);
    note(is_inserted ? "pasted: only the first %d bytes, no more are taken"
                     : "pasted: nothing, there is no memory for %d bytes",
         PASTE_MAX);
    el_set(edit, EL_REFRESH);
    return CC_NORM;
}

/* ---- Reading with libedit --------------------------------------------------------------- */

static enum line_end read_edited(struct line_reader *reader, struct buf *out)
{
    int count = 0;
    reader->is_interrupted = false;
    signals_set_paste_marks(true);
    el_set(reader->edit, EL_PREP_TERM, 1); /* before the prompt, which invites to type */
    const wchar_t *line = el_wgets(reader->edit, &count);
    signals_set_paste_marks(false);
    if (reader->is_interrupted) return LINE_INTERRUPTED;
    if (!line || count <= 0) return LINE_EOF;
    if (line[count - 1] == L'\n') count--;
    for (int i = 0; i < count; i++) {
        char bytes[4];
        buf_add(out, bytes, (size_t)utf8_write((uint32_t)line[i], bytes));
    }
    return LINE_READ;
}

static void bind_key(EditLine *edit, const wchar_t *keys, const wchar_t *function)
{
    el_wset(edit, EL_BIND, keys, function, NULL);
}

/* Keys with modifiers, as xterm, tmux, screen, VTE and Konsole send them: ESC [ 1 ; m C for arrows
 * and the like, ESC [ n ; m ~ for others. m - 1 has a bit per modifier: 1 Shift, 2 Alt, 4 Ctrl.
 * Arrows with Alt or Ctrl move by words. Other keys ignore the modifier or do nothing. */
static void bind_modified_keys(EditLine *edit)
{
    static const struct {
        wchar_t end;
        const wchar_t *function, *by_words;
    } arrows[] = {
        {L'A', L"carat-up", NULL},
        {L'B', L"carat-down", NULL},
        {L'C', L"ed-next-char", L"em-next-word"},
        {L'D', L"ed-prev-char", L"ed-prev-word"},
        {L'H', L"ed-move-to-beg", NULL},
        {L'F', L"ed-move-to-end", NULL},
    };
    wchar_t keys[16];
    for (int m = 2; m <= 8; m++) {
        for (size_t i = 0; i < sizeof arrows / sizeof *arrows; i++) {
            swprintf(keys, 16, L"\x1B[1;%d%lc", m, (wint_t)arrows[i].end);
            bool by_words = arrows[i].by_words && m > 2;
            bind_key(edit, keys, by_words ? arrows[i].by_words : arrows[i].function);
        }
        for (int c = 'P'; c <= 'S'; c++) { /* F1 to F4 */
            swprintf(keys, 16, L"\x1B[1;%d%lc", m, (wint_t)c);
            bind_key(edit, keys, L"ed-ignore");
        }
    }
    for (int n = 1; n <= 34; n++) {
        for (int m = 1; m <= 8; m++) {
            swprintf(keys, 16, m == 1 ? L"\x1B[%d~" : L"\x1B[%d;%d~", n, m);
            bind_key(edit, keys, L"ed-ignore");
        }
    }
}

static void bind_keys(EditLine *edit)
{
    static const struct {
        const wchar_t *keys, *function;
    } bindings[] = {
        {L"\x1B[200~", L"carat-paste"},
        {L"\x1B[201~", L"ed-ignore"},
        {L"\x1B\r", L"carat-newline"}, /* Alt-Enter */
        {L"\x1B\n", L"carat-newline"},
        {L"\x1B[13;2u", L"carat-newline"}, /* Shift-, Alt-, Ctrl-Enter of kitty's protocol */
        {L"\x1B[13;3u", L"carat-newline"},
        {L"\x1B[13;5u", L"carat-newline"},
        {L"\x1B[27;2;13~", L"carat-newline"}, /* and of xterm's modifyOtherKeys */
        {L"\x1B[27;3;13~", L"carat-newline"},
        {L"\x1B[27;5;13~", L"carat-newline"},
        {L"\x1B[A", L"carat-up"},
        {L"\x1BOA", L"carat-up"},
        {L"\x1B[B", L"carat-down"},
        {L"\x1BOB", L"carat-down"},
        {L"\x1BOc", L"em-next-word"}, /* rxvt's Ctrl-arrows */
        {L"\x1BOd", L"ed-prev-word"},
        {L"\x1B[5C", L"em-next-word"}, /* old xterm's and screen's */
        {L"\x1B[5D", L"ed-prev-word"},
        {L"\x1B\x1B[C", L"em-next-word"}, /* Alt as a prefix: rxvt, PuTTY, the Linux console */
        {L"\x1B\x1B[D", L"ed-prev-word"},
        {L"\x1B[1~", L"ed-move-to-beg"}, /* the Linux console, screen, tmux */
        {L"\x1B[4~", L"ed-move-to-end"},
        {L"\x1B[7~", L"ed-move-to-beg"}, /* rxvt */
        {L"\x1B[8~", L"ed-move-to-end"},
        {L"\x1B[3~", L"ed-delete-next-char"},
        {L"\x1B[3;3~", L"em-delete-next-word"},
        {L"\x1B[3;5~", L"em-delete-next-word"},
        {L"\t", L"carat-tab"},
        {L"^W", L"ed-delete-prev-word"},
        {L"^R", L"em-inc-search-prev"},
        {L"\x03", L"carat-interrupt"},
        {L"\x80", L"carat-resize"},
        {L"\x81", L"carat-resume"},
        {KEY_OLDER, L"ed-prev-history"},
        {KEY_NEWER, L"ed-next-history"},
        {KEY_LINE_UP, L"ed-prev-line"},
        {KEY_LINE_DOWN, L"ed-next-line"},
    };
    bind_modified_keys(edit);
    for (size_t i = 0; i < sizeof bindings / sizeof *bindings; i++)
        bind_key(edit, bindings[i].keys, bindings[i].function);
}

static void add_functions(EditLine *edit)
{
    static const struct {
        const wchar_t *name, *help;
        unsigned char (*function)(EditLine *edit, int key);
    } functions[] = {
        {L"carat-paste", L"take a pasted block", on_paste},
        {L"carat-newline", L"begin another line of the block", on_newline},
        {L"carat-tab", L"complete a word", on_tab},
        {L"carat-up", L"line above, or older entry", on_up},
        {L"carat-down", L"line below, or newer entry", on_down},
        {L"carat-interrupt", L"empty the line, or stop reading", on_interrupt},
        {L"carat-resize", L"draw for another window size", on_resize},
        {L"carat-resume", L"draw after a stop", on_resume},
    };
    /* el_wset, because the narrow el_set copies the two texts and never frees them. */
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        el_wset(edit, EL_ADDFN, functions[i].name, functions[i].help, functions[i].function);
}

static void note_history(struct line_reader *reader, const struct carat_error *err)
{
    if (!reader->is_history_noted) note("lines are not kept for the next time: %s", err->message);
    reader->is_history_noted = true;
}

static void take_entry(void *user, const char *text, size_t length)
{
    struct line_reader *reader = user;
    HistEvent event;
    uint32_t c;
    for (size_t i = 0; i < length;) {
        int n = utf8_read(text + i, length - i, &c);
        if (n == 0) return; /* not editable; the file keeps it */
        i += (size_t)n;
    }
    history(reader->history, &event, H_ENTER, text);
    buf_clear(&reader->newest);
    buf_add(&reader->newest, text, length);
}

/* libedit's own H_LOAD and H_SAVE would read the file at the beginning and rewrite it at the end.
 * Of two chats the first one's lines would be lost, and all lines if the second write fails. */
static void load_history(struct line_reader *reader, const char *path)
{
    struct carat_error err = {0};
    reader->history_path = mem_copy_text(path, strlen(path));
    int status = history_file_trim(path, HISTORY_MAX, &err);
    if (status == CARAT_OK) status = history_file_read(path, take_entry, reader, &err);
    if (status != CARAT_OK) note_history(reader, &err);
}

static int open_edit(struct line_reader *reader, const char *path, struct carat_error *err)
{
    HistEvent event;
    reader->edit = el_init("carat", stdin, stdout, stderr);
    reader->history = history_init();
    if (!reader->edit || !reader->history) return err_no_memory(err, "line editing", 0);
    history(reader->history, &event, H_SETSIZE, HISTORY_MAX);
    history(reader->history, &event, H_SETUNIQUE, 1);
    if (path) load_history(reader, path);
    EditLine *edit = reader->edit;
    el_set(edit, EL_CLIENTDATA, reader);
    el_set(edit, EL_PROMPT, show_prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    /* While the program works, typed text goes through the terminal's own line editing. There
     * Ctrl-D would become a zero byte; with eof unset it is kept as an ordinary character. */
    el_set(edit, EL_SETTY, "-x", "eof=", NULL);
    /* A pasted \r\n is one end of a line, so the terminal must not convert either character. */
    el_set(edit, EL_SETTY, "-d", "-icrnl", "-inlcr", NULL);
    el_set(edit, EL_HIST, history, reader->history);
    el_set(edit, EL_GETCFN, read_character);
    add_functions(edit);
    bind_keys(edit);
    return CARAT_OK;
}

static void close_edit(struct line_reader *reader)
{
    if (reader->history) history_end(reader->history);
    if (reader->edit) el_end(reader->edit);
    if (reader->is_terminal) signals_restore_terminal();
    mem_free(reader->history_path);
    buf_deinit(&reader->newest);
}
#endif

/* ---- Both ------------------------------------------------------------------------------- */

int line_reader_open(struct line_reader **out, const char *history_path, struct carat_error *err)
{
    struct line_reader *reader = mem_alloc(1, sizeof *reader);
    if (!reader) return err_no_memory(err, "line reader", sizeof *reader);
    reader->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    *out = reader;
    if (reader->is_terminal) signals_keep_terminal();
#ifdef CARAT_HAVE_EDIT
    if (reader->is_terminal) {
        int status = open_edit(reader, history_path, err);
        if (status != CARAT_OK) line_reader_close(reader);
        return status;
    }
#endif
    (void)history_path;
    /* Without a buffer: poll cannot see bytes that stdio has already read. */
    if (reader->is_terminal) setvbuf(stdin, NULL, _IONBF, 0);
    return CARAT_OK;
}

void line_reader_close(struct line_reader *reader)
{
#ifdef CARAT_HAVE_EDIT
    close_edit(reader);
#endif
    mem_free(reader);
}

enum line_end line_reader_next(struct line_reader *reader, const char *prompt, struct buf *out)
{
    enum line_end end;
    buf_clear(out);
    reader->prompt = prompt;
    reading_begin();
#ifdef CARAT_HAVE_EDIT
    end = reader->edit ? read_edited(reader, out) : read_plain(reader, out);
#else
    end = read_plain(reader, out);
#endif
    reading_end();
    return end;
}

void line_reader_set_completion(struct line_reader *reader, complete_fn complete_line, void *user)
{
#ifdef CARAT_HAVE_EDIT
    reader->complete = complete_line;
    reader->complete_user = user;
#else
    (void)reader;
    (void)complete_line;
    (void)user;
#endif
}

void line_reader_remember(struct line_reader *reader, const char *line, size_t length)
{
#ifdef CARAT_HAVE_EDIT
    const struct buf *newest = reader->edit ? &reader->newest : NULL;
    if (!newest || length == 0) return;
    bool is_known = newest->length == length && memcmp(newest->data, line, length) == 0;
    if (is_known) return;
    take_entry(reader, line, length);
    struct carat_error err = {0};
    const char *path = reader->history_path;
    if (path && history_file_add(path, line, length, &err) != CARAT_OK) note_history(reader, &err);
#else
    (void)reader;
    (void)line;
    (void)length;
#endif
}
