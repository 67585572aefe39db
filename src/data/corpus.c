/* SPDX-License-Identifier: Apache-2.0
 *
 * A corpus: the list of files, and cutting them into records. Called by
 * indexer.c, image_text/open.c and tools of data. Read loong/corpus.h
 * before. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "json.h"
#include "loong/corpus.h"
#include "stream.h"

enum { READ_SIZE = 1 << 16 };

typedef struct corpus_file {
    char *path;
    int64_t bytes;
} corpus_file_t;

struct loong_corpus {
    loong_context_t *ctx;
    bool split_blank_lines;
    corpus_file_t *files;
    int64_t num_files;
    int64_t capacity;
    int64_t bytes;
    /* Reading. */
    int64_t next;
    int64_t empty; /* files without a record */
    bool gave;     /* the open file had one */
    int64_t bytes_done; /* of the files read completely */
    loong_stream_t *stream;
    const char *path; /* of the open file */
    bool json;
    bool array;       /* JSON: the file is one array of records */
    int64_t elements; /* of the array, read so far */
    bool file_end;
    int64_t line; /* of begin */
    char *buffer;
    int64_t buffer_size;
    int64_t buffer_at; /* of the file, where the buffer begins */
    int64_t begin;     /* unread bytes of the buffer */
    int64_t end;
};

static bool ends_with(const char *name, size_t length, const char *suffix,
                      size_t suffix_length)
{
    return length >= suffix_length &&
           memcmp(name + length - suffix_length, suffix, suffix_length) == 0;
}

/* Length of a name without the suffix of a compression. */
static size_t bare_length(const char *name)
{
    size_t length = strlen(name);
    if (ends_with(name, length, ".gz", 3) ||
        ends_with(name, length, ".xz", 3)) {
        return length - 3;
    }
    return ends_with(name, length, ".zst", 4) ? length - 4 : length;
}

static bool is_json(const char *path)
{
    size_t length = bare_length(path);
    return ends_with(path, length, ".jsonl", 6) ||
           ends_with(path, length, ".ndjson", 7) ||
           ends_with(path, length, ".json", 5);
}

static bool is_wanted(const char *name, const char *suffixes)
{
    if (suffixes == NULL) {
        return true;
    }
    size_t length = bare_length(name);
    while (*suffixes != '\0') {
        size_t n = strcspn(suffixes, ",");
        if (n > 0 && ends_with(name, length, suffixes, n)) {
            return true;
        }
        suffixes += n + (suffixes[n] == ',');
    }
    return false;
}

static loong_status_t add_file(loong_corpus_t *c, const char *path,
                               int64_t bytes)
{
    LOONG_TRY(loongi_grow(c->ctx, &c->files, &c->capacity, c->num_files + 1,
                          sizeof(*c->files), "corpus files"));
    LOONG_TRY(loongi_strdup(c->ctx, path, &c->files[c->num_files].path));
    c->files[c->num_files++].bytes = bytes;
    c->bytes += bytes;
    return LOONG_OK;
}

static loong_status_t add_directory(loong_corpus_t *c, const char *path,
                                    const char *suffixes);

