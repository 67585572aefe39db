/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of a model directory against the map: what is missing, what is there
 * besides, what has another shape. Called by hf_weights.c and stage_load.c.
 * Read hf_impl.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "hf_composite.h"
#include "hf_impl.h"
#include "hf_names.h"
#include "problems.h"

enum {
    NAME_BYTES = 512,
    ADVISED = 24 /* problems that get a nearest name: it takes a search each */
};

typedef struct check {
    const loong_hf_t *hf;
    loong_arena_t *arena;
    loong_problems_t problems;
    int64_t extra_count;
    const loong_safetensor_t **extra; /* that no parameter is made of */
    int64_t missing_count;
    const char **missing;
    int64_t layers_left_out;
    int64_t beside; /* tensors of other parts of the model */
    const char *beside_name; /* the first of them */
    int64_t scales_left_out;
    int64_t packed; /* matrices of integers */
} check_t;

static bool same_shape(int ndim, const int64_t *a, int other_ndim,
                       const int64_t *b)
{
    return ndim == other_ndim && memcmp(a, b, (size_t)ndim * sizeof(*a)) == 0;
}

/* Buffers of the classes that older versions saved: masks and tables. */
static bool is_buffer(const char *name)
{
    static const char *const suffixes[] = {".attn.bias", ".attn.masked_bias",
                                           ".rotary_emb.inv_freq"};
    size_t length = strlen(name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(suffixes); i++) {
        size_t n = strlen(suffixes[i]);
        if (length >= n && strcmp(name + length - n, suffixes[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const loong_safetensor_t *const *)a;
    uintptr_t y = (uintptr_t) * (const loong_safetensor_t *const *)b;
    return (x > y) - (x < y);
}

/* ---- lists ---- */

static loong_status_t list_missing(check_t *c)
{
    const loong_hf_t *hf = c->hf;
    LOONG_TRY(loongi_arena_alloc(
        c->arena,
        (size_t)loongi_hf_map_pieces(hf->map) * sizeof(*c->missing),
        &c->missing));
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(hf->map, i);
        for (int64_t k = 0; k < p->pieces; k++) {
            char *name = NULL;
            if (hf->tensors[p->first_piece + k] != NULL) {
                continue;
            }
            LOONG_TRY(loongi_arena_printf(
                c->arena, &name, "%s%s",
                loongi_hf_param_prefix(hf->map, p),
                loongi_hf_piece_name(p, k)));
            c->missing[c->missing_count++] = name;
        }
    }
    return LOONG_OK;
}

/* A layer that predicts further tokens mixes their embeddings in. Another one
 * behind the last is the model's, of which config.json has too few. */
static bool is_predictor(const loong_hf_t *hf, const char *name)
{
    char mixer[80];
    long long layer = 0;
    if (!loongi_hf_map_predicts(hf->map, name) ||
        sscanf(name, "model.layers.%lld.", &layer) != 1) {
        return loongi_hf_map_predicts(hf->map, name);
    }
    snprintf(mixer, sizeof(mixer), "model.layers.%lld.eh_proj.weight", layer);
    return loongi_safetensors_set_find(hf->set, mixer) != NULL;
}

static loong_status_t list_extra(check_t *c)
{
    const loong_hf_t *hf = c->hf;
    size_t count = (size_t)loongi_hf_map_pieces(hf->map);
    int64_t all = loongi_safetensors_set_count(hf->set);
    const loong_safetensor_t **sorted = NULL;
    LOONG_TRY(loongi_arena_alloc(c->arena, count * sizeof(*sorted), &sorted));
    LOONG_TRY(loongi_arena_alloc(c->arena, (size_t)all * sizeof(*c->extra),
                                 &c->extra));
    memcpy(sorted, hf->tensors, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_address);
    for (int64_t i = 0; i < all; i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(hf->set, i);
        if (is_buffer(t->name) || loongi_hf_map_ignores(hf->map, t->name) ||
            loongi_shape_count(t->ndim, t->shape) == 0 ||
            bsearch(&t, sorted, count, sizeof(*sorted), by_address) != NULL) {
            continue;
        }
        if (loongi_hf_composite_is_other(hf->map, t->name)) {
            continue; /* whoever opens that part looks at it */
        }
        if (is_predictor(hf, t->name)) {
            c->layers_left_out++;
        } else if (loongi_hf_map_is_extra(hf->map, t->name)) {
            c->beside_name = c->beside++ == 0 ? t->name : c->beside_name;
        } else if (loongi_hf_codes_beside(hf->set, t->name) ||
                   loongi_hf_packed_beside(hf->set, t->name)) {
            continue;
        } else if (loongi_hf_quant_is_scale(hf->set, t->name)) {
            c->scales_left_out += loongi_hf_quant_of_activations(t->name);
        } else {
            c->extra[c->extra_count++] = t;
        }
    }
    return LOONG_OK;
}

/* ---- differences ---- */

/* ", the nearest is ..." */
static const char *advice(const check_t *c, const char *nearest,
                          char text[NAME_BYTES])
{
    text[0] = '\0';
    if (nearest != NULL && c->problems.count < ADVISED) {
        snprintf(text, NAME_BYTES, "; nearest: %s", nearest);
    }
    return text;
}

static const char *nearest_extra(const check_t *c, const char *name)
{
    const char *best = NULL;
    int least = (int)strlen(name) * 2 / 3;
    for (int64_t i = 0; i < c->extra_count && c->problems.count < ADVISED;
         i++) {
        int d = loongi_edit_distance(name, c->extra[i]->name, least);
        if (d < least) {
            least = d;
            best = c->extra[i]->name;
        }
    }
    return best;
}

static const char *nearest_missing(const check_t *c, const char *name)
{
    const char *best = NULL;
    int least = (int)strlen(name) * 2 / 3;
    for (int64_t i = 0; i < c->missing_count && c->problems.count < ADVISED;
         i++) {
        int d = loongi_edit_distance(name, c->missing[i], least);
        if (d < least) {
            least = d;
            best = c->missing[i];
        }
    }
    return best;
}

static void check_scale(check_t *c, int64_t piece)
{
    const loong_hf_t *hf = c->hf;
    const loong_safetensor_t *tensor = hf->tensors[piece];
    const loong_safetensor_t *scale = hf->scales[piece];
    char found[LOONG_SHAPE_TEXT], shape[LOONG_SHAPE_TEXT];
    if (tensor->dtype != LOONG_F8_E4M3) {
        return;
    }
    if (scale == NULL) {
        loongi_problems_add(&c->problems,
                            "missing: %s_scale_inv or %s_scale, the scales of "
                            "that fp8 tensor",
                            tensor->name, tensor->name);
    } else if (!loongi_hf_quant_fits(&hf->quant, tensor, scale)) {
        loongi_problems_add(
            &c->problems,
            "shape: %s is %s %s: no scale of %s %s as a whole, of its rows or "
            "of blocks of %" PRId64 " x %" PRId64,
            scale->name, loong_dtype_name(scale->dtype),
            loongi_shape_text(scale->ndim, scale->shape, found), tensor->name,
            loongi_shape_text(tensor->ndim, tensor->shape, shape),
            hf->quant.block[0], hf->quant.block[1]);
    }
}

/* An earlier piece or parameter has the same tensor: it was checked there. */
static bool is_again(const loong_hf_t *hf, const loong_hf_param_t *param,
                     int64_t piece)
{
    const loong_safetensor_t *const *t = &hf->tensors[param->first_piece];
    return param->part > 0 || (piece > 0 && t[piece - 1] == t[piece]) ||
           (piece >= param->units && t[piece - param->units] == t[piece]);
}

/* A matrix of packed integers against what it should be, `wanted`. */
static void check_packed(check_t *c, const loong_hf_packed_t *packed,
                         const int64_t *shape, int ndim, const char *wanted)
{
    c->packed++;
    if (ndim != 2 || packed->rows != shape[0] || packed->cols != shape[1]) {
        loongi_problems_add(&c->problems,
                            "shape: %s are integers of %" PRId64 " x %" PRId64
                            " elements, config.json says %s",
                            packed->words->name, packed->rows, packed->cols,
                            wanted);
    }
}

/* The matrix of codes against what it should be, `wanted`. */
static void check_codes(check_t *c, const loong_hf_codes_t *codes,
                        const int64_t *shape, int ndim,
                        const loong_hf_param_t *param, const char *wanted)
{
    if (param->transposed || ndim != 2 || codes->rows != shape[0] ||
        codes->cols != shape[1]) {
        loongi_problems_add(
            &c->problems,
            "shape: %s are codes of %" PRId64 " x %" PRId64
            " elements, config.json says %s%s",
            codes->codes->name, codes->rows, codes->cols, wanted,
            param->transposed ? ", transposed, of which none are read" : "");
    }
}

static void check_piece(check_t *c, const loong_hf_param_t *param,
                        int64_t piece, int64_t *missing)
{
    const loong_hf_t *hf = c->hf;
    const loong_safetensor_t *tensor = hf->tensors[param->first_piece + piece];
    char found[LOONG_SHAPE_TEXT], wanted[LOONG_SHAPE_TEXT], text[NAME_BYTES];
    int64_t shape[LOONG_HF_DIMS];
    int ndim = loongi_hf_file_shape(param, shape);
    loongi_shape_text(ndim, shape, wanted);
    if (tensor == NULL) {
        const char *name = c->missing[(*missing)++];
        loongi_problems_add(&c->problems, "missing: %s %s%s", name, wanted,
                            advice(c, nearest_extra(c, name), text));
    } else if (is_again(hf, param, piece)) {
        return;
    } else if (hf->packed[param->first_piece + piece].bits > 0) {
        check_packed(c, &hf->packed[param->first_piece + piece], shape, ndim,
                     wanted);
    } else if (hf->codes[param->first_piece + piece].quant !=
               LOONG_QUANT_NONE) {
        check_codes(c, &hf->codes[param->first_piece + piece], shape, ndim,
                    param, wanted);
    } else if (!same_shape(ndim, shape, tensor->ndim, tensor->shape)) {
        loongi_problems_add(
            &c->problems, "shape: %s is %s, config.json says %s", tensor->name,
            loongi_shape_text(tensor->ndim, tensor->shape, found), wanted);
    } else if (!loongi_dtype_is_float(tensor->dtype)) {
        loongi_problems_add(&c->problems, "type: %s is %s, not a float",
                            tensor->name, loong_dtype_name(tensor->dtype));
    } else {
        check_scale(c, param->first_piece + piece);
    }
}

static void check_params(check_t *c)
{
    int64_t missing = 0;
    for (int64_t i = 0; i < loongi_hf_map_count(c->hf->map); i++) {
        const loong_hf_param_t *param = loongi_hf_map_get(c->hf->map, i);
        for (int64_t k = 0; k < param->pieces; k++) {
            check_piece(c, param, k, &missing);
        }
    }
}

static void check_tied(check_t *c, const loong_safetensor_t *head)
{
    const loong_hf_param_t *param =
        loongi_hf_map_find(c->hf->map, "embed_tokens.weight");
    const loong_safetensor_t *table = c->hf->tensors[param->first_piece];
    if (table == NULL || head->dtype != table->dtype ||
        !same_shape(head->ndim, head->shape, table->ndim, table->shape) ||
        memcmp(head->data, table->data, head->bytes) != 0) {
        loongi_problems_add(&c->problems,
                            "tied: config.json ties %s to the embedding, but "
                            "the file has a different one, with which "
                            "tie_word_embeddings is false", head->name);
    }
}

static void check_extra(check_t *c)
{
    const loong_hf_t *hf = c->hf;
    char shape[LOONG_SHAPE_TEXT], text[NAME_BYTES];
    for (int64_t i = 0; i < c->extra_count; i++) {
        const loong_safetensor_t *t = c->extra[i];
        const char *head = loongi_hf_map_head(hf->map);
        size_t bare = strlen(hf->map->bare);
        if (head != NULL && strncmp(t->name, hf->map->bare, bare) == 0 &&
            strcmp(t->name + bare, head) == 0) {
            check_tied(c, t);
        } else {
            loongi_problems_add(
                &c->problems, "unexpected: %s %s%s", t->name,
                loongi_shape_text(t->ndim, t->shape, shape),
                advice(c, nearest_missing(c, t->name), text));
        }
    }
}

/* Not silently: what is left out, or read as something else. */
static void tell(const check_t *c)
{
    if (c->layers_left_out > 0) {
        loongi_log(c->hf->ctx, LOONG_LOG_WARN,
                   "%s: %" PRId64 " tensors of layers that predict further "
                   "tokens are left out", c->hf->dir, c->layers_left_out);
    }
    if (c->beside > 0) {
        loongi_log(c->hf->ctx, LOONG_LOG_WARN,
                   "%s: %" PRId64 " tensors of other parts are left out (%s "
                   "and others)",
                   c->hf->dir, c->beside, c->beside_name);
    }
    if (c->packed > 0) {
        loongi_log(c->hf->ctx, LOONG_LOG_INFO,
                   "%s: %" PRId64 " matrices of int%d with scales are read as "
                   "the products, in %s; an export has these, and no "
                   "quantization_config",
                   c->hf->dir, c->packed, c->hf->quant.packing.bits,
                   loong_dtype_name(c->hf->quant.dtype));
    }
    if (c->scales_left_out > 0) {
        loongi_log(c->hf->ctx, LOONG_LOG_WARN,
                   "%s: %" PRId64 " scales of activations are left out",
                   c->hf->dir, c->scales_left_out);
    }
}

loong_status_t loongi_hf_compare(const loong_hf_t *hf)
{
    check_t check = {0};
    check.hf = hf;
    check.problems = loongi_problems_begin(hf->ctx);
    LOONG_TRY(loongi_arena_create(hf->ctx, "lists of tensors", &check.arena));
    loong_status_t status = list_missing(&check);
    if (status == LOONG_OK) {
        status = list_extra(&check);
    }
    if (status == LOONG_OK) {
        check_params(&check);
        check_extra(&check);
        tell(&check);
    }
    loong_status_t listed =
        loongi_problems_end(&check.problems, LOONG_ERR_MISMATCH, hf->dir);
    if (listed != LOONG_OK && check.missing_count > 0 &&
        check.extra_count > 0) {
        loongi_error_note(hf->ctx, "names of its own? loong-ckpt draft %s "
                          "proposes a map for them", hf->dir);
    }
    loongi_arena_destroy(&check.arena);
    return status != LOONG_OK ? status : listed;
}

/* ---- against a model built elsewhere ---- */

static bool is_wanted(const loong_hf_wanted_t *wanted, int64_t count,
                      const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(wanted[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

loong_status_t loongi_hf_check(const loong_hf_t *hf,
                               const loong_hf_wanted_t *wanted, int64_t count)
{
    char found[LOONG_SHAPE_TEXT], needed[LOONG_SHAPE_TEXT];
    loong_problems_t problems = loongi_problems_begin(hf->ctx);
    const char *left_out = NULL;
    for (int64_t i = 0; i < count; i++) {
        const loong_hf_wanted_t *w = &wanted[i];
        const loong_hf_param_t *param = loongi_hf_map_find(hf->map, w->name);
        loongi_shape_text(w->ndim, w->shape, needed);
        if (param == NULL) {
            loongi_problems_add(&problems, "missing: %s %s", w->name, needed);
        } else if (!same_shape(w->ndim, w->shape, param->ndim, param->shape)) {
            loongi_problems_add(
                &problems, "shape: %s is %s in the directory, %s in the model",
                w->name, loongi_shape_text(param->ndim, param->shape, found),
                needed);
        }
    }
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *param = loongi_hf_map_get(hf->map, i);
        if (is_wanted(wanted, count, param->name)) {
            continue;
        }
        if (param->own) {
            left_out = param->name;
            continue;
        }
        loongi_problems_add(
            &problems, "unexpected: %s %s", param->name,
            loongi_shape_text(param->ndim, param->shape, found));
    }
    if (left_out != NULL) {
        loongi_log(hf->ctx, LOONG_LOG_WARN,
                   "%s: the model has another head: %s and what belongs to it "
                   "are left out",
                   hf->dir, left_out);
    }
    return loongi_problems_end(&problems, LOONG_ERR_MISMATCH, hf->dir);
}
