/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: collectives begin early, and every step that touches what one works
 * on awaits it. Their own order is never changed: it is that of all ranks of
 * their groups. Called by compile.c and src/component/stage.c. Read passes.h
 * before. */
#include <string.h>

#include "passes.h"

/* ---- order --------------------------------------------------------------- */

/* Elements of a storage: that of a value, whoever writes it. */
typedef struct extent {
    loong_val_t root; /* LOONG_NONE: nothing */
    int64_t begin;
    int64_t end;
} extent_t;

static extent_t extent_of(const loong_graph_t *g, loong_val_t v)
{
    extent_t e = {LOONG_NONE, 0, 0};
    if (v < 0) {
        return e;
    }
    while (g->values[v].into >= 0) {
        v = g->values[v].into;
    }
    const loong_value_t *value = &g->values[v];
    const loong_shape_t *shape = &value->shape;
    int64_t cols = shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
    int64_t rows = loongi_shape_elements(shape) / LOONG_MAX(cols, 1);
    e.root = value->root;
    e.begin = value->column;
    e.end = e.begin + (rows - 1) * value->ld + cols;
    return e;
}

static bool touches(const loong_graph_t *g, const loong_val_t *values,
                    int count, loong_val_t v)
{
    extent_t at = extent_of(g, v);
    for (int i = 0; i < count && at.root >= 0; i++) {
        extent_t e = extent_of(g, values[i]);
        if (e.root == at.root && e.begin < at.end && at.begin < e.end) {
            return true;
        }
    }
    return false;
}

/* One writes what the other reads or writes. */
static bool depend(const loong_graph_t *g, const loong_node_t *a,
                   const loong_node_t *b)
{
    bool found = false;
    for (int o = 0; o < a->num_out; o++) {
        found = found || touches(g, b->in, b->num_in, a->out[o]) ||
                touches(g, b->out, b->num_out, a->out[o]);
    }
    for (int o = 0; o < b->num_out; o++) {
        found = found || touches(g, a->in, a->num_in, b->out[o]);
    }
    return found;
}

int64_t loongi_first_reader(const loong_graph_t *g, int64_t num_order,
                            const int32_t *order, const bool *comm,
                            int64_t at)
{
    const loong_node_t *c = &g->nodes[order[at]];
    int64_t i = at + 1;
    for (; i < num_order; i++) {
        const loong_node_t *node = &g->nodes[order[i]];
        if (node->program != c->program ||
            (!comm[order[i]] && !node->logged && depend(g, c, node))) {
            break;
        }
    }
    return i;
}

static void move_up(int32_t *order, loong_step_t *steps, int64_t from,
                    int64_t to)
{
    int32_t node = order[from];
    loong_step_t step = steps[from];
    size_t count = (size_t)(from - to);
    memmove(&order[to + 1], &order[to], count * sizeof(*order));
    memmove(&steps[to + 1], &steps[to], count * sizeof(*steps));
    order[to] = node;
    steps[to] = step;
}

void loongi_pass_hoist(const loong_graph_t *g, int64_t num_order,
                       int32_t *order, loong_step_t *steps, const bool *comm,
                       const int32_t *range)
{
    int64_t least = 0;
    for (int64_t i = 0; i < num_order; i++) {
        const loong_node_t *c = &g->nodes[order[i]];
        int64_t to = i;
        if (!comm[order[i]]) {
            continue;
        }
        while (to > least && !comm[order[to - 1]] &&
               range[to - 1] == range[i] &&
               g->nodes[order[to - 1]].program == c->program &&
               !depend(g, &g->nodes[order[to - 1]], c)) {
            to--;
        }
        move_up(order, steps, i, to);
        least = loongi_first_reader(g, num_order, order, comm, to);
    }
}

/* ---- who awaits what ----------------------------------------------------- */

/* Bytes of a base. */
typedef struct region {
    loong_base_t base;
    int64_t begin;
    int64_t end;
    bool written;
} region_t;

enum { MAX_REGIONS = LOONG_MAX_OPERANDS + 1 };

static int find_regions(const loong_step_t *step, region_t *regions)
{
    const loong_kernel_query_t *q = &step->query;
    int count = 0;
    for (int a = 0; a < q->num_in + q->num_out; a++) {
        const loong_karg_t *arg = &q->arg[a];
        if (step->operand[a].base == LOONG_BASE_NONE || arg->rank == 0) {
            continue;
        }
        region_t *r = &regions[count++];
        int64_t extent = (loong_karg_rows(arg) - 1) * arg->ld +
                         loong_karg_cols(arg);
        r->base = step->operand[a].base;
        r->begin = step->operand[a].offset;
        r->end = r->begin + extent * (int64_t)loong_dtype_size(arg->dtype);
        /* What has no output works in place. */
        r->written = a >= q->num_in || q->num_out == 0;
    }
    if (step->workspace.base != LOONG_BASE_NONE) {
        region_t *r = &regions[count++];
        r->base = step->workspace.base;
        r->begin = step->workspace.offset;
        r->end = r->begin + step->workspace_bytes;
        r->written = true;
    }
    return count;
}

static bool conflict(const region_t *a, int num_a, const region_t *b,
                     int num_b)
{
    for (int i = 0; i < num_a; i++) {
        for (int k = 0; k < num_b; k++) {
            if (a[i].base == b[k].base && a[i].begin < b[k].end &&
                b[k].begin < a[i].end && (a[i].written || b[k].written)) {
                return true;
            }
        }
    }
    return false;
}

/* As in interleave.c. */
static const double flops_per_byte = 64.0;

static double work_of(const loong_step_t *step, const region_t *regions,
                      int count)
{
    double work = step->cost.flops / flops_per_byte;
    for (int i = 0; i < count; i++) {
        work += (double)(regions[i].end - regions[i].begin);
    }
    return work;
}

/* Finds who awaits the collective at step `at`, number `number`. */
static void place(loong_program_t *p, int64_t at, int32_t number,
                  int64_t least)
{
    region_t regions[MAX_REGIONS];
    int count = find_regions(&p->steps[at], regions);
    double work = 0.0;
    for (int64_t i = at + 1; i < p->num_steps; i++) {
        region_t others[MAX_REGIONS];
        loong_step_t *step = &p->steps[i];
        int num_others = find_regions(step, others);
        bool comm = step->lane == LOONG_LANE_COMM;
        if (comm && step->group == p->steps[at].group) {
            continue; /* calls of one group come one behind the other */
        }
        if (conflict(regions, count, others, num_others)) {
            step->await = LOONG_MAX(step->await, number);
            if (!comm && step->when == LOONG_WHEN_ALWAYS &&
                step->hollow != LOONG_HOLLOW_ONLY) {
                break; /* else the next one may be the first that runs */
            }
        }
        work += comm ? 0.0 : work_of(step, others, num_others);
    }
    p->steps[at].beside = work > 0.0 && work >= (double)least;
}

void loongi_pass_lanes(loong_program_t *program, int64_t least_work)
{
    loong_program_t *p = program;
    int32_t number = 0;
    p->placed = true;
    for (int64_t i = 0; i < p->num_steps; i++) {
        loong_step_t *step = &p->steps[i];
        step->lane = step->kernel->communicates ? LOONG_LANE_COMM
                                                : LOONG_LANE_COMPUTE;
        step->await = 0;
    }
    for (int64_t i = 0; i < p->num_steps; i++) {
        if (p->steps[i].lane == LOONG_LANE_COMM) {
            place(p, i, ++number, least_work);
        }
    }
}
