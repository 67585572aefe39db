/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader. All samples of a step are read when the step is checked, and what
 * the processor keeps of them stays; the arrays of a micro-batch are filled
 * from it. Called by train_step.c and src/component/inputs.c. Read
 * loong/loader.h before. */
#include "loong/loader.h"

#include <inttypes.h>
#include <string.h>

#include "base.h"
#include "deals.h"
#include "loader_sums.h"
#include "readers.h"
#include "shares.h"

/* Draws that are none. */
enum { UNREAD = -2, PADDING = -1 };

typedef struct row {
    int64_t draw; /* number of the sample that is here */
    int picture;  /* of it */
    int64_t wanted_draw;
    int wanted_picture;
    size_t bytes; /* that are there for what is kept of it */
    double sums[LOONG_MAX_NORMALISERS];
} row_t;

/* This rank's samples of a step. */
typedef struct batch {
    int64_t consumed; /* the step; -1: none */
    size_t count;     /* of rows of the largest step */
    row_t *rows;      /* [count] */
    void **kept;      /* [count], the processor's */
} batch_t;

/* Micro-batches of each data-parallel rank. */
typedef struct shares {
    int64_t count; /* of all of them; -1: none */
    int64_t of[];
} shares_t;

struct loong_loader {
    loong_context_t *ctx;
    loong_loader_params_t params;
    shares_t *shares; /* of the step that was asked for last */
    loong_items_t items;      /* of the sample that is read */
    loong_loader_sums_t sums; /* of the step that was checked last */
    loong_deals_t deals;      /* where the loader has costs */
    /* Two with readers: the one behind is that of the step to come. */
    int num_batches, now;
    batch_t batch[2];
    loong_readers_t *readers; /* NULL: none */
    loong_items_t *reading;   /* [readers], each with a context of its own */
};

static loong_status_t check_batch(loong_context_t *ctx, const char *name,
                                  const loong_loader_params_t *p)
{
    int ranks = p->weights == NULL ? p->data_parallel_size : 1;
    int64_t unit = p->micro_batch_size * ranks;
    LOONG_CHECK(
        ctx, p->global_batch_size >= unit && p->global_batch_size % unit == 0,
        LOONG_ERR_CONFIG,
        "data '%s': global_batch_size %" PRId64
        " is not a multiple of micro_batch_size %" PRId64
        " x data-parallel size %d = %" PRId64,
        name, p->global_batch_size, p->micro_batch_size, ranks, unit);
    const loong_rampup_t *r = &p->rampup_batch_size;
    if (r->start == 0) {
        return LOONG_OK;
    }
    LOONG_CHECK(ctx, r->start > 0 && r->increment > 0 && r->samples > 0,
                LOONG_ERR_CONFIG,
                "data '%s': rampup_batch_size %" PRId64 " %" PRId64 " %" PRId64
                ", all three must be above 0",
                name, r->start, r->increment, r->samples);
    LOONG_CHECK(ctx,
                r->start <= p->global_batch_size &&
                    (p->global_batch_size - r->start) % r->increment == 0,
                LOONG_ERR_CONFIG,
                "data '%s': rampup_batch_size does not lead from %" PRId64
                " to global_batch_size %" PRId64 " in steps of %" PRId64,
                name, r->start, p->global_batch_size, r->increment);
    LOONG_CHECK(ctx, r->start % unit == 0 && r->increment % unit == 0,
                LOONG_ERR_CONFIG,
                "data '%s': rampup_batch_size start %" PRId64
                " and increment %" PRId64 " must be multiples of "
                "micro_batch_size x data-parallel size = %" PRId64,
                name, r->start, r->increment, unit);
    return LOONG_OK;
}

static loong_status_t check_params(loong_context_t *ctx,
                                   const loong_loader_params_t *p,
                                   const loong_blend_info_t *blend)
{
    const char *name = blend->name;
    LOONG_CHECK(ctx,
                p->data_parallel_size >= 1 && p->data_parallel_rank >= 0 &&
                    p->data_parallel_rank < p->data_parallel_size,
                LOONG_ERR_CONFIG, "data '%s': data-parallel rank %d of %d",
                name, p->data_parallel_rank, p->data_parallel_size);
    LOONG_CHECK(ctx, p->micro_batch_size >= 1, LOONG_ERR_CONFIG,
                "data '%s': micro_batch_size %" PRId64 ", must be above 0",
                name, p->micro_batch_size);
    LOONG_TRY(p->processor->check(ctx, p->config, name));
    LOONG_TRY(check_batch(ctx, name, p));
    int64_t most = blend->epoch_samples;
    bool ends = p->num_samples > 0; /* the rest of a batch is empty */
    LOONG_CHECK(ctx, ends || p->data_parallel_size <= most, LOONG_ERR_CONFIG,
                "data '%s': %d data-parallel ranks share %" PRId64
                " samples: use fewer ranks, more data or a shorter seq_length",
                name, p->data_parallel_size, most);
    LOONG_CHECK(ctx, p->num_samples <= blend->max_samples, LOONG_ERR_CONFIG,
                "data '%s': %" PRId64
                " samples wanted, max_epochs allows %" PRId64,
                name, p->num_samples, blend->max_samples);
    return LOONG_OK;
}

