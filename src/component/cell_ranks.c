/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the cells of a model from the meshes of its components and the ranks
 * they stand on. Called by model.c and src/plan/upstream.c. Read cell_ranks.h
 * before. */
#include "cell_ranks.h"

#include <string.h>

/* Heaps of ranks that have as many replicas of each component are of a kind. */
typedef struct kind {
    int heap; /* one of them */
    int count;
} kind_t;

typedef struct finder {
    loong_context_t *ctx;
    loong_arena_t *arena;
    int count; /* components */
    const loong_component_params_t *params;
    int ranks;         /* of the job, up to the last that has a component */
    int32_t *heap;     /* of a rank: the lowest rank of its heap */
    int32_t *replicas; /* of each component in a heap: [ranks][count] */
    int32_t *kind;     /* of a heap; -1: none has a component there */
    int32_t *number;   /* of a heap among those of its kind */
    kind_t *kinds;
    int num_kinds;
} finder_t;

int loongi_component_rank(const loong_component_params_t *params, int job_rank)
{
    int i = 0;
    if (params->ranks == NULL) {
        return job_rank < params->mesh.world ? job_rank : -1;
    }
    while (i < params->mesh.world && params->ranks[i] != job_rank) {
        i++;
    }
    return i < params->mesh.world ? i : -1;
}

int loongi_place_pipeline(const loong_component_place_t *place, int stages,
                          int cell_rank)
{
    int count = place->pipelines * stages;
    int i = 0;
    while (i < count && place->rank[i] != cell_rank) {
        i++;
    }
    return i < count ? i / stages : -1;
}

static int this_rank(const finder_t *f)
{
    int c = 0;
    while (f->params[c].absent) {
        c++;
    }
    return loongi_job_rank(&f->params[c], f->params[c].mesh.rank);
}

/* The rank of the job that is number i of these. */
static int member(const loong_component_params_t *p, int replica, int stage,
                  int i)
{
    int of = replica + p->mesh.size[LOONG_AXIS_DP] * stage;
    return loongi_job_rank(p, of * loongi_replica_ranks(p) + i);
}

/* ---- heaps: ranks that replicas tie together ----------------------------- */

static int heap_of(finder_t *f, int rank)
{
    while (f->heap[rank] != rank) {
        f->heap[rank] = f->heap[f->heap[rank]];
        rank = f->heap[rank];
    }
    return rank;
}

static void unite(finder_t *f, int a, int b)
{
    int x = heap_of(f, a);
    int y = heap_of(f, b);
    f->heap[LOONG_MAX(x, y)] = LOONG_MIN(x, y);
}

static void make_heaps(finder_t *f)
{
    for (int r = 0; r < f->ranks; r++) {
        f->heap[r] = r;
    }
    for (int c = 0; c < f->count; c++) {
        const loong_component_params_t *p = &f->params[c];
        for (int i = 0; i < p->mesh.world; i++) {
            int replica =
                i / loongi_replica_ranks(p) % p->mesh.size[LOONG_AXIS_DP];
            unite(f, loongi_job_rank(p, i), member(p, replica, 0, 0));
        }
    }
    for (int c = 0; c < f->count; c++) {
        const loong_component_params_t *p = &f->params[c];
        for (int d = 0; d < p->mesh.size[LOONG_AXIS_DP]; d++) {
            f->replicas[heap_of(f, member(p, d, 0, 0)) * f->count + c]++;
        }
    }
}

/* ---- cells --------------------------------------------------------------- */

static bool same_kind(const finder_t *f, int a, int b)
{
    return memcmp(&f->replicas[a * f->count], &f->replicas[b * f->count],
                  (size_t)f->count * sizeof(*f->replicas)) == 0;
}

static bool is_heap(const finder_t *f, int rank)
{
    bool any = false;
    for (int c = 0; c < f->count; c++) {
        any = any || f->replicas[rank * f->count + c] > 0;
    }
    return any && f->heap[rank] == rank;
}

static void sort_heaps(finder_t *f)
{
    for (int r = 0; r < f->ranks; r++) {
        int k = 0;
        f->kind[r] = -1;
        if (!is_heap(f, r)) {
            continue;
        }
        while (k < f->num_kinds && !same_kind(f, f->kinds[k].heap, r)) {
            k++;
        }
        if (k == f->num_kinds) {
            f->kinds[f->num_kinds++] = (kind_t){r, 0};
        }
        f->kind[r] = k;
        f->number[r] = f->kinds[k].count++;
    }
}

static int count_cells(const finder_t *f)
{
    int cells = 0;
    for (int k = 0; k < f->num_kinds; k++) {
        int rest = f->kinds[k].count;
        while (rest > 0) { /* the greatest common divisor */
            int next = cells % rest;
            cells = rest;
            rest = next;
        }
    }
    return cells;
}

