#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/os.h"
#include "base/utf8.h"
#include "cli/wrap.h"

/* The state of two process-wide streams, hence global; written by the main thread only. */
static struct {
    bool out_is_terminal, err_is_terminal, has_color, has_progress, is_quiet;
    bool is_progress_shown, is_thought_open;
    bool is_plain, has_no_wrap, holds_thought;
    struct wrap wrap; /* of model text on the terminal, answer or thought */
    double progress_at;
    int out_errno; /* first failure of standard output, 0: none */
} terminal;

/* A program may be started without standard streams. The next file opened must not become one of
 * them. A missing standard output stays unwritable, so that results are not lost silently. */
static void fill_missing_streams(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd) return;
}

void terminal_open(void)
{
    fill_missing_streams();
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM"), *ci = getenv("CI");
    bool is_plain = (no_color && no_color[0]) || (term && strcmp(term, "dumb") == 0);
    terminal.is_plain = term && strcmp(term, "dumb") == 0;
    terminal.out_is_terminal = isatty(STDOUT_FILENO);
    terminal.err_is_terminal = isatty(STDERR_FILENO);
    terminal.has_color = terminal.err_is_terminal && !is_plain;
    terminal.has_progress = terminal.err_is_terminal && !is_plain && !(ci && ci[0]);
}

void terminal_set_quiet(bool quiet)
{
    terminal.is_quiet = quiet;
}

void terminal_set_wrap(bool wraps)
{
    terminal.has_no_wrap = !wraps;
}

bool terminal_is_quiet(void)
{
    return terminal.is_quiet;
}

bool out_is_terminal(void)
{
    return terminal.out_is_terminal;
}

/* ---- Standard output -------------------------------------------------------------------- */

static bool out_check(bool is_written)
{
    if (!is_written && !terminal.out_errno) terminal.out_errno = errno ? errno : EIO;
    return !terminal.out_errno;
}

static bool put_out(const char *bytes, size_t length)
{
    if (terminal.out_errno) return false;
    return length == 0 || out_check(fwrite(bytes, 1, length, stdout) == length);
}

/* Columns of the terminal; 0: too few, or not known. Asked each time, because windows change. */
static int columns_of(int fd)
{
    enum { LEAST = 20 };
    struct winsize window;
    return ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col >= LEAST ? window.ws_col : 0;
}

/* Columns to wrap at; 0: no wrapping. */
static int wrap_columns(int fd, bool is_terminal)
{
    return is_terminal && !terminal.is_plain && !terminal.has_no_wrap ? columns_of(fd) : 0;
}

/* Writes the word that is held. */
static void release_word(void)
{
    struct wrap *w = &terminal.wrap;
    if (w->word.length + w->blanks.length == 0) return;
    bool is_thought = terminal.holds_thought;
    int columns = wrap_columns(is_thought ? STDERR_FILENO : STDOUT_FILENO, true);
    struct buf b = {0};
    wrap_flush(w, columns > 0 ? columns : 80, &b);
    if (is_thought)
        fwrite(buf_text(&b), 1, b.length, stderr);
    else
        put_out(buf_text(&b), b.length);
    buf_deinit(&b);
}

/* Called before and after text that is not the model's. Such text ends with a newline, and both
 * streams are usually on the same terminal: so the next column is 0. */
static void begin_message(void)
{
    progress_end();
    release_word();
    if (terminal.out_is_terminal) fflush(stdout);
    terminal.wrap.column = 0;
}

bool out_write(const char *bytes, size_t length)
{
    release_word();
    if (terminal.out_is_terminal) wrap_note(&terminal.wrap, bytes, length);
    return put_out(bytes, length);
}

bool out_text(const char *text)
{
    return out_write(text, strlen(text));
}

bool out_printf(const char *form, ...)
{
    if (terminal.out_errno) return false;
    release_word();
    va_list arguments;
    va_start(arguments, form);
    int n = vprintf(form, arguments);
    va_end(arguments);
    terminal.wrap.column = 0;
    return out_check(n >= 0);
}

bool out_flush(void)
{
    release_word();
    return out_check(fflush(stdout) == 0 && !ferror(stdout)); /* plain printf may have failed */
}

bool out_model_text(const char *text, size_t length)
{
    if (terminal.out_is_terminal) {
        progress_end();
        struct buf b = {0};
        add_escaped(&b, text, length, true);
        out_write(buf_text(&b), b.length);
        buf_deinit(&b);
    } else {
        out_write(text, length);
    }
    return out_flush();
}

/* Escapes model text, breaks it into lines of `columns`, and adds what is ready. */
static void add_wrapped(struct buf *out, const char *text, size_t length, int columns)
{
    struct buf shown = {0};
    add_escaped(&shown, text, length, true);
    wrap_add(&terminal.wrap, columns, buf_text(&shown), shown.length, out);
    buf_deinit(&shown);
}

bool out_answer_text(const char *text, size_t length)
{
    int columns = wrap_columns(STDOUT_FILENO, terminal.out_is_terminal);
    if (columns == 0) return out_model_text(text, length);
    progress_end();
    if (terminal.holds_thought) release_word();
    terminal.holds_thought = false;
    struct buf b = {0};
    add_wrapped(&b, text, length, columns);
    put_out(buf_text(&b), b.length);
    buf_deinit(&b);
    return out_check(fflush(stdout) == 0);
}

