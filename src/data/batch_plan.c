/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of a step, from the sizes of its items alone: no file is read.
 * Called by the image encoder's loader and by the edges behind it. Read
 * batch_plan.h before. */
#include "batch_plan.h"

#include <inttypes.h>
#include <string.h>

#include "base.h"

/* The pictures of a step. */
typedef struct step {
    int64_t consumed; /* -1: none */
    int64_t units;    /* micro-batches of the texts or the readers, the smaller
                         ones */
    int64_t *first;   /* of a unit, one more behind the last */
    loong_planned_image_t *images;
    int64_t count, room;
} step_t;

struct loong_batch_plan {
    loong_context_t *ctx;
    loong_batch_plan_params_t params;
    loong_items_t items; /* of the sample that is looked at */
    step_t steps[2];     /* the one that runs, the one that is read ahead */
    int newest;
};

static loong_status_t peek(const loong_blend_t *blend, int64_t draw,
                           loong_items_t *items)
{
    loong_sample_t sample;
    loong_blend_source_info_t source;
    LOONG_TRY(loong_blend_locate(blend, draw, &sample));
    loong_blend_get_source(blend, sample.source, &source);
    items->epoch = sample.epoch;
    return source.source_class->peek(source.source, sample.number, items);
}

static loong_picture_rows_t rows_of(const loong_picture_reader_t *pictures,
                                    const loong_item_t *item)
{
    return pictures->rows(pictures->config, item);
}

/* ---- a step -------------------------------------------------------------- */

/* Every replica of a reader has room for a picture of its text. */
static loong_status_t check_room(const loong_batch_plan_t *p,
                                 const loong_item_t *item,
                                 const loong_planned_image_t *image)
{
    const char *text = p->items.item[0].name;
    for (int r = 0; r < p->params.num_readers; r++) {
        if (p->params.reader[r].replicas == 0) { /* of another encoder */
            continue;
        }
        int64_t room = p->params.reader[r].rows;
        LOONG_CHECK(p->ctx, image->rows.encoder <= room, LOONG_ERR_CONFIG,
                    "%s: picture %d of %s (%" PRId64
                    " x %" PRId64 " pixels) takes %" PRId64
                    " rows of the image encoder, which has room for %" PRId64,
                    p->params.patches_key, image->number,
                    text != NULL ? text : "a text",
                    item->size[0], item->size[1], image->rows.encoder, room);
    }
    int64_t rows = loong_picture_longest(&image->rows);
    int64_t most = p->params.max_rows;
    LOONG_CHECK(p->ctx, most == 0 || rows <= most, LOONG_ERR_CONFIG,
                "data.max_image_patches: picture %d of %s (%" PRId64
                " x %" PRId64 " pixels) takes %" PRId64
                " rows of the image encoder, up to %" PRId64 " are planned",
                image->number, text != NULL ? text : "a text", item->size[0],
                item->size[1], rows, most);
    return LOONG_OK;
}

static loong_status_t add_sample(loong_batch_plan_t *p, step_t *s,
                                 int64_t micro_batch, int replica, int64_t draw,
                                 int64_t row)
{
    const loong_items_t *items = &p->items;
    int number = 0;
    LOONG_TRY(peek(p->params.texts.blend, draw, &p->items));
    for (int i = 0; i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        if (item->type != LOONG_ITEM_IMAGE) {
            continue;
        }
        LOONG_TRY(loongi_grow(p->ctx, &s->images, &s->room, s->count + 1,
                              sizeof(*s->images), "pictures of a step"));
        loong_planned_image_t image = {
            .draw = draw,
            .number = ++number,
            .rows = rows_of(&p->params.pictures, item),
            .micro_batch = micro_batch,
            .replica = replica,
            .row = row + item->at,
            .part_at = item->part_at};
        row += image.rows.text - loong_item_parts(item); /* more than tokens */
        if (image.rows.encoder_number == p->params.encoder) {
            LOONG_TRY(check_room(p, item, &image));
            s->images[s->count++] = image;
        }
    }
    return LOONG_OK;
}

