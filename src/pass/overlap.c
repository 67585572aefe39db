/* SPDX-License-Identifier: Apache-2.0
 *
 * Products beside the collectives of sequence parallel ranks, rank by rank. Of
 * a gathered operand each rank has its own rows: it multiplies these while
 * those of the others come, one rank's after the other. Of a product that is
 * summed over ranks and scattered, it makes the rows of the others first, sends
 * each rank its own, and makes its own rows meanwhile. Every row is the same
 * product, every sum has the same order of ranks: only when is new. A rank's
 * rows lie together on both sides, so nothing is copied for it, not even its
 * own ones where they are made in the same program.
 *
 * The last of all passes: it lays parts of values into values, which the passes
 * before do not know of. What it decides on are the ops and who reads what,
 * equal on all ranks. Called by compile.c. Read passes.h before. */
#include <string.h>

#include "loong/collective.h"
#include "loong/register.h"
#include "passes.h"

/* What becomes of a node. */
typedef enum role {
    ROLE_NONE,
    ROLE_GATHER,  /* shifts; its first product reads rank by rank */
    ROLE_READS,   /* such a product */
    ROLE_SENDS,   /* a product, sent rank by rank */
    ROLE_SCATTER, /* the sum of what came */
} role_t;

typedef struct plan {
    role_t role;
    int32_t with; /* READS: the gather; SENDS: the scatter */
    loong_val_t landing; /* SCATTER: what the ranks made of this one's rows */
} plan_t;

typedef struct overlap {
    loong_graph_t *g;
    loong_node_t *nodes; /* before the rewrite */
    int64_t num_nodes;
    plan_t *plans; /* per node */
    int32_t *uses; /* per value */
    loong_program_kind_t *programs; /* per value: where it is made */
    const loong_op_t *linear;
    const loong_op_t *linear_dw;
    const loong_op_t *gather;
    const loong_op_t *scatter;
    const loong_op_t *shift;
    const loong_op_t *copy;
    const loong_op_t *sum;
} overlap_t;

/* ---- what there is ------------------------------------------------------- */

/* A product whose rows can be made apart. */
static bool is_product(const overlap_t *o, const loong_node_t *node)
{
    if (node->op != o->linear || node->dead || node->logged) {
        return false;
    }
    const loong_linear_attr_t *attr = node->attr;
    return attr->activation == LOONG_ACT_NONE;
}

/* The first product of the same program that reads what node n gathers. */
static int64_t find_reader(const overlap_t *o, int64_t n)
{
    const loong_node_t *gather = &o->nodes[n];
    for (int64_t i = n + 1; i < o->num_nodes; i++) {
        const loong_node_t *node = &o->nodes[i];
        if (node->program == gather->program && is_product(o, node) &&
            node->in[0] == gather->out[0]) {
            return i;
        }
    }
    return -1;
}

/* The product that node n scatters alone. Where gradients of weights stand
 * between the two, they hide the whole of it, in one piece. */
static int64_t find_product(const overlap_t *o, int64_t n)
{
    const loong_node_t *scatter = &o->nodes[n];
    loong_val_t y = scatter->in[0];
    int64_t at = o->g->values[y].node;
    if (at < 0 || o->uses[y] != 1 || o->g->values[y].root != y ||
        !is_product(o, &o->nodes[at]) ||
        o->nodes[at].program != scatter->program) {
        return -1;
    }
    for (int64_t i = at + 1; i < n; i++) {
        const loong_node_t *node = &o->nodes[i];
        if (node->op == o->linear_dw && !node->dead &&
            node->program == scatter->program) {
            return -1;
        }
    }
    return at;
}

static void make_plans(overlap_t *o)
{
    for (int64_t n = 0; n < o->num_nodes; n++) {
        const loong_node_t *node = &o->nodes[n];
        bool gather = node->op == o->gather;
        if (node->dead || !(gather || node->op == o->scatter)) {
            continue;
        }
        int64_t product = gather ? find_reader(o, n) : find_product(o, n);
        if (product < 0 || o->plans[product].role != ROLE_NONE) {
            continue;
        }
        o->plans[n].role = gather ? ROLE_GATHER : ROLE_SCATTER;
        o->plans[product].role = gather ? ROLE_READS : ROLE_SENDS;
        o->plans[product].with = (int32_t)n;
    }
}

/* ---- parts of values ----------------------------------------------------- */

/* Lays v where block `block` of `rows` rows of `whole` is, which is complete
 * when the last of its blocks is made. */
static void lay(loong_graph_t *g, loong_val_t v, loong_val_t whole,
                int64_t rows, int block)
{
    loong_value_t *part = &g->values[v];
    const loong_value_t *all = &g->values[whole];
    part->root = all->root;
    part->column = all->column + block * rows * all->ld;
    part->ld = all->ld;
    if (part->node >= 0) {
        g->values[whole].node = part->node;
    }
}

/* The rows of one rank of a matrix. */
static loong_val_t rows_of(loong_graph_t *g, loong_val_t whole, int64_t rows,
                           int block)
{
    loong_shape_t shape = g->values[whole].shape;
    shape.dim[0] = rows;
    loong_val_t v = loongi_graph_add_value(
        g, LOONG_VALUE_NODE, g->values[whole].dtype, &shape);
    if (v != LOONG_NONE) {
        lay(g, v, whole, rows, block);
    }
    return v;
}