static int64_t rows_of_micro_batch(const loong_loader_params_t *p)
{
    return p->row_plan != NULL ? p->row_plan->rows : p->micro_batch_size;
}

/* Room for what is kept of a row, up to four times of it. Samples of one size
 * keep theirs. */
static loong_status_t make_room(loong_context_t *ctx, batch_t *batch, size_t i,
                                size_t bytes)
{
    size_t have = batch->rows[i].bytes;
    if (have < bytes || have / 4 > bytes) {
        loongi_free(ctx, batch->kept[i]);
        batch->kept[i] = NULL;
        batch->rows[i].bytes = 0;
        LOONG_TRY(
            loongi_alloc(ctx, bytes, "samples of a step", &batch->kept[i]));
        batch->rows[i].bytes = bytes;
    }
    return LOONG_OK;
}

/* Of a step of so many samples. */
static const shares_t *shares_of(const loong_loader_t *loader, int64_t samples)
{
    const loong_loader_params_t *p = &loader->params;
    shares_t *s = loader->shares;
    int64_t count = samples / p->micro_batch_size;
    if (s->count == count) {
        return s;
    }
    for (int r = 0; r < p->data_parallel_size; r++) {
        s->of[r] = count / p->data_parallel_size;
    }
    if (p->weights != NULL) {
        loongi_shares(p->data_parallel_size, p->weights, count, s->of);
    }
    s->count = count;
    return s;
}

/* Of this rank in a step of so many samples. */
static int64_t micro_batches_of(const loong_loader_t *loader, int64_t samples)
{
    const loong_loader_params_t *p = &loader->params;
    int64_t count = shares_of(loader, samples)->of[p->data_parallel_rank];
    if (p->row_plan == NULL) {
        return count;
    }
    int64_t own = count * p->micro_batch_size;
    return (own + p->row_plan->samples - 1) / p->row_plan->samples;
}

static loong_status_t alloc_batch(loong_loader_t *loader, batch_t *batch)
{
    const loong_loader_params_t *p = &loader->params;
    size_t rows = (size_t)(micro_batches_of(loader, p->global_batch_size) *
                           rows_of_micro_batch(p));
    batch->consumed = -1;
    LOONG_TRY(loongi_calloc(loader->ctx, rows, sizeof(*batch->rows),
                            "loader rows", &batch->rows));
    LOONG_TRY(loongi_calloc(loader->ctx, rows, sizeof(*batch->kept),
                            "loader rows", &batch->kept));
    batch->count = rows;
    for (size_t r = 0; r < rows; r++) {
        batch->rows[r].draw = UNREAD;
        LOONG_TRY(make_room(loader->ctx, batch, r,
                            p->processor->row_size(p->config, NULL)));
    }
    return LOONG_OK;
}

static void free_batch(loong_context_t *ctx, batch_t *batch)
{
    for (size_t r = 0; r < batch->count; r++) {
        loongi_free(ctx, batch->kept[r]);
    }
    loongi_free(ctx, batch->kept);
    loongi_free(ctx, batch->rows);
}

/* Sources that one thread alone may read are read by the caller's. */
static bool reads_ahead(const loong_loader_params_t *p)
{
    loong_blend_info_t blend;
    loong_blend_get_info(p->blend, &blend);
    bool concurrent = p->num_workers > 0;
    for (int64_t i = 0; i < blend.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(p->blend, i, &source);
        concurrent = concurrent && source.source_class->concurrent;
    }
    return concurrent;
}

static void read_ahead(void *user, int reader, int64_t i);

