#include "server/http_tls.h"

#ifdef CARAT_HAVE_TLS
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { PEM_BYTES_MAX = 1 << 20 };

struct tls_identity {
    gnutls_certificate_credentials_t credentials;
    int holders;
};

static int read_file(const char *what, const char *path, struct buf *out, struct carat_error *err)
{
    const enum file_reading reading = file_read_bounded(path, 0, PEM_BYTES_MAX, out);
    if (reading == FILE_UNOPENED)
        return err_set(err, CARAT_EUSAGE, "TLS: cannot read the %s %s: %s", what, path,
                       strerror(errno));
    if (reading == FILE_NO_MEMORY) return err_no_memory(err, "TLS", out->length);
    if (reading != FILE_WHOLE)
        return err_set(err, CARAT_EUSAGE, "TLS: the %s %s is no readable PEM file", what, path);
    return CARAT_OK;
}

static gnutls_datum_t datum(const struct buf *b)
{
    return (gnutls_datum_t){.data = (unsigned char *)b->data, .size = (unsigned)b->length};
}

static int check_certificate(const char *path, const struct buf *pem, struct carat_error *err)
{
    gnutls_x509_crt_t *list = NULL;
    unsigned n = 0;
    const gnutls_datum_t data = datum(pem);
    const int code = gnutls_x509_crt_list_import2(&list, &n, &data, GNUTLS_X509_FMT_PEM, 0);
    if (code < 0 || n == 0)
        return err_set(err, CARAT_EUSAGE, "TLS: %s is no certificate in PEM form: %s", path,
                       gnutls_strerror(code));
    for (unsigned i = 0; i < n; i++) gnutls_x509_crt_deinit(list[i]);
    gnutls_free(list);
    return CARAT_OK;
}

static int check_key(const char *path, const struct buf *pem, struct carat_error *err)
{
    gnutls_privkey_t key;
    const gnutls_datum_t data = datum(pem);
    int code = gnutls_privkey_init(&key);
    if (code < 0) return err_no_memory(err, "TLS", sizeof key);
    code = gnutls_privkey_import_x509_raw(key, &data, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_privkey_deinit(key);
    if (code >= 0) return CARAT_OK;
    (void)err_set(err, CARAT_EUSAGE, "TLS: %s is no private key in PEM form: %s", path,
                  gnutls_strerror(code));
    if (code == GNUTLS_E_DECRYPTION_FAILED)
        err_hint(err, "keys with a password cannot be used: store it without one");
    return CARAT_EUSAGE;
}

static int load(struct tls_identity *t, const char *certificate, const char *private_key,
                struct buf *pem, struct buf *key_pem, struct carat_error *err)
{
    TRY(read_file("certificate", certificate, pem, err));
    TRY(read_file("private key", private_key, key_pem, err));
    TRY(check_certificate(certificate, pem, err));
    TRY(check_key(private_key, key_pem, err));
    const gnutls_datum_t first = datum(pem), second = datum(key_pem);
    const int code = gnutls_certificate_set_x509_key_mem2(t->credentials, &first, &second,
                                                          GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code >= 0) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "TLS: %s and %s do not belong together: %s", certificate,
                   private_key, gnutls_strerror(code));
}

int tls_identity_open(struct tls_identity **out, const char *certificate, const char *private_key,
                      struct carat_error *err)
{
    *out = NULL;
    if (!certificate || !private_key) {
        (void)err_set(err, CARAT_EUSAGE, "TLS: a certificate and its private key are needed");
        err_hint(err, "give both --tls-cert and --tls-key");
        return CARAT_EUSAGE;
    }
    struct tls_identity *t = mem_alloc(1, sizeof *t);
    if (!t) return err_no_memory(err, "TLS", sizeof *t);
    if (gnutls_certificate_allocate_credentials(&t->credentials) < 0) {
        mem_free(t);
        return err_no_memory(err, "TLS", sizeof *t);
    }
    t->holders = 1;
    struct buf pem = {0}, key_pem = {0};
    const int status = load(t, certificate, private_key, &pem, &key_pem, err);
    if (key_pem.data) gnutls_memset(key_pem.data, 0, key_pem.length);
    buf_deinit(&pem);
    buf_deinit(&key_pem);
    if (status == CARAT_OK) {
        *out = t;
    } else {
        tls_identity_release(t);
    }
    return status;
}

struct tls_identity *tls_identity_hold(struct tls_identity *t)
{
    if (t) t->holders++;
    return t;
}

void tls_identity_release(struct tls_identity *t)
{
    if (!t || --t->holders > 0) return;
    gnutls_certificate_free_credentials(t->credentials);
    mem_free(t);
}

static int on_finished(gnutls_session_t session, unsigned kind, unsigned when, unsigned is_incoming,
                       const gnutls_datum_t *message)
{
    bool *is_open = gnutls_db_get_ptr(session);
    (void)kind;
    (void)when;
    (void)message;
    if (is_open && is_incoming) *is_open = true;
    return 0;
}

void tls_identity_use(const struct tls_identity *t, void *session, bool *is_open)
{
    (void)gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, t->credentials);
    /* The one pointer of a session that the library leaves alone; sessions are not stored. */
    gnutls_db_set_ptr(session, is_open);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST,
                                       on_finished);
}

static int no_certificate(gnutls_session_t session, const gnutls_datum_t *authorities, int n,
                          const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
                          gnutls_pcert_st **certificates, unsigned *n_certificates,
                          gnutls_privkey_t *key)
{
    (void)session;
    (void)authorities;
    (void)n;
    (void)algorithms;
    (void)n_algorithms;
    (void)certificates;
    (void)n_certificates;
    (void)key;
    return -1;
}

void *tls_no_certificate(void)
{
    return (void *)(uintptr_t)no_certificate;
}

void tls_say(void *session, const char *bytes, size_t length)
{
    (void)gnutls_record_send(session, bytes, length);
    (void)gnutls_bye(session, GNUTLS_SHUT_WR);
}
#else

int tls_identity_open(struct tls_identity **out, const char *certificate, const char *private_key,
                      struct carat_error *err)
{
    (void)certificate;
    (void)private_key;
    *out = NULL;
    (void)err_set(err, CARAT_EUNSUPPORTED, "TLS: carat was built without GnuTLS");
    err_hint(err, "install libgnutls28-dev and build again, or let a proxy end TLS");
    return CARAT_EUNSUPPORTED;
}

void *tls_no_certificate(void)
{
    return NULL;
}

/* Nobody has one to call these with. */
struct tls_identity *tls_identity_hold(struct tls_identity *t)
{
    return t;
}

void tls_identity_release(struct tls_identity *t)
{
    (void)t;
}

void tls_identity_use(const struct tls_identity *t, void *session, bool *is_open)
{
    (void)t;
    (void)session;
    (void)is_open;
}

void tls_say(void *session, const char *bytes, size_t length)
{
    (void)session;
    (void)bytes;
    (void)length;
}
#endif
