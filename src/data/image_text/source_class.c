/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts with pictures as a class of sources. Called through
 * loong_source_class_t, from several threads at once. Read image_text.h
 * before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "image_text.h"
#include "loong/image.h"

static void close_source(void *opaque)
{
    image_text_t *s = opaque;
    if (s == NULL) {
        return;
    }
    while (s->workers != NULL) {
        text_worker_t *worker = s->workers;
        s->workers = worker->next;
        loongi_text_worker_destroy(&worker);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    pthread_mutex_destroy(&s->lock);
    loong_tokenizer_destroy(&s->tokenizer);
    loongi_free(s->ctx, s->sizes);
    loongi_free(s->ctx, s->at);
    loongi_free(s->ctx, s->entries);
    loongi_free(s->ctx, s->path);
    loongi_free(s->ctx, s->root);
    loongi_free(s->ctx, s);
}

static loong_status_t open_source(loong_context_t *ctx,
                                  const loong_source_params_t *params,
                                  void **source_p)
{
    image_text_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "source of texts", &s));
    s->ctx = ctx;
    s->fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    loong_status_t status = loongi_image_text_open(s, params);
    if (status != LOONG_OK) {
        close_source(s);
        return status;
    }
    *source_p = s;
    return LOONG_OK;
}

static void get_info(const void *source, loong_source_info_t *info)
{
    *info = ((const image_text_t *)source)->info;
}

/* ---- items --------------------------------------------------------------- */

/* The items without contents, and room for `more` bytes of these. */
static loong_status_t list_items(image_text_t *s, int64_t i, size_t more,
                                 loong_items_t *items)
{
    enum { NUMBER = 24, PADDING = 64 };
    const text_entry_t *e = &s->entries[s->first + i];
    size_t name = strlen(s->path) + NUMBER;
    LOONG_TRY(loong_items_begin(items, name + PADDING + more));
    char *text = loong_items_take(items, name);
    snprintf(text, name, "%s:%" PRId64, s->path, e->line);
    items->item[0] = (loong_item_t){
        .type = LOONG_ITEM_TOKENS, .name = text, .size = {e->tokens, 0}};
    items->count = 1;
    pthread_mutex_lock(&s->lock);
    for (int64_t k = e->first_image; k < e[1].first_image; k++) {
        items->item[items->count++] =
            (loong_item_t){.type = LOONG_ITEM_IMAGE,
                           .at = s->at[k],
                           .several = e[1].first_image - e->first_image > 1,
                           .size = {s->sizes[k][0], s->sizes[k][1]}};
    }
    pthread_mutex_unlock(&s->lock);
    return LOONG_OK;
}

/* ---- pictures ------------------------------------------------------------ */

void loongi_image_text_path(const image_text_t *s, const text_record_t *record,
                            int64_t k, loong_text_t *path)
{
    const char *name = loongi_text_record_image(record, k);
    if (name[0] != '/' && s->root != NULL) {
        loongi_text_printf(path, "%s/", s->root);
    } else if (name[0] != '/') {
        loongi_text_append(path, s->path, s->directory);
    }
    loongi_text_printf(path, "%s", name);
}

static bool is_measured(image_text_t *s, int64_t k)
{
    pthread_mutex_lock(&s->lock);
    bool measured = s->sizes[k][0] > 0;
    pthread_mutex_unlock(&s->lock);
    return measured;
}

/* Finds the sizes of all pictures of a record, once. */
static loong_status_t measure(loong_context_t *ctx, image_text_t *s,
                              const text_record_t *record,
                              const text_entry_t *e)
{
    loong_image_info_t info = {0};
    loong_status_t status = LOONG_OK;
    for (int64_t k = 0; k < record->num_images && status == LOONG_OK; k++) {
        int64_t *size = s->sizes[e->first_image + k];
        if (is_measured(s, e->first_image + k)) {
            continue;
        }
        loong_text_t path = loongi_text_begin(ctx);
        loongi_image_text_path(s, record, k, &path);
        status = path.status == LOONG_OK
                     ? loong_image_get_file_info(ctx, path.data, &info)
                     : path.status;
        loongi_text_free(&path);
        pthread_mutex_lock(&s->lock);
        size[0] = status == LOONG_OK ? info.width : 0;
        size[1] = info.height;
        pthread_mutex_unlock(&s->lock);
    }
    return status;
}

