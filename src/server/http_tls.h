/* The certificate and key of a server, exchangeable while it runs: a connection keeps the pair that
 * it has begun with. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct tls_identity;

/* Of GnuTLS: nothing older than TLS 1.2. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* PEM files; the certificate may be followed by those up to its root. The caller holds it once.
 * CARAT_EUSAGE: which file is wrong, and why. CARAT_EUNSUPPORTED: built without GnuTLS. */
int tls_identity_open(struct tls_identity **out, const char *certificate, const char *private_key,
                      struct carat_error *err);
/* One thread. The last release frees it; NULL is fine. */
struct tls_identity *tls_identity_hold(struct tls_identity *t);
void tls_identity_release(struct tls_identity *t);
/* For a session of GnuTLS that has not begun. The caller holds the identity as long as it lives.
 * *is_open becomes true when its handshake is finished; it lives as long as the session. */
void tls_identity_use(const struct tls_identity *t, void *session, bool *is_open);
/* A callback that gives no certificate, for a library that wants one: each session gets its own by
 * tls_identity_use. */
void *tls_no_certificate(void);
/* Sends some bytes, now or not at all, and ends the session. */
void tls_say(void *session, const char *bytes, size_t length);

#endif
