#include "hub/page.h"

#include <string.h>

struct page {
    struct buf *out;
    const char *url;
};

static int begin(void *user, const struct fetch_head *head, struct carat_error *err)
{
    struct page *page = user;
    buf_clear(page->out);
    if (head->status == 200) return CARAT_OK;
    return err_set(err, CARAT_ENETWORK, "status 200 expected, %ld found", head->status);
}

static int add(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    struct page *page = user;
    if (page->out->length + n > PAGE_BYTES_MAX) {
        struct buf shown = {0};
        url_add_shown(&shown, page->url);
        err_set(err, CARAT_ENETWORK, "%.300s: answers with more than %d bytes", buf_text(&shown),
                PAGE_BYTES_MAX);
        buf_deinit(&shown);
        return CARAT_ENETWORK;
    }
    buf_add(page->out, bytes, n);
    return page->out->failed ? err_no_memory(err, "page", page->out->length + n) : CARAT_OK;
}

int page_read(struct fetch *f, const char *url, const char *accept, const struct hub_watch *watch,
              struct buf *out, struct fetch_head *head, struct carat_error *err)
{
    struct page page = {out, url};
    struct fetch_sink sink = {&page, begin, add};
    struct fetch_question question = {.url = url, .accept = accept, .if_range = ""};
    for (int n = 0;; n++) {
        bool may_retry = false;
        struct carat_error why = {0};
        int status = fetch_get(f, &question, &sink, head, &may_retry, &why);
        if (status == CARAT_OK || !may_retry || n == watch->retries) {
            if (status != CARAT_OK && err) *err = why;
            return status;
        }
        TRY(watch_wait(watch, n, head->retry_after_s, &why, err));
    }
}