static loong_status_t add_entry(loong_corpus_t *c, const char *path,
                                const char *name, const char *suffixes)
{
    struct stat info;
    LOONG_CHECK(c->ctx, lstat(path, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        return add_directory(c, path, suffixes);
    }
    if (!is_wanted(name, suffixes)) {
        return LOONG_OK;
    }
    /* A link that leads nowhere is an error, one to a directory is passed. */
    LOONG_CHECK(c->ctx, stat(path, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", path, strerror(errno));
    return S_ISREG(info.st_mode) ? add_file(c, path, info.st_size) : LOONG_OK;
}

static loong_status_t add_entries(loong_corpus_t *c, DIR *dir, const char *path,
                                  const char *suffixes)
{
    loong_text_t child = loongi_text_begin(c->ctx);
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    errno = 0;
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        child.length = 0;
        loongi_text_printf(&child, "%s/%s", path, entry->d_name);
        status = child.status;
        if (status == LOONG_OK) {
            status = add_entry(c, child.data, entry->d_name, suffixes);
        }
        errno = 0;
    }
    if (status == LOONG_OK && errno != 0) {
        status = LOONG_FAIL(c->ctx, LOONG_ERR_IO, "cannot list '%s': %s", path,
                            strerror(errno));
    }
    loongi_text_free(&child);
    return status;
}

static loong_status_t add_directory(loong_corpus_t *c, const char *path,
                                    const char *suffixes)
{
    DIR *dir = opendir(path);
    LOONG_CHECK(c->ctx, dir != NULL, LOONG_ERR_IO, "cannot list '%s': %s", path,
                strerror(errno));
    loong_status_t status = add_entries(c, dir, path, suffixes);
    closedir(dir);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    const corpus_file_t *x = a;
    const corpus_file_t *y = b;
    return strcmp(x->path, y->path);
}

static loong_status_t add_path(loong_corpus_t *c, const char *path,
                               const char *suffixes)
{
    struct stat info;
    int64_t first = c->num_files;
    if (stat(path, &info) != 0) {
        int code = errno;
        return LOONG_FAIL(c->ctx,
                          code == ENOENT ? LOONG_ERR_NOT_FOUND : LOONG_ERR_IO,
                          "cannot open '%s': %s", path, strerror(code));
    }
    if (!S_ISDIR(info.st_mode)) {
        return add_file(c, path, info.st_size);
    }
    LOONG_TRY(add_directory(c, path, suffixes));
    LOONG_CHECK(c->ctx, c->num_files > first, LOONG_ERR_NOT_FOUND,
                "no file%s%s under '%s'",
                suffixes != NULL ? " that ends in " : "",
                suffixes != NULL ? suffixes : "", path);
    qsort(c->files + first, (size_t)(c->num_files - first), sizeof(*c->files),
          compare_paths);
    return LOONG_OK;
}

static loong_status_t list_files(loong_corpus_t *c,
                                 const loong_corpus_params_t *params)
{
    LOONG_CHECK(c->ctx, params->num_paths > 0, LOONG_ERR_ARG,
                "a corpus of no files");
    for (int64_t i = 0; i < params->num_paths; i++) {
        LOONG_TRY(add_path(c, params->paths[i], params->suffixes));
    }
    c->buffer_size = 4 * READ_SIZE;
    return loongi_alloc(c->ctx, (size_t)c->buffer_size, "corpus buffer",
                        &c->buffer);
}

loong_status_t loong_corpus_create(loong_context_t *ctx,
                                   const loong_corpus_params_t *params,
                                   loong_corpus_t **corpus_p)
{
    loong_corpus_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "corpus", &c));
    c->ctx = ctx;
    c->split_blank_lines = params->split_blank_lines;
    loong_status_t status = list_files(c, params);
    if (status != LOONG_OK) {
        loong_corpus_destroy(&c);
        return status;
    }
    *corpus_p = c;
    return LOONG_OK;
}

void loong_corpus_destroy(loong_corpus_t **corpus)
{
    loong_corpus_t *c = *corpus;
    if (c == NULL) {
        return;
    }
    loongi_stream_destroy(&c->stream);
    for (int64_t i = 0; i < c->num_files; i++) {
        loongi_free(c->ctx, c->files[i].path);
    }
    loongi_free(c->ctx, c->files);
    loongi_free(c->ctx, c->buffer);
    loongi_free(c->ctx, c);
    *corpus = NULL;
}

void loong_corpus_get_info(const loong_corpus_t *c, loong_corpus_info_t *info)
{
    info->files = c->num_files;
    info->files_read = c->next - (c->stream != NULL);
    info->empty = c->empty;
    info->bytes = c->bytes;
    info->bytes_read = c->bytes_done;
    if (c->stream != NULL) {
        info->bytes_read += loongi_stream_position(c->stream);
    }
}

