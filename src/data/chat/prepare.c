/* SPDX-License-Identifier: Apache-2.0
 *
 * All records into a data set: the calling thread reads and writes, in the
 * order of the files; workers render and tokenise a batch between them. Called
 * by keep.c. Read chat.h before. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "chat.h"
#include "file.h"
#include "readers.h"
#include "utf8.h"

enum {
    BATCH_RECORDS = 4096,
    BATCH_BYTES = 1 << 23,
    TASK_RECORDS = 32,
    MAX_THREADS = 64,
    MAX_NAMED = 20 /* refused records in messages */
};

typedef enum outcome { USED, REFUSED, LEFT_OUT, FAILED } outcome_t;

typedef struct entry {
    size_t at; /* of the batch's bytes */
    chat_record_t record;
    int64_t file;
    outcome_t outcome;
    const chat_worker_t *worker; /* that has its tokens */
    int64_t first, count, learned;
    size_t paths;         /* where those of its pictures begin */
    int64_t images, num_images; /* likewise, of the worker's */
    size_t refused_paths; /* bytes of them when it is refused */
    char *why;            /* of the worker */
} entry_t;

typedef struct build {
    loong_chat_t *chat;
    loong_context_t *ctx;
    loong_dataset_writer_t *writer;
    loong_readers_t *readers;
    int num_workers;
    chat_worker_t *workers[MAX_THREADS];
    entry_t *entries; /* [BATCH_RECORDS] */
    int64_t count;
    loong_text_t bytes;   /* of the records */
    loong_text_t refused; /* what is not in its file yet */
    int refused_fd;
    int64_t refused_at;
    int64_t num_refused, places_room, turns_room, num_turns;
    int64_t images_room, num_images, parts_room;
    loong_text_t image_paths, refused_images;
    loong_text_t named;
    XXH3_state_t *hash;
    loong_status_t failed; /* of a worker, its message in the entry */
} build_t;

/* ---- workers ------------------------------------------------------------- */

/* What is wrong with one record leaves the others alone. */
static bool is_refusal(loong_status_t status)
{
    return status == LOONG_ERR_FORMAT || status == LOONG_ERR_UNSUPPORTED ||
           status == LOONG_ERR_ARG;
}

/* Messages quote what is wrong with a record, cut anywhere, and names of files:
 * what is kept is UTF-8. */
static void mend(char *text)
{
    size_t length = strlen(text);
    for (size_t at = 0; at < length;) {
        int bad = 0;
        int bytes = loongi_utf8_check(text + at, length - at, &bad);
        if (bytes == 0) {
            memset(text + at, '?', (size_t)bad);
        }
        at += (size_t)(bytes > 0 ? bytes : bad);
    }
}

static void fail_entry(chat_worker_t *w, entry_t *e, loong_status_t status)
{
    const char *error = loong_context_error(w->ctx);
    e->outcome = is_refusal(status) ? REFUSED : FAILED;
    e->count = status;
    if (loongi_strdup(w->ctx, error, &e->why) != LOONG_OK) {
        e->outcome = FAILED;
    }
    loong_context_clear_error(w->ctx);
    for (char *c = e->why; c != NULL && *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c; /* a line each */
    }
    if (e->why != NULL) {
        mend(e->why);
    }
}

static void encode_entry(const build_t *b, chat_worker_t *w, entry_t *e)
{
    const chat_file_t *file = &b->chat->files.file[e->file];
    e->record.bytes = b->bytes.data + e->at;
    e->first = w->count;
    e->paths = w->image_paths.length;
    e->images = w->num_images;
    e->worker = w;
    int64_t parts = w->num_parts;
    w->conversation.path = file->path;
    loong_status_t status =
        loongi_chat_convert(&w->conversation, file->format, &e->record);
    if (status == LOONG_OK && w->conversation.left_out) {
        e->outcome = LEFT_OUT;
        return;
    }
    if (status == LOONG_OK) {
        status = loongi_chat_encode(w, &e->learned);
    }
    if (status != LOONG_OK) {
        w->count = e->first;
        w->image_paths.length = e->paths;
        w->num_images = e->images;
        w->num_parts = parts;
        e->refused_paths = w->conversation.image_paths.length;
        loongi_text_append(&w->image_paths,
                           loongi_text_get(&w->conversation.image_paths),
                           e->refused_paths);
        fail_entry(w, e, status);
        return;
    }
    e->outcome = USED;
    e->count = w->count - e->first;
    e->num_images = w->num_images - e->images;
}

static void run_task(void *user, int reader, int64_t task)
{
    build_t *b = user;
    int64_t end = LOONG_MIN((task + 1) * TASK_RECORDS, b->count);
    for (int64_t i = task * TASK_RECORDS; i < end; i++) {
        encode_entry(b, b->workers[reader], &b->entries[i]);
    }
}