static loong_status_t load(loong_context_t *ctx, const image_text_t *s,
                           const text_record_t *record, int64_t k,
                           loong_image_sample_t *image)
{
    loong_text_t path = loongi_text_begin(ctx);
    loongi_image_text_path(s, record, k, &path);
    loong_status_t status = path.status;
    if (status == LOONG_OK) {
        status = loong_image_load(ctx, path.data, image);
    }
    loongi_text_free(&path);
    image->name = loongi_text_record_image(record, k);
    return status;
}

/* ---- a sample ------------------------------------------------------------ */

/* What is read of one sample. */
typedef struct sample {
    image_text_t *source;
    int64_t number;
    loong_items_t *items;
    text_record_t record;
    text_worker_t *worker; /* with the ids; NULL: they are not wanted */
    loong_image_sample_t images[LOONG_MAX_ITEMS]; /* those that are wanted */
} sample_t;

static size_t image_bytes(const loong_image_sample_t *image)
{
    return (size_t)(image->info.width * image->info.height) * 3;
}

static loong_status_t fill_items(sample_t *p)
{
    enum { PADDING = 64 };
    loong_items_t *items = p->items;
    size_t tokens = p->worker != NULL ? (size_t)p->worker->count : 0;
    size_t more = tokens * (sizeof(int32_t) + 2) + 3 * PADDING;
    for (int64_t k = 0; k < p->record.num_images; k++) {
        more += image_bytes(&p->images[k]) + PADDING;
        more += strlen(loongi_text_record_image(&p->record, k)) + 1 + PADDING;
    }
    LOONG_TRY(list_items(p->source, p->number, more, items));
    loong_item_t *item = items->item;
    if (p->worker != NULL) {
        item->ids = loong_items_take(items, tokens * sizeof(*item->ids));
        item->weight = loong_items_take(items, tokens);
        item->starts = loong_items_take(items, tokens);
        memcpy(item->ids, p->worker->ids, tokens * sizeof(*item->ids));
        memcpy(item->weight, p->worker->learned, tokens);
        memset(item->starts, 0, tokens);
        item->starts[0] = 1;
    }
    for (int64_t k = 0; k < p->record.num_images; k++) {
        const loong_image_sample_t *image = &p->images[k];
        const char *path = loongi_text_record_image(&p->record, k);
        char *name = loong_items_take(items, strlen(path) + 1);
        item++;
        memcpy(name, path, strlen(path) + 1);
        item->name = name;
        if (image->bytes != NULL) {
            item->pixels = loong_items_take(items, image_bytes(image));
            LOONG_TRY(loong_image_decode_item(items->ctx, image, item));
        }
    }
    return LOONG_OK;
}

static loong_status_t check_ids(const sample_t *p, const char *where)
{
    const text_worker_t *w = p->worker;
    for (int64_t t = 0; t < w->count; t++) {
        LOONG_CHECK(
            p->items->ctx, w->ids[t] < p->items->vocab_size, LOONG_ERR_CONFIG,
            "%s: token %d ('%s'), the model knows ids below %" PRId64, where,
            w->ids[t],
            loong_tokenizer_id_to_token(p->source->tokenizer, w->ids[t]),
            p->items->vocab_size);
    }
    return LOONG_OK;
}

static bool same_pictures(const sample_t *p)
{
    const text_entry_t *e = &p->source->entries[p->source->first + p->number];
    return p->record.num_images == e[1].first_image - e->first_image;
}

static loong_status_t read_contents(sample_t *p, const char *where)
{
    image_text_t *s = p->source;
    const text_entry_t *e = &s->entries[s->first + p->number];
    loong_context_t *ctx = p->items->ctx;
    int wanted = p->items->picture;
    bool same = same_pictures(p);
    if (p->worker != NULL) {
        LOONG_TRY(loongi_text_encode_record(ctx, s, &p->record, p->worker));
        LOONG_TRY(check_ids(p, where));
        same = same && p->worker->count == e->tokens;
    }
    LOONG_CHECK(ctx, same, LOONG_ERR_MISMATCH,
                "%s: is another record than when the file was opened", where);
    if (p->items->sizes) {
        LOONG_TRY(measure(ctx, s, &p->record, e));
    }
    for (int64_t k = 0; k < p->record.num_images; k++) {
        if (wanted == 0 || wanted == k + 1) {
            loong_status_t status = load(ctx, s, &p->record, k, &p->images[k]);
            if (status != LOONG_OK) {
                loongi_error_note(ctx, "wanted by %s", where);
                return status;
            }
        }
    }
    loong_status_t status = fill_items(p);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "wanted by %s", where);
    }
    return status;
}