int out_finish(int exit_status)
{
    progress_end();
    err_thought_end();
    bool is_written = out_flush() && out_check(close(STDOUT_FILENO) == 0);
    if (is_written || exit_status) return exit_status; /* a failed command has already said why */
    struct carat_error err = {0};
    err_set(&err, CARAT_EIO, "standard output cannot be written: %s", strerror(terminal.out_errno));
    err_hint(&err, "free space, or send the output somewhere else");
    return report(&err);
}

/* ---- Standard error --------------------------------------------------------------------- */

static void err_escaped_line(const char *prefix, const char *text)
{
    struct buf b = {0};
    add_escaped(&b, text, strlen(text), false);
    fprintf(stderr, "%s%s\n", prefix, b.failed ? "out of memory" : buf_text(&b));
    buf_deinit(&b);
}

int report(const struct carat_error *err)
{
    begin_message();
    err_thought_end();
    const char *message = err->message[0] ? err->message : carat_status_text(err->code);
    err_escaped_line("carat: error: ", message);
    if (err->hint[0]) err_escaped_line("  hint: ", err->hint);
    int status = carat_exit_status(err->code);
    return status ? status : 1;
}

void note(const char *form, ...)
{
    if (terminal.is_quiet) return;
    begin_message();
    char text[1024];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(text, sizeof text, form, arguments);
    va_end(arguments);
    err_escaped_line("carat: note: ", text);
}

void err_printf(const char *form, ...)
{
    begin_message();
    va_list arguments;
    va_start(arguments, form);
    vfprintf(stderr, form, arguments);
    va_end(arguments);
}

void err_thought(const char *text, size_t length)
{
    progress_end();
    if (!terminal.holds_thought) release_word();
    terminal.holds_thought = true;
    int columns = wrap_columns(STDERR_FILENO, terminal.err_is_terminal);
    struct buf b = {0};
    if (columns > 0)
        add_wrapped(&b, text, length, columns);
    else
        add_escaped(&b, text, length, true);
    if (!terminal.is_thought_open && terminal.has_color) fputs("\x1B[2m", stderr);
    terminal.is_thought_open = true;
    fwrite(buf_text(&b), 1, b.length, stderr);
    fflush(stderr);
    buf_deinit(&b);
}

void err_thought_end(void)
{
    if (!terminal.is_thought_open) return;
    release_word();
    terminal.is_thought_open = false;
    fputs(terminal.has_color ? "\x1B[0m\n" : "\n", stderr);
    terminal.wrap.column = 0;
}

bool progress_is_shown(void)
{
    return terminal.has_progress && !terminal.is_quiet;
}

/* The words that fit into one row: of two, only the second could be cleared. */
static void put_one_row(const char *text)
{
    struct wrap w = {0};
    struct buf rows = {0};
    int known = columns_of(STDERR_FILENO), columns = known ? known - 1 : 79;
    wrap_add(&w, columns, text, strlen(text), &rows);
    wrap_flush(&w, columns, &rows);
    fwrite(buf_text(&rows), 1, strcspn(buf_text(&rows), "\n"), stderr);
    wrap_deinit(&w);
    buf_deinit(&rows);
}

void progress_text(const char *text, bool is_last)
{
    if (!progress_is_shown()) return;
    double now = os_seconds();
    bool is_soon = terminal.is_progress_shown && now - terminal.progress_at < 0.1;
    if (is_soon && !is_last) return;
    terminal.progress_at = now;
    terminal.is_progress_shown = true;
    fputs("\r\x1B[K", stderr);
    put_one_row(text);
    fflush(stderr);
}

void progress(const char *label, int done, int total)
{
    char text[256];
    if (total > 0)
        snprintf(text, sizeof text, "%s %d/%d (%d %%)", label, done, total,
                 (int)(100.0 * done / total));
    else
        snprintf(text, sizeof text, "%s ...", label);
    progress_text(text, done >= total);
}

void progress_end(void)
{
    if (!terminal.is_progress_shown) return;
    terminal.is_progress_shown = false;
    fputs("\r\x1B[K", stderr);
    fflush(stderr);
}

/* ---- Escaping --------------------------------------------------------------------------- */

/* Embeddings, overrides and isolates make text look different from what it is. The marks U+200E and
 * U+200F and the joiners are allowed: Arabic, Hebrew, Persian and emoji need them. */
static bool is_deceptive(uint32_t c)
{
    return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void add_escaped(struct buf *out, const char *text, size_t length, bool keep_lines)
{
    for (size_t i = 0; i < length;) {
        uint32_t c = 0;
        int n = utf8_read(text + i, length - i, &c);
        bool is_kept = keep_lines && (c == '\n' || c == '\t');
        if (n == 0) {
            buf_printf(out, "\\x%02x", (unsigned char)text[i]);
            n = 1;
        } else if (is_kept ||
                   (c >= 0x20 && c != 0x7F && !(c >= 0x80 && c < 0xA0) && !is_deceptive(c))) {
            buf_add(out, text + i, (size_t)n);
        } else if (c == '\n' || c == '\t' || c == '\r') {
            buf_add_text(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        } else {
            buf_printf(out, c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)c);
        }
        i += (size_t)n;
    }
}
