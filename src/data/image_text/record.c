/* SPDX-License-Identifier: Apache-2.0
 *
 * One record: its JSON and its tokens. Called when a source is opened and for
 * every sample. Read image_text.h before. */
#include <string.h>

#include "image_text.h"

static loong_status_t add_part(loong_context_t *ctx, const char *where,
                               const char *key, bool learned, text_record_t *r)
{
    const loong_json_t *value = loongi_json_get(r->json, key);
    LOONG_CHECK(ctx, loongi_json_kind(value) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s: '%s' is %s, not a string", where, key,
                loongi_json_kind_text(value));
    r->part[r->num_parts].text = loongi_json_string(value);
    r->part[r->num_parts].length = loongi_json_string_length(value);
    r->part[r->num_parts++].learned = learned;
    return LOONG_OK;
}

static loong_status_t find_text(loong_context_t *ctx, const char *where,
                                text_record_t *r)
{
    bool text = loongi_json_get(r->json, "text") != NULL;
    bool prompt = loongi_json_get(r->json, "prompt") != NULL;
    bool completion = loongi_json_get(r->json, "completion") != NULL;
    if (text && !prompt && !completion) {
        return add_part(ctx, where, "text", true, r);
    }
    if (prompt && completion && !text) {
        LOONG_TRY(add_part(ctx, where, "prompt", false, r));
        return add_part(ctx, where, "completion", true, r);
    }
    loong_text_t keys = loongi_text_begin(ctx);
    const loong_json_member_t *it = loongi_json_first(r->json);
    for (; it != NULL; it = loongi_json_next(r->json, it)) {
        loongi_text_printf(&keys, " '%s'", loongi_json_member_key(it));
    }
    loong_status_t status = LOONG_FAIL(
        ctx, LOONG_ERR_FORMAT,
        "%s: a record has either 'text' or 'prompt' and 'completion'; keys "
        "are:%s",
        where, loongi_text_get(&keys));
    loongi_text_free(&keys);
    return status;
}

static loong_status_t find_images(loong_context_t *ctx, const char *where,
                                  text_record_t *r)
{
    const loong_json_t *one = loongi_json_get(r->json, "image");
    const loong_json_t *list = loongi_json_get(r->json, "images");
    LOONG_CHECK(ctx, one == NULL || list == NULL, LOONG_ERR_FORMAT,
                "%s: has both 'image' and 'images'", where);
    r->images = one != NULL ? one : list;
    LOONG_CHECK(ctx,
                loongi_json_get(r->json, "video") == NULL &&
                    loongi_json_get(r->json, "videos") == NULL,
                LOONG_ERR_UNSUPPORTED,
                "%s: has videos, which sources of class chat read", where);
    if (r->images == NULL) {
        return LOONG_OK;
    }
    LOONG_CHECK(ctx, list == NULL || loongi_json_kind(list) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT, "%s: 'images' is %s, must be a list of paths",
                where, loongi_json_kind_text(list));
    r->num_images = one != NULL ? 1 : loongi_json_count(list);
    for (int64_t k = 0; k < r->num_images; k++) {
        const loong_json_t *path = one != NULL ? one : loongi_json_at(list, k);
        LOONG_CHECK(ctx, loongi_json_kind(path) == LOONG_JSON_STRING,
                    LOONG_ERR_FORMAT, "%s: the path of a picture is %s", where,
                    loongi_json_kind_text(path));
    }
    LOONG_CHECK(ctx, r->num_images < LOONG_MAX_ITEMS, LOONG_ERR_UNSUPPORTED,
                "%s: has %lld pictures, up to %d are allowed", where,
                (long long)r->num_images, LOONG_MAX_ITEMS - 1);
    return LOONG_OK;
}

loong_status_t loongi_text_record_parse(loong_context_t *ctx, const char *where,
                                        const char *bytes, size_t length,
                                        text_record_t *record)
{
    text_record_t r = {0};
    LOONG_TRY(loongi_json_parse(ctx, bytes, length, where, &r.json));
    loong_status_t status = find_text(ctx, where, &r);
    if (status == LOONG_OK) {
        status = find_images(ctx, where, &r);
    }
    if (status != LOONG_OK) {
        loongi_json_destroy(&r.json);
        return status;
    }
    *record = r;
    return LOONG_OK;
}

