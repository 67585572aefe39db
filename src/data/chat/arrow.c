/* SPDX-License-Identifier: Apache-2.0
 *
 * Parquet and Arrow files: rows of the Arrow C data interface as JSON objects.
 * The file is opened by an object beside the library, which is there when it
 * was built with Arrow (LOONG_ARROW). Called by reader.c and files.c. Read
 * backends/arrow/arrow_stream.h before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_stream.h"
#include "chat.h"
#include "object.h"
#include "pairs.h"

enum { MAX_ERROR = 512 };

struct chat_arrow {
    loong_context_t *ctx;
    char *path;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    int64_t at;  /* of the batch's rows, the next */
    int64_t row; /* of the file, from 1 on, the last that was given */
};

/* ---- the object ---------------------------------------------------------- */

static loong_arrow_open_fn find_open(void)
{
    static loong_arrow_open_fn open;
    if (open == NULL) {
        *(void **)(void *)&open =
            loongi_object_symbol(LOONG_ARROW_OBJECT, LOONG_ARROW_OPEN);
    }
    return open;
}

bool loongi_chat_arrow_loads(void)
{
    return find_open() != NULL;
}

/* ---- types --------------------------------------------------------------- */

static bool is_list(const struct ArrowSchema *s)
{
    return s->format[0] == '+' && s->format[1] != '\0' &&
           strchr("lLw", s->format[1]) != NULL && s->n_children == 1;
}

/* JSON has values like these: no times, decimals, bytes, maps, unions. */
static bool is_known(const struct ArrowSchema *s)
{
    if (s->dictionary != NULL) {
        return is_known(s->dictionary);
    }
    return is_list(s) ? is_known(s->children[0])
                      : strcmp(s->format, "+s") == 0 ||
                            (s->format[1] == '\0' &&
                             strchr("nbcCsSiIlLfguU", s->format[0]) != NULL);
}

/* Names members that have no place in JSON, "a, b.c". */
static void list_unknown(const struct ArrowSchema *s, const char *prefix,
                         loong_text_t *names)
{
    for (int64_t i = 0; i < s->n_children; i++) {
        const struct ArrowSchema *child = s->children[i];
        char path[256];
        snprintf(path, sizeof(path), "%s%s%s", prefix,
                 prefix[0] != '\0' ? "." : "", child->name);
        while (is_known(child) && is_list(child)) {
            child = child->children[0];
        }
        if (!is_known(child)) {
            loongi_text_printf(names, "%s%s (%s)",
                               names->length > 0 ? ", " : "", path,
                               child->format);
        } else if (child->n_children > 0) {
            list_unknown(child, path, names);
        }
    }
}

/* ---- values -------------------------------------------------------------- */

static bool bit(const void *bits, int64_t i)
{
    return (((const uint8_t *)bits)[i / 8] >> (i % 8) & 1) != 0;
}

static int64_t whole(char format, const void *values, int64_t i)
{
    switch (format) {
    case 'c':
        return ((const int8_t *)values)[i];
    case 'C':
        return ((const uint8_t *)values)[i];
    case 's':
        return ((const int16_t *)values)[i];
    case 'S':
        return ((const uint16_t *)values)[i];
    case 'i':
        return ((const int32_t *)values)[i];
    case 'I':
        return ((const uint32_t *)values)[i];
    default:
        return ((const int64_t *)values)[i];
    }
}

static void put_real(loong_text_t *text, double value)
{
    char digits[LOONG_REAL_TEXT];
    loongi_text_printf(
        text, "%s", isfinite(value) ? loongi_real_text(value, digits) : "null");
}

static void put_value(const struct ArrowSchema *s, const struct ArrowArray *a,
                      int64_t i, loong_text_t *text);

/* The elements of the list at place `at`. */
static void put_list(const struct ArrowSchema *s, const struct ArrowArray *a,
                     int64_t at, loong_text_t *text)
{
    int64_t begin = 0;
    int64_t end = 0;
    if (s->format[1] == 'w') {
        int64_t each = 0;
        (void)sscanf(s->format, "+w:%" SCNd64, &each);
        begin = at * each;
        end = begin + each;
    } else {
        char size = s->format[1] == 'L' ? 'l' : 'i';
        begin = whole(size, a->buffers[1], at);
        end = whole(size, a->buffers[1], at + 1);
    }
    loongi_text_append(text, "[", 1);
    for (int64_t k = begin; k < end; k++) {
        loongi_text_append(text, ",", k > begin);
        put_value(s->children[0], a->children[0], k, text);
    }
    loongi_text_append(text, "]", 1);
}