/* Reads on: more unread bytes, or file_end. */
static loong_status_t fill(loong_corpus_t *c)
{
    memmove(c->buffer, c->buffer + c->begin, (size_t)(c->end - c->begin));
    c->buffer_at += c->begin;
    c->end -= c->begin;
    c->begin = 0;
    LOONG_TRY(loongi_grow(c->ctx, &c->buffer, &c->buffer_size,
                          c->end + READ_SIZE, 1, "corpus buffer"));
    size_t length = 0;
    LOONG_TRY(loongi_stream_read(c->stream, c->buffer + c->end,
                                 (size_t)(c->buffer_size - c->end), &length));
    c->end += (int64_t)length;
    c->file_end = length == 0;
    return LOONG_OK;
}

/* The beginning of a file tells whether it is text at all. */
static loong_status_t check_text(loong_corpus_t *c)
{
    static const struct {
        const char *begin;
        const char *what;
    } magics[] = {{"PAR1", "a Parquet file"},
                  {"%PDF-", "a PDF file"},
                  {"PK\x03\x04", "a zip archive"}};
    const char *begin = c->buffer + c->begin;
    size_t length = (size_t)(c->end - c->begin);
    const char *nul = memchr(begin, '\0', length);
    for (int64_t i = 0; i < LOONG_COUNT_OF(magics); i++) {
        size_t n = strlen(magics[i].begin);
        LOONG_CHECK(c->ctx,
                    length < n || memcmp(begin, magics[i].begin, n) != 0,
                    LOONG_ERR_FORMAT,
                    "'%s' is %s, not text: it must be turned into text or "
                    "JSON lines first", c->path, magics[i].what);
    }
    LOONG_CHECK(c->ctx, nul == NULL, LOONG_ERR_FORMAT,
                "'%s' is not text: byte %" PRId64 " is 0 (binary, or UTF-16); "
                "in directories --suffixes chooses files", c->path,
                (int64_t)(nul - begin));
    return LOONG_OK;
}

/* Passes over blanks; *byte_p: what stands behind them, -1: the file ends. */
static loong_status_t peek(loong_corpus_t *c, int *byte_p)
{
    for (;;) {
        for (; c->begin < c->end; c->begin++) {
            char byte = c->buffer[c->begin];
            if (byte == '\0' || strchr(" \t\r\n", byte) == NULL) {
                *byte_p = (unsigned char)byte;
                return LOONG_OK;
            }
            c->line += byte == '\n';
        }
        if (c->file_end) {
            *byte_p = -1;
            return LOONG_OK;
        }
        LOONG_TRY(fill(c));
    }
}

/* A JSON file that begins with '[' is an array. */
static loong_status_t begin_array(loong_corpus_t *c)
{
    int byte = 0;
    LOONG_TRY(peek(c, &byte));
    c->array = byte == '[';
    c->begin += c->array;
    c->elements = 0;
    return LOONG_OK;
}

static loong_status_t open_next(loong_corpus_t *c)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'};
    c->path = c->files[c->next].path;
    c->gave = false;
    LOONG_TRY(loongi_stream_create(c->ctx, c->path, &c->stream));
    c->next++;
    c->json = is_json(c->path);
    c->file_end = false;
    c->line = 1;
    c->buffer_at = c->begin = c->end = 0;
    while (c->end < (int64_t)sizeof(mark) && !c->file_end) {
        LOONG_TRY(fill(c));
    }
    if (c->end >= (int64_t)sizeof(mark) &&
        memcmp(c->buffer, mark, sizeof(mark)) == 0) {
        c->begin = sizeof(mark);
    }
    LOONG_TRY(check_text(c));
    c->array = false;
    return c->json ? begin_array(c) : LOONG_OK;
}

/* End of the line that begins at begin + from, behind its newline, relative
 * to begin. At the end of the file the rest is a line. */
static loong_status_t line_end(loong_corpus_t *c, int64_t from, int64_t *end_p)
{
    int64_t searched = from;
    for (;;) {
        const char *start = c->buffer + c->begin;
        int64_t length = c->end - c->begin;
        const char *newline =
            memchr(start + searched, '\n', (size_t)(length - searched));
        if (newline != NULL || c->file_end) {
            *end_p = newline != NULL ? newline - start + 1 : length;
            return LOONG_OK;
        }
        searched = length;
        LOONG_TRY(fill(c));
    }
}

