/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows the ranks of experts work on in which round, and which rows go to
 * which rank. Rank r of the n of a group holds the experts e with e n / (E c) =
 * r / c, c ranks a part of the same; with sets of E experts each, those of
 * every set.
 *
 *   expert_rounds  p = rows of a rank;  max over ranks of ceil(p / slots)
 *   expert_window  the slots of a token at a rank, p rows of earlier tokens
 *                  before them, are of round p / slots
 *   expert_routes  S_r = tokens that go to rank r, to each once, ascending;
 *                  rows S_0, S_1, ... S_n-1, and what the tokens chose that
 *                  come from the others, LOONG_NO_TOKEN behind them
 *
 * All three know what the tokens of the whole group chose, so that its ranks
 * agree. Listed as references in kernels/list.h; read loong/moe.h and ref.h
 * before. */
#include <stdbool.h>
#include <string.h>

#include "list.h"
#include "moe.h"
#include "ref.h"

static loong_status_t check_expert(const loong_kernel_call_t *call,
                                   int64_t slot, int experts)
{
    const int32_t *chosen = call->ptr[0];
    LOONG_CHECK(call->ctx, chosen[slot] >= -1 && chosen[slot] < experts,
                LOONG_ERR_ARG, "%s: expert %d of token %lld, allowed -1 to %d",
                call->query->op, chosen[slot],
                (long long)(slot / call->query->arg[0].dim[1]), experts - 1);
    return LOONG_OK;
}

/* ---- expert_rounds and expert_window ------------------------------------- */

static size_t window_room(const loong_kernel_query_t *q)
{
    const loong_expert_window_attr_t *a = q->attr;
    return (size_t)a->ranks * sizeof(int64_t);
}

/* Who holds an expert. */
static int rank_of(const loong_expert_window_attr_t *a, int32_t expert)
{
    int set = a->experts / LOONG_MAX(a->sets, 1);
    return expert % set / (set / a->ranks);
}

/* Rows of each rank, in the workspace; kept: the slots of the call's round. */
static loong_status_t count_rows(const loong_kernel_call_t *call,
                                 int32_t *kept)
{
    const loong_expert_window_attr_t *a = call->query->attr;
    const loong_karg_t *index = &call->query->arg[0];
    const int32_t *chosen = call->ptr[0];
    int64_t *rows = call->workspace;
    int64_t k = index->dim[1];
    memset(rows, 0, window_room(call->query));
    for (int64_t first = 0; first < index->dim[0] * k; first += k) {
        for (int64_t s = first; s < first + k; s++) {
            LOONG_TRY(check_expert(call, s, a->experts));
            int32_t e = chosen[s];
            if (kept != NULL) {
                bool now = e >= 0 &&
                           rows[rank_of(a, e)] / a->slots == call->round;
                kept[s] = now ? e : -1;
            }
        }
        for (int64_t s = first; s < first + k; s++) {
            rows[chosen[s] >= 0 ? rank_of(a, chosen[s]) : 0] += chosen[s] >= 0;
        }
    }
    return LOONG_OK;
}

static loong_status_t run_rounds(const loong_kernel_call_t *call)
{
    const loong_expert_window_attr_t *a = call->query->attr;
    const int64_t *rows = call->workspace;
    int64_t most = 1;
    LOONG_TRY(count_rows(call, NULL));
    for (int r = 0; r < a->ranks; r++) {
        most = LOONG_MAX(most, rows[r]);
    }
    int32_t rounds = (int32_t)((most + a->slots - 1) / a->slots);
    *(int32_t *)call->ptr[1] = rounds;
    if (call->ptr[2] != NULL) {
        ref_mat_t more = ref_out(call, 1);
        ref_put(&more, 0, 0, rounds - 1);
    }
    return LOONG_OK;
}

static loong_status_t run_window(const loong_kernel_call_t *call)
{
    return count_rows(call, call->ptr[1]);
}

