/* Handlers do only what is async-signal-safe: flags, write, tcsetattr, _exit. */
#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/os.h"

static volatile sig_atomic_t is_answering, interrupts, has_terminal;
static struct termios terminal_before;

void signals_restore_terminal(void)
{
    if (has_terminal) tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

static void leave(int status)
{
    signals_restore_terminal();
    _exit(status);
}

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (!is_answering || ++interrupts > 1) leave(EXIT_INTERRUPTED);
}

static void on_terminate(int signal_number)
{
    (void)signal_number;
    leave(EXIT_TERMINATED);
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
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void signals_open(void)
{
    /* No SA_RESTART: a read that waits for the user must notice Ctrl-C. */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = on_terminate;
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_DFL;
    sigaction(SIGPIPE, &action, NULL);
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &bus, NULL);
}

void interrupt_begin(void)
{
    interrupts = 0;
    is_answering = 1;
}

void interrupt_end(void)
{
    is_answering = 0;
}

bool interrupt_wanted(void)
{
    return interrupts > 0;
}

void signals_keep_terminal(void)
{
    has_terminal = tcgetattr(STDIN_FILENO, &terminal_before) == 0;
}