static loong_status_t start_readers(loong_loader_t *loader)
{
    const loong_loader_params_t *p = &loader->params;
    loader->num_batches = 2;
    LOONG_TRY(loongi_calloc(loader->ctx, (size_t)p->num_workers,
                            sizeof(*loader->reading), "reading threads",
                            &loader->reading));
    for (int i = 0; i < p->num_workers; i++) {
        LOONG_TRY(loong_context_create(NULL, &loader->reading[i].ctx));
        LOONG_TRY(p->processor->begin(p->config, &loader->reading[i]));
    }
    return loongi_readers_create(loader->ctx, p->num_workers, read_ahead,
                                 loader, &loader->readers);
}

static loong_status_t open_loader(loong_loader_t *loader)
{
    const loong_loader_params_t *p = &loader->params;
    loader->items.ctx = loader->ctx;
    loader->num_batches = 1;
    LOONG_TRY(loongi_alloc(loader->ctx,
                           sizeof(*loader->shares) +
                               (size_t)p->data_parallel_size * sizeof(int64_t),
                           "shares of ranks", &loader->shares));
    loader->shares->count = -1;
    LOONG_TRY(p->processor->begin(p->config, &loader->items));
    if (p->costs != NULL) {
        LOONG_TRY(loongi_deals_create(loader->ctx, p, &loader->deals));
    }
    if (reads_ahead(p)) {
        LOONG_TRY(start_readers(loader));
    }
    for (int i = 0; i < loader->num_batches; i++) {
        LOONG_TRY(alloc_batch(loader, &loader->batch[i]));
    }
    return LOONG_OK;
}

loong_status_t loong_loader_create(loong_context_t *ctx,
                                   const loong_loader_params_t *params,
                                   loong_loader_t **loader_p)
{
    loong_loader_t *loader = NULL;
    loong_blend_info_t blend;
    loong_blend_get_info(params->blend, &blend);
    LOONG_TRY(check_params(ctx, params, &blend));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*loader), "loader", &loader));
    if (params->num_samples == 0 &&
        params->global_batch_size > blend.epoch_samples) {
        loongi_log(ctx, LOONG_LOG_WARN,
                   "data '%s': a step of %" PRId64 " samples takes some of the "
                   "%" PRId64 " there are more than once",
                   blend.name, params->global_batch_size, blend.epoch_samples);
    }
    loader->ctx = ctx;
    loader->params = *params;
    loong_status_t status = open_loader(loader);
    if (status != LOONG_OK) {
        loong_loader_destroy(&loader);
        return status;
    }
    *loader_p = loader;
    return LOONG_OK;
}

void loong_loader_destroy(loong_loader_t **loader_p)
{
    loong_loader_t *loader = *loader_p;
    if (loader == NULL) {
        return;
    }
    loongi_readers_destroy(&loader->readers);
    for (int i = 0; i < loader->params.num_workers && loader->reading != NULL;
         i++) {
        loong_items_free(&loader->reading[i]);
        loong_context_destroy(&loader->reading[i].ctx);
    }
    loongi_free(loader->ctx, loader->reading);
    loongi_free(loader->ctx, loader->shares);
    loong_items_free(&loader->items);
    loongi_deals_destroy(&loader->deals);
    for (int i = 0; i < 2; i++) {
        free_batch(loader->ctx, &loader->batch[i]);
    }
    loongi_free(loader->ctx, loader);
    *loader_p = NULL;
}

int64_t loong_loader_batch(const loong_loader_t *loader, int64_t consumed)
{
    const loong_rampup_t *r = &loader->params.rampup_batch_size;
    int64_t full = loader->params.global_batch_size;
    if (r->start == 0 || consumed >= r->samples) {
        return full;
    }
    int64_t steps = (full - r->start) / r->increment;
    return r->start + r->increment * (consumed * steps / r->samples);
}

int64_t loong_loader_micro_batches(const loong_loader_t *loader,
                                   int64_t consumed)
{
    return micro_batches_of(loader, loong_loader_batch(loader, consumed));
}

static bool past_end(const loong_loader_t *loader, int64_t g)
{
    return loader->params.num_samples > 0 && g >= loader->params.num_samples;
}

loong_status_t loong_loader_get_draw(loong_loader_t *loader, int64_t consumed,
                                     int64_t micro_batch,
                                     int data_parallel_rank, int64_t *draw_p)
{
    const loong_loader_params_t *p = &loader->params;
    const shares_t *s =
        shares_of(loader, loong_loader_batch(loader, consumed));
    int64_t number = 0;
    for (int q = 0; q < p->data_parallel_size; q++) {
        number += LOONG_MIN(s->of[q], micro_batch + (q < data_parallel_rank));
    }
    if (p->costs != NULL) {
        const loong_balance_t *balance = NULL;
        LOONG_TRY(loongi_deals_get(&loader->deals, consumed,
                                   loong_loader_batch(loader, consumed),
                                   &balance));
        number = balance->order[number];
    }
    *draw_p = consumed + number * p->micro_batch_size;
    return LOONG_OK;
}

