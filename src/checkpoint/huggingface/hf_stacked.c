/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacked experts in either order. Called by hf_composite.c. Read hf_stacked.h
 * before. */
#include "hf_stacked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_composite.h"

#define KEPT_KEY "hf.experts" /* "out_in"; not there: as published */

typedef enum order { NOT_STACKED, IN_OUT, OUT_IN } order_t;

/* A tensor of gates and ups of all experts; NULL: there is none. */
static const loong_safetensor_t *
find_gate_up(const loong_safetensors_set_t *set)
{
    static const char end[] = ".mlp.experts.gate_up_proj";
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        size_t length = strlen(t->name);
        if (length >= sizeof(end) &&
            strcmp(t->name + length - sizeof(end) + 1, end) == 0) {
            return t;
        }
    }
    return NULL;
}

/* The shapes of both stacks of a layer tell the orders apart, also where one
 * of them is square. */
static order_t find_order(const loong_safetensors_set_t *set)
{
    const loong_safetensor_t *up = find_gate_up(set);
    char name[512];
    if (up == NULL) {
        return NOT_STACKED;
    }
    snprintf(name, sizeof(name), "%.*sdown_proj",
             (int)(strlen(up->name) - strlen("gate_up_proj")), up->name);
    const loong_safetensor_t *down = loongi_safetensors_set_find(set, name);
    return down != NULL && up->ndim == 3 && down->ndim == 3 &&
                   up->shape[1] == 2 * down->shape[2] &&
                   up->shape[2] == down->shape[1]
               ? OUT_IN
               : IN_OUT;
}

static bool has_square(const loong_hf_map_t *map)
{
    int64_t width = map->sizes[HF_EXPERT_FFN];
    return map->sizes[HF_HIDDEN] == width || map->sizes[HF_HIDDEN] == 2 * width;
}

/* A map from a file says itself how they lie. */
static bool is_stacked(const loong_hf_map_t *map)
{
    const char *names = map->composite->parts[map->part].names;
    return names != NULL &&
           map->family == loongi_hf_names_find(map->ctx, names);
}

static void turn(loong_hf_map_t *map)
{
    for (int64_t i = 0; i < map->count; i++) {
        loong_hf_param_t *p = &map->params[i];
        p->transposed = p->transposed && !p->stacked;
    }
}

loong_status_t loongi_hf_stacked_place(loong_hf_map_t *map,
                                       const loong_safetensors_set_t *set)
{
    order_t order = is_stacked(map) ? find_order(set) : NOT_STACKED;
    LOONG_CHECK(
        map->ctx, order != IN_OUT || !has_square(map), LOONG_ERR_UNSUPPORTED,
        "%s and others are [experts, in, out], some of %" PRId64 " x %" PRId64
        ": transformers reads square ones as [experts, "
        "out, in]; a directory that its save_pretrained writes, of 5 "
        "or later, has all of them so",
        find_gate_up(set)->name, map->sizes[HF_HIDDEN], map->sizes[HF_HIDDEN]);
    if (order == OUT_IN) {
        turn(map);
    }
    return LOONG_OK;
}

void loongi_hf_stacked_place_as(loong_hf_map_t *map, const loong_pairs_t *kept)
{
    if (is_stacked(map) &&
        (has_square(map) ||
         (kept != NULL && loongi_pairs_get(kept, KEPT_KEY) != NULL))) {
        turn(map);
    }
}

loong_status_t loongi_hf_stacked_keep(const loong_safetensors_set_t *set,
                                      loong_pairs_t *pairs)
{
    return find_order(set) == OUT_IN
               ? loongi_pairs_set(pairs, KEPT_KEY, "out_in")
               : LOONG_OK;
}