static int64_t unit_of(const loong_batch_plan_t *p)
{
    return LOONG_MIN(p->params.samples, p->params.texts.micro_batch_size);
}

/* The samples of a unit that a replica of the texts has. */
static loong_status_t add_replica(loong_batch_plan_t *p, step_t *s,
                                  int64_t unit, int replica)
{
    const loong_loader_params_t *t = &p->params.texts;
    int64_t samples = unit_of(p);
    int64_t m = unit * samples / t->micro_batch_size;
    int64_t first = unit * samples % t->micro_batch_size;
    int64_t draw = 0;
    LOONG_TRY(loong_loader_get_draw(p->params.loader, s->consumed, m,
                                    p->params.replica[replica], &draw));
    for (int64_t j = first; j < first + samples; j++) {
        bool past = t->num_samples > 0 && draw + j >= t->num_samples;
        if (!past) {
            LOONG_TRY(add_sample(p, s, m, replica, draw + j,
                                 j * p->params.seq_length));
        }
    }
    return LOONG_OK;
}

/* What a micro-batch of each replica of the texts has. */
static loong_status_t check_texts(const loong_batch_plan_t *p,
                                  const loong_planned_image_t *images,
                                  int64_t count)
{
    for (int r = 0; r < p->params.replicas; r++) {
        int64_t has = 0;
        for (int64_t i = 0; i < count; i++) {
            has += images[i].replica == r;
        }
        LOONG_CHECK(p->ctx, has <= p->params.max_images, LOONG_ERR_CONFIG,
                    "%s: %" PRId64 ", micro-batch %" PRId64
                    " of data-parallel rank %d has %" PRId64 " pictures",
                    p->params.images_key, p->params.max_images,
                    images[0].micro_batch,
                    p->params.replica[r], has);
    }
    return LOONG_OK;
}

/* The replica in whose share of all rows the last one of a picture lies. */
static int owner(int replicas, int64_t end, int64_t all)
{
    return end > 0 ? (int)((end * replicas - 1) / all) : 0;
}

/* The replica that has all pictures of one of the texts. With more texts than
 * replicas each has some; else each has its own one, `turn` by turn. */
static int owner_of_text(int replicas, int texts, int text, int64_t turn)
{
    if (texts >= replicas) {
        return (int)((int64_t)text * replicas / texts);
    }
    int64_t turns = (replicas + texts - 1) / texts;
    int64_t first = LOONG_MIN(turn % turns * texts, replicas - texts);
    return (int)first + text;
}

/* Which text of a reader's micro-batch a picture is of, and how many it has:
 * micro-batches of all replicas of the texts, or a part of one of each. */
static int text_of(const loong_batch_plan_t *p, const loong_planned_image_t *at,
                   int *texts_p)
{
    int each = (int)LOONG_MAX(
        p->params.samples / p->params.texts.micro_batch_size, 1);
    *texts_p = each * p->params.replicas;
    return (int)(at->micro_batch % each) * p->params.replicas + at->replica;
}

/* Deals the pictures of a micro-batch to the replicas of a reader; turn: the
 * micro-batches of the step before it that have some. */
