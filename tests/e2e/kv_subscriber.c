/* A router's end of the cache events, for test_kv_events.py: prints each message of a publisher as
 * "live TOPIC NUMBER HEX", and for each number that it reads from standard input what the second
 * address sends, as "again NUMBER HEX", up to the end of it.
 *
 *     kv_subscriber PUBLISHER REPLAY */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { FRAMES_MAX = 4 };

/* Receives a message; returns how many frames it has. */
static int receive(void *socket, zmq_msg_t frames[FRAMES_MAX])
{
    int n = 0, more = 1;
    while (more && n < FRAMES_MAX) {
        zmq_msg_init(&frames[n]);
        if (zmq_msg_recv(&frames[n], socket, 0) < 0) exit(1);
        more = zmq_msg_more(&frames[n++]);
    }
    return n;
}

static void print_number(zmq_msg_t *frame)
{
    const unsigned char *bytes = zmq_msg_data(frame);
    uint64_t number = 0;
    for (int i = 0; i < 8 && zmq_msg_size(frame) == 8; i++) number = number << 8 | bytes[i];
    printf("%" PRId64 " ", (int64_t)number);
}

static void print_rest(zmq_msg_t *frames, int n)
{
    const unsigned char *bytes = zmq_msg_data(&frames[n - 1]);
    for (size_t i = 0; i < zmq_msg_size(&frames[n - 1]); i++) printf("%02x", bytes[i]);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < n; i++) zmq_msg_close(&frames[i]);
}

static void print_live(void *socket)
{
    zmq_msg_t frames[FRAMES_MAX];
    int n = receive(socket, frames);
    if (n != 3) exit(2);
    printf("live %.*s ", (int)zmq_msg_size(&frames[0]), (char *)zmq_msg_data(&frames[0]));
    print_number(&frames[1]);
    print_rest(frames, n);
}

static void ask_again(void *socket)
{
    char line[64];
    unsigned char number[8];
    if (!fgets(line, sizeof line, stdin)) exit(0);
    uint64_t from = strtoull(line, NULL, 10);
    for (int i = 0; i < 8; i++) number[i] = (unsigned char)(from >> 8 * (7 - i));
    zmq_send(socket, "", 0, ZMQ_SNDMORE);
    zmq_send(socket, number, sizeof number, 0);
}

static void print_again(void *socket)
{
    zmq_msg_t frames[FRAMES_MAX];
    int n = receive(socket, frames);
    if (n != 3) exit(3);
    printf("again ");
    print_number(&frames[1]);
    print_rest(frames, n);
}

int main(int count, char **words)
{
    if (count != 3) return 64;
    void *context = zmq_ctx_new();
    void *events = zmq_socket(context, ZMQ_SUB), *replay = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(events, ZMQ_SUBSCRIBE, "kv@", 3);
    if (zmq_connect(events, words[1]) != 0 || zmq_connect(replay, words[2]) != 0) return 65;
    setvbuf(stdin, NULL, _IONBF, 0); /* what is read is what poll tells of */
    for (;;) {
        zmq_pollitem_t items[] = {{.socket = events, .events = ZMQ_POLLIN},
                                  {.socket = replay, .events = ZMQ_POLLIN},
                                  {.fd = STDIN_FILENO, .events = ZMQ_POLLIN}};
        zmq_poll(items, 3, -1);
        if (items[0].revents) print_live(events);
        if (items[1].revents) print_again(replay);
        if (items[2].revents) ask_again(replay);
    }
}