static void put_members(const struct ArrowSchema *s, const struct ArrowArray *a,
                        int64_t at, loong_text_t *text)
{
    bool first = true;
    loongi_text_append(text, "{", 1);
    for (int64_t k = 0; k < s->n_children; k++) {
        if (is_known(s->children[k])) {
            loongi_text_append(text, ",", !first);
            loongi_text_json_string(text, s->children[k]->name);
            loongi_text_append(text, ":", 1);
            put_value(s->children[k], a->children[k], at, text);
            first = false;
        }
    }
    loongi_text_append(text, "}", 1);
}

/* Element i of an array, which begins at its offset; children have offsets of
 * their own. */
static void put_value(const struct ArrowSchema *s, const struct ArrowArray *a,
                      int64_t i, loong_text_t *text)
{
    int64_t at = i + a->offset;
    char format = s->format[0];
    if (format == 'n' || (a->buffers[0] != NULL && !bit(a->buffers[0], at))) {
        loongi_text_printf(text, "null");
    } else if (s->dictionary != NULL) {
        put_value(s->dictionary, a->dictionary,
                  whole(format, a->buffers[1], at), text);
    } else if (format == '+') {
        s->format[1] == 's' ? put_members(s, a, at, text)
                            : put_list(s, a, at, text);
    } else if (format == 'u' || format == 'U') {
        char size = format == 'U' ? 'l' : 'i';
        int64_t begin = whole(size, a->buffers[1], at);
        loongi_text_json_bytes(
            text, begin >= 0 ? (const char *)a->buffers[2] + begin : "",
            (size_t)(whole(size, a->buffers[1], at + 1) - begin));
    } else if (format == 'b') {
        loongi_text_printf(text, bit(a->buffers[1], at) ? "true" : "false");
    } else if (format == 'f' || format == 'g') {
        put_real(text, format == 'f'
                           ? (double)((const float *)a->buffers[1])[at]
                           : ((const double *)a->buffers[1])[at]);
    } else if (format == 'L') {
        loongi_text_printf(text, "%" PRIu64,
                           ((const uint64_t *)a->buffers[1])[at]);
    } else {
        loongi_text_printf(text, "%" PRId64, whole(format, a->buffers[1], at));
    }
}

/* ---- rows ---------------------------------------------------------------- */

static loong_status_t fail(const chat_arrow_t *r, const char *error)
{
    return LOONG_FAIL(r->ctx, LOONG_ERR_FORMAT, "%s: %s", r->path,
                      error != NULL ? error : "cannot be read");
}

static loong_status_t open_file(chat_arrow_t *r)
{
    char error[MAX_ERROR] = "";
    loong_text_t names = loongi_text_begin(r->ctx);
    if (find_open()(r->path, &r->stream, error, sizeof(error)) != 0) {
        return fail(r, error);
    }
    if (r->stream.get_schema(&r->stream, &r->schema) != 0) {
        return fail(r, r->stream.get_last_error(&r->stream));
    }
    list_unknown(&r->schema, "", &names);
    if (names.length > 0) {
        loongi_log(r->ctx, LOONG_LOG_WARN,
                   "%s: left out, as JSON has no such values: %s", r->path,
                   names.data);
    }
    loongi_text_free(&names);
    return LOONG_OK;
}

loong_status_t loongi_chat_arrow_create(loong_context_t *ctx, const char *path,
                                        chat_arrow_t **arrow_p)
{
    chat_arrow_t *r = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "reader of Arrow files", &r));
    r->ctx = ctx;
    loong_status_t status = loongi_strdup(ctx, path, &r->path);
    if (status == LOONG_OK) {
        status = open_file(r);
    }
    if (status != LOONG_OK) {
        loongi_chat_arrow_destroy(&r);
        return status;
    }
    *arrow_p = r;
    return LOONG_OK;
}

void loongi_chat_arrow_destroy(chat_arrow_t **arrow)
{
    chat_arrow_t *r = *arrow;
    if (r == NULL) {
        return;
    }
    if (r->batch.release != NULL) {
        r->batch.release(&r->batch);
    }
    if (r->schema.release != NULL) {
        r->schema.release(&r->schema);
    }
    if (r->stream.release != NULL) {
        r->stream.release(&r->stream);
    }
    loongi_free(r->ctx, r->path);
    loongi_free(r->ctx, r);
    *arrow = NULL;
}

loong_status_t loongi_chat_arrow_next(chat_arrow_t *r, loong_text_t *row,
                                      int64_t *row_p)
{
    while (r->at >= r->batch.length) {
        if (r->batch.release != NULL) {
            r->batch.release(&r->batch);
        }
        memset(&r->batch, 0, sizeof(r->batch));
        r->at = 0;
        if (r->stream.get_next(&r->stream, &r->batch) != 0) {
            return fail(r, r->stream.get_last_error(&r->stream));
        }
        if (r->batch.release == NULL) { /* there are no more */
            return LOONG_OK;
        }
    }
    put_members(&r->schema, &r->batch, r->batch.offset + r->at++, row);
    *row_p = ++r->row;
    return row->status;
}