const char *loongi_text_record_image(const text_record_t *record, int64_t k)
{
    bool list = loongi_json_kind(record->images) == LOONG_JSON_ARRAY;
    return loongi_json_string(list ? loongi_json_at(record->images, k)
                                   : record->images);
}

/* ---- tokens -------------------------------------------------------------- */

loong_status_t loongi_text_worker_create(const image_text_t *s,
                                         text_worker_t **worker_p)
{
    text_worker_t *w = NULL;
    loong_context_t *ctx = NULL;
    LOONG_TRY(loong_context_create(NULL, &ctx));
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*w), "encoder of texts", &w);
    if (status == LOONG_OK) {
        status = loong_text_encoder_create(ctx, s->tokenizer, &w->encoder);
    }
    if (status != LOONG_OK) {
        loong_context_destroy(&ctx); /* with what it holds */
        return status;
    }
    w->ctx = ctx;
    *worker_p = w;
    return LOONG_OK;
}

void loongi_text_worker_destroy(text_worker_t **worker)
{
    loong_context_t *ctx = (*worker)->ctx;
    loong_text_encoder_destroy(&(*worker)->encoder);
    loong_context_destroy(&ctx); /* with the worker */
    *worker = NULL;
}

static loong_status_t add_ids(text_worker_t *w, const int32_t *ids,
                              int64_t count, bool learned)
{
    int64_t need = w->count + count;
    LOONG_TRY(loongi_grow(w->ctx, &w->ids, &w->ids_room, need, sizeof(*w->ids),
                          "tokens of a text"));
    LOONG_TRY(loongi_grow(w->ctx, &w->learned, &w->learned_room, need, 1,
                          "tokens of a text"));
    memcpy(w->ids + w->count, ids, (size_t)count * sizeof(*ids));
    memset(w->learned + w->count, learned, (size_t)count);
    w->count = need;
    return LOONG_OK;
}

/* With what stands around each picture, which is not learned. */
static loong_status_t add_text(const image_text_t *s, text_worker_t *w,
                               const int32_t *ids, int64_t count, bool learned)
{
    int32_t bounds[2];
    int64_t from = 0;
    bool bound =
        loong_tokenizer_image_bounds(s->tokenizer, s->image_id, bounds);
    for (int64_t i = 0; i < count && bound; i++) {
        if (ids[i] == s->image_id) {
            LOONG_TRY(add_ids(w, ids + from, i - from, learned));
            LOONG_TRY(add_ids(w, &bounds[0], 1, false));
            LOONG_TRY(add_ids(w, &ids[i], 1, learned));
            LOONG_TRY(add_ids(w, &bounds[1], 1, false));
            from = i + 1;
        }
    }
    return add_ids(w, ids + from, count - from, learned);
}

static loong_status_t encode_parts(const image_text_t *s,
                                   const text_record_t *record,
                                   text_worker_t *w)
{
    w->count = 0;
    LOONG_TRY(add_ids(w, &s->begin_id, s->begin_id >= 0, false));
    for (int i = 0; i < record->num_parts; i++) {
        const int32_t *ids = NULL;
        int64_t count = 0;
        LOONG_TRY(loong_text_encode(w->encoder, record->part[i].text,
                                    record->part[i].length, false, &ids,
                                    &count));
        LOONG_TRY(add_text(s, w, ids, count, record->part[i].learned));
    }
    bool ended = w->count > 0 && w->ids[w->count - 1] == s->end_id;
    return add_ids(w, &s->end_id, s->end_id >= 0 && !ended, true);
}

loong_status_t loongi_text_encode_record(loong_context_t *ctx,
                                         const image_text_t *s,
                                         const text_record_t *record,
                                         text_worker_t *worker)
{
    loong_status_t status = encode_parts(s, record, worker);
    LOONG_CHECK(ctx, status == LOONG_OK, status, "%s",
                loong_context_error(worker->ctx));
    return LOONG_OK;
}