static loong_val_t apply(overlap_t *o, const loong_node_t *like,
                         const loong_op_t *op, const void *attr, int num_in,
                         const loong_val_t *in)
{
    loong_graph_t *g = o->g;
    loong_val_t out = LOONG_NONE;
    loongi_graph_like(g, like);
    loong_graph_apply(g, op, attr, num_in, in, 1, &out);
    loongi_graph_like(g, NULL);
    if (g->status == LOONG_OK) {
        g->nodes[g->num_nodes - 1].recomputed = like->recomputed;
    }
    return out;
}

/* The product of some rows of its operand. */
static loong_val_t multiply(overlap_t *o, const loong_node_t *product,
                            loong_val_t x)
{
    loong_val_t in[3] = {x, product->in[1], LOONG_NONE};
    if (product->num_in > 2) {
        in[2] = product->in[2];
    }
    return apply(o, product, o->linear, product->attr, product->num_in, in);
}

/* x of the rank so many places before, laid into `whole` as the block of that
 * rank. */
static void receive(overlap_t *o, const loong_node_t *like, loong_val_t x,
                    int distance, loong_val_t whole)
{
    loong_collective_attr_t attr = *(const loong_collective_attr_t *)like->attr;
    attr.distance = distance;
    attr.label = like->op->name;
    loong_val_t y = apply(o, like, o->shift, &attr, 1, &x);
    if (y != LOONG_NONE) {
        lay(o->g, y, whole, o->g->values[x].shape.dim[0],
            (attr.rank + attr.size - distance) % attr.size);
    }
}

/* ---- own rows ------------------------------------------------------------ */

static bool is_result(const loong_graph_t *g, loong_val_t v)
{
    bool found = false;
    for (int i = 0; i < g->num_outputs; i++) {
        found = found || g->values[g->outputs[i].value].root == v;
    }
    for (int i = 0; i < g->num_losses; i++) {
        found = found || g->values[g->losses[i].value].root == v;
    }
    return found;
}

/* May the rank's own rows x be made where they are gathered? */
static bool can_move(const overlap_t *o, const loong_node_t *gather,
                     loong_val_t x)
{
    const loong_value_t *value = &o->g->values[x];
    return value->kind == LOONG_VALUE_NODE && value->node >= 0 &&
           value->root == x && value->into < 0 &&
           o->programs[x] == gather->program && !is_result(o->g, x);
}

static void move(overlap_t *o, loong_val_t x, loong_val_t whole, int block)
{
    loong_graph_t *g = o->g;
    int64_t rows = g->values[x].shape.dim[0];
    int64_t column = g->values[whole].column +
                     block * rows * g->values[whole].ld;
    for (int64_t v = 0; v < g->num_values; v++) {
        if (g->values[v].root == x) {
            g->values[v].root = g->values[whole].root;
            g->values[v].column += column;
        }
    }
}

/* ---- rewriting ----------------------------------------------------------- */

/* All shifts begin at once; they run one after the other. Others than the
 * product want the rank's own rows among the rest: they are made there, or
 * copied. */
static loong_status_t emit_gather(overlap_t *o, const loong_node_t *node)
{
    const loong_collective_attr_t *a = node->attr;
    loong_val_t whole = node->out[0];
    for (int s = 1; s < a->size; s++) {
        receive(o, node, node->in[0], s, whole);
    }
    if (o->uses[whole] > 1 && can_move(o, node, node->in[0])) {
        move(o, node->in[0], whole, a->rank);
    } else if (o->uses[whole] > 1) {
        loong_val_t own = apply(o, node, o->copy, NULL, 1, node->in);
        LOONG_TRY(o->g->status);
        lay(o->g, own, whole, o->g->values[own].shape.dim[0], a->rank);
    }
    return o->g->status;
}

static loong_status_t emit_reads(overlap_t *o, const loong_node_t *node,
                                 const loong_node_t *gather)
{
    loong_graph_t *g = o->g;
    const loong_collective_attr_t *a = gather->attr;
    int64_t rows = g->values[gather->in[0]].shape.dim[0];
    for (int s = 0; s < a->size; s++) {
        int block = (a->rank + a->size - s) % a->size;
        loong_val_t x = s == 0 ? gather->in[0]
                               : rows_of(g, gather->out[0], rows, block);
        loong_val_t y = multiply(o, node, x);
        LOONG_TRY(g->status);
        lay(g, y, node->out[0], rows, block);
    }
    return LOONG_OK;
}

