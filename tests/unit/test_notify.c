/* What a service manager is told, by path and by abstract name, and the sockets it passes. A child
 * process plays the server where descriptor 3 is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/notify.h"

/* A manager's socket, of which $NOTIFY_SOCKET has the name. */
static int manager_open(bool is_abstract, char path[64])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(path, 64, "%s/carat-notify-%d", is_abstract ? "@" : "/tmp", (int)getpid());
    if (is_abstract) snprintf(path, 64, "@carat-notify-%d", (int)getpid());
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    socklen_t length = sizeof address;
    if (is_abstract) {
        address.sun_path[0] = '\0';
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    return fd;
}

static void manager_close(int fd, const char *path)
{
    close(fd);
    if (path[0] == '/') unlink(path);
    unsetenv("NOTIFY_SOCKET");
}

static void expect_datagram(int fd, const char *text)
{
    char got[1024] = "";
    assert_true(recv(fd, got, sizeof got - 1, MSG_DONTWAIT) >= 0);
    assert_string_equal(got, text);
}

static void states_arrive_by_path_and_by_abstract_name(void **state)
{
    (void)state;
    for (int is_abstract = 0; is_abstract < 2; is_abstract++) {
        char path[64], got[256] = "";
        int fd = manager_open(is_abstract, path);
        assert_true(notify_ready("answers on http://127.0.0.1:8080"));
        expect_datagram(fd, "READY=1\nSTATUS=answers on http://127.0.0.1:8080");
        assert_true(notify_stopping("3 answers are not done"));
        expect_datagram(fd, "STOPPING=1\nSTATUS=3 answers are not done");
        assert_true(notify_status("one line\nREADY=1"));
        expect_datagram(fd, "STATUS=one line READY=1");
        assert_true(notify_alive());
        expect_datagram(fd, "WATCHDOG=1");
        assert_true(notify_reloading());
        assert_true(recv(fd, got, sizeof got - 1, 0) > 0);
        long long usec;
        assert_int_equal(sscanf(got, "RELOADING=1\nMONOTONIC_USEC=%lld", &usec), 1);
        assert_true(usec > 0);
        manager_close(fd, path);
    }
}

static void nobody_is_told_when_there_is_no_manager(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    assert_false(notify_ready("x"));
    static const char *const names[] = {"",         "/", "@", "relative", "/nonexistent/socket",
                                        "vsock:2:1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv("NOTIFY_SOCKET", names[i], 1);
        assert_false(notify_ready("x"));
    }
    char name[200];
    memset(name, 'x', sizeof name);
    name[0] = '/';
    name[sizeof name - 1] = '\0';
    setenv("NOTIFY_SOCKET", name, 1);
    assert_false(notify_ready("x"));
    unsetenv("NOTIFY_SOCKET");
}

static void the_watchdog_is_fed_twice_in_its_time(void **state)
{
    (void)state;
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_true(notify_alive_seconds() == 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_true(notify_alive_seconds() == 15);
    setenv("WATCHDOG_PID", pid, 1);
    assert_true(notify_alive_seconds() == 15);
    setenv("WATCHDOG_PID", "1", 1);
    assert_true(notify_alive_seconds() == 0); /* another process's */
    unsetenv("WATCHDOG_PID");
    setenv("WATCHDOG_USEC", "soon", 1);
    assert_true(notify_alive_seconds() == 0);
    unsetenv("WATCHDOG_USEC");
}

/* In a child whose descriptor 3 is `given`: what notify_listen_fd says, as 10 times its status plus
 * the descriptor. */
static int listen_in_child(int given, const char *n, bool is_for_us)
{
    pid_t child = fork();
    if (child == 0) {
        char pid[16];
        snprintf(pid, sizeof pid, "%d", is_for_us ? (int)getpid() : 1);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", n, 1);
        if (given >= 0 && given != 3) dup2(given, 3);
        if (given < 0) close(3);
        int fd;
        struct carat_error err = {0};
        int status = notify_listen_fd(&fd, &err);
        _exit(status == CARAT_OK ? fd + 1 : 100);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_listening_socket_is_taken_and_nothing_else(void **state)
{
    (void)state;
    enum { TAKEN = 3 + 1, NONE = -1 + 1, REFUSED = 100 };
    int listening = socket(AF_INET, SOCK_STREAM, 0), idle = socket(AF_INET, SOCK_STREAM, 0);
    int datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(listen_in_child(listening, "1", true), TAKEN);
    assert_int_equal(listen_in_child(listening, "1", false), NONE); /* another process's */
    assert_int_equal(listen_in_child(listening, "0", true), NONE);
    assert_int_equal(listen_in_child(listening, "", true), NONE);
    assert_int_equal(listen_in_child(listening, "x", true), NONE);
    assert_int_equal(listen_in_child(listening, "2", true), REFUSED);
    assert_int_equal(listen_in_child(idle, "1", true), REFUSED);
    assert_int_equal(listen_in_child(datagram, "1", true), REFUSED);
    assert_int_equal(listen_in_child(-1, "1", true), REFUSED);
    close(listening);
    close(idle);
    close(datagram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_arrive_by_path_and_by_abstract_name),
        cmocka_unit_test(nobody_is_told_when_there_is_no_manager),
        cmocka_unit_test(the_watchdog_is_fed_twice_in_its_time),
        cmocka_unit_test(a_listening_socket_is_taken_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
