/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a file of texts with pictures: every record is read once, and what
 * is wrong with it told before anything runs; where it stands and how large it
 * is are kept. Called by source_class.c. Read image_text.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "file.h"
#include "image_text.h"
#include "loong/image.h"
#include "loong/corpus.h"
#include "tar.h"

static loong_status_t open_tokenizer(image_text_t *s,
                                     const loong_source_params_t *p)
{
    const int32_t *ids = NULL;
    int64_t count = 0;
    LOONG_CHECK(s->ctx, p->tokenizer != NULL && p->image_token != NULL,
                LOONG_ERR_CONFIG,
                "data '%s': the texts of '%s' need data.tokenizer", p->data,
                p->path);
    LOONG_TRY(strcmp(p->tokenizer, "bytes") == 0
                  ? loong_tokenizer_bytes(s->ctx, &s->tokenizer)
                  : loong_tokenizer_load(s->ctx, p->tokenizer, &s->tokenizer));
    s->image_id = loong_tokenizer_token_to_id(s->tokenizer, p->image_token);
    LOONG_CHECK(s->ctx, s->image_id >= 0, LOONG_ERR_CONFIG,
                "data '%s': the tokenizer '%s' has no token '%s', by which "
                "data.image_token says where pictures stand",
                p->data, p->tokenizer, p->image_token);
    s->image_token = loong_tokenizer_id_to_token(s->tokenizer, s->image_id);
    s->end_id = loong_tokenizer_get_role(s->tokenizer, LOONG_TOKEN_EOS);
    if (s->end_id < 0) {
        s->end_id = loong_tokenizer_get_role(s->tokenizer, LOONG_TOKEN_EOD);
    }
    LOONG_TRY(loongi_text_worker_create(s, &s->workers));
    LOONG_TRY(
        loong_text_encode(s->workers->encoder, "", 0, true, &ids, &count));
    int32_t begin = loong_tokenizer_get_role(s->tokenizer, LOONG_TOKEN_BOS);
    s->begin_id = count > 0 && ids[0] == begin ? begin : -1;
    return LOONG_OK;
}

static loong_status_t check_images(image_text_t *s, const char *where,
                                   const text_record_t *record)
{
    const text_worker_t *w = s->workers;
    loong_text_t path = loongi_text_begin(s->ctx);
    loong_status_t status = LOONG_OK;
    int64_t found = 0;
    bool exists = false;
    for (int64_t t = 0; t < w->count; t++) {
        found += w->ids[t] == s->image_id;
    }
    LOONG_CHECK(s->ctx, found == record->num_images, LOONG_ERR_FORMAT,
                "%s: '%s' stands %" PRId64 " times in the text, pictures: "
                "%" PRId64,
                where, s->image_token, found, record->num_images);
    for (int64_t k = 0; status == LOONG_OK && k < found; k++) {
        path.length = 0;
        loongi_image_text_path(s, record, k, &path);
        status = path.status;
        if (status == LOONG_OK) {
            status = loongi_file_part_exists(s->ctx, path.data, &exists);
        }
        if (status == LOONG_OK && !exists) {
            status =
                LOONG_FAIL(s->ctx, LOONG_ERR_NOT_FOUND,
                           "%s: there is no picture '%s'", where, path.data);
        }
    }
    loongi_text_free(&path);
    return status;
}

/* Behind what was checked. */
static loong_status_t add_entry(image_text_t *s, const loong_record_t *record,
                                size_t length)
{
    const text_worker_t *w = s->workers;
    LOONG_TRY(loongi_grow(s->ctx, &s->entries, &s->room, s->count + 2,
                          sizeof(*s->entries), "records of a source"));
    LOONG_TRY(loongi_grow(s->ctx, &s->at, &s->images_room,
                          s->num_images + LOONG_MAX_ITEMS, sizeof(*s->at),
                          "pictures of a source"));
    s->entries[s->count++] = (text_entry_t){
        record->offset, (int64_t)length, record->line, w->count, s->num_images};
    for (int64_t t = 0; t < w->count; t++) {
        if (w->ids[t] == s->image_id) {
            s->at[s->num_images++] = t;
        }
    }
    s->entries[s->count].first_image = s->num_images;
    s->info.hash = XXH3_64bits_withSeed(record->bytes, length, s->info.hash);
    s->info.hash =
        XXH3_64bits_withSeed(&w->count, sizeof(w->count), s->info.hash);
    return LOONG_OK;
}

