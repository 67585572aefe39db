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

static double number(const char *module, int count,
                     const loong_adapter_pattern_t *patterns, double otherwise)
{
    for (int i = 0; i < count; i++) {
        if (loongi_scope_ends(patterns[i].scope, module)) {
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
    if (a == NULL ||
        !loongi_scope_ends_any(a->num_targets, a->targets, module) ||
        loongi_scope_ends_any(a->num_excluded, a->excluded, module)) {
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

bool loongi_nn_has_magnitude(const loong_nn_t *nn, const char *name)
{
    return nn->rules.adapters != NULL && nn->rules.adapters->magnitudes &&
           loongi_nn_has_adapter(nn, name);
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

/* y + x w with w [K,N] as it lies. */
static loong_val_t add_straight(loong_nn_t *nn, loong_val_t y, loong_val_t x,
                                loong_val_t w)
{
    loong_graph_t *g = nn->graph;
    loong_linear_add_attr_t attr = {0, true};
    loong_val_t in[3] = {y, x, w};
    loong_val_t sum = LOONG_NONE;
    return loong_graph_apply(
        g, loong_find_op(loong_graph_context(g), "linear_add"), &attr, 3, in, 1,
        &sum);
}

static loong_val_t scaled(loong_nn_t *nn, loong_val_t x, double scale)
{
    return scale == 1.0 ? x : loong_scale(nn->graph, x, scale);
}

/* Rows of a dense matrix, in place. */
static loong_val_t rows_of(loong_nn_t *nn, loong_val_t w, int64_t begin,
                           int64_t count)
{
    loong_graph_t *g = nn->graph;
    loong_shape_t shape = loong_value_shape(g, w);
    int64_t cols = shape.dim[1];
    if (count == shape.dim[0]) {
        return w;
    }
    w = loong_reshape(g, w, loong_shape_1d(shape.dim[0] * cols));
    w = loong_slice(g, w, begin * cols, count * cols);
    return loong_reshape(g, w, loong_shape_2d(count, cols));
}

/* ---- magnitudes (DoRA, Liu et al. 2024) ---------------------------------- */

/* The parts of one product, whose matrices lie below one another: of part i the
 * place of its rows and the scale of its adapter. */
typedef struct parts {
    int count;
    const loong_nn_column_t *columns;
    loong_placement_t place[LOONG_NN_MAX_PACK];
    double scale[LOONG_NN_MAX_PACK];
    int num_squares;
    loong_val_t squares[LOONG_NN_MAX_PACK]; /* [1, rows], of all parts */
} parts_t;

/* The sums of squares of the rows of w + b a, w being the product's matrix or
 * rows of it. They are constants in the backward pass: op magnitude gives them
 * no gradient. */
static void take_squares(loong_nn_t *nn, parts_t *p,
                         const loong_nn_product_t *product, loong_val_t w,
                         loong_val_t b, loong_val_t a)
{
    loong_graph_t *g = nn->graph;
    if (nn->rules.adapters->magnitudes) {
        w = loongi_nn_numbers(nn, product, w);
        loong_val_t s =
            loong_mean_squares(g, add_straight(nn, w, b, a), 1.0);
        p->squares[p->num_squares++] = loong_reshape(
            g, s, loong_shape_2d(1, loong_value_shape(g, s).dim[0]));
    }
}

/* y, the sum of both products, with its columns over those norms and times
 * magnitudes. shared: ranks of TP have other columns of the matrix each. */
static loong_val_t weigh(loong_nn_t *nn, const parts_t *p,
                         const loong_nn_product_t *product, loong_val_t y,
                         bool shared)
{
    loong_graph_t *g = nn->graph;
    char full[LOONG_NN_MAX_PACK][LOONG_NN_NAME];
    loong_param_params_t m[LOONG_NN_MAX_PACK];
    loong_nn_start_t ones = {LOONG_INIT_ONES, 0.0};
    if (!nn->rules.adapters->magnitudes) {
        return y;
    }
    for (int i = 0; i < p->count; i++) {
        const char *module = p->columns[i].name;
        char name[128];
        snprintf(name, sizeof(name), "%s%slora_magnitude_vector", module,
                 module[0] != '\0' ? "." : "");
        m[i] = loongi_nn_describe(
            nn, name, loong_shape_1d(p->columns[i].out.total), ones, full[i]);
        m[i].place = p->place[i];
        m[i].adapter = p->scale[i];
    }
    loong_val_t s = p->num_squares > 1
                        ? loong_concat(g, p->num_squares, p->squares)
                        : p->squares[0];
    s = loong_reshape(g, s, loong_shape_2d(cols_of(nn, y), 1));
    if (shared) {
        s = loong_all_reduce(g, s, LOONG_GROUP_TP);
    }
    loong_val_t in[4] = {y, s, loong_graph_pack(g, p->count, m), product->bias};
    return loong_graph_apply(
        g, loong_find_op(loong_graph_context(g), "magnitude"), NULL,
        product->bias != LOONG_NONE ? 4 : 3, in, 1, &y);
}

/* The product as adapters see it: beside magnitudes what they read after
 * dropout is what the matrix is multiplied with, too, as in peft. */
static loong_nn_product_t dropped(loong_nn_t *nn,
                                  const loong_nn_product_t *product,
                                  loong_val_t x)
{
    loong_nn_product_t own = *product;
    if (nn->rules.adapters->magnitudes && x != product->x) {
        own.y = loongi_nn_multiply(nn, product, x);
    }
    own.x = x;
    return own;
}

/* y, made of that product, and what dropout took from the matrix' own:
 * x w' + (m / |w + s b a| (w + s b a) - w) d(x). */
static loong_val_t undropped(loong_nn_t *nn, const loong_nn_product_t *product,
                             const loong_nn_product_t *own, loong_val_t y)
{
    loong_graph_t *g = nn->graph;
    return own->y == product->y
               ? y
               : loong_add(g, y,
                           loong_add(g, product->y,
                                     loong_scale(g, own->y, -1.0)));
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
                               const loong_nn_column_t *columns,
                               const loong_nn_product_t *product)
{
    loong_graph_t *g = nn->graph;
    char full[LOONG_NN_MAX_PACK][LOONG_NN_NAME];
    loong_param_params_t b[LOONG_NN_MAX_PACK];
    parts_t parts = {.count = count, .columns = columns};
    adapter_t own = adapter_of(nn, columns[0].fused);
    loong_val_t x = product->x;
    if (own.rank == 0) {
        return product->y;
    }
    loong_param_params_t a =
        matrix_a(nn, columns[0].fused, &own, 0, cols_of(nn, x), full[0]);
    a.place = loongi_nn_whole(nn, LOONG_GROUP_TP, true);
    loong_val_t first = loong_graph_param(g, &a);
    loong_nn_product_t after =
        dropped(nn, product, drop(nn, x, 0, cols_of(nn, x), false));
    loong_val_t h = loong_linear(g, after.x, first, LOONG_NONE);
    for (int i = 0; i < count; i++) {
        b[i] =
            matrix_b(nn, columns[i].name, &own, 0, columns[i].out.total,
                     full[i]);
        b[i].place = parts.place[i] = place_of(nn, &columns[i]);
        parts.scale[i] = own.scale;
    }
    loong_val_t second = loong_graph_pack(g, count, b);
    take_squares(nn, &parts, product, product->w,
                 scaled(nn, second, own.scale), first);
    loong_val_t y =
        loong_linear_add(g, after.y, scaled(nn, h, own.scale), second, 0);
    y = weigh(nn, &parts, product, y, false);
    return undropped(nn, product, &after, y);
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

int loongi_nn_alike(const loong_nn_t *nn, int count,
                    const loong_nn_column_t *columns, bool *magnitude_p)
{
    int alike = 1;
    if (is_fused(nn, columns[0].fused)) {
        *magnitude_p = loongi_nn_has_magnitude(nn, columns[0].fused);
        return count;
    }
    *magnitude_p = loongi_nn_has_magnitude(nn, columns[0].name);
    while (alike < count &&
           loongi_nn_has_magnitude(nn, columns[alike].name) == *magnitude_p) {
        alike++;
    }
    return alike;
}

/* That of all adapters, which scales their products at once; 1: they differ. */
static double common_scale(int count, const adapter_t *own)
{
    double scale = 0.0;
    for (int i = 0; i < count; i++) {
        if (own[i].rank > 0 && scale != 0.0 && own[i].scale != scale) {
            return 1.0;
        }
        scale = own[i].rank > 0 ? own[i].scale : scale;
    }
    return scale;
}

loong_val_t loongi_nn_adapt_columns(loong_nn_t *nn, int count,
                                    const loong_nn_column_t *columns,
                                    const loong_nn_product_t *product)
{
    loong_graph_t *g = nn->graph;
    loong_val_t x = product->x;
    loong_val_t y = product->y;
    parts_t parts = {.count = count, .columns = columns};
    char full[LOONG_NN_MAX_PACK][LOONG_NN_NAME];
    loong_param_params_t a[LOONG_NN_MAX_PACK];
    adapter_t own[LOONG_NN_MAX_PACK];
    int used = 0;
    if (is_fused(nn, columns[0].fused)) {
        return adapt_fused(nn, count, columns, product);
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
    loong_val_t first = loong_graph_pack(g, used, a);
    loong_nn_product_t after =
        dropped(nn, product, drop(nn, x, 0, cols_of(nn, x), false));
    loong_val_t all = loong_linear(g, after.x, first, LOONG_NONE);
    y = after.y;
    double common = common_scale(count, own);
    all = scaled(nn, all, common);
    int64_t column = 0;
    int64_t row = 0;
    for (int i = 0; i < count; column += columns[i++].out.count) {
        const loong_nn_column_t *c = &columns[i];
        if (own[i].rank == 0) {
            continue;
        }
        loong_param_params_t b =
            matrix_b(nn, c->name, &own[i], 0, c->out.total, full[0]);
        b.place = parts.place[i] = place_of(nn, c);
        parts.scale[i] = own[i].scale;
        loong_val_t second = loong_graph_param(g, &b);
        loong_val_t h = used > 1 ? loong_slice(g, all, row, own[i].rank) : all;
        y = loong_linear_add(g, y, scaled(nn, h, own[i].scale / common),
                             second, column);
        take_squares(nn, &parts, product,
                     rows_of(nn, product->w, column, c->out.count),
                     scaled(nn, second, own[i].scale),
                     rows_of(nn, first, row, own[i].rank));
        row += own[i].rank;
    }
    y = weigh(nn, &parts, product, y, false);
    return undropped(nn, product, &after, y);
}

/* A layer that is one module; `place` is that of its matrix b. */
typedef struct one {
    const char *name;
    const adapter_t *own;
    loong_placement_t place;
    bool shared; /* ranks of TP have other columns of the matrix each */
} one_t;

/* a reads x, which is the layer's input after dropout. */
static loong_val_t adapt_one(loong_nn_t *nn, const one_t *one,
                             const loong_param_params_t *a, loong_val_t x,
                             const loong_nn_product_t *product)
{
    loong_graph_t *g = nn->graph;
    char full[LOONG_NN_NAME];
    double scale = one->own->scale;
    int64_t out = cols_of(nn, product->y);
    loong_nn_column_t all = {.name = one->name, .out = {.total = out}};
    parts_t parts = {1, &all, {one->place}, {scale}, 0, {LOONG_NONE}};
    loong_val_t first = loong_graph_param(g, a);
    loong_nn_product_t after = dropped(nn, product, x);
    loong_val_t h = loong_linear(g, x, first, LOONG_NONE);
    loong_param_params_t b =
        matrix_b(nn, one->name, one->own, 0, out, full);
    b.place = one->place;
    loong_val_t second = loong_graph_param(g, &b);
    take_squares(nn, &parts, product, product->w, scaled(nn, second, scale),
                 first);
    loong_val_t y =
        loong_linear_add(g, after.y, scaled(nn, h, scale), second, 0);
    y = weigh(nn, &parts, product, y, one->shared);
    return undropped(nn, product, &after, y);
}

loong_val_t loongi_nn_adapt_rows(loong_nn_t *nn, const char *name,
                                 loong_nn_slice_t in,
                                 const loong_nn_product_t *product)
{
    adapter_t own = adapter_of(nn, name);
    char full[LOONG_NN_NAME];
    loong_placement_t none;
    if (own.rank == 0) {
        return product->y;
    }
    memset(&none, 0, sizeof(none));
    loong_param_params_t a = matrix_a(nn, name, &own, 0, in.total, full);
    a.place = loongi_nn_part(none, 1, in);
    one_t one = {name, &own, loongi_nn_whole(nn, LOONG_GROUP_TP, true), true};
    return adapt_one(nn, &one, &a, drop(nn, product->x, in.begin, in.total,
                                        false), product);
}

loong_val_t loongi_nn_adapt_stream(loong_nn_t *nn,
                                   const loong_nn_product_t *product)
{
    adapter_t own = adapter_of(nn, "");
    char full[LOONG_NN_NAME];
    loong_val_t x = product->x;
    one_t one = {"", &own,
                 loongi_nn_whole(nn, LOONG_GROUP_TP, nn->sequence_parallel),
                 false};
    if (own.rank == 0) {
        return product->y;
    }
    loong_param_params_t a = matrix_a(nn, "", &own, 0, cols_of(nn, x), full);
    a.place = one.place;
    return adapt_one(nn, &one, &a, drop(nn, x, 0, cols_of(nn, x), true),
                     product);
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
    if (nn->rules.adapters->dropout > 0.0 || nn->rules.adapters->magnitudes) {
        return loong_graph_fail(
            g, LOONG_ERR_CONFIG,
            "%s.%s: %s: adapters of experts have none, as in peft: %s is "
            "wanted, or exclude_modules: [experts]",
            loong_graph_scope(g), name,
            nn->rules.adapters->magnitudes ? "finetune.use_dora"
                                           : "finetune.dropout",
            nn->rules.adapters->magnitudes ? "false" : "0");
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

/* b has the rows that the head has here, a is whole. */
bool loongi_nn_adapt_head(loong_nn_t *nn, loong_val_t x, loong_nn_slice_t rows,
                          loong_val_t second[2])
{
    loong_graph_t *g = nn->graph;
    adapter_t own = adapter_of(nn, "");
    char full[LOONG_NN_NAME];
    loong_placement_t none;
    if (own.rank == 0) {
        return false;
    }
    if (nn->rules.adapters->magnitudes) {
        (void)loong_graph_fail(
            g, LOONG_ERR_UNSUPPORTED,
            "%s: finetune.use_dora: the adapter of a head has no magnitudes: "
            "leave it out of finetune.target_modules",
            loong_graph_scope(g));
        return false;
    }
    memset(&none, 0, sizeof(none));
    loong_param_params_t a =
        matrix_a(nn, "", &own, 0, cols_of(nn, x), full);
    a.place = loongi_nn_whole(nn, LOONG_GROUP_TP, true);
    loong_val_t h = loong_linear(g, drop(nn, x, 0, cols_of(nn, x), false),
                                 loong_graph_param(g, &a), LOONG_NONE);
    loong_param_params_t b = matrix_b(nn, "", &own, 0, rows.total, full);
    b.padding = rows.padding;
    b.place = loongi_nn_part(none, 0, rows);
    second[0] = scaled(nn, h, own.scale);
    second[1] = loong_graph_param(g, &b);
    return true;
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
    if (nn->rules.adapters->magnitudes) {
        return loong_graph_fail(
            g, LOONG_ERR_UNSUPPORTED,
            "%s: finetune.use_dora: adapters of embeddings have no magnitudes: "
            "leave it out of finetune.target_modules",
            loong_graph_scope(g));
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
    return add_straight(nn, y, scaled(nn, h, own.scale),
                        loong_graph_param(g, &a));
}