static loong_status_t parse(sample_t *p, const char *where)
{
    const image_text_t *s = p->source;
    const text_entry_t *e = &s->entries[s->first + p->number];
    loong_context_t *ctx = p->items->ctx;
    size_t length = (size_t)e->length;
    char *bytes = NULL;
    LOONG_TRY(loongi_alloc(ctx, length, "a record", &bytes));
    loong_status_t status =
        loongi_file_pread(ctx, s->fd, s->path, bytes, length, (off_t)e->offset);
    if (status == LOONG_OK) {
        status =
            loongi_text_record_parse(ctx, where, bytes, length, &p->record);
    }
    loongi_free(ctx, bytes);
    return status;
}

static loong_status_t take_worker(image_text_t *s, text_worker_t **worker_p)
{
    pthread_mutex_lock(&s->lock);
    text_worker_t *worker = s->workers;
    s->workers = worker != NULL ? worker->next : NULL;
    pthread_mutex_unlock(&s->lock);
    *worker_p = worker;
    return worker != NULL ? LOONG_OK : loongi_text_worker_create(s, worker_p);
}

static void give_worker(image_text_t *s, text_worker_t *worker)
{
    if (worker != NULL) {
        pthread_mutex_lock(&s->lock);
        worker->next = s->workers;
        s->workers = worker;
        pthread_mutex_unlock(&s->lock);
    }
}

static loong_status_t read_sample(const void *source, int64_t i,
                                  loong_items_t *items)
{
    image_text_t *s = (image_text_t *)source; /* its workers are locked */
    sample_t p = {.source = s, .number = i, .items = items};
    loong_text_t where = loongi_text_begin(items->ctx);
    loongi_text_printf(&where, "%s:%" PRId64, s->path,
                       s->entries[s->first + i].line);
    loong_status_t status = parse(&p, loongi_text_get(&where));
    if (status == LOONG_OK && items->picture <= 0) {
        status = take_worker(s, &p.worker);
    }
    if (status == LOONG_OK) {
        status = read_contents(&p, loongi_text_get(&where));
    }
    give_worker(s, p.worker);
    for (int64_t k = 0; k < p.record.num_images; k++) {
        loong_image_sample_free(items->ctx, &p.images[k]);
    }
    loongi_json_destroy(&p.record.json);
    loongi_text_free(&where);
    return status;
}

/* Reads the record where a size is wanted that is not known. */
static loong_status_t measure_sample(image_text_t *s, int64_t i,
                                     loong_items_t *items)
{
    const text_entry_t *e = &s->entries[s->first + i];
    sample_t p = {.source = s, .number = i, .items = items};
    bool measured = true;
    for (int64_t k = e->first_image; k < e[1].first_image; k++) {
        measured = measured && is_measured(s, k);
    }
    if (measured) {
        return LOONG_OK;
    }
    loong_text_t where = loongi_text_begin(items->ctx);
    loongi_text_printf(&where, "%s:%" PRId64, s->path, e->line);
    loong_status_t status = parse(&p, loongi_text_get(&where));
    if (status == LOONG_OK && !same_pictures(&p)) {
        status = LOONG_FAIL(items->ctx, LOONG_ERR_MISMATCH,
                            "%s: is another record than when the file was "
                            "opened",
                            loongi_text_get(&where));
    }
    if (status == LOONG_OK) {
        status = measure(items->ctx, s, &p.record, e);
        if (status != LOONG_OK) {
            loongi_error_note(items->ctx, "wanted by %s",
                              loongi_text_get(&where));
        }
    }
    loongi_json_destroy(&p.record.json);
    loongi_text_free(&where);
    return status;
}

static loong_status_t peek(const void *source, int64_t i, loong_items_t *items)
{
    image_text_t *s = (image_text_t *)source; /* its sizes are locked */
    if (items->sizes) {
        LOONG_TRY(measure_sample(s, i, items));
    }
    return list_items(s, i, 0, items);
}

const loong_source_class_t loongi_image_text_source = {
    .struct_size = sizeof(loongi_image_text_source),
    .name = "image_text",
    .concurrent = true,
    .open = open_source,
    .close = close_source,
    .get_info = get_info,
    .read = read_sample,
    .peek = peek};