static loong_status_t add_record(image_text_t *s, const loong_record_t *record)
{
    text_record_t parsed;
    size_t length = record->length;
    while (length > 0 && record->bytes[length - 1] <= ' ') {
        length--; /* blanks and line ends behind it */
    }
    loong_text_t where = loongi_text_begin(s->ctx);
    loongi_text_printf(&where, "%s:%" PRId64, record->path, record->line);
    loong_status_t status = loongi_text_record_parse(
        s->ctx, loongi_text_get(&where), record->bytes, length, &parsed);
    if (status == LOONG_OK) {
        status = loongi_text_encode_record(s->ctx, s, &parsed, s->workers);
        if (status == LOONG_OK) {
            status = check_images(s, loongi_text_get(&where), &parsed);
        }
        loongi_json_destroy(&parsed.json);
    }
    loongi_text_free(&where);
    LOONG_TRY(status);
    return add_entry(s, record, length);
}

static loong_status_t read_records(image_text_t *s)
{
    const char *path = s->path;
    const loong_corpus_params_t params = {&path, 1, NULL, false};
    loong_corpus_t *corpus = NULL;
    loong_record_t record;
    LOONG_TRY(loong_corpus_create(s->ctx, &params, &corpus));
    loong_status_t status = LOONG_OK;
    do {
        status = loong_corpus_next(corpus, &record);
        if (status == LOONG_OK && record.bytes != NULL) {
            status = add_record(s, &record);
        }
    } while (status == LOONG_OK && record.bytes != NULL);
    loong_corpus_destroy(&corpus);
    return status;
}

/* Records are read again at their places. */
static loong_status_t open_file(image_text_t *s)
{
    static const uint8_t magics[][4] = {{0x1f, 0x8b}, {0x28, 0xb5, 0x2f, 0xfd}};
    static const size_t sizes[] = {2, 4};
    uint8_t head[4];
    bool packed = false;
    const char *dot = strrchr(s->path, '.');
    LOONG_CHECK(s->ctx, loongi_file_exists(s->path), LOONG_ERR_NOT_FOUND,
                "%s: there is no such file", s->path);
    s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(s->ctx, s->fd >= 0, LOONG_ERR_IO, "%s: %s", s->path,
                strerror(errno));
    ssize_t length = pread(s->fd, head, sizeof(head), 0);
    for (int i = 0; i < 2; i++) {
        packed = packed || (length == (ssize_t)sizeof(head) &&
                            memcmp(head, magics[i], sizes[i]) == 0);
    }
    LOONG_CHECK(s->ctx, !packed, LOONG_ERR_UNSUPPORTED,
                "%s: is compressed, and records are read at random", s->path);
    LOONG_CHECK(s->ctx,
                dot != NULL &&
                    (strcmp(dot, ".jsonl") == 0 ||
                     strcmp(dot, ".ndjson") == 0 || strcmp(dot, ".json") == 0),
                LOONG_ERR_UNSUPPORTED,
                "%s: texts with pictures are .jsonl, .ndjson or .json",
                s->path);
    return LOONG_OK;
}

loong_status_t loongi_image_text_open(image_text_t *s,
                                      const loong_source_params_t *p)
{
    LOONG_CHECK(s->ctx,
                p->image_processor == NULL ||
                    !loong_image_processor_is_sliced(p->image_processor),
                LOONG_ERR_UNSUPPORTED,
                "data '%s': '%s': the image processor cuts pictures into "
                "slices, which have tokens of their own; source: chat puts "
                "them into texts",
                p->data, p->path);
    LOONG_TRY(loongi_strdup(s->ctx, p->path, &s->path));
    LOONG_CHECK(
        s->ctx, p->image_root == NULL || loongi_dir_exists(p->image_root),
        LOONG_ERR_CONFIG, "data '%s': data.image_root: '%s' is no directory",
        p->data, p->image_root);
    if (p->image_root != NULL) {
        LOONG_TRY(loongi_strdup(s->ctx, p->image_root, &s->root));
    }
    const char *slash = strrchr(s->path, '/');
    s->directory = slash != NULL ? (size_t)(slash + 1 - s->path) : 0;
    LOONG_TRY(open_file(s));
    LOONG_TRY(open_tokenizer(s, p));
    LOONG_TRY(read_records(s));
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)s->num_images, sizeof(*s->sizes),
                            "sizes of pictures", &s->sizes));
    int64_t end = s->count;
    if (p->split_end > 0) {
        s->first = (int64_t)floor(p->split_begin * (double)s->count);
        end = (int64_t)floor(p->split_end * (double)s->count);
    }
    s->info.path = s->path;
    s->info.samples = end - s->first;
    LOONG_CHECK(s->ctx, s->info.samples > 0, LOONG_ERR_FORMAT,
                "data '%s': '%s' has no records in this share of its %" PRId64,
                p->data, s->path, s->count);
    return LOONG_OK;
}
