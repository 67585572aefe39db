/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of low rank beside linear layers, as graph nodes with their
 * sharding. Called by the linear layers of nn.c and latent.c. Read nn_impl.h
 * and loong_adapters_t before.
 *
 * Of several linears of one input the matrices a are rows of one product; each
 * b adds to its columns of the layers' common product. Where the layer's matrix
 * has its rows shared out over TP, b has the same rows and a is whole; where it
 * has its columns shared out, a has the same columns and b is whole: what a
 * makes is then a part of a sum that is taken behind b, with the layer's own.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "loong/register.h"
#include "nn_impl.h"
#include "rng.h"

/* Of a module; rank 0: it has none. */
typedef struct adapter {
    int rank;
    double scale;
    bool embedding;
} adapter_t;

/* ---- which modules ------------------------------------------------------- */

static bool matches(const char *target, const char *module)
{
    char inside[LOONG_NN_NAME];
    snprintf(inside, sizeof(inside), "*.%s", target);
    return loongi_scope_match(target, module) ||
           loongi_scope_match(inside, module);
}

static bool matches_any(int count, const char *const *targets,
                        const char *module)
{
    int i = 0;
    while (i < count && !matches(targets[i], module)) {
        i++;
    }
    return i < count;
}

static double number(const char *module, int count,
                     const loong_adapter_pattern_t *patterns, double otherwise)
{
    for (int i = 0; i < count; i++) {
        if (matches(patterns[i].scope, module)) {
            otherwise = patterns[i].value;
        }
    }
    return otherwise;
}

/* name: "": the scope is the module. */
static adapter_t adapter_of(const loong_nn_t *nn, const char *name)
{
    const loong_adapters_t *a = nn->rules.adapters;
    adapter_t none = {0, 0.0, false};
    char module[LOONG_NN_NAME];
    snprintf(module, sizeof(module), "%s%s%s", loong_graph_scope(nn->graph),
             name[0] != '\0' ? "." : "", name);
    if (a == NULL || !matches_any(a->num_targets, a->targets, module) ||
        matches_any(a->num_excluded, a->excluded, module)) {
        return none;
    }
    double rank = number(module, a->num_ranks, a->ranks, a->rank);
    double alpha = number(module, a->num_alphas, a->alphas, a->alpha);
    adapter_t found = {(int)rank,
                       alpha / (a->rank_stabilized ? sqrt(rank) : rank), false};
    return found;
}

bool loongi_nn_has_adapter(const loong_nn_t *nn, const char *name)
{
    return adapter_of(nn, name).rank > 0;
}

/* ---- parameters ---------------------------------------------------------- */

static void add_end(const char *name, const char *end, char *to, size_t size)
{
    snprintf(to, size, "%s%s%s.weight", name, name[0] != '\0' ? "." : "", end);
}

/* As a layer's matrix of the same name, of which there are so many experts; 0:
 * it is one. */
static loong_shape_t shape_of(int64_t experts, int64_t rows, int64_t cols)
{
    loong_shape_t each = {3, {experts, rows, cols, 0}};
    return experts > 0 ? each : loong_shape_2d(rows, cols);
}

static loong_param_params_t matrix_a(const loong_nn_t *nn, const char *name,
                                     const adapter_t *own, int64_t experts,
                                     int64_t in, char *full)
{
    int rank = own->rank;
    bool gaussian = nn->rules.adapters->gaussian;
    char name_a[128];
    loong_nn_start_t start = {gaussian ? LOONG_INIT_NORMAL : LOONG_INIT_UNIFORM,
                              gaussian ? 1.0 / rank
                                       : 1.0 / sqrt(3.0 * (double)in)};
    if (own->embedding) { /* as torch.nn.Embedding starts */
        start = (loong_nn_start_t){LOONG_INIT_NORMAL, 1.0};
    }
    add_end(name, "lora_A", name_a, sizeof(name_a));
    loong_param_params_t p =
        loongi_nn_describe(nn, name_a, shape_of(experts, rank, in), start,
                           full);
    p.adapter = own->scale;
    return p;
}

static loong_param_params_t matrix_b(const loong_nn_t *nn, const char *name,
                                     const adapter_t *adapter, int64_t experts,
                                     int64_t out, char *full)
{
    char own[128];
    loong_nn_start_t zeros = {LOONG_INIT_ZEROS, 0.0};
    add_end(name, "lora_B", own, sizeof(own));
    loong_param_params_t p = loongi_nn_describe(
        nn, own, shape_of(experts, out, adapter->rank), zeros, full);
    p.adapter = adapter->scale;
    return p;
}

/* ---- products ------------------------------------------------------------ */

static int64_t cols_of(const loong_nn_t *nn, loong_val_t x)
{
    return loong_value_shape(nn->graph, x).dim[1];
}

/* The mask depends on token and channel, of which x begins with `first` of
 * `width`, and on the scope and the width alone: layers that read one input
 * have one mask, however many of them are one product here. */