static int count_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int count =
        sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return LOONG_MAX(1, LOONG_MIN(count, MAX_THREADS));
}

static loong_status_t start(build_t *b)
{
    loong_chat_t *chat = b->chat;
    const loong_dataset_writer_params_t params = {
        chat->prefix,
        loong_dataset_dtype(loong_tokenizer_get_vocab_size(chat->tokenizer)),
        true};
    b->bytes = loongi_text_begin(b->ctx);
    b->named = loongi_text_begin(b->ctx);
    b->image_paths = loongi_text_begin(b->ctx);
    b->refused_images = loongi_text_begin(b->ctx);
    b->refused = loongi_text_begin(b->ctx);
    b->hash = XXH3_createState();
    LOONG_CHECK(b->ctx, b->hash != NULL, LOONG_ERR_MEMORY, "out of memory");
    XXH3_64bits_reset(b->hash);
    LOONG_TRY(loongi_calloc(b->ctx, BATCH_RECORDS, sizeof(*b->entries),
                            "a batch of records", &b->entries));
    LOONG_TRY(loong_dataset_writer_create(b->ctx, &params, &b->writer));
    b->refused_fd = open(chat->refused_file,
                         O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    LOONG_CHECK(b->ctx, b->refused_fd >= 0, LOONG_ERR_IO,
                "cannot write '%s': %s", chat->refused_file, strerror(errno));
    int count = count_processors();
    for (; b->num_workers < count; b->num_workers++) {
        loong_status_t status = loongi_chat_worker_create(
            &chat->form, chat->tokenizer, chat->rules, &chat->image_rules,
            &b->workers[b->num_workers]);
        LOONG_CHECK(b->ctx, status == LOONG_OK, status,
                    "cannot create an encoder of conversations");
        b->workers[b->num_workers]->conversation.tags = chat->tags;
        b->workers[b->num_workers]->conversation.use_chosen =
            chat->options.use_chosen;
        b->workers[b->num_workers]->conversation.mixed = chat->format == NULL;
    }
    return loongi_readers_create(b->ctx, count, run_task, b, &b->readers);
}

/* ---- writing ------------------------------------------------------------- */

static loong_status_t flush_refused(build_t *b)
{
    LOONG_TRY(loongi_file_pwrite(b->ctx, b->refused_fd, b->chat->refused_file,
                                 b->refused.data, b->refused.length,
                                 (off_t)b->refused_at));
    b->refused_at += (int64_t)b->refused.length;
    b->refused.length = 0;
    return LOONG_OK;
}

static loong_status_t refuse(build_t *b, const entry_t *e)
{
    const chat_file_t *file = &b->chat->files.file[e->file];
    loongi_text_printf(&b->refused, "%s:%" PRId64 ": %s\n", file->path,
                       e->record.line, e->why);
    LOONG_TRY(b->refused.status);
    if (b->refused.length >= BATCH_BYTES) {
        LOONG_TRY(flush_refused(b));
    }
    if (b->num_refused++ < MAX_NAMED) {
        loongi_text_printf(&b->named, "%s%s:%" PRId64 ": %s",
                           b->named.length > 0 ? "\n" : "", file->path,
                           e->record.line, e->why);
    }
    LOONG_TRY(e->worker->image_paths.status);
    loongi_text_append(&b->refused_images,
                       loongi_text_get(&e->worker->image_paths) + e->paths,
                       e->refused_paths);
    LOONG_TRY(b->refused_images.status);
    return b->named.status;
}

/* Where the parts of a video or of a picture in slices stand. */
static loong_status_t add_parts(build_t *b, const int32_t *part_at,
                                chat_image_t *image)
{
    loong_chat_t *chat = b->chat;
    int64_t parts = image->of.parts;
    image->part_at = chat->num_parts;
    if (image->of.frames > 0 || parts > 1) {
        XXH3_64bits_update(b->hash, &image->of, sizeof(image->of));
    }
    if (parts <= 1) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_grow(b->ctx, &chat->part_at, &b->parts_room,
                          chat->num_parts + parts, sizeof(*chat->part_at),
                          "parts of videos"));
    memcpy(chat->part_at + chat->num_parts, part_at,
           (size_t)parts * sizeof(*part_at));
    chat->num_parts += parts;
    return LOONG_OK;
}

