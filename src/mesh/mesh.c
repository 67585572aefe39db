/* SPDX-License-Identifier: Apache-2.0
 *
 * From sizes of axes to a rank's coordinates and groups; pure. Called by
 * src/plan/parallel.c, asked everywhere. Read loong/mesh.h before. */
#include "loong/mesh.h"

#include <string.h>

#include "base.h"
#include "problems.h"

enum { SIDE_AXES = 4 };

/* Axes of the two sides, fastest first. */
static const loong_axis_t sides[2][SIDE_AXES] = {
    {LOONG_AXIS_TP, LOONG_AXIS_CP, LOONG_AXIS_DP, LOONG_AXIS_PP},
    {LOONG_AXIS_ETP, LOONG_AXIS_EP, LOONG_AXIS_EDP, LOONG_AXIS_PP},
};

/* The axes that vary in a group, as bits, and the side they are of. */
typedef struct group_axes {
    uint32_t axes;
    int side;
} group_axes_t;

#define AXIS_BIT(axis_) (1u << LOONG_AXIS_##axis_)

static group_axes_t axes_of(loong_group_t group)
{
    group_axes_t all = {AXIS_BIT(TP) | AXIS_BIT(CP) | AXIS_BIT(DP) |
                            AXIS_BIT(PP), 0};
    switch (group) {
    case LOONG_GROUP_TP: all.axes = AXIS_BIT(TP); break;
    case LOONG_GROUP_CP: all.axes = AXIS_BIT(CP); break;
    case LOONG_GROUP_DP: all.axes = AXIS_BIT(DP); break;
    case LOONG_GROUP_DP_CP: all.axes = AXIS_BIT(DP) | AXIS_BIT(CP); break;
    case LOONG_GROUP_PP:
    case LOONG_GROUP_TIE:
    case LOONG_GROUP_TIE_2:
    case LOONG_GROUP_TIE_3:
    case LOONG_GROUP_TIE_4: all.axes = AXIS_BIT(PP); break;
    case LOONG_GROUP_ETP_EP:
        all.axes = AXIS_BIT(ETP) | AXIS_BIT(EP);
        all.side = 1;
        break;
    case LOONG_GROUP_EDP: all.axes = AXIS_BIT(EDP); all.side = 1; break;
    case LOONG_GROUP_ETP: all.axes = AXIS_BIT(ETP); all.side = 1; break;
    case LOONG_GROUP_CP_A2A:
    case LOONG_GROUP_CP_P2P:
    case LOONG_GROUP_KV:
    case LOONG_GROUP_WORLD:
    case LOONG_GROUP_COUNT: break;
    }
    return all;
}

/* A group of some ranks of an axis: `size` of them, `step` coordinates apart,
 * this one the `index`-th; neighbours on the axis are `stride` ranks apart. */
typedef struct some {
    int size;
    int step;
    int index;
    int stride;
} some_t;

static bool some_of_axis(const loong_mesh_t *m, loong_group_t group,
                         some_t *some_p)
{
    int tp = m->size[LOONG_AXIS_TP];
    int ring = m->size[LOONG_AXIS_CP] / m->cp_a2a;
    some_t kv = {m->kv_ranks, 1, m->coord[LOONG_AXIS_TP] % m->kv_ranks, 1};
    some_t a2a = {m->cp_a2a, 1, m->coord[LOONG_AXIS_CP] % m->cp_a2a, tp};
    some_t p2p = {ring, m->cp_a2a, m->coord[LOONG_AXIS_CP] / m->cp_a2a, tp};
    *some_p = group == LOONG_GROUP_KV ? kv
              : group == LOONG_GROUP_CP_A2A ? a2a : p2p;
    return group == LOONG_GROUP_KV || group == LOONG_GROUP_CP_A2A ||
           group == LOONG_GROUP_CP_P2P;
}

const char *loong_axis_name(loong_axis_t axis)
{
    static const char *const names[] = {
#define AXIS_NAME(name_, text_) [LOONG_AXIS_##name_] = text_,
        LOONG_AXIS_LIST(AXIS_NAME)
#undef AXIS_NAME
    };
    return (unsigned)axis < LOONG_AXIS_COUNT ? names[axis] : "?";
}

const char *loong_group_name(loong_group_t group)
{
    static const char *const names[] = {
#define GROUP_NAME(name_, text_) [LOONG_GROUP_##name_] = text_,
        LOONG_GROUP_LIST(GROUP_NAME)
#undef GROUP_NAME
    };
    return (unsigned)group < LOONG_GROUP_COUNT ? names[group] : "?";
}

/* ---- the mesh ----------------------------------------------------------- */

static loong_status_t check_sizes(loong_context_t *ctx,
                                  const loong_mesh_params_t *p)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    int sizes[] = {p->world, p->tp, p->cp, p->pp, p->ep, p->etp};
    static const char *const names[] = {
        "ranks", "tensor_model_parallel_size", "context_parallel_size",
        "pipeline_model_parallel_size", "expert_model_parallel_size",
        "expert_tensor_parallel_size"};
    bool positive = true;
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        if (sizes[i] < 1) {
            loongi_problems_add(&problems, "%s: found %d, 1 or more wanted",
                                names[i], sizes[i]);
            positive = false;
        }
    }
    if (positive) {
        int64_t dense = (int64_t)p->tp * p->cp * p->pp;
        int64_t experts = (int64_t)p->etp * p->ep * p->pp;
        if (p->world % dense != 0) {
            loongi_problems_add(
                &problems, "%d ranks are no multiple of tensor x context x "
                "pipeline = %d x %d x %d = %lld", p->world, p->tp, p->cp,
                p->pp, (long long)dense);
        }
        if (p->etp * p->ep > 1 && p->world % experts != 0) {
            loongi_problems_add(
                &problems, "%d ranks are no multiple of expert tensor x "
                "expert x pipeline = %d x %d x %d = %lld", p->world, p->etp,
                p->ep, p->pp, (long long)experts);
        }
    }
    if (positive && p->kv_heads > 0 && p->kv_heads < p->tp &&
        p->tp % p->kv_heads != 0) {
        loongi_problems_add(
            &problems, "tensor_model_parallel_size %d is above the %d key / "
            "value heads and no multiple of them", p->tp, p->kv_heads);
    }
    if (positive && p->cp_a2a > 0 && p->cp % p->cp_a2a != 0) {
        loongi_problems_add(
            &problems, "context_parallel_size %d is no multiple of the %d "
            "ranks that exchange heads", p->cp, p->cp_a2a);
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "parallel");
}