static bool is_blank(const char *bytes, int64_t length)
{
    for (int64_t i = 0; i < length; i++) {
        if (strchr(" \t\r\n\f\v", bytes[i]) == NULL || bytes[i] == '\0') {
            return false;
        }
    }
    return true;
}

/* Takes `length` bytes as a record that spans `lines` lines. */
static void take(loong_corpus_t *c, int64_t length, int64_t lines,
                 loong_record_t *record)
{
    record->bytes = c->buffer + c->begin;
    record->length = (size_t)length;
    record->path = c->path;
    record->line = c->line;
    record->offset = c->buffer_at + c->begin;
    record->json = c->json;
    c->begin += length;
    c->line += lines;
}

/* One line, or with `paragraph` the lines up to a blank one. Leaves bytes NULL
 * at the end of the file. */
static loong_status_t next_lines(loong_corpus_t *c, bool paragraph,
                                 loong_record_t *record)
{
    int64_t length = 0;
    int64_t lines = 0;
    for (;;) {
        int64_t end = 0;
        LOONG_TRY(line_end(c, length, &end));
        bool blank = is_blank(c->buffer + c->begin + length, end - length);
        if (end == length || (blank && length > 0)) {
            break;
        }
        if (blank) { /* before the record */
            c->begin += end;
            c->line++;
            continue;
        }
        length = end;
        lines++;
        if (!paragraph) {
            break;
        }
    }
    if (length > 0) {
        take(c, length, lines, record);
    }
    return LOONG_OK;
}

/* Bytes and line ends up to the comma or bracket behind the element that begins
 * at begin, or to the end of the file; the reader of JSON judges them. */
static loong_status_t measure_element(loong_corpus_t *c, int64_t *length_p,
                                      int64_t *lines_p)
{
    int64_t depth = 0;
    bool quoted = false;
    bool escaped = false;
    *lines_p = 0;
    for (*length_p = 0;; (*length_p)++) {
        if (c->begin + *length_p == c->end) {
            LOONG_TRY(fill(c));
            if (c->file_end) {
                return LOONG_OK;
            }
        }
        char byte = c->buffer[c->begin + *length_p];
        *lines_p += byte == '\n';
        if (quoted) {
            quoted = escaped || byte != '"';
            escaped = !escaped && byte == '\\';
        } else if (byte == '"') {
            quoted = true;
        } else if (byte == '[' || byte == '{') {
            depth++;
        } else if (depth == 0 && (byte == ',' || byte == ']')) {
            return LOONG_OK;
        } else if (byte == ']' || byte == '}') {
            depth--;
        }
    }
}

/* The next element of the array; leaves bytes NULL behind the last one. */
static loong_status_t next_element(loong_corpus_t *c, loong_record_t *record)
{
    int64_t length = 0;
    int64_t lines = 0;
    int byte = 0;
    LOONG_TRY(peek(c, &byte));
    if (byte == ']') {
        c->begin++;
        LOONG_TRY(peek(c, &byte));
        LOONG_CHECK(c->ctx, byte == -1, LOONG_ERR_FORMAT,
                    "%s:%" PRId64 ": text behind the end of the array",
                    c->path, c->line);
        c->array = false; /* nothing is left, as of lines */
        return LOONG_OK;
    }
    if (c->elements > 0 && byte == ',') {
        c->begin++;
        LOONG_TRY(peek(c, &byte));
    }
    LOONG_TRY(measure_element(c, &length, &lines));
    LOONG_CHECK(c->ctx, c->begin + length < c->end, LOONG_ERR_FORMAT,
                "%s:%" PRId64 ": the file ends inside its array", c->path,
                c->line);
    LOONG_CHECK(c->ctx, length > 0, LOONG_ERR_FORMAT,
                "%s:%" PRId64 ": no value in front of '%c'", c->path, c->line,
                byte);
    c->elements++;
    take(c, length, lines, record);
    return LOONG_OK;
}

