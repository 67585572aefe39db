/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables: rows of RFC 4180 as JSON objects, by the names in the first row.
 * Called by reader.c. Read chat.h before. */
#include <inttypes.h>
#include <string.h>

#include "chat.h"
#include "stream.h"
#include "utf8.h"

enum { READ_SIZE = 1 << 16 };

struct chat_csv {
    loong_context_t *ctx;
    char *path;
    char separator;
    loong_stream_t *stream;
    char *bytes; /* [READ_SIZE] */
    size_t at, end;
    int64_t line;       /* of what comes next */
    int64_t begun;      /* of the row */
    loong_text_t cells; /* one behind the other, each with a zero behind it */
    int64_t *ends;      /* of each, its zero */
    int64_t count, room;
    char *names; /* of columns, likewise */
    int64_t *name_at;
    int64_t columns;
};

/* -1: the file ends. */
static loong_status_t peek(chat_csv_t *c, int *byte_p)
{
    if (c->at == c->end) {
        c->at = 0;
        LOONG_TRY(loongi_stream_read(c->stream, c->bytes, READ_SIZE, &c->end));
    }
    *byte_p = c->at < c->end ? (unsigned char)c->bytes[c->at] : -1;
    return LOONG_OK;
}

/* Behind the opening quote: up to the one that closes. */
static loong_status_t read_quoted(chat_csv_t *c)
{
    int64_t begun = c->line;
    for (;;) {
        int byte = 0;
        LOONG_TRY(peek(c, &byte));
        LOONG_CHECK(c->ctx, byte >= 0, LOONG_ERR_FORMAT,
                    "%s:%" PRId64 ": a quoted cell has no end", c->path, begun);
        c->at++;
        c->line += byte == '\n';
        if (byte == '"') {
            LOONG_TRY(peek(c, &byte));
            if (byte != '"') {
                return LOONG_OK;
            }
            c->at++;
        }
        char put = (char)byte;
        loongi_text_append(&c->cells, &put, 1);
    }
}

/* Up to the separator or line end behind it, *last_p: the row ends there. */
static loong_status_t read_cell(chat_csv_t *c, bool *last_p)
{
    int byte = 0;
    LOONG_TRY(peek(c, &byte));
    if (byte == '"') {
        c->at++;
        LOONG_TRY(read_quoted(c));
        LOONG_TRY(peek(c, &byte));
        LOONG_CHECK(c->ctx,
                    byte < 0 || byte == c->separator || byte == '\r' ||
                        byte == '\n',
                    LOONG_ERR_FORMAT,
                    "%s:%" PRId64 ": '%c' behind the quote that ends a cell",
                    c->path, c->line, byte);
    }
    while (byte >= 0 && byte != c->separator && byte != '\n') {
        char put = (char)byte;
        c->at++;
        if (byte != '\r') {
            loongi_text_append(&c->cells, &put, 1);
        }
        LOONG_TRY(peek(c, &byte));
    }
    c->at += byte >= 0;
    c->line += byte == '\n';
    *last_p = byte != c->separator;
    loongi_text_append(&c->cells, "", 1);
    LOONG_TRY(c->cells.status);
    LOONG_TRY(loongi_grow(c->ctx, &c->ends, &c->room, c->count + 1,
                          sizeof(*c->ends), "cells of a row"));
    c->ends[c->count++] = (int64_t)c->cells.length - 1;
    return LOONG_OK;
}

/* Leaves count 0 at the end; empty lines are passed over. */
static loong_status_t read_row(chat_csv_t *c)
{
    int byte = 0;
    c->count = 0;
    c->cells.length = 0;
    LOONG_TRY(peek(c, &byte));
    while (byte == '\n' || byte == '\r') {
        c->at++;
        c->line += byte == '\n';
        LOONG_TRY(peek(c, &byte));
    }
    c->begun = c->line;
    for (bool last = byte < 0; !last;) {
        LOONG_TRY(read_cell(c, &last));
    }
    return LOONG_OK;
}

