/* Status codes and the error record of carat.
 *
 * Every function that can fail for the user's reasons returns CARAT_OK or one of these
 * negative codes and takes a `struct carat_error *` last. One list gives the codes, the exit
 * status of the command line and the default text, so that they cannot disagree. */
#ifndef CARAT_STATUS_H
#define CARAT_STATUS_H

/* X(name, value, exit status of the program, text) */
#define CARAT_STATUS_LIST(X)                                                                       \
    X(OK, 0, 0, "done")                                                                            \
    X(EINTERNAL, -1, 1, "internal failure")                                                        \
    X(EUSAGE, -2, 2, "wrong usage")                                                                \
    X(EFORMAT, -3, 3, "model file missing, malformed or unsupported")                              \
    X(EMEMORY, -4, 4, "does not fit in memory")                                                    \
    X(EDEVICE, -5, 5, "no usable device, or a device error")                                       \
    X(ENETWORK, -6, 6, "network or hub error")                                                     \
    X(EADDRESS, -7, 7, "address in use or permission denied")                                      \
    X(ECHECKSUM, -8, 8, "checksum mismatch")                                                       \
    X(EIO, -9, 1, "reading or writing failed")                                                     \
    X(EBUSY, -10, 1, "a bounded queue or table is full")                                           \
    X(ECONTEXT, -11, 2, "exceeds the available context size")                                      \
    X(ENUMERIC, -12, 1, "the model produced non-finite logits")                                    \
    X(EUNSUPPORTED, -13, 2, "not in this build of carat")

enum carat_status {
#define X(name, value, exit_status, text) CARAT_##name = (value),
    CARAT_STATUS_LIST(X)
#undef X
};

/* `message`: one line, "object: what is wrong (expected / found)". `hint`: what to do, or "". */
struct carat_error {
    enum carat_status code;
    char message[512];
    char hint[256];
};

/* Exit status of a program that ends because of `code`; default text of `code`. Never NULL. */
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
int carat_exit_status(enum carat_status code);
const char *carat_status_text(enum carat_status code);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