static loong_status_t next_whole(loong_corpus_t *c, loong_record_t *record)
{
    while (!c->file_end) {
        LOONG_TRY(fill(c));
    }
    if (c->end > c->begin) {
        take(c, c->end - c->begin, 0, record);
    }
    return LOONG_OK;
}

loong_status_t loong_corpus_next(loong_corpus_t *c, loong_record_t *record)
{
    record->bytes = NULL;
    for (;;) {
        if (c->stream == NULL) {
            if (c->next == c->num_files) {
                return LOONG_OK;
            }
            LOONG_TRY(open_next(c));
        }
        if (c->array) {
            LOONG_TRY(next_element(c, record));
        } else if (c->json || c->split_blank_lines) {
            LOONG_TRY(next_lines(c, !c->json, record));
        } else {
            LOONG_TRY(next_whole(c, record));
        }
        if (record->bytes != NULL) {
            c->gave = true;
            return LOONG_OK;
        }
        loongi_stream_destroy(&c->stream);
        c->bytes_done += c->files[c->next - 1].bytes;
        c->empty += !c->gave;
    }
}

static loong_status_t copy_text(loong_context_t *ctx, const char *bytes,
                                size_t length, char **text_p, size_t *length_p)
{
    LOONG_TRY(loongi_alloc(ctx, length + 1, "document text", text_p));
    memcpy(*text_p, bytes, length);
    *length_p = length;
    return LOONG_OK;
}

static loong_status_t json_text(loong_context_t *ctx,
                                const loong_record_t *record,
                                const loong_json_t *json, const char *json_key,
                                char **text_p, size_t *length_p)
{
    const loong_json_t *value = loongi_json_get(json, json_key);
    LOONG_CHECK(ctx, loongi_json_kind(json) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s:%" PRId64 ": %s, must be an object",
                record->path, record->line, loongi_json_kind_text(json));
    if (value == NULL) {
        loong_text_t keys = loongi_text_begin(ctx);
        const loong_json_member_t *it = loongi_json_first(json);
        for (; it != NULL; it = loongi_json_next(json, it)) {
            loongi_text_printf(&keys, " '%s'", loongi_json_member_key(it));
        }
        loong_status_t status = LOONG_FAIL(
            ctx, LOONG_ERR_FORMAT, "%s:%" PRId64 ": no key '%s'; keys are:%s",
            record->path, record->line, json_key, loongi_text_get(&keys));
        loongi_text_free(&keys);
        return status;
    }
    LOONG_CHECK(ctx, loongi_json_kind(value) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s:%" PRId64 ": '%s' is %s, not a string",
                record->path, record->line, json_key,
                loongi_json_kind_text(value));
    return copy_text(ctx, loongi_json_string(value),
                     loongi_json_string_length(value), text_p, length_p);
}

loong_status_t loong_record_text(loong_context_t *ctx,
                                 const loong_record_t *record,
                                 const char *json_key, char **text_p,
                                 size_t *length_p)
{
    if (!record->json) {
        return copy_text(ctx, record->bytes, record->length, text_p, length_p);
    }
    loong_text_t where = loongi_text_begin(ctx);
    loong_json_t *json = NULL;
    size_t line = record->length; /* without its end */
    while (line > 0 && strchr("\r\n", record->bytes[line - 1]) != NULL &&
           record->bytes[line - 1] != '\0') {
        line--;
    }
    loongi_text_printf(&where, "%s:%" PRId64, record->path, record->line);
    loong_status_t status = loongi_json_parse(
        ctx, record->bytes, line, loongi_text_get(&where), &json);
    loongi_text_free(&where);
    LOONG_TRY(status);
    status = json_text(ctx, record, json, json_key, text_p, length_p);
    loongi_json_destroy(&json);
    return status;
}

void loong_record_free(loong_context_t *ctx, char **text)
{
    loongi_free(ctx, *text);
    *text = NULL;
}
