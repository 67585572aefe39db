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
    int64_t micro_batches;
    int64_t *first; /* of a micro-batch, one more behind the last */
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

/* ---- a step -------------------------------------------------------------- */

static loong_status_t add_sample(loong_batch_plan_t *p, step_t *s, int replica,
                                 int64_t draw, int64_t row)
{
    const loong_items_t *items = &p->items;
    int number = 0;
    LOONG_TRY(peek(p->params.texts.blend, draw, &p->items));
    for (int i = 0; i < items->count; i++) {
        if (items->item[i].type != LOONG_ITEM_IMAGE) {
            continue;
        }
        LOONG_TRY(loongi_grow(p->ctx, &s->images, &s->room, s->count + 1,
                              sizeof(*s->images), "pictures of a step"));
        s->images[s->count++] = (loong_planned_image_t){
            draw, number + 1, replica,
            row + items->item[i].at + number * (p->params.image_rows - 1)};
        number++;
    }
    return LOONG_OK;
}

static loong_status_t add_replica(loong_batch_plan_t *p, step_t *s, int64_t m,
                                  int replica)
{
    const loong_loader_params_t *t = &p->params.texts;
    int64_t draw = s->consumed + (m * t->data_parallel_size +
                                  p->params.replica[replica]) *
                                     t->micro_batch_size;
    int64_t before = s->count;
    for (int64_t j = 0; j < t->micro_batch_size; j++) {
        bool past = t->num_samples > 0 && draw + j >= t->num_samples;
        if (!past) {
            LOONG_TRY(
                add_sample(p, s, replica, draw + j, j * p->params.seq_length));
        }
    }
    LOONG_CHECK(p->ctx, s->count - before <= p->params.max_images,
                LOONG_ERR_CONFIG,
                "data.max_images: %" PRId64 ", micro-batch %" PRId64
                " of data-parallel rank %d has %" PRId64 " pictures",
                p->params.max_images, m, p->params.replica[replica],
                s->count - before);
    return LOONG_OK;
}

static loong_status_t make_step(loong_batch_plan_t *p, step_t *s,
                                int64_t consumed)
{
    s->consumed = consumed;
    s->count = 0;
    s->micro_batches = loong_loader_micro_batches(p->params.loader, consumed);
    for (int64_t m = 0; m < s->micro_batches; m++) {
        s->first[m] = s->count;
        for (int r = 0; r < p->params.replicas; r++) {
            LOONG_TRY(add_replica(p, s, m, r));
        }
    }
    s->first[s->micro_batches] = s->count;
    return LOONG_OK;
}

loong_status_t loongi_batch_plan_images(loong_batch_plan_t *plan,
                                        int64_t consumed, int64_t micro_batch,
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
    LOONG_CHECK(plan->ctx, micro_batch >= 0 && micro_batch < s->micro_batches,
                LOONG_ERR_ARG, "micro-batch %" PRId64 " of %" PRId64,
                micro_batch, s->micro_batches);
    *images_p = s->images + s->first[micro_batch];
    *count_p = s->first[micro_batch + 1] - s->first[micro_batch];
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
    size_t most = (size_t)(t->global_batch_size /
                           (t->micro_batch_size * t->data_parallel_size)) +
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
                                      int64_t *most_p)
{
    loong_items_t items = {.ctx = ctx};
    int64_t count = 0;
    *most_p = 0;
    LOONG_TRY(check_sources(ctx, blend));
    loong_status_t status = LOONG_OK;
    for (int64_t g = 0; g < samples && status == LOONG_OK; g++) {
        count = g % micro_batch_size == 0 ? 0 : count;
        status = peek(blend, g, &items);
        for (int i = 0; status == LOONG_OK && i < items.count; i++) {
            count += items.item[i].type == LOONG_ITEM_IMAGE;
        }
        *most_p = LOONG_MAX(*most_p, count);
    }
    loong_items_free(&items);
    return status;
}