static loong_val_t drop(loong_nn_t *nn, loong_val_t x, int64_t first,
                        int64_t width, bool stream)
{
    double p = nn->rules.adapters->dropout;
    char name[LOONG_NN_NAME];
    loong_val_t key = nn->token_key;
    if (!nn->train || p == 0.0) {
        return x;
    }
    if (key == LOONG_NONE) {
        return loong_graph_fail(nn->graph, LOONG_ERR_UNSUPPORTED,
                                "%s: finetune.dropout: adapters of this family "
                                "have none",
                                loong_graph_scope(nn->graph));
    }
    snprintf(name, sizeof(name), "%s.adapters.%lld",
             loong_graph_scope(nn->graph), (long long)width);
    return loong_dropout_slice(nn->graph, x,
                               stream ? loong_nn_stream_rows(nn, key) : key, p,
                               loongi_rng_name(name), first);
}

static loong_val_t scaled(loong_nn_t *nn, loong_val_t x, double scale)
{
    return scale == 1.0 ? x : loong_scale(nn->graph, x, scale);
}

/* The share of a column layer's rows that a rank has. */
static loong_placement_t place_of(const loong_nn_t *nn,
                                  const loong_nn_column_t *c)
{
    loong_placement_t place;
    memset(&place, 0, sizeof(place));
    if (c->held_by_group) {
        place = loongi_nn_whole(nn, c->holders, true);
    }
    return loongi_nn_part(place, 0, c->out);
}

/* Of all columns together: one a, and the rows of b below one another. */
static loong_val_t adapt_fused(loong_nn_t *nn, int count,
                               const loong_nn_column_t *columns, loong_val_t x,
                               loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    char full[LOONG_NN_MAX_PACK][LOONG_NN_NAME];
    loong_param_params_t b[LOONG_NN_MAX_PACK];
    adapter_t own = adapter_of(nn, columns[0].fused);
    if (own.rank == 0) {
        return y;
    }
    loong_param_params_t a =
        matrix_a(nn, columns[0].fused, &own, 0, cols_of(nn, x), full[0]);
    a.place = loongi_nn_whole(nn, LOONG_GROUP_TP, true);
    loong_val_t h = loong_linear(g, drop(nn, x, 0, cols_of(nn, x), false),
                                 loong_graph_param(g, &a), LOONG_NONE);
    for (int i = 0; i < count; i++) {
        b[i] =
            matrix_b(nn, columns[i].name, &own, 0, columns[i].out.total,
                     full[i]);
        b[i].place = place_of(nn, &columns[i]);
    }
    return loong_linear_add(g, y, scaled(nn, h, own.scale),
                            loong_graph_pack(g, count, b), 0);
}

static bool is_fused(const loong_nn_t *nn, const char *name)
{
    const loong_adapters_t *a = nn->rules.adapters;
    bool found = false;
    for (int i = 0; name != NULL && a != NULL && i < a->num_fused; i++) {
        found = found || strcmp(a->fused[i], name) == 0;
    }
    return found;
}

loong_val_t loongi_nn_adapt_columns(loong_nn_t *nn, int count,
                                    const loong_nn_column_t *columns,
                                    loong_val_t x, loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    char full[LOONG_NN_MAX_PACK][LOONG_NN_NAME];
    loong_param_params_t a[LOONG_NN_MAX_PACK];
    adapter_t own[LOONG_NN_MAX_PACK];
    int used = 0;
    if (is_fused(nn, columns[0].fused)) {
        return adapt_fused(nn, count, columns, x, y);
    }
    for (int i = 0; i < count; i++) {
        own[i] = adapter_of(nn, columns[i].name);
        if (own[i].rank > 0) {
            a[used] = matrix_a(nn, columns[i].name, &own[i], 0, cols_of(nn, x),
                               full[used]);
            a[used++].place = loongi_nn_whole(nn, LOONG_GROUP_TP, true);
        }
    }
    if (used == 0) {
        return y;
    }
    loong_val_t all = loong_linear(g, drop(nn, x, 0, cols_of(nn, x), false),
                                   loong_graph_pack(g, used, a), LOONG_NONE);
    int64_t column = 0;
    int64_t row = 0;
    for (int i = 0; i < count; column += columns[i++].out.count) {
        const loong_nn_column_t *c = &columns[i];
        if (own[i].rank == 0) {
            continue;
        }
        loong_param_params_t b =
            matrix_b(nn, c->name, &own[i], 0, c->out.total, full[0]);
        b.place = place_of(nn, c);
        loong_val_t h = used > 1 ? loong_slice(g, all, row, own[i].rank) : all;
        y = loong_linear_add(g, y, scaled(nn, h, own[i].scale),
                             loong_graph_param(g, &b), column);
        row += own[i].rank;
    }
    return y;
}