static loong_status_t deal(const loong_batch_plan_t *p, int64_t micro_batch,
                           int64_t turn, int reader,
                           loong_planned_image_t *images, int64_t count)
{
    const loong_picture_room_t *room = &p->params.reader[reader];
    int64_t all = 0, before = 0, pictures = 0;
    int64_t rows = 0, made = 0, sent_rows = 0, text_rows = 0;
    int replica = 0;
    for (int64_t i = 0; i < count; i++) {
        all += images[i].rows.encoder;
    }
    for (int64_t i = 0; i < count; i++) {
        loong_planned_image_t *image = &images[i];
        before += image->rows.encoder;
        int texts = 0;
        int text = text_of(p, image, &texts);
        int own = room->first != NULL
                      ? (int)room->first[micro_batch] + text
                  : room->whole
                      ? owner_of_text(room->replicas, texts, text, turn)
                      : owner(room->replicas, before, all);
        if (own != replica) {
            pictures = rows = made = sent_rows = text_rows = 0;
            replica = own;
        }
        image->at[reader].replica = replica;
        image->at[reader].row = made;
        image->at[reader].sent_row = sent_rows;
        image->at[reader].text_row = text_rows;
        rows += image->rows.encoder;
        made += image->rows.made;
        sent_rows += image->rows.sent;
        text_rows += image->rows.text;
        pictures++;
        LOONG_CHECK(p->ctx, rows <= room->rows && pictures <= room->images,
                    LOONG_ERR_CONFIG,
                    "%s: micro-batch %" PRId64 " has %" PRId64
                    " rows of %" PRId64 " pictures for one image encoder, "
                    "which has room for %" PRId64 " of %" PRId64,
                    p->params.patches_key, micro_batch, rows, pictures,
                    room->rows, room->images);
    }
    return LOONG_OK;
}

/* The pictures of a micro-batch, of so many in the step. */
typedef struct range {
    int64_t micro_batches, first, count;
} range_t;

static range_t range_of(const loong_batch_plan_t *p, const step_t *s,
                        bool of_readers, int64_t micro_batch)
{
    int64_t each = (of_readers ? p->params.samples
                               : p->params.texts.micro_batch_size) /
                   unit_of(p);
    int64_t begin = LOONG_MIN(micro_batch * each, s->units);
    int64_t end = LOONG_MIN(begin + each, s->units);
    return (range_t){(s->units + each - 1) / each, s->first[begin],
                     s->first[end] - s->first[begin]};
}

static loong_status_t make_step(loong_batch_plan_t *p, step_t *s,
                                int64_t consumed)
{
    int64_t turn = 0;
    int64_t total = loong_loader_micro_batches(p->params.loader, consumed);
    s->consumed = consumed;
    s->count = 0;
    s->units = total * (p->params.texts.micro_batch_size / unit_of(p));
    for (int64_t u = 0; u < s->units; u++) {
        s->first[u] = s->count;
        for (int r = 0; r < p->params.replicas; r++) {
            LOONG_TRY(add_replica(p, s, u, r));
        }
    }
    s->first[s->units] = s->count;
    for (int64_t m = 0; m < total; m++) {
        range_t texts = range_of(p, s, false, m);
        LOONG_TRY(check_texts(p, s->images + texts.first, texts.count));
    }
    for (int64_t m = 0; m < range_of(p, s, true, 0).micro_batches; m++) {
        range_t range = range_of(p, s, true, m);
        for (int i = 0; i < p->params.num_readers; i++) {
            LOONG_TRY(p->params.reader[i].replicas > 0
                          ? deal(p, m, turn, i, s->images + range.first,
                                 range.count)
                          : LOONG_OK);
        }
        turn += range.count > 0;
    }
    return LOONG_OK;
}