/* The cell of a rank of the job; -1: it has no component. */
static int cell_of(finder_t *f, int rank, int cells)
{
    int heap = heap_of(f, rank);
    int kind = f->kind[heap];
    return kind >= 0 ? f->number[heap] / (f->kinds[kind].count / cells) : -1;
}

/* ---- the ranks of one ---------------------------------------------------- */

static loong_status_t take(const finder_t *f, int count, int32_t **list_p)
{
    return loongi_arena_alloc(
        f->arena, (size_t)LOONG_MAX(count, 1) * sizeof(**list_p), list_p);
}

/* The number of a rank of the job in the cell. */
static int number_in(const loong_cell_ranks_t *to, int rank)
{
    int low = 0;
    int high = to->count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        low = to->rank[middle] < rank ? middle + 1 : low;
        high = to->rank[middle] < rank ? high : middle;
    }
    return low;
}

static loong_status_t list_component(finder_t *f, int component, int cells,
                                     int cell, loong_cell_ranks_t *to)
{
    const loong_component_params_t *p = &f->params[component];
    loong_component_place_t *place = &to->component[component];
    int stages = p->mesh.size[LOONG_AXIS_PP];
    int32_t *rank = NULL;
    int32_t *replica = NULL;
    LOONG_TRY(take(f, to->count * stages, &rank));
    LOONG_TRY(take(f, to->count, &replica));
    for (int d = 0; d < p->mesh.size[LOONG_AXIS_DP]; d++) {
        if (cell_of(f, member(p, d, 0, 0), cells) != cell) {
            continue;
        }
        replica[place->replicas++] = d;
        for (int i = 0; i < loongi_replica_ranks(p); i++, place->pipelines++) {
            for (int s = 0; s < stages; s++) {
                rank[place->pipelines * stages + s] =
                    number_in(to, member(p, d, s, i));
            }
        }
    }
    place->rank = rank;
    place->replica = replica;
    return LOONG_OK;
}

static loong_status_t list_cell(finder_t *f, loong_cell_ranks_t *to)
{
    int32_t *rank = NULL;
    int cells = count_cells(f);
    int cell = cell_of(f, this_rank(f), cells);
    LOONG_TRY(take(f, f->ranks, &rank));
    for (int r = 0; r < f->ranks; r++) {
        if (cell_of(f, r, cells) == cell) {
            rank[to->count++] = r;
        }
    }
    to->rank = rank;
    to->cell_rank = number_in(to, this_rank(f));
    for (int c = 0; c < f->count; c++) {
        LOONG_TRY(list_component(f, c, cells, cell, to));
    }
    return LOONG_OK;
}

/* No other component ties its pipelines together. */
static loong_status_t list_pipeline(const finder_t *f, loong_cell_ranks_t *to)
{
    const loong_component_params_t *p = &f->params[0];
    int stages = p->mesh.size[LOONG_AXIS_PP];
    int32_t *job = NULL;
    int32_t *rank = NULL;
    int32_t *replica = NULL;
    LOONG_TRY(take(f, stages, &job));
    LOONG_TRY(take(f, stages, &rank));
    LOONG_TRY(take(f, 1, &replica));
    for (int s = 0; s < stages; s++) {
        rank[s] = s;
        job[s] =
            loongi_job_rank(p, loong_mesh_member(&p->mesh, LOONG_GROUP_PP, s));
    }
    replica[0] = p->mesh.coord[LOONG_AXIS_DP];
    to->count = stages;
    to->rank = job;
    to->cell_rank = p->mesh.coord[LOONG_AXIS_PP];
    to->component[0] = (loong_component_place_t){1, rank, 1, replica};
    return LOONG_OK;
}

loong_status_t loongi_cell_ranks_find(loong_context_t *ctx,
                                      loong_arena_t *arena, int num_components,
                                      const loong_component_params_t *params,
                                      loong_cell_ranks_t *ranks_p)
{
    finder_t f = {
        .ctx = ctx, .arena = arena, .count = num_components, .params = params};
    void *kinds = NULL;
    memset(ranks_p, 0, sizeof(*ranks_p));
    if (num_components == 1) {
        return list_pipeline(&f, ranks_p);
    }
    for (int c = 0; c < num_components; c++) {
        int last = loongi_job_rank(&params[c], params[c].mesh.world - 1);
        f.ranks = LOONG_MAX(f.ranks, last + 1);
    }
    LOONG_TRY(take(&f, f.ranks, &f.heap));
    LOONG_TRY(take(&f, f.ranks * f.count, &f.replicas));
    LOONG_TRY(take(&f, f.ranks, &f.kind));
    LOONG_TRY(take(&f, f.ranks, &f.number));
    LOONG_TRY(
        loongi_arena_alloc(arena, (size_t)f.ranks * sizeof(kind_t), &kinds));
    f.kinds = kinds;
    make_heaps(&f);
    sort_heaps(&f);
    return list_cell(&f, ranks_p);
}
