#include "hub/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#ifdef CARAT_HAVE_TLS

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

struct sha256 {
    gnutls_hash_hd_t state;
};

int sha256_open(struct sha256 **out, struct carat_error *err)
{
    *out = mem_alloc(1, sizeof **out);
    if (!*out) return err_no_memory(err, "sha256", sizeof **out);
    int status = gnutls_hash_init(&(*out)->state, GNUTLS_DIG_SHA256);
    if (status == 0) return CARAT_OK;
    mem_free(*out);
    *out = NULL;
    return err_set(err, CARAT_EINTERNAL, "sha256 cannot be computed: %s", gnutls_strerror(status));
}

void sha256_restart(struct sha256 *sum)
{
    unsigned char ignored[HUB_SHA256_HEX / 2];
    gnutls_hash_output(sum->state, ignored); /* begins anew */
}

void sha256_add(struct sha256 *sum, const void *bytes, size_t n)
{
    gnutls_hash(sum->state, bytes, n);
}

void sha256_end(struct sha256 *sum, char hex[HUB_SHA256_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[HUB_SHA256_HEX / 2];
    gnutls_hash_output(sum->state, bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[HUB_SHA256_HEX] = '\0';
}

void sha256_close(struct sha256 *sum)
{
    if (!sum) return;
    gnutls_hash_deinit(sum->state, NULL);
    mem_free(sum);
}

#else

int sha256_open(struct sha256 **out, struct carat_error *err)
{
    *out = NULL;
    err_set(err, CARAT_EUNSUPPORTED,
            "checksums cannot be computed: carat was built without GnuTLS");
    err_hint(err, "install libgnutls28-dev and build again");
    return CARAT_EUNSUPPORTED;
}

void sha256_restart(struct sha256 *sum)
{
    (void)sum;
}

void sha256_add(struct sha256 *sum, const void *bytes, size_t n)
{
    (void)sum;
    (void)bytes;
    (void)n;
}

void sha256_end(struct sha256 *sum, char hex[HUB_SHA256_HEX + 1])
{
    (void)sum;
    hex[0] = '\0';
}

void sha256_close(struct sha256 *sum)
{
    (void)sum;
}

#endif

int sha256_add_file(struct sha256 *sum, int fd, uint64_t bytes, const char *shown, sha256_fn moved,
                    void *user, struct carat_error *err)
{
    enum { BLOCK = 1 << 20 };
    char *block = mem_alloc(1, BLOCK);
    if (!block) return err_no_memory(err, "sha256", BLOCK);
    int status = CARAT_OK;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (uint64_t done = 0; status == CARAT_OK && done < bytes;) {
        size_t wanted = bytes - done < BLOCK ? (size_t)(bytes - done) : BLOCK;
        ssize_t n = pread(fd, block, wanted, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            status = err_set(err, CARAT_EIO, "%s: cannot be read: %s", shown,
                             n ? strerror(errno) : "it has become shorter");
        } else {
            sha256_add(sum, block, (size_t)n);
            done += (uint64_t)n;
            if (moved && !moved(user, done)) status = err_set(err, CARAT_EBUSY, "stopped");
        }
    }
    mem_free(block);
    return status;
}