static loong_status_t read_sample(const loong_loader_t *loader, int64_t g,
                                  loong_items_t *items)
{
    loong_sample_t sample;
    loong_blend_source_info_t source;
    LOONG_TRY(loong_blend_locate(loader->params.blend, g, &sample));
    loong_blend_get_source(loader->params.blend, sample.source, &source);
    items->epoch = sample.epoch;
    return source.source_class->read(source.source, sample.number, items);
}

/* Row i of a step, read unless it is here. */
static loong_status_t get_row(const loong_loader_t *loader, batch_t *batch,
                              int64_t i, loong_items_t *items)
{
    const loong_loader_params_t *p = &loader->params;
    row_t *row = &batch->rows[i];
    int64_t g = row->wanted_draw;
    bool padding = g == PADDING || past_end(loader, g);
    if (row->draw == g && row->picture == row->wanted_picture) {
        return LOONG_OK;
    }
    row->draw = UNREAD;
    memset(row->sums, 0, sizeof(row->sums));
    if (p->row_plan != NULL) {
        items->picture = row->wanted_picture;
    }
    if (!padding) {
        LOONG_TRY(read_sample(loader, g, items));
    }
    const loong_items_t *sample = padding ? NULL : items;
    LOONG_TRY(make_room(loader->ctx, batch, (size_t)i,
                        p->processor->row_size(p->config, sample)));
    LOONG_TRY(
        p->processor->keep(p->config, g, sample, batch->kept[i], row->sums));
    row->draw = g;
    row->picture = row->wanted_picture;
    return LOONG_OK;
}

/* A task of the readers. What cannot be read stays unread: the step that wants
 * it tries again, and tells. */
static void read_ahead(void *user, int reader, int64_t i)
{
    loong_loader_t *loader = user;
    batch_t *batch = &loader->batch[loader->now ^ 1];
    if (get_row(loader, batch, i, &loader->reading[reader]) != LOONG_OK) {
        loong_context_clear_error(loader->reading[reader].ctx);
    }
}

static int64_t rows_of(const loong_loader_t *loader, int64_t consumed)
{
    return loong_loader_micro_batches(loader, consumed) *
           rows_of_micro_batch(&loader->params);
}

/* Says what is wanted of each row of a step; the batch is that step's. */
static loong_status_t begin_batch(loong_loader_t *loader, batch_t *batch,
                                  int64_t consumed)
{
    const loong_row_plan_t *plan = loader->params.row_plan;
    int64_t rows = rows_of_micro_batch(&loader->params);
    int64_t count = rows_of(loader, consumed);
    if (batch->consumed == consumed) {
        return LOONG_OK;
    }
    batch->consumed = -1;
    for (int64_t i = 0; i < count; i++) {
        row_t *row = &batch->rows[i];
        if (plan != NULL) {
            LOONG_TRY(plan->locate(plan->user, consumed, i / rows, i % rows,
                                   &row->wanted_draw, &row->wanted_picture));
            continue;
        }
        LOONG_TRY(loong_loader_get_draw(loader, consumed, i / rows,
                                        loader->params.data_parallel_rank,
                                        &row->wanted_draw));
        row->wanted_draw += i % rows;
    }
    batch->consumed = consumed;
    return LOONG_OK;
}

/* Lets the readers begin with the step behind this one. What cannot be said of
 * it the step itself will tell. */
static void start_ahead(loong_loader_t *loader, int64_t consumed)
{
    loong_blend_info_t blend;
    loong_blend_get_info(loader->params.blend, &blend);
    int64_t end = consumed + loong_loader_batch(loader, consumed);
    if (end <= blend.max_samples || loader->params.num_samples > 0) {
        loongi_readers_wait(loader->readers);
        if (begin_batch(loader, &loader->batch[loader->now ^ 1], consumed) !=
            LOONG_OK) {
            loong_context_clear_error(loader->ctx);
            return;
        }
        loongi_readers_start(loader->readers, rows_of(loader, consumed));
    }
}

