/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from the choices of tokens alone: how many chose an expert, how
 * far that is from an even share, and whom an expert has no room for. Listed as
 * references in kernels/list.h; read loong/moe.h and ref.h before. */
#include <stdlib.h>

#include "list.h"
#include "moe.h"
#include "ref.h"

/* ---- expert_counts ------------------------------------------------------- */

static loong_status_t counts(const loong_kernel_call_t *call)
{
    const loong_expert_counts_attr_t *a = call->query->attr;
    ref_mat_t index = ref_arg(call, 0);
    ref_mat_t c = ref_out(call, 0);
    for (int64_t s = 0; s < c.rows; s++) {
        for (int64_t e = 0; e < c.cols; e++) {
            ref_put(&c, s, e, 0.0);
        }
    }
    LOONG_TRY(loongi_moe_check(call, 0, -1, a->experts - 1));
    for (int64_t t = 0; t < index.rows; t++) {
        const int32_t *chosen = (const int32_t *)index.p + t * index.ld;
        int64_t s = (a->begin + t) / a->span;
        for (int64_t j = 0; j < index.cols; j++) {
            if (chosen[j] >= 0) {
                ref_put(&c, s, chosen[j], ref_at(&c, s, chosen[j]) + 1.0);
            }
        }
    }
    return LOONG_OK;
}

/* ---- expert_capacity ----------------------------------------------------- */

/* The slots of the experts, heaviest first where weights decide. Equal tokens
 * (a pad beside a pad) have weights that differ by rounding alone, which
 * depends on the layout: in fp32 they are equal, and the earlier one stays. */
typedef struct claim {
    float weight;
    int32_t expert;
    int32_t slot;
} claim_t;

static int by_claim(const void *a, const void *b)
{
    const claim_t *x = a;
    const claim_t *y = b;
    int order = (x->expert > y->expert) - (x->expert < y->expert);
    order = order != 0 ? order : (x->weight < y->weight) -
                                     (x->weight > y->weight);
    return order != 0 ? order : (x->slot > y->slot) - (x->slot < y->slot);
}

static size_t capacity_room(const loong_kernel_query_t *q)
{
    return sizeof(claim_t) * (size_t)(loong_karg_rows(&q->arg[0]) *
                                      q->arg[0].dim[1]);
}

static loong_status_t capacity(const loong_kernel_call_t *call)
{
    const loong_expert_capacity_attr_t *a = call->query->attr;
    ref_mat_t index = ref_arg(call, 0);
    ref_mat_t weight = ref_arg(call, 1);
    const int32_t *chosen = index.p;
    int32_t *kept = call->ptr[2];
    claim_t *claim = call->workspace;
    int64_t slots = index.rows * index.cols;
    int64_t taken = 0;
    LOONG_TRY(loongi_moe_check(call, 0, 0, a->experts - 1));
    for (int64_t s = 0; s < slots; s++) {
        double w = ref_at(&weight, s / index.cols, s % index.cols);
        claim[s].weight = a->by_position ? 0.0f : (float)w;
        claim[s].expert = chosen[s];
        claim[s].slot = (int32_t)s;
    }
    qsort(claim, (size_t)slots, sizeof(*claim), by_claim);
    for (int64_t i = 0; i < slots; i++) {
        taken = i > 0 && claim[i].expert == claim[i - 1].expert ? taken + 1
                                                                : 0;
        kept[claim[i].slot] =
            taken < a->capacity ? claim[i].expert : -1;
    }
    return LOONG_OK;
}

/* ---- expert_excess ------------------------------------------------------- */

static loong_status_t excess(const loong_kernel_call_t *call)
{
    const loong_expert_excess_attr_t *a = call->query->attr;
    ref_mat_t index = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    const int32_t *chosen = index.p;
    int64_t slots = index.rows * index.cols;
    int64_t set = a->experts / LOONG_MAX(a->sets, 1);
    LOONG_TRY(loongi_moe_check(call, 0, 0, a->experts - 1));
    for (int64_t e = 0; e < a->experts; e++) {
        ref_put(&y, 0, e, 0.0);
    }
    for (int64_t s = 0; s < slots; s++) {
        ref_put(&y, 0, chosen[s], ref_at(&y, 0, chosen[s]) + 1.0);
    }
    for (int64_t first = 0; first < a->experts; first += set) {
        double all = 0.0;
        for (int64_t e = first; e < first + set; e++) {
            all += ref_at(&y, 0, e);
        }
        for (int64_t e = first; e < first + set; e++) {
            ref_put(&y, 0, e, (double)set * ref_at(&y, 0, e) - all);
        }
    }
    return LOONG_OK;
}

REF_KERNEL(expert_counts, NULL, counts);
REF_KERNEL(expert_capacity, capacity_room, capacity);
REF_KERNEL(expert_excess, NULL, excess);