loong_status_t loong_mesh_create(loong_context_t *ctx,
                                 const loong_mesh_params_t *params, int rank,
                                 loong_mesh_t *mesh_p)
{
    const loong_mesh_params_t *p = params;
    loong_mesh_t m;
    LOONG_TRY(check_sizes(ctx, p));
    LOONG_CHECK(ctx, rank >= 0 && rank < p->world, LOONG_ERR_ARG,
                "rank %d of %d", rank, p->world);
    memset(&m, 0, sizeof(m));
    m.world = p->world;
    m.rank = rank;
    m.kv_ranks = p->kv_heads > 0 && p->kv_heads < p->tp ? p->tp / p->kv_heads
                                                        : 1;
    m.cp_a2a = LOONG_MAX(p->cp_a2a, 1);
    m.size[LOONG_AXIS_TP] = p->tp;
    m.size[LOONG_AXIS_CP] = p->cp;
    m.size[LOONG_AXIS_PP] = p->pp;
    m.size[LOONG_AXIS_DP] = p->world / (p->tp * p->cp * p->pp);
    m.size[LOONG_AXIS_ETP] = p->etp;
    m.size[LOONG_AXIS_EP] = p->ep;
    m.size[LOONG_AXIS_EDP] = p->world / (p->etp * p->ep * p->pp);
    for (int side = 0; side < 2; side++) {
        int left = rank;
        for (int i = 0; i < SIDE_AXES; i++) {
            loong_axis_t axis = sides[side][i];
            m.coord[axis] = left % m.size[axis];
            left /= m.size[axis];
        }
    }
    *mesh_p = m;
    return LOONG_OK;
}

loong_mesh_t loong_mesh_single(void)
{
    loong_mesh_t m;
    memset(&m, 0, sizeof(m));
    m.world = m.kv_ranks = m.cp_a2a = 1;
    for (int a = 0; a < LOONG_AXIS_COUNT; a++) {
        m.size[a] = 1;
    }
    return m;
}

/* ---- groups ------------------------------------------------------------- */

/* Whether this is a tie; a rank outside of it is alone. */
static bool tie_ranks(const loong_mesh_t *m, loong_group_t group,
                      loong_tie_ranks_t *ranks_p, int *index_p)
{
    const int *here = &m->coord[LOONG_AXIS_PP];
    int k = (int)group - (int)LOONG_GROUP_TIE;
    loong_tie_ranks_t ranks = {0, here};
    int i = 0;
    if (k >= 0 && k < m->num_ties) {
        ranks = m->ties[k];
    }
    while (i < ranks.count && ranks.coord[i] != *here) {
        i++;
    }
    bool alone = i == ranks.count;
    *ranks_p = alone ? (loong_tie_ranks_t){1, here} : ranks;
    *index_p = alone ? 0 : i;
    return k >= 0;
}

int loong_mesh_group_size(const loong_mesh_t *mesh, loong_group_t group)
{
    group_axes_t g = axes_of(group);
    some_t some;
    loong_tie_ranks_t tie;
    int size = 1;
    int index;
    if (tie_ranks(mesh, group, &tie, &index)) {
        return tie.count;
    }
    if (some_of_axis(mesh, group, &some)) {
        return some.size;
    }
    for (int a = 0; a < LOONG_AXIS_COUNT; a++) {
        size *= (g.axes >> a & 1u) != 0 ? mesh->size[a] : 1;
    }
    return size;
}

int loong_mesh_group_rank(const loong_mesh_t *mesh, loong_group_t group)
{
    group_axes_t g = axes_of(group);
    some_t some;
    loong_tie_ranks_t tie;
    int at = 0;
    if (tie_ranks(mesh, group, &tie, &at)) {
        return at;
    }
    if (some_of_axis(mesh, group, &some)) {
        return some.index;
    }
    for (int i = SIDE_AXES - 1; i >= 0; i--) {
        loong_axis_t axis = sides[g.side][i];
        if ((g.axes >> axis & 1u) != 0) {
            at = at * mesh->size[axis] + mesh->coord[axis];
        }
    }
    return at;
}

int loong_mesh_member(const loong_mesh_t *mesh, loong_group_t group, int index)
{
    group_axes_t g = axes_of(group);
    int rank = 0;
    int stride = 1;
    some_t some;
    loong_tie_ranks_t tie;
    int here;
    if (tie_ranks(mesh, group, &tie, &here)) {
        index = tie.coord[index];
    }
    if (some_of_axis(mesh, group, &some)) {
        return mesh->rank + (index - some.index) * some.step * some.stride;
    }
    for (int i = 0; i < SIDE_AXES; i++) {
        loong_axis_t axis = sides[g.side][i];
        int coord = mesh->coord[axis];
        if ((g.axes >> axis & 1u) != 0) {
            coord = index % mesh->size[axis];
            index /= mesh->size[axis];
        }
        rank += coord * stride;
        stride *= mesh->size[axis];
    }
    return rank;
}
