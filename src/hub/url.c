#include "hub/url.h"

#include <ctype.h>
#include <string.h>

static bool is_plain(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n > URL_MAX) return false;
    for (; *text; text++)
        if (*text <= ' ' || *text > '~') return false;
    return true;
}

/* "host" or "[address]"; returns the place after it, NULL if it is neither. */
static const char *read_host(const char *at, char host[URL_HOST_MAX])
{
    bool is_number = *at == '[';
    const char *letters =
        is_number ? "0123456789abcdef:" : "abcdefghijklmnopqrstuvwxyz0123456789.-";
    size_t n = 0;
    if (is_number) at++;
    while (*at && strchr(letters, tolower((unsigned char)*at))) {
        if (n + 1 == URL_HOST_MAX) return NULL;
        host[n++] = (char)tolower((unsigned char)*at++);
    }
    host[n] = '\0';
    if (n == 0 || (is_number && *at++ != ']')) return NULL;
    return at;
}

static const char *read_port(const char *at, int *port)
{
    int value = 0, digits = 0;
    for (; isdigit((unsigned char)*at) && digits < 6; at++, digits++)
        value = value * 10 + (*at - '0');
    if (digits == 0 || value == 0 || value > 65535) return NULL;
    *port = value;
    return at;
}

bool url_read(const char *text, struct url *out)
{
    static const char secure[] = "https://", plain[] = "http://";
    *out = (struct url){0};
    if (!is_plain(text)) return false;
    const char *at;
    if (strncmp(text, secure, sizeof secure - 1) == 0) {
        out->is_https = true;
        at = text + sizeof secure - 1;
    } else if (strncmp(text, plain, sizeof plain - 1) == 0) {
        at = text + sizeof plain - 1;
    } else {
        return false;
    }
    out->port = out->is_https ? 443 : 80;
    at = read_host(at, out->host);
    if (at && *at == ':') at = read_port(at + 1, &out->port);
    if (!at || (*at && !strchr("/?#", *at))) return false;
    out->path = at;
    return true;
}

bool url_is_loopback(const struct url *url)
{
    if (strcmp(url->host, "localhost") == 0 || strcmp(url->host, "::1") == 0) return true;
    return strncmp(url->host, "127.", 4) == 0 && url->host[strspn(url->host, "0123456789.")] == 0;
}

bool url_is_same_origin(const struct url *a, const struct url *b)
{
    return a->is_https == b->is_https && a->port == b->port && strcmp(a->host, b->host) == 0;
}

void url_add_shown(struct buf *out, const char *text)
{
    size_t n = strcspn(text, "?#");
    const char *scheme = strstr(text, "://");
    const char *host = scheme && scheme < text + n ? scheme + 3 : text;
    size_t n_host = strcspn(host, "/?#");
    const char *user = memrchr(host, '@', n_host);
    buf_add(out, text, (size_t)(host - text));
    if (user) host = user + 1;
    buf_add(out, host, (size_t)(text + n - host));
}

void url_add_escaped(struct buf *out, const char *text, const char *kept)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (is_letter || strchr("-._~", c) || strchr(kept, c))
            buf_add_char(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}
