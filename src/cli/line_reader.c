/* libedit gives the line; three things are ours. Its reader of single characters is replaced,
 * because its own swallows the first Ctrl-C. Bracketed paste (ESC[200~ ... ESC[201~) is read as one
 * block whose newlines do not end the line. And the block is inserted with its newlines shown as
 * a mark, put back when the line is taken. */
#include "cli/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/signals.h"

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
    bool is_interrupted;
#endif
};

/* Waits until standard input can be read; false when Ctrl-C came, also before the call. */
static bool wait_for_input(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    int ready = 0;
    bool can_wait = true;
    while (!interrupt_wanted() && ready <= 0 && can_wait) {
        ready = ppoll(&input, 1, NULL, &before);
        can_wait = ready >= 0 || errno == EINTR;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready > 0 || !can_wait; /* reading tells what is wrong */
}

/* ---- Plain lines ------------------------------------------------------------------------ */

static enum line_end read_plain(struct line_reader *reader, struct buf *out)
{
    if (reader->is_terminal) {
        fputs(reader->prompt, stdout);
        fflush(stdout);
    }
    for (;;) {
        if (reader->is_terminal && !wait_for_input()) return LINE_INTERRUPTED;
        int c = getc(stdin);
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

/* ---- libedit ---------------------------------------------------------------------------- */

enum { HISTORY_MAX = 1000, PASTE_MAX = 1 << 20 };
#define NEWLINE_MARK "\xE2\x90\xA4" /* U+2424, shown for a newline inside a pasted block */

static struct line_reader *reader_of(EditLine *edit)
{
    void *reader = NULL;
    el_get(edit, EL_CLIENTDATA, &reader);
    return reader;
}

static const char *show_prompt(EditLine *edit)
{
    return reader_of(edit)->prompt;
}

/* One character of standard input, for libedit: 1, 0 at the end, -1 on Ctrl-C or error. */
static int read_character(EditLine *edit, wchar_t *out)
{
    struct line_reader *reader = reader_of(edit);
    char bytes[4];
    for (size_t n = 0; n < sizeof bytes;) {
        reader->is_interrupted = !wait_for_input();
        ssize_t got = reader->is_interrupted ? -1 : read(STDIN_FILENO, bytes + n, 1);
        if (got < 0) return -1;
        if (got == 0) return 0;
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

/* Bound to ESC[200~: takes everything up to ESC[201~ into the line. */
static unsigned char on_paste(EditLine *edit, int key)
{
    static const char end[] = "\x1B[201~";
    (void)key;
    struct buf b = {0};
    char c;
    while (b.length < PASTE_MAX && read(STDIN_FILENO, &c, 1) == 1) {
        buf_add_char(&b, c);
        size_t n = sizeof end - 1;
        if (b.length >= n && memcmp(b.data + b.length - n, end, n) == 0) {
            b.length -= n;
            break;
        }
    }
    struct buf line = {0};
    for (size_t i = 0; i < b.length; i++) {
        bool is_pair = b.data[i] == '\r' && i + 1 < b.length && b.data[i + 1] == '\n';
        if (is_pair) continue;
        if (b.data[i] == '\n' || b.data[i] == '\r')
            buf_add_text(&line, NEWLINE_MARK);
        else if ((unsigned char)b.data[i] >= 0x20 || b.data[i] == '\t')
            buf_add_char(&line, b.data[i]);
    }
    bool is_inserted = line.length && el_insertstr(edit, buf_text(&line)) == 0;
    buf_deinit(&b);
    buf_deinit(&line);
    return is_inserted ? CC_REFRESH : CC_ERROR;
}

static void set_paste_mode(bool on)
{
    ssize_t ignored = write(STDOUT_FILENO, on ? "\x1B[?2004h" : "\x1B[?2004l", 8);
    (void)ignored;
}

static enum line_end read_edited(struct line_reader *reader, struct buf *out)
{
    int count = 0;
    reader->is_interrupted = false;
    interrupt_begin();
    set_paste_mode(true);
    const char *line = el_gets(reader->edit, &count);
    set_paste_mode(false);
    interrupt_end();
    if (reader->is_interrupted) {
        el_reset(reader->edit);
        return LINE_INTERRUPTED;
    }
    if (!line || count <= 0) return LINE_EOF;
    while (*line && *line != '\n') {
        size_t n = strlen(NEWLINE_MARK);
        if (strncmp(line, NEWLINE_MARK, n) == 0) {
            buf_add_char(out, '\n');
            line += n;
        } else {
            buf_add_char(out, *line++);
        }
    }
    return LINE_READ;
}

static int open_edit(struct line_reader *reader, const char *path, struct carat_error *err)
{
    HistEvent event;
    reader->edit = el_init("carat", stdin, stdout, stderr);
    reader->history = history_init();
    if (!reader->edit || !reader->history) return err_no_memory(err, "line editing", 0);
    history(reader->history, &event, H_SETSIZE, HISTORY_MAX);
    history(reader->history, &event, H_SETUNIQUE, 1);
    if (path) {
        reader->history_path = mem_copy_text(path, strlen(path));
        history(reader->history, &event, H_LOAD, path);
    }
    EditLine *edit = reader->edit;
    el_set(edit, EL_CLIENTDATA, reader);
    el_set(edit, EL_PROMPT, show_prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    /* What is typed while the program works goes through the terminal's own line editing, where
     * an early Ctrl-D would become a zero byte. As an ordinary character it waits for us. */
    el_set(edit, EL_SETTY, "-x", "eof=", NULL);
    el_set(edit, EL_HIST, history, reader->history);
    el_set(edit, EL_GETCFN, read_character);
    /* The narrow el_set copies these two strings and never frees them. */
    el_wset(edit, EL_ADDFN, L"carat-paste", L"take a pasted block", on_paste);
    el_set(edit, EL_BIND, "\x1B[200~", "carat-paste", NULL);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return CARAT_OK;
}

static void close_edit(struct line_reader *reader)
{
    HistEvent event;
    if (reader->history && reader->history_path)
        history(reader->history, &event, H_SAVE, reader->history_path);
    if (reader->history) history_end(reader->history);
    if (reader->edit) el_end(reader->edit);
    if (reader->is_terminal) signals_restore_terminal();
    mem_free(reader->history_path);
}
#endif

/* ---- Both ------------------------------------------------------------------------------- */

int line_reader_open(struct line_reader **out, const char *history_path, struct carat_error *err)
{
    struct line_reader *reader = mem_alloc(1, sizeof *reader);
    if (!reader) return err_no_memory(err, "line reader", sizeof *reader);
    reader->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    *out = reader;
#ifdef CARAT_HAVE_EDIT
    if (reader->is_terminal) {
        signals_keep_terminal();
        int status = open_edit(reader, history_path, err);
        if (status != CARAT_OK) line_reader_close(reader);
        return status;
    }
#endif
    (void)history_path;
    /* What the wait looks at must not lie in a buffer of ours. */
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
    buf_clear(out);
    reader->prompt = prompt;
#ifdef CARAT_HAVE_EDIT
    if (reader->edit) return read_edited(reader, out);
#endif
    interrupt_begin();
    enum line_end end = read_plain(reader, out);
    interrupt_end();
    return end;
}

void line_reader_remember(struct line_reader *reader, const char *line)
{
#ifdef CARAT_HAVE_EDIT
    HistEvent event;
    if (reader->history && line[0]) history(reader->history, &event, H_ENTER, line);
#else
    (void)reader;
    (void)line;
#endif
}