static loong_status_t emit_sends(overlap_t *o, const loong_node_t *node,
                                 const loong_node_t *scatter,
                                 loong_val_t *landing_p)
{
    loong_graph_t *g = o->g;
    const loong_collective_attr_t *a = scatter->attr;
    loong_val_t result = scatter->out[0];
    int64_t rows = g->values[result].shape.dim[0];
    loong_shape_t shape = g->values[node->out[0]].shape;
    loong_val_t landing = loongi_graph_add_value(
        g, LOONG_VALUE_NODE, g->values[result].dtype, &shape);
    LOONG_TRY(g->status);
    for (int s = 1; s <= a->size; s++) {
        int block = (a->rank + s) % a->size;
        loong_val_t y =
            multiply(o, node, rows_of(g, node->in[0], rows, block));
        LOONG_TRY(g->status);
        if (s < a->size) {
            receive(o, scatter, y, s, landing);
        } else {
            lay(g, y, landing, rows, block);
        }
    }
    *landing_p = landing;
    return g->status;
}

/* A matrix as one row. */
static loong_val_t flat_of(loong_graph_t *g, loong_val_t v)
{
    loong_shape_t shape =
        loong_shape_2d(1, loongi_shape_elements(&g->values[v].shape));
    loong_val_t flat = loongi_graph_add_value(g, LOONG_VALUE_NODE,
                                              g->values[v].dtype, &shape);
    if (flat != LOONG_NONE) {
        g->values[flat].root = g->values[v].root;
        g->values[flat].column = g->values[v].column;
    }
    return flat;
}

/* Blocks of rows are summed as heads of one row are. */
static loong_status_t emit_scatter(overlap_t *o, const loong_node_t *node,
                                   loong_val_t landing)
{
    loong_graph_t *g = o->g;
    const loong_collective_attr_t *a = node->attr;
    loong_val_t result = node->out[0];
    loong_repeat_heads_attr_t heads = {0, a->size};
    LOONG_TRY(loongi_to_int(
        g->ctx, loongi_shape_elements(&g->values[result].shape),
        "elements of a rank's rows", &heads.head_dim));
    loong_val_t all = flat_of(g, landing);
    loong_val_t sum = apply(o, node, o->sum, &heads, 1, &all);
    LOONG_TRY(g->status);
    g->values[sum].root = g->values[result].root;
    g->values[sum].column = g->values[result].column;
    g->values[result].node = g->values[sum].node;
    return LOONG_OK;
}

static loong_status_t rebuild(overlap_t *o)
{
    loong_graph_t *g = o->g;
    g->num_nodes = 0;
    for (int64_t n = 0; n < o->num_nodes; n++) {
        const loong_node_t *node = &o->nodes[n];
        plan_t *plan = &o->plans[n];
        switch (plan->role) {
        case ROLE_GATHER:
            LOONG_TRY(emit_gather(o, node));
            break;
        case ROLE_READS:
            LOONG_TRY(emit_reads(o, node, &o->nodes[plan->with]));
            break;
        case ROLE_SENDS:
            LOONG_TRY(emit_sends(o, node, &o->nodes[plan->with],
                                 &o->plans[plan->with].landing));
            break;
        case ROLE_SCATTER:
            LOONG_TRY(emit_scatter(o, node, plan->landing));
            break;
        default:
            LOONG_TRY(loongi_graph_append_node(g, node));
            break;
        }
    }
    return LOONG_OK;
}

static loong_status_t find_ops(overlap_t *o)
{
    const struct {
        const char *name;
        const loong_op_t **op;
    } ops[] = {{"linear", &o->linear},         {"linear_dw", &o->linear_dw},
               {"all_gather", &o->gather},     {"reduce_scatter", &o->scatter},
               {"ring_shift", &o->shift},      {"copy", &o->copy},
               {"sum_heads", &o->sum}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(ops); i++) {
        *ops[i].op = loong_find_op(o->g->ctx, ops[i].name);
        LOONG_CHECK(o->g->ctx, *ops[i].op != NULL, LOONG_ERR_INTERNAL,
                    "op %s is not registered", ops[i].name);
    }
    return LOONG_OK;
}

static void find_programs(overlap_t *o)
{
    for (int64_t n = 0; n < o->num_nodes; n++) {
        const loong_node_t *node = &o->nodes[n];
        for (int i = 0; i < node->num_out && !node->dead; i++) {
            if (node->out[i] >= 0) {
                o->programs[node->out[i]] = node->program;
            }
        }
    }
}

loong_status_t loongi_pass_overlap(loong_graph_t *g)
{
    overlap_t o;
    memset(&o, 0, sizeof(o));
    size_t nodes = (size_t)g->num_nodes;
    o.g = g;
    o.num_nodes = g->num_nodes;
    LOONG_TRY(find_ops(&o));
    LOONG_TRY(
        loongi_arena_alloc(g->arena, nodes * sizeof(*o.nodes), &o.nodes));
    LOONG_TRY(
        loongi_arena_alloc(g->arena, nodes * sizeof(*o.plans), &o.plans));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)g->num_values * sizeof(*o.programs), &o.programs));
    memcpy(o.nodes, g->nodes, nodes * sizeof(*o.nodes));
    for (int64_t v = 0; v < g->num_values; v++) {
        o.programs[v] = LOONG_PROGRAM_COUNT;
    }
    find_programs(&o);
    LOONG_TRY(loongi_graph_count_uses(g, &o.uses));
    make_plans(&o);
    loong_status_t status = rebuild(&o);
    loongi_free(g->ctx, o.uses);
    return status;
}
