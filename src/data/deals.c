/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of micro-batches, and which rank runs which. Called by loader.c. Read
 * deals.h before. */
#include "deals.h"

#include <string.h>

#include "source_pack.h"

loong_status_t loongi_deals_create(loong_context_t *ctx,
                                   const loong_loader_params_t *params,
                                   loong_deals_t *deals)
{
    memset(deals, 0, sizeof(*deals));
    deals->ctx = deals->items.ctx = ctx;
    deals->params = *params;
    deals->items.sizes = params->costs->pictures.sizes;
    for (int i = 0; i < 2; i++) {
        deals->consumed[i] = -1;
        LOONG_TRY(loongi_balance_create(
            ctx, params->global_batch_size / params->micro_batch_size,
            params->data_parallel_size, &deals->balance[i]));
    }
    return LOONG_OK;
}

void loongi_deals_destroy(loong_deals_t *deals)
{
    for (int i = 0; i < 2 && deals->ctx != NULL; i++) {
        loongi_balance_destroy(deals->ctx, &deals->balance[i]);
    }
    loong_items_free(&deals->items);
    memset(deals, 0, sizeof(*deals));
}

/* ---- costs --------------------------------------------------------------- */

/* Attention in a grid of so many rows of that encoder. */
static int64_t grid_cost(const loong_sample_costs_t *c, int e, int64_t rows)
{
    return c->encoder[e].picture[LOONG_MIN(rows, c->encoder[e].rows)];
}

/* The pictures of a sample; the rows that its text has with them. met: encoders
 * that the micro-batch has pictures of. */
static int64_t add_pictures(const loong_deals_t *d,
                            bool met[LOONG_MAX_ENCODERS],
                            int64_t parts[LOONG_COST_PARTS])
{
    const loong_sample_costs_t *c = d->params.costs;
    const loong_items_t *items = &d->items;
    int64_t rows = items->item[0].size[0];
    for (int i = 0; i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        if (item->type == LOONG_ITEM_IMAGE) {
            loong_picture_rows_t of =
                c->pictures.rows(c->pictures.config, item);
            int e = of.encoder_number;
            parts[LOONG_COST_ENCODER] +=
                met[e] ? 0 : c->encoder[e].micro_batch;
            met[e] = true;
            int64_t wholes = of.tiles > 1 ? of.grids / of.tiles : 0;
            int64_t whole = of.whole.height * of.whole.width;
            int64_t each = (of.encoder - wholes * whole) /
                           LOONG_MAX(of.grids - wholes, 1);
            parts[LOONG_COST_PICTURES] +=
                wholes * grid_cost(c, e, whole) +
                (of.grids - wholes) * grid_cost(c, e, each);
            rows += of.text - loong_item_parts(item);
        }
    }
    return rows;
}

static loong_status_t add_sample(loong_deals_t *d, int64_t g,
                                 bool met[LOONG_MAX_ENCODERS],
                                 int64_t parts[LOONG_COST_PARTS])
{
    const loong_loader_params_t *p = &d->params;
    const loong_sample_costs_t *c = p->costs;
    loong_sample_t sample;
    loong_blend_source_info_t source;
    loong_blend_info_t blend;
    loong_blend_get_info(p->blend, &blend);
    parts[LOONG_COST_ROWS] += c->row;
    if ((p->num_samples > 0 && g >= p->num_samples) || g >= blend.max_samples) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_blend_locate(p->blend, g, &sample));
    loong_blend_get_source(p->blend, sample.source, &source);
    int64_t rows = blend.seq_length;
    if (c->pictures.rows != NULL) {
        d->items.epoch = sample.epoch;
        LOONG_TRY(
            source.source_class->peek(source.source, sample.number, &d->items));
        rows = LOONG_MIN(add_pictures(d, met, parts), blend.seq_length + 1);
    }
    /* Each text of a row sees itself alone. */
    int64_t own = loongi_pack_cost(source.source_class, source.source,
                                   sample.number, c->text);
    parts[LOONG_COST_TEXT] += own >= 0 ? own : c->text[rows];
    return LOONG_OK;
}

loong_status_t loongi_deals_measure(loong_deals_t *deals, int64_t g,
                                    int64_t parts[LOONG_COST_PARTS])
{
    bool met[LOONG_MAX_ENCODERS] = {false};
    memset(parts, 0, LOONG_COST_PARTS * sizeof(*parts));
    for (int64_t j = 0; j < deals->params.micro_batch_size; j++) {
        LOONG_TRY(add_sample(deals, g + j, met, parts));
    }
    return LOONG_OK;
}

/* ---- deals --------------------------------------------------------------- */

static loong_status_t deal(loong_deals_t *d, loong_balance_t *balance,
                           int64_t consumed, int64_t samples)
{
    int64_t each = d->params.micro_batch_size;
    balance->count = samples / each;
    for (int64_t m = 0; m < balance->count; m++) {
        int64_t parts[LOONG_COST_PARTS];
        double cost = 0.0;
        LOONG_TRY(loongi_deals_measure(d, consumed + m * each, parts));
        for (int i = 0; i < LOONG_COST_PARTS; i++) {
            cost += (double)parts[i] * d->params.costs->rate[i];
        }
        balance->micro[m].cost = (int64_t)cost;
    }
    loongi_balance_deal(balance);
    return LOONG_OK;
}

loong_status_t loongi_deals_get(loong_deals_t *deals, int64_t consumed,
                                int64_t samples,
                                const loong_balance_t **balance_p)
{
    loong_deals_t *d = deals;
    int at = d->consumed[d->newest] == consumed ? d->newest : d->newest ^ 1;
    if (d->consumed[at] != consumed) {
        d->consumed[at] = -1;
        d->newest = at;
        LOONG_TRY(deal(d, &d->balance[at], consumed, samples));
        d->consumed[at] = consumed;
    }
    *balance_p = &d->balance[at];
    return LOONG_OK;
}