static loong_status_t read_names(chat_csv_t *c)
{
    LOONG_TRY(read_row(c));
    LOONG_CHECK(c->ctx, c->count > 0, LOONG_ERR_FORMAT,
                "%s: is empty, a table begins with the names of its columns",
                c->path);
    c->columns = c->count;
    LOONG_TRY(
        loongi_alloc(c->ctx, c->cells.length, "names of columns", &c->names));
    memcpy(c->names, c->cells.data, c->cells.length);
    LOONG_TRY(loongi_calloc(c->ctx, (size_t)c->columns, sizeof(*c->name_at),
                            "names of columns", &c->name_at));
    for (int64_t i = 1; i < c->columns; i++) {
        c->name_at[i] = c->ends[i - 1] + 1;
    }
    if (strncmp(c->names, "\xEF\xBB\xBF", 3) == 0) {
        c->name_at[0] = 3; /* a byte order mark */
    }
    for (int64_t i = 0; i < c->columns; i++) {
        const char *name = c->names + c->name_at[i];
        for (int64_t k = 0; k < i; k++) {
            LOONG_CHECK(c->ctx, strcmp(name, c->names + c->name_at[k]) != 0,
                        LOONG_ERR_FORMAT, "%s:1: column '%s' stands twice",
                        c->path, name);
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_chat_csv_create(loong_context_t *ctx, const char *path,
                                      char separator, chat_csv_t **csv_p)
{
    chat_csv_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "table", &c));
    c->ctx = ctx;
    c->separator = separator;
    c->line = 1;
    c->cells = loongi_text_begin(ctx);
    loong_status_t status = loongi_strdup(ctx, path, &c->path);
    if (status == LOONG_OK) {
        status = loongi_alloc(ctx, READ_SIZE, "table", &c->bytes);
    }
    if (status == LOONG_OK) {
        status = loongi_stream_create(ctx, path, &c->stream);
    }
    if (status == LOONG_OK) {
        status = read_names(c);
    }
    if (status != LOONG_OK) {
        loongi_chat_csv_destroy(&c);
        return status;
    }
    *csv_p = c;
    return LOONG_OK;
}

void loongi_chat_csv_destroy(chat_csv_t **csv)
{
    chat_csv_t *c = *csv;
    if (c == NULL) {
        return;
    }
    loongi_stream_destroy(&c->stream);
    loongi_text_free(&c->cells);
    loongi_free(c->ctx, c->ends);
    loongi_free(c->ctx, c->names);
    loongi_free(c->ctx, c->name_at);
    loongi_free(c->ctx, c->bytes);
    loongi_free(c->ctx, c->path);
    loongi_free(c->ctx, c);
    *csv = NULL;
}

/* Columns whose cells are lists. */
static bool holds_lists(const char *name)
{
    static const char *const names[] = {"messages", "conversations", "tools",
                                        "history"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A cell of a column with lists as it stands: what is wrong with it is told
 * where the row is parsed. */
static void put_cell(const chat_csv_t *c, int64_t i, loong_text_t *row)
{
    const char *name = c->names + c->name_at[i];
    const char *cell = c->cells.data + (i > 0 ? c->ends[i - 1] + 1 : 0);
    loongi_text_append(row, i > 0 ? "," : "{", 1);
    loongi_text_json_string(row, name);
    loongi_text_append(row, ":", 1);
    if (holds_lists(name) && (cell[0] == '[' || cell[0] == '{')) {
        loongi_text_printf(row, "%s", cell);
    } else {
        loongi_text_json_string(row, cell);
    }
}

loong_status_t loongi_chat_csv_next(chat_csv_t *c, loong_text_t *row,
                                    int64_t *line_p, bool *whole_p)
{
    LOONG_TRY(read_row(c));
    *line_p = c->begun;
    if (c->count == 0) {
        return LOONG_OK;
    }
    *whole_p = c->count == c->columns;
    if (!*whole_p) {
        loongi_text_printf(row,
                           "a row of %" PRId64 " cells, the table has %" PRId64
                           " columns",
                           c->count, c->columns);
        return row->status;
    }
    for (int64_t i = 0; i < c->columns; i++) {
        put_cell(c, i, row);
    }
    loongi_text_append(row, "}", 1);
    return row->status;
}