/* ---- expert_routes ------------------------------------------------------- */

/* Marks in to[0 .. n - 1] the ranks that a token goes to. */
static void mark(const loong_expert_routes_attr_t *a, const int32_t *chosen,
                 int64_t k, int32_t *to)
{
    int set = a->experts / LOONG_MAX(a->sets, 1);
    int each = set / (a->size / a->copies);
    for (int r = 0; r < a->size; r++) {
        to[r] = -1;
    }
    for (int64_t j = 0; j < k; j++) {
        int first = chosen[j] < 0 ? a->size
                                  : chosen[j] % set / each * a->copies;
        for (int r = first; r < a->size && r < first + a->copies; r++) {
            to[r] = 0;
        }
    }
}

/* Numbers the rows of this rank's tokens: dest, source, rows to each rank. */
static void number(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_expert_routes_attr_t *a = q->attr;
    int32_t *source = call->ptr[1];
    int32_t *dest = call->ptr[2];
    int32_t *go = call->ptr[3];
    int64_t tokens = q->arg[2].dim[0];
    int64_t k = q->arg[0].dim[1];
    const int32_t *chosen = call->ptr[0];
    int n = a->size;
    int32_t next = 0;
    chosen += a->rank * tokens * k;
    for (int64_t t = 0; t < tokens; t++) {
        mark(a, chosen + t * k, k, dest + t * n);
    }
    for (int r = 0; r < n; r++) {
        int32_t begin = next;
        for (int64_t t = 0; t < tokens; t++) {
            if (dest[t * n + r] == 0) {
                source[next] = (int32_t)(t * n + r);
                dest[t * n + r] = next++;
            }
        }
        go[r] = next - begin;
    }
    for (int64_t i = next; i < q->arg[1].dim[0]; i++) {
        source[i] = -1;
    }
}

/* Does a token of these choices come to this rank? */
static bool comes(const loong_expert_routes_attr_t *a, const int32_t *chosen,
                  int64_t k)
{
    int set = a->experts / LOONG_MAX(a->sets, 1);
    int each = set / (a->size / a->copies);
    bool found = false;
    for (int64_t j = 0; j < k; j++) {
        found = found || (chosen[j] >= 0 &&
                          chosen[j] % set / each == a->rank / a->copies);
    }
    return found;
}

static loong_status_t run_routes(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_expert_routes_attr_t *a = q->attr;
    int32_t *come = (int32_t *)call->ptr[3] + a->size;
    int32_t *arrived = call->ptr[4];
    const int32_t *chosen = call->ptr[0];
    int64_t tokens = q->arg[2].dim[0];
    int64_t k = q->arg[0].dim[1];
    int64_t room = q->arg[4].dim[0];
    int64_t rows = 0;
    for (int64_t s = 0; s < q->arg[0].dim[0] * k; s++) {
        LOONG_TRY(check_expert(call, s, a->experts));
    }
    number(call);
    for (int r = 0; r < a->size; r++) {
        int64_t before = rows;
        for (int64_t t = 0; t < tokens; t++, chosen += k) {
            bool here = comes(a, chosen, k);
            if (here && rows < room) {
                memcpy(arrived + rows * k, chosen,
                       (size_t)k * sizeof(*arrived));
            }
            rows += here;
        }
        come[r] = (int32_t)(rows - before);
    }
    LOONG_CHECK(call->ctx, rows <= room, LOONG_ERR_ARG,
                "%s: %lld tokens come to rank %d of %d, room for %lld", q->op,
                (long long)rows, a->rank, a->size, (long long)room);
    for (int64_t i = rows * k; i < room * k; i++) {
        arrived[i] = a->sets > 1 ? -1 : LOONG_NO_TOKEN;
    }
    return LOONG_OK;
}

REF_KERNEL(expert_rounds, window_room, run_rounds);
REF_KERNEL(expert_window, window_room, run_window);
REF_KERNEL(expert_routes, NULL, run_routes);
