/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits the layers of a model into stages, equally or by a layout string of
 * Megatron's. Called by component.c and by the rules of layouts
 * (src/plan/parallel.c). Read pipeline_split.h before. */
#include "pipeline_split.h"

#include <string.h>

#define LAYERS_KEY "parallel.num_layers_per_virtual_pipeline_stage"
#define LAYOUT_KEY "parallel.pipeline_model_parallel_layout"

/* ---- equal parts -------------------------------------------------------- */

static loong_status_t check_equal(loong_context_t *ctx,
                                  const loong_split_params_t *p)
{
    int each = p->ranks * p->layers_per_chunk;
    LOONG_CHECK(ctx, p->ranks == 1 || p->num_layers >= p->ranks,
                LOONG_ERR_CONFIG,
                "parallel.pipeline_model_parallel_size %d: the model has %d "
                "layers to cut between",
                p->ranks, p->num_layers);
    LOONG_CHECK(ctx, p->layers_per_chunk == 0 || p->ranks > 1, LOONG_ERR_CONFIG,
                LAYERS_KEY " %d: only with "
                           "parallel.pipeline_model_parallel_size above 1",
                p->layers_per_chunk);
    LOONG_CHECK(ctx, each == 0 || p->num_layers % each == 0, LOONG_ERR_CONFIG,
                LAYERS_KEY " %d: the %d layers of the model are no multiple "
                           "of it times %d ranks; " LAYOUT_KEY " cuts anywhere",
                p->layers_per_chunk, p->num_layers, p->ranks);
    return LOONG_OK;
}

static void cut_equal(const loong_split_params_t *p, int stages,
                      loong_stage_split_t *cuts)
{
    int each = p->num_layers / stages;
    int more = p->num_layers % stages;
    for (int s = 0; s < stages; s++) {
        cuts[s].first_layer = s * each + LOONG_MIN(s, more);
        cuts[s].num_layers = each + (s < more);
        cuts[s].begins = s == 0;
        cuts[s].ends = s + 1 == stages;
    }
}

/* ---- layout strings ----------------------------------------------------- */

enum { MAX_ITEMS = 1 << 16, MAX_DEPTH = 16 };

typedef struct parser {
    loong_context_t *ctx;
    const char *text;
    int64_t at;
    int depth;
    int64_t count; /* items: 'E', 't', 'L', '|' */
    char *items;   /* MAX_ITEMS */
} parser_t;

static loong_status_t wrong(const parser_t *p, const char *what)
{
    return LOONG_FAIL(p->ctx, LOONG_ERR_CONFIG,
                      LAYOUT_KEY " '%s': %s at character %lld", p->text, what,
                      (long long)p->at + 1);
}

static loong_status_t put(parser_t *p, const char *items, int64_t count)
{
    if (p->count + count > MAX_ITEMS) {
        return wrong(p, "more than 65536 items");
    }
    memmove(p->items + p->count, items, (size_t)count);
    p->count += count;
    return LOONG_OK;
}

/* "*12" repeats what was put since `begin`. */
static loong_status_t parse_times(parser_t *p, int64_t begin)
{
    int64_t count = p->count - begin;
    int64_t times = 0;
    if (p->text[p->at] != '*') {
        return LOONG_OK;
    }
    p->at++;
    int64_t digits = p->at;
    while (p->text[p->at] >= '0' && p->text[p->at] <= '9' &&
           times <= MAX_ITEMS) {
        times = 10 * times + (p->text[p->at++] - '0');
    }
    if (digits == p->at || times == 0) {
        return wrong(p, "a number of times (1 or more) is missing");
    }
    for (int64_t i = 1; i < times; i++) {
        LOONG_TRY(put(p, p->items + begin, count));
    }
    return LOONG_OK;
}

static loong_status_t parse_items(parser_t *p);

static loong_status_t parse_item(parser_t *p)
{
    int64_t begin = p->count;
    char c = p->text[p->at];
    if (c == '(') {
        if (++p->depth > MAX_DEPTH) {
            return wrong(p, "more than 16 brackets inside each other");
        }
        p->at++;
        LOONG_TRY(parse_items(p));
        if (p->text[p->at] != ')') {
            return wrong(p, "a ')' is missing");
        }
        p->depth--;
    } else if (c == 'm') {
        return wrong(p, "m: the model has no multi-token prediction");
    } else if (strchr("EtL|", c) == NULL) {
        return wrong(p, "only E, t, L, |, (...), *N and commas are allowed");
    } else {
        LOONG_TRY(put(p, &c, 1));
    }
    p->at++;
    return parse_times(p, begin);
}

static loong_status_t parse_items(parser_t *p)
{
    while (p->text[p->at] != '\0' && p->text[p->at] != ')') {
        if (p->text[p->at] == ',' || p->text[p->at] == ' ') {
            p->at++;
            continue;
        }
        LOONG_TRY(parse_item(p));
    }
    return LOONG_OK;
}