loong_status_t loongi_batch_plan_images(loong_batch_plan_t *plan,
                                        int64_t consumed, bool of_readers,
                                        int64_t micro_batch,
                                        const loong_planned_image_t **images_p,
                                        int64_t *count_p)
{
    step_t *s = &plan->steps[plan->newest];
    if (s->consumed != consumed &&
        plan->steps[plan->newest ^ 1].consumed == consumed) {
        s = &plan->steps[plan->newest ^ 1];
    }
    if (s->consumed != consumed) {
        plan->newest ^= 1;
        s = &plan->steps[plan->newest];
        loong_status_t status = make_step(plan, s, consumed);
        if (status != LOONG_OK) {
            s->consumed = -1;
            return status;
        }
    }
    range_t range = range_of(plan, s, of_readers, LOONG_MAX(micro_batch, 0));
    LOONG_CHECK(plan->ctx,
                micro_batch >= 0 && micro_batch < range.micro_batches,
                LOONG_ERR_ARG, "micro-batch %" PRId64 " of %" PRId64,
                micro_batch, range.micro_batches);
    *images_p = s->images + range.first;
    *count_p = range.count;
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t check_sources(loong_context_t *ctx,
                                    const loong_blend_t *blend)
{
    loong_blend_info_t info;
    loong_blend_get_info(blend, &info);
    for (int64_t i = 0; i < info.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        LOONG_CHECK(ctx, source.source_class->peek != NULL, LOONG_ERR_CONFIG,
                    "data '%s': %s: the model reads texts with pictures, a "
                    "source of class %s has none; image_text has",
                    info.name, source.info.path, source.source_class->name);
    }
    return LOONG_OK;
}

loong_status_t loongi_batch_plan_create(loong_context_t *ctx,
                                        const loong_batch_plan_params_t *params,
                                        loong_batch_plan_t **plan_p)
{
    const loong_loader_params_t *t = &params->texts;
    loong_batch_plan_t *p = NULL;
    LOONG_TRY(check_sources(ctx, t->blend));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "batch plan", &p));
    p->ctx = p->items.ctx = ctx;
    p->params = *params;
    p->items.sizes = params->pictures.sizes;
    size_t most = (size_t)(t->global_batch_size /
                           (unit_of(p) * t->data_parallel_size)) +
                  1;
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < 2 && status == LOONG_OK; i++) {
        p->steps[i].consumed = -1;
        status = loongi_calloc(ctx, most, sizeof(*p->steps[i].first),
                               "micro-batches of a step", &p->steps[i].first);
    }
    if (status != LOONG_OK) {
        loongi_batch_plan_destroy(&p);
        return status;
    }
    *plan_p = p;
    return LOONG_OK;
}

void loongi_batch_plan_destroy(loong_batch_plan_t **plan_p)
{
    loong_batch_plan_t *p = *plan_p;
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        loongi_free(p->ctx, p->steps[i].images);
        loongi_free(p->ctx, p->steps[i].first);
    }
    loong_items_free(&p->items);
    loongi_free(p->ctx, p);
    *plan_p = NULL;
}

loong_status_t loongi_batch_plan_most(loong_context_t *ctx,
                                      const loong_blend_t *blend,
                                      int64_t micro_batch_size, int64_t samples,
                                      const loong_picture_reader_t *pictures,
                                      loong_batch_most_t *most)
{
    loong_items_t items = {.ctx = ctx, .sizes = pictures->sizes};
    loong_batch_most_t sum[LOONG_MAX_ENCODERS] = {{0}};
    memset(most, 0, sizeof(sum));
    LOONG_TRY(check_sources(ctx, blend));
    loong_status_t status = LOONG_OK;
    for (int64_t g = 0; g < samples && status == LOONG_OK; g++) {
        if (g % micro_batch_size == 0) {
            memset(sum, 0, sizeof(sum));
        }
        status = peek(blend, g, &items);
        for (int i = 0; status == LOONG_OK && i < items.count; i++) {
            if (items.item[i].type == LOONG_ITEM_IMAGE) {
                loong_picture_rows_t rows = rows_of(pictures, &items.item[i]);
                int e = rows.encoder_number;
                sum[e].images++;
                sum[e].patches += rows.encoder;
                most[e].longest = LOONG_MAX(most[e].longest,
                                            loong_picture_longest(&rows));
            }
        }
        for (int e = 0; e < LOONG_MAX_ENCODERS; e++) {
            most[e].images = LOONG_MAX(most[e].images, sum[e].images);
            most[e].patches = LOONG_MAX(most[e].patches, sum[e].patches);
        }
    }
    loong_items_free(&items);
    return status;
}