loong_val_t loongi_nn_adapt_rows(loong_nn_t *nn, const char *name,
                                 loong_nn_slice_t in, loong_val_t x,
                                 loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    adapter_t own = adapter_of(nn, name);
    char full[LOONG_NN_NAME];
    loong_placement_t none;
    if (own.rank == 0) {
        return y;
    }
    memset(&none, 0, sizeof(none));
    loong_param_params_t a = matrix_a(nn, name, &own, 0, in.total, full);
    a.place = loongi_nn_part(none, 1, in);
    loong_val_t h = loong_linear(g, drop(nn, x, in.begin, in.total, false),
                                 loong_graph_param(g, &a), LOONG_NONE);
    loong_param_params_t b = matrix_b(nn, name, &own, 0, cols_of(nn, y), full);
    b.place = loongi_nn_whole(nn, LOONG_GROUP_TP, true);
    return loong_linear_add(g, y, scaled(nn, h, own.scale),
                            loong_graph_param(g, &b), 0);
}

loong_val_t loongi_nn_adapt_stream(loong_nn_t *nn, loong_val_t x, loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    adapter_t own = adapter_of(nn, "");
    char full[LOONG_NN_NAME];
    loong_placement_t place =
        loongi_nn_whole(nn, LOONG_GROUP_TP, nn->sequence_parallel);
    if (own.rank == 0) {
        return y;
    }
    loong_param_params_t a = matrix_a(nn, "", &own, 0, cols_of(nn, x), full);
    a.place = place;
    loong_val_t h = loong_linear(g, drop(nn, x, 0, cols_of(nn, x), true),
                                 loong_graph_param(g, &a), LOONG_NONE);
    loong_param_params_t b = matrix_b(nn, "", &own, 0, cols_of(nn, y), full);
    b.place = place;
    return loong_linear_add(g, y, scaled(nn, h, own.scale),
                            loong_graph_param(g, &b), 0);
}

/* Of gate above up (dim 1) b has the rows that the matrices have here and a is
 * whole; of down (dim 2) a has their columns and b is whole. */
loong_val_t loongi_nn_adapt_experts(loong_nn_t *nn, int dim,
                                    const loong_nn_experts_t *experts,
                                    const loong_expert_rows_t *rows,
                                    loong_val_t x, loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    const char *name = dim == 1 ? "gate_up_proj" : "down_proj";
    adapter_t own = adapter_of(nn, name);
    char full[LOONG_NN_NAME];
    int64_t count = experts->experts.total;
    int64_t ffn = experts->ffn.total;
    if (own.rank == 0) {
        return y;
    }
    if (nn->rules.adapters->dropout > 0.0) {
        return loong_graph_fail(
            g, LOONG_ERR_CONFIG,
            "%s.%s: finetune.dropout: adapters of experts have none, as in "
            "peft: 0 is wanted, or exclude_modules: [experts]",
            loong_graph_scope(g), name);
    }
    loong_param_params_t a = matrix_a(nn, name, &own, count,
                                      dim == 1 ? experts->hidden : ffn, full);
    a.place = loongi_nn_expert_place(nn, experts, dim == 1 ? 0 : 2);
    loong_val_t h =
        loong_grouped_linear(g, x, loong_graph_param(g, &a), rows);
    loong_param_params_t b =
        matrix_b(nn, name, &own, count, dim == 1 ? 2 * ffn : experts->hidden,
                 full);
    b.place = loongi_nn_expert_place(nn, experts, dim == 1 ? 1 : 0);
    return loong_add(g, y,
                     loong_grouped_linear(g, scaled(nn, h, own.scale),
                                          loong_graph_param(g, &b), rows));
}

/* b has a row for each id, and the rows that the table has here; a is
 * [rank, width], peft's matrices the other way round. As in peft there is no
 * dropout. */
loong_val_t loongi_nn_adapt_embedding(loong_nn_t *nn, loong_val_t ids,
                                      loong_nn_slice_t rows, loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    adapter_t own = adapter_of(nn, "");
    char full[LOONG_NN_NAME];
    loong_placement_t none;
    if (own.rank == 0) {
        return y;
    }
    memset(&none, 0, sizeof(none));
    own.embedding = true;
    loong_param_params_t b = matrix_b(nn, "", &own, 0, rows.total, full);
    b.padding = rows.padding;
    b.place = loongi_nn_part(none, 0, rows);
    loong_val_t h = loong_embedding_slice(g, ids, loong_graph_param(g, &b),
                                          rows.begin, rows.total);
    loong_param_params_t a = matrix_a(nn, "", &own, 0, cols_of(nn, y), full);
    a.place = loongi_nn_whole(nn, LOONG_GROUP_TP, true);
    loong_linear_add_attr_t attr = {0, true};
    loong_val_t in[3] = {y, scaled(nn, h, own.scale), loong_graph_param(g, &a)};
    loong_val_t sum = LOONG_NONE;
    return loong_graph_apply(
        g, loong_find_op(loong_graph_context(g), "linear_add"), &attr, 3, in, 1,
        &sum);
}