static loong_status_t parse(parser_t *p)
{
    LOONG_TRY(parse_items(p));
    if (p->text[p->at] != '\0') {
        return wrong(p, "a ')' without '('");
    }
    return LOONG_OK;
}

static loong_status_t check_stages(const parser_t *p, int64_t *stages_p)
{
    int64_t stages = 1;
    int64_t here = 0;
    for (int64_t i = 0; i <= p->count; i++) {
        bool ends = i == p->count || p->items[i] == '|';
        LOONG_CHECK(p->ctx, !ends || here > 0, LOONG_ERR_CONFIG,
                    LAYOUT_KEY " '%s': stage %lld of it is empty", p->text,
                    (long long)stages);
        here = ends ? 0 : here + 1;
        stages += ends && i < p->count;
    }
    *stages_p = stages;
    return LOONG_OK;
}

/* The embedding first, the head last, every layer once between them. */
static loong_status_t check_items(const parser_t *p,
                                  const loong_split_params_t *params,
                                  int64_t *stages_p)
{
    int64_t layers = 0;
    int64_t ends = 0;
    int64_t stages = 0;
    for (int64_t i = 0; i < p->count; i++) {
        layers += p->items[i] == 't';
        ends += p->items[i] == 'E' || p->items[i] == 'L';
    }
    LOONG_TRY(check_stages(p, &stages));
    LOONG_CHECK(p->ctx,
                ends == 2 && p->items[0] == 'E' &&
                    p->items[p->count - 1] == 'L',
                LOONG_ERR_CONFIG,
                LAYOUT_KEY " '%s': one E at the front and one L at the end "
                           "are wanted",
                p->text);
    LOONG_CHECK(p->ctx, layers == params->num_layers, LOONG_ERR_CONFIG,
                LAYOUT_KEY " '%s': %lld layers, the model has %d", p->text,
                (long long)layers, params->num_layers);
    LOONG_CHECK(p->ctx, stages % params->ranks == 0, LOONG_ERR_CONFIG,
                LAYOUT_KEY
                " '%s': %lld stages, a multiple of "
                "parallel.pipeline_model_parallel_size %d is allowed",
                p->text, (long long)stages, params->ranks);
    *stages_p = stages;
    return LOONG_OK;
}

static void cut_items(const parser_t *p, loong_stage_split_t *cuts)
{
    int stage = 0;
    int layer = 0;
    for (int64_t i = 0; i < p->count; i++) {
        char c = p->items[i];
        loong_stage_split_t *cut = &cuts[stage];
        cut->begins = cut->begins || c == 'E';
        cut->ends = cut->ends || c == 'L';
        cut->num_layers += c == 't';
        layer += c == 't';
        if (c == '|') {
            cuts[++stage].first_layer = layer;
        }
    }
}

static loong_status_t cut_by_layout(loong_context_t *ctx,
                                    const loong_split_params_t *params,
                                    loong_arena_t *arena,
                                    loong_stage_split_t **cuts_p, int *chunks_p)
{
    parser_t p = {ctx, params->layout, 0, 0, 0, NULL};
    int64_t stages = 0;
    LOONG_CHECK(ctx, params->layers_per_chunk == 0, LOONG_ERR_CONFIG,
                LAYOUT_KEY " and " LAYERS_KEY " are both set: one of them is "
                           "allowed");
    LOONG_TRY(loongi_calloc(ctx, MAX_ITEMS, 1, "pipeline layout", &p.items));
    loong_status_t status = parse(&p);
    if (status == LOONG_OK) {
        status = p.count > 0 ? check_items(&p, params, &stages)
                             : wrong(&p, "nothing");
    }
    if (status == LOONG_OK) {
        status = loongi_arena_alloc(arena, (size_t)stages * sizeof(**cuts_p),
                                    cuts_p);
    }
    if (status == LOONG_OK) {
        memset(*cuts_p, 0, (size_t)stages * sizeof(**cuts_p));
        cut_items(&p, *cuts_p);
        *chunks_p = (int)(stages / params->ranks);
    }
    loongi_free(ctx, p.items);
    return status;
}

loong_status_t loongi_pipeline_split(loong_context_t *ctx,
                                     const loong_split_params_t *params,
                                     loong_arena_t *arena,
                                     loong_stage_split_t **cuts_p,
                                     int *chunks_p)
{
    const loong_split_params_t *p = params;
    if (p->layout != NULL) {
        return cut_by_layout(ctx, p, arena, cuts_p, chunks_p);
    }
    LOONG_TRY(check_equal(ctx, p));
    int chunks = p->layers_per_chunk > 0
                     ? p->num_layers / (p->ranks * p->layers_per_chunk)
                     : 1;
    int stages = p->ranks * chunks;
    LOONG_TRY(
        loongi_arena_alloc(arena, (size_t)stages * sizeof(**cuts_p), cuts_p));
    cut_equal(p, stages, *cuts_p);
    *chunks_p = chunks;
    return LOONG_OK;
}