static loong_status_t add_images(build_t *b, const entry_t *e)
{
    loong_chat_t *chat = b->chat;
    const chat_worker_t *w = e->worker;
    const char *path = loongi_text_get(&w->image_paths) + e->paths;
    for (int64_t i = 0; i < e->num_images; i++) {
        chat_image_t image = w->images[e->images + i];
        size_t length = strlen(path) + 1;
        LOONG_TRY(loongi_grow(b->ctx, &chat->images, &b->images_room,
                              b->num_images + 1, sizeof(*chat->images),
                              "pictures of samples"));
        LOONG_TRY(add_parts(b, w->part_at + image.part_at, &image));
        image.path = (int64_t)b->image_paths.length;
        chat->images[b->num_images++] = image;
        loongi_text_append(&b->image_paths, path, length);
        XXH3_64bits_update(b->hash, path, length);
        path += length;
    }
    return b->image_paths.status;
}

static loong_status_t add_sample(build_t *b, const entry_t *e)
{
    loong_chat_t *chat = b->chat;
    const int32_t *ids = e->worker->ids + e->first;
    const uint8_t *weight = e->worker->weight + e->first;
    LOONG_TRY(loong_dataset_writer_add(b->writer, ids, weight, e->count));
    LOONG_TRY(loong_dataset_writer_end_document(b->writer));
    LOONG_TRY(loongi_grow(b->ctx, &chat->places, &b->places_room,
                          chat->samples + 2, sizeof(*chat->places),
                          "places of samples"));
    LOONG_TRY(loongi_grow(b->ctx, &chat->turns, &b->turns_room,
                          b->num_turns + e->count, sizeof(*chat->turns),
                          "turns of samples"));
    chat->places[chat->samples++] =
        (chat_place_t){e->record.line, (int32_t)e->file, (int32_t)e->learned,
                       b->num_turns, b->num_images};
    for (int64_t i = 0; i < e->count; i++) {
        if (e->worker->starts[e->first + i] & LOONG_START_TURN) {
            chat->turns[b->num_turns++] = (int32_t)i;
        }
    }
    LOONG_TRY(add_images(b, e));
    chat->places[chat->samples].turns = b->num_turns;
    chat->places[chat->samples].images = b->num_images;
    chat->learned += e->learned;
    XXH3_64bits_update(b->hash, &e->count, sizeof(e->count));
    XXH3_64bits_update(b->hash, ids, (size_t)e->count * sizeof(*ids));
    XXH3_64bits_update(b->hash, weight, (size_t)e->count);
    return LOONG_OK;
}

static loong_status_t write_entry(build_t *b, const entry_t *e)
{
    chat_file_t *file = &b->chat->files.file[e->file];
    file->records++;
    switch (e->outcome) {
    case USED:
        file->samples++;
        return add_sample(b, e);
    case REFUSED:
        file->refused++;
        return refuse(b, e);
    case LEFT_OUT:
        file->left_out++;
        return LOONG_OK;
    default:
        return LOONG_FAIL(b->ctx, (loong_status_t)e->count,
                          "%s:%" PRId64 ": %s", file->path, e->record.line,
                          e->why != NULL ? e->why : "out of memory");
    }
}

/* What has been read becomes samples. */
static loong_status_t flush(build_t *b)
{
    loong_status_t status = b->bytes.status;
    if (status == LOONG_OK && b->count > 0) {
        loongi_readers_start(b->readers,
                             (b->count + TASK_RECORDS - 1) / TASK_RECORDS);
        loongi_readers_wait(b->readers);
    }
    for (int64_t i = 0; i < b->count; i++) {
        entry_t *e = &b->entries[i];
        status = status == LOONG_OK ? write_entry(b, e) : status;
        if (e->why != NULL) {
            loongi_free(e->worker->ctx, e->why);
        }
    }
    for (int i = 0; i < b->num_workers; i++) {
        b->workers[i]->count = 0;
        b->workers[i]->image_paths.length = 0;
        b->workers[i]->num_images = 0;
        b->workers[i]->num_parts = 0;
    }
    b->count = 0;
    b->bytes.length = 0;
    return status;
}

/* ---- reading ------------------------------------------------------------- */

/* The file has one value over several lines: its first one opens an object. */
static bool is_spread(const build_t *b, const chat_file_t *file,
                      const chat_record_t *record)
{
    return file->records + b->count == 0 && record->length > 0 &&
           record->bytes[0] == '{' &&
           strchr("{[,", record->bytes[record->length - 1]) != NULL;
}

