/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl: append only, except that a resumed run cuts what it will
 * write again. Called by report.c, expert_metrics.c and tensors.c. Read
 * metrics.h before. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "metrics.h"

struct loong_jsonl {
    loong_context_t *ctx;
    char *path;
    int fd;
};

/* Is the line of a step before first_step? *good_p: is it a metrics line? */
static bool keep_line(loong_context_t *ctx, const char *line, size_t length,
                      int64_t first_step, bool *good_p)
{
    loong_json_t *json = NULL;
    bool keep = false;
    *good_p = false;
    if (loongi_json_parse(ctx, line, length, "line", &json) == LOONG_OK) {
        const loong_json_t *step = loongi_json_get(json, "step");
        *good_p = step != NULL && loongi_json_kind(step) == LOONG_JSON_INT;
        keep = *good_p && loongi_json_int(step) < first_step;
    }
    loongi_json_destroy(&json);
    loong_context_clear_error(ctx); /* a bad line is only worth a warning */
    return keep;
}

/* Removes the lines that will be written again from the text; returns what is
 * left of its length. */
static size_t cut_lines(loong_context_t *ctx, const char *path, char *text,
                        size_t length, int64_t first_step)
{
    size_t kept = 0;
    size_t at = 0;
    int64_t number = 0;
    while (at < length) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - text) - at : length - at;
        bool good = false;
        bool keep = keep_line(ctx, text + at, line, first_step, &good);
        number++;
        if (!good || end == NULL) {
            loongi_log(ctx, LOONG_LOG_WARN, "%s:%lld: dropped, %s", path,
                       (long long)number,
                       end == NULL ? "not written to its end"
                                   : "no JSON object with a step");
        } else if (keep) {
            memmove(text + kept, text + at, line + 1);
            kept += line + 1;
        }
        at += line + 1;
    }
    return kept;
}

static loong_status_t cut_file(loong_context_t *ctx, const char *path,
                               int64_t first_step)
{
    char *text = NULL;
    size_t length = 0;
    if (!loongi_file_exists(path)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_file_read(ctx, path, &text, &length));
    size_t kept = cut_lines(ctx, path, text, length, first_step);
    loong_status_t status =
        kept == length ? LOONG_OK : loongi_file_write(ctx, path, text, kept);
    loongi_free(ctx, text);
    return status;
}

loong_status_t loongi_jsonl_open(loong_context_t *ctx, const char *path,
                                 int64_t first_step, loong_jsonl_t **jsonl_p)
{
    loong_jsonl_t *jsonl = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(cut_file(ctx, path, first_step));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*jsonl), "metrics file", &jsonl));
    jsonl->ctx = ctx;
    jsonl->fd = -1;
    LOONG_TRY_GOTO(loongi_strdup(ctx, path, &jsonl->path), status, err_open);
    jsonl->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (jsonl->fd < 0) {
        status = LOONG_FAIL(ctx, LOONG_ERR_IO, "%s: cannot open: %s", path,
                            strerror(errno));
        goto err_open;
    }
    *jsonl_p = jsonl;
    return LOONG_OK;
err_open:
    loongi_jsonl_destroy(&jsonl);
    return status;
}

loong_status_t loongi_jsonl_add(loong_jsonl_t *jsonl, const char *line)
{
    char text[LOONG_METRICS_LINE + 1];
    size_t length = strlen(line);
    LOONG_CHECK(jsonl->ctx, length < LOONG_METRICS_LINE, LOONG_ERR_ARG,
                "%s: a line of %zu bytes, at most %d allowed", jsonl->path,
                length, LOONG_METRICS_LINE - 1);
    memcpy(text, line, length);
    text[length] = '\n';
    ssize_t n;
    do {
        n = write(jsonl->fd, text, length + 1);
    } while (n < 0 && errno == EINTR);
    LOONG_CHECK(jsonl->ctx, n == (ssize_t)length + 1, LOONG_ERR_IO,
                "%s: cannot append a line: %s", jsonl->path,
                n < 0 ? strerror(errno) : "written in part");
    return LOONG_OK;
}

void loongi_jsonl_destroy(loong_jsonl_t **jsonl)
{
    if (*jsonl == NULL) {
        return;
    }
    loong_context_t *ctx = (*jsonl)->ctx;
    if ((*jsonl)->fd >= 0) {
        close((*jsonl)->fd);
    }
    loongi_free(ctx, (*jsonl)->path);
    loongi_free(ctx, *jsonl);
    *jsonl = NULL;
}