/* The samples of a step, as far as they were read. */
static loong_status_t find_batch(loong_loader_t *loader, int64_t consumed,
                                 batch_t **batch_p)
{
    batch_t *now = &loader->batch[loader->now];
    if (loader->readers != NULL && now->consumed != consumed) {
        loongi_readers_wait(loader->readers);
        if (loader->batch[loader->now ^ 1].consumed != consumed) {
            start_ahead(loader, consumed);
            loongi_readers_wait(loader->readers);
        }
        loader->now ^= 1;
        now = &loader->batch[loader->now];
    }
    *batch_p = now;
    return begin_batch(loader, now, consumed);
}

loong_status_t loong_loader_check_step(loong_loader_t *loader, int64_t consumed,
                                       double sums[LOONG_MAX_NORMALISERS])
{
    batch_t *batch = NULL;
    LOONG_TRY(find_batch(loader, consumed, &batch));
    int64_t rows = rows_of(loader, consumed);
    memset(&loader->sums, 0, sizeof(loader->sums));
    for (int64_t i = 0; i < rows; i++) {
        LOONG_TRY(get_row(loader, batch, i, &loader->items));
        for (int k = 0; k < LOONG_MAX_NORMALISERS; k++) {
            loongi_exact_add(loader->sums.of[k], batch->rows[i].sums[k]);
        }
    }
    for (int k = 0; k < LOONG_MAX_NORMALISERS; k++) {
        loongi_exact_carry(loader->sums.of[k]);
        sums[k] = loongi_exact_value(loader->sums.of[k]);
    }
    return LOONG_OK;
}

loong_status_t loong_loader_get_balance(loong_loader_t *loader,
                                        int64_t consumed, double *dealt_p,
                                        double *drawn_p)
{
    const loong_balance_t *balance = NULL;
    *dealt_p = *drawn_p = 1.0;
    if (loader->params.costs != NULL) {
        LOONG_TRY(loongi_deals_get(&loader->deals, consumed,
                                   loong_loader_batch(loader, consumed),
                                   &balance));
        *dealt_p = balance->dealt;
        *drawn_p = balance->drawn;
    }
    return LOONG_OK;
}

const loong_loader_sums_t *loongi_loader_sums(const loong_loader_t *loader)
{
    return &loader->sums;
}

loong_status_t loong_loader_fill(loong_loader_t *loader, int64_t consumed,
                                 int64_t micro_batch, int num_fields,
                                 const loong_field_t *fields)
{
    int64_t rows = rows_of_micro_batch(&loader->params);
    batch_t *batch = NULL;
    LOONG_CHECK(loader->ctx,
                micro_batch >= 0 &&
                    micro_batch < loong_loader_micro_batches(loader, consumed),
                LOONG_ERR_ARG, "micro-batch %" PRId64 " of %" PRId64,
                micro_batch, loong_loader_micro_batches(loader, consumed));
    LOONG_TRY(find_batch(loader, consumed, &batch));
    for (int64_t j = 0; j < rows; j++) {
        LOONG_TRY(
            get_row(loader, batch, micro_batch * rows + j, &loader->items));
    }
    for (int i = 0; i < num_fields; i++) {
        LOONG_TRY(loader->params.processor->fill(
            loader->ctx, loader->params.config,
            &batch->kept[micro_batch * rows], &fields[i]));
    }
    return LOONG_OK;
}

void loong_loader_prefetch(loong_loader_t *loader, int64_t consumed)
{
    if (loader->readers != NULL) {
        start_ahead(loader, consumed);
        return;
    }
    const loong_loader_params_t *p = &loader->params;
    int64_t micro_batches = loong_loader_micro_batches(loader, consumed);
    loong_blend_info_t blend;
    loong_blend_get_info(p->blend, &blend);
    if (p->costs != NULL) { /* who will read what is not known yet */
        return;
    }
    for (int64_t i = 0; i < micro_batches * p->micro_batch_size; i++) {
        int64_t g = 0;
        loong_sample_t sample;
        loong_blend_source_info_t source;
        if (loong_loader_get_draw(loader, consumed, i / p->micro_batch_size,
                                  p->data_parallel_rank, &g) != LOONG_OK) {
            return; /* drawn in order: it cannot fail */
        }
        g += i % p->micro_batch_size;
        if (past_end(loader, g) || g >= blend.max_samples ||
            loong_blend_locate(p->blend, g, &sample) != LOONG_OK) {
            return;
        }
        loong_blend_get_source(p->blend, sample.source, &source);
        if (source.source_class->prefetch != NULL) {
            source.source_class->prefetch(source.source, sample.number);
        }
    }
}
