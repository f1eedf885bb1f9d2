/* Handlers do only what is async-signal-safe: flags, write, tcsetattr, _exit. */
#include "cli/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/os.h"

enum { LEAVES, ANSWERS, READS };
static volatile sig_atomic_t doing, interrupts, is_resized, is_resumed, has_terminal, marks_pastes;
static volatile sig_atomic_t has_modes; /* terminal_modes must be set again */
static struct termios terminal_before, terminal_modes;
static pthread_t main_thread;
static void (*volatile at_leave)(void);

/* A signal may reach any thread, and only the main thread waits for input. */
static bool pass_to_main(int signal_number)
{
    if (pthread_equal(pthread_self(), main_thread)) return false;
    pthread_kill(main_thread, signal_number);
    return true;
}

/* ---- The terminal ----------------------------------------------------------------------- */

static void write_paste_marks(bool on)
{
    ssize_t ignored = write(STDOUT_FILENO, on ? "\x1B[?2004h" : "\x1B[?2004l", 8);
    (void)ignored;
}

void signals_set_paste_marks(bool on)
{
    marks_pastes = on;
    write_paste_marks(on);
}

static void set_terminal(const struct termios *modes)
{
    while (tcsetattr(STDIN_FILENO, TCSANOW, modes) != 0 && errno == EINTR) continue;
}

/* Whether we may set the terminal: doing so in the background would stop us. */
static bool is_in_foreground(void)
{
    pid_t owner = tcgetpgrp(STDIN_FILENO);
    return owner < 0 || owner == getpgrp(); /* < 0: no job control */
}

void signals_restore_terminal(void)
{
    if (!has_terminal || !is_in_foreground()) return;
    if (marks_pastes) write_paste_marks(false);
    set_terminal(&terminal_before);
}

/* Restores the modes of the program as soon as it is in the foreground. */
static void resume(void)
{
    is_resumed = 1;
    if (!has_modes || !is_in_foreground()) return;
    has_modes = 0;
    set_terminal(&terminal_modes);
    if (marks_pastes) write_paste_marks(true);
}

/* Ctrl-Z: restores the terminal for the shell, then raises the signal with its usual effect. */
static void on_stop(int signal_number)
{
    if (pass_to_main(signal_number)) return;
    int errno_before = errno;
    if (!has_modes) has_modes = tcgetattr(STDIN_FILENO, &terminal_modes) == 0;
    signals_restore_terminal();

    struct sigaction usual = {.sa_handler = SIG_DFL}, ours;
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, signal_number);
    sigaction(signal_number, &usual, &ours);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &stop, &before); /* stops here and later continues here */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(signal_number, &ours, NULL);
    resume();
    errno = errno_before;
}

static void on_continue(int signal_number)
{
    int errno_before = errno;
    if (!pass_to_main(signal_number)) resume();
    errno = errno_before;
}

static void on_resize(int signal_number)
{
    if (!pass_to_main(signal_number)) is_resized = 1;
}

void signals_keep_terminal(void)
{
    has_terminal = tcgetattr(STDIN_FILENO, &terminal_before) == 0;
    /* SA_RESTART: these three may come at any time and must not make a write fail. */
    struct sigaction action = {.sa_handler = on_resize, .sa_flags = SA_RESTART}, before;
    sigaction(SIGWINCH, &action, NULL);
    action.sa_handler = on_continue;
    sigaction(SIGCONT, &action, NULL);
    bool is_ignored = sigaction(SIGTSTP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    action.sa_handler = on_stop;
    if (!is_ignored) sigaction(SIGTSTP, &action, NULL);
}

/* ---- Ends ------------------------------------------------------------------------------- */

static void clean_up(void)
{
    signals_restore_terminal();
    if (at_leave) at_leave();
}

static void leave(int status)
{
    clean_up();
    _exit(status);
}

/* For signals whose usual end tells the caller something: it follows when this returns. */
static void on_end(int signal_number)
{
    clean_up();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void on_interrupt(int signal_number)
{
    if (pass_to_main(signal_number)) return;
    interrupts++;
    if (doing == LEAVES || (doing == ANSWERS && interrupts > 1)) leave(EXIT_INTERRUPTED);
}

/* Runs in any thread, because the main thread may not get to it. */
static void on_terminate(int signal_number)
{
    leave(signal_number == SIGHUP ? EXIT_HANGUP : EXIT_TERMINATED);
}

static void write_text(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

/* A mapped file that another program cuts short gives SIGBUS at the first missing page. */
static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    const char *path = os_map_path_at(info->si_addr);
    if (path) {
        write_text("carat: error: ");
        write_text(path);
        write_text(" was cut short while in use\n"
                   "  hint: write model files under another name, then rename them\n");
        leave(3);
    }
    on_end(signal_number);
}

static void handle(int signal_number, void (*handler)(int))
{
    /* No SA_RESTART: a read that waits for the user must notice Ctrl-C. */
    struct sigaction action = {.sa_handler = handler}, before;
    bool is_ignored = sigaction(signal_number, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    bool is_of_nohup = signal_number == SIGHUP && is_ignored;
    if (!is_of_nohup) sigaction(signal_number, &action, NULL);
}

void signals_open(void)
{
    main_thread = pthread_self();
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_terminate);
    handle(SIGHUP, on_terminate);
    handle(SIGPIPE, on_end);
    handle(SIGQUIT, on_end);
    handle(SIGXCPU, on_end);
    handle(SIGXFSZ, SIG_IGN); /* writing fails with EFBIG, which is reported */
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &bus, NULL);
}

void signals_on_leave(void (*call)(void))
{
    at_leave = call;
}

/* ---- Answering and reading -------------------------------------------------------------- */

void interrupt_begin(void)
{
    interrupts = 0;
    doing = ANSWERS;
}

void interrupt_end(void)
{
    doing = LEAVES;
}

bool interrupt_wanted(void)
{
    return interrupts > 0;
}

void reading_begin(void)
{
    interrupts = 0;
    is_resized = is_resumed = 0;
    doing = READS;
}

void reading_end(void)
{
    doing = LEAVES;
}

/* Ctrl-C comes first, then keys: a key may be several bytes, which must stay together. */
static enum input_event take_event(bool is_ready)
{
    if (interrupts > 0) {
        interrupts = 0;
        return INPUT_INTERRUPTED;
    }
    bool may_draw = !is_ready && (is_resumed || is_resized) && is_in_foreground();
    if (!may_draw) return INPUT_READY;
    enum input_event event = is_resumed ? INPUT_RESUMED : INPUT_RESIZED;
    is_resumed = is_resized = 0;
    return event;
}

enum input_event wait_for_input(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    static const int told[] = {SIGINT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t events, before;
    sigemptyset(&events);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) sigaddset(&events, told[i]);
    pthread_sigmask(SIG_BLOCK, &events, &before); /* else one before ppoll would be missed */
    int ready = poll(&input, 1, 0);
    bool can_wait = true;
    enum input_event event = take_event(ready > 0);
    while (event == INPUT_READY && ready <= 0 && can_wait) {
        ready = ppoll(&input, 1, NULL, &before);
        can_wait = ready >= 0 || errno == EINTR;
        event = take_event(ready > 0);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return event; /* if it cannot wait, reading reports why */
}