/* By the first record that is an object. */
static loong_status_t recognise(build_t *b, chat_file_t *file,
                                const chat_record_t *record)
{
    chat_conversation_t *c = &b->workers[0]->conversation;
    loong_json_t *json = NULL;
    if (record->plain || record->broken || file->format != NULL) {
        return LOONG_OK;
    }
    if (loongi_json_parse(b->ctx, record->bytes, record->length, "a record",
                          &json) != LOONG_OK) {
        loong_context_clear_error(b->ctx); /* told when it is converted */
        LOONG_CHECK(b->ctx, !is_spread(b, file, record), LOONG_ERR_FORMAT,
                    "%s:%" PRId64 ": an object over several lines: records are "
                    "a line each, or elements of an array in [ ]",
                    file->path, record->line);
        return LOONG_OK;
    }
    file->format = loongi_chat_format_of(c, json);
    loong_status_t status = LOONG_OK;
    if (file->format == NULL && loongi_json_kind(json) == LOONG_JSON_OBJECT) {
        loong_text_t keys = loongi_text_begin(b->ctx);
        const loong_json_member_t *it = loongi_json_first(json);
        for (; it != NULL; it = loongi_json_next(json, it)) {
            loongi_text_printf(&keys, " '%s'", loongi_json_member_key(it));
        }
        for (const chat_format_t *f = loongi_chat_formats; f->name; f++) {
            loongi_text_printf(&keys, "%s %s",
                               f == loongi_chat_formats ? "; formats are" : ",",
                               f->name);
        }
        status = LOONG_FAIL(b->ctx, LOONG_ERR_FORMAT,
                            "%s:%" PRId64 ": the record is of no known format, "
                            "its keys are%s",
                            file->path, record->line, loongi_text_get(&keys));
        loongi_text_free(&keys);
    }
    loongi_json_destroy(&json);
    return status;
}

static loong_status_t read_file(build_t *b, int64_t number)
{
    chat_file_t *file = &b->chat->files.file[number];
    chat_reader_t *reader = NULL;
    chat_record_t record;
    file->format = b->chat->format;
    LOONG_TRY(loongi_chat_reader_create(b->ctx, file, &reader));
    loong_status_t status = loongi_chat_reader_next(reader, &record);
    while (status == LOONG_OK && record.bytes != NULL) {
        status = recognise(b, file, &record);
        b->entries[b->count++] =
            (entry_t){.at = b->bytes.length, .record = record, .file = number};
        loongi_text_append(&b->bytes, record.bytes, record.length);
        if (status == LOONG_OK &&
            (b->count == BATCH_RECORDS || b->bytes.length >= BATCH_BYTES)) {
            status = flush(b);
        }
        if (status == LOONG_OK) {
            status = loongi_chat_reader_next(reader, &record);
        }
    }
    loongi_chat_reader_destroy(&reader);
    return status == LOONG_OK ? flush(b) : status;
}

static loong_status_t take_paths(loong_context_t *ctx, const loong_text_t *from,
                                 char **to, int64_t *bytes)
{
    LOONG_TRY(loongi_alloc(ctx, from->length + 1, "paths of pictures", to));
    memcpy(*to, loongi_text_get(from), from->length);
    *bytes = (int64_t)from->length;
    return LOONG_OK;
}

static loong_status_t finish(build_t *b)
{
    loong_chat_t *chat = b->chat;
    LOONG_TRY(loongi_grow(b->ctx, &chat->places, &b->places_room, 1,
                          sizeof(*chat->places), "places of samples"));
    chat->hash = XXH3_64bits_digest(b->hash);
    LOONG_TRY(take_paths(b->ctx, &b->image_paths, &chat->image_paths,
                         &chat->image_bytes));
    LOONG_TRY(take_paths(b->ctx, &b->refused_images, &chat->refused_images,
                         &chat->refused_image_bytes));
    LOONG_TRY(flush_refused(b));
    LOONG_TRY(loongi_strdup(b->ctx, loongi_text_get(&b->named),
                            &chat->first_refused));
    mend(chat->first_refused);
    return loong_dataset_writer_commit(b->writer);
}

loong_status_t loongi_chat_prepare(loong_chat_t *chat)
{
    build_t b = {.chat = chat, .ctx = chat->ctx, .refused_fd = -1};
    loong_status_t status = start(&b);
    for (int64_t i = 0; status == LOONG_OK && i < chat->files.count; i++) {
        status = read_file(&b, i);
    }
    if (status == LOONG_OK) {
        status = finish(&b);
    }
    loongi_readers_destroy(&b.readers);
    for (int i = 0; i < b.num_workers; i++) {
        loongi_chat_worker_destroy(&b.workers[i]);
    }
    if (b.refused_fd >= 0) {
        close(b.refused_fd);
    }
    loong_dataset_writer_destroy(&b.writer);
    XXH3_freeState(b.hash);
    loongi_text_free(&b.refused);
    loongi_text_free(&b.bytes);
    loongi_text_free(&b.named);
    loongi_text_free(&b.image_paths);
    loongi_text_free(&b.refused_images);
    loongi_free(chat->ctx, b.entries);
    return status;
}
