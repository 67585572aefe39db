/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions, parameters, linear layers, norms and attention with their sharding,
 * as graph nodes. Called by every family. Read loong/nn.h and loong/mesh.h
 * before. */
#include "loong/nn.h"

#include <stdio.h>
#include <string.h>

#include "context_attention.h"
#include "loong/collective.h"
#include "loong/op.h"
#include "loong/quantize.h"
#include "nn_impl.h"

static bool frozen(const loong_nn_t *nn, const char *name)
{
    const loong_param_rules_t *r = &nn->rules;
    return loongi_scope_any(r->num_freeze, r->freeze, name) ||
           (r->restricted &&
            !loongi_scope_any(r->num_trainable, r->trainable, name));
}

static void apply_rules(const loong_nn_t *nn, loong_param_params_t *p)
{
    for (int i = 0; i < nn->rules.num_rules; i++) {
        const loong_param_rule_t *rule = &nn->rules.rules[i];
        if (!loongi_scope_match(rule->scope, p->name)) {
            continue;
        }
        if (rule->sets == LOONG_RULE_DECAY) {
            p->weight_decay = rule->weight_decay;
            continue;
        }
        if (rule->sets == LOONG_RULE_GROUP) {
            p->optimizer = rule->group;
            continue;
        }
        p->init = rule->init;
        if (rule->std > 0.0) {
            p->std = rule->std;
        } else if (p->std == 0.0) {
            p->std = nn->init_std; /* a vector has none of its own */
        }
    }
}

loong_nn_t loong_nn_begin(loong_graph_t *graph,
                          const loong_model_request_t *request,
                          double init_std)
{
    loong_nn_t nn = {graph,
                     init_std,
                     init_std,
                     request->rules,
                     request->sequence_parallel,
                     request->cp_comm,
                     request->dispatcher,
                     request->capacity_plan,
                     request->seq_length,
                     request->train,
                     LOONG_NONE,
                     LOONG_NONE,
                     "hidden"};
    return nn;
}

/* ---- regions ------------------------------------------------------------ */

loong_nn_slice_t loong_nn_slice(const loong_nn_t *nn, int64_t total)
{
    const loong_mesh_t *m = loong_graph_mesh(nn->graph);
    int64_t size = m->size[LOONG_AXIS_TP];
    int64_t rank = m->coord[LOONG_AXIS_TP];
    loong_nn_slice_t share = {total * rank / size, 0, total, 0};
    share.count = total * (rank + 1) / size - share.begin;
    return share;
}

loong_nn_slice_t loong_nn_vocabulary(const loong_nn_t *nn, int64_t vocab,
                                     int64_t padded)
{
    loong_nn_slice_t share = loong_nn_slice(nn, vocab);
    if (share.begin + share.count == vocab) {
        share.count += padded - vocab;
    }
    share.total = padded;
    share.padding = padded - vocab;
    return share;
}

loong_val_t loong_nn_enter(loong_nn_t *nn, loong_val_t x)
{
    return nn->sequence_parallel
               ? loong_all_gather(nn->graph, x, LOONG_GROUP_TP)
               : loong_replicate(nn->graph, x, LOONG_GROUP_TP);
}

loong_val_t loong_nn_leave(loong_nn_t *nn, loong_val_t y)
{
    return nn->sequence_parallel
               ? loong_reduce_scatter(nn->graph, y, LOONG_GROUP_TP)
               : loong_all_reduce(nn->graph, y, LOONG_GROUP_TP);
}

static int64_t parts_of(const loong_nn_t *nn)
{
    return nn->sequence_parallel
               ? loong_graph_mesh(nn->graph)->size[LOONG_AXIS_TP]
               : 1;
}

static loong_val_t mark_apart(loong_nn_t *nn, loong_val_t x)
{
    return parts_of(nn) > 1 ? loong_value_apart(nn->graph, x, LOONG_GROUP_TP)
                            : x;
}

loong_val_t loong_nn_stage_input(loong_nn_t *nn, int64_t rows, int64_t width)
{
    loong_graph_t *g = nn->graph;
    return mark_apart(nn, loong_graph_boundary_input(
                              g, nn->stream, loong_graph_precision(g).compute,
                              loong_shape_2d(rows / parts_of(nn), width)));
}

loong_val_t loong_nn_receive(loong_nn_t *nn, const char *name, int64_t rows,
                             int64_t width)
{
    loong_graph_t *g = nn->graph;
    return mark_apart(
        nn, loong_graph_receive(g, name, loong_graph_precision(g).compute,
                                loong_shape_2d(rows / parts_of(nn), width)));
}

void loong_nn_stage_output(loong_nn_t *nn, loong_val_t x)
{
    loong_graph_boundary_output(nn->graph, nn->stream, x);
}

loong_val_t loong_nn_stream_rows(loong_nn_t *nn, loong_val_t x)
{
    return nn->sequence_parallel
               ? loong_own_rows(nn->graph, x, LOONG_GROUP_TP)
               : x;
}

/* ---- parameters --------------------------------------------------------- */

loong_placement_t loongi_nn_whole(const loong_nn_t *nn, loong_group_t group,
                                  bool partial)
{
    const loong_mesh_t *m = loong_graph_mesh(nn->graph);
    loong_placement_t place;
    memset(&place, 0, sizeof(place));
    if (loong_mesh_group_size(m, group) > 1) {
        place.copy = loong_mesh_group_rank(m, group) > 0;
        place.partial = partial;
        place.group = group;
    }
    return place;
}

static loong_placement_t on_stream(const loong_nn_t *nn)
{
    return loongi_nn_whole(nn, LOONG_GROUP_TP, nn->sequence_parallel);
}

loong_placement_t loongi_nn_part(loong_placement_t place, int dim,
                                 loong_nn_slice_t share)
{
    place.cut = share.count < share.total;
    place.dim = dim;
    place.begin = share.begin;
    place.count = share.count;
    return place;
}

loong_param_params_t loongi_nn_describe(const loong_nn_t *nn, const char *name,
                                        loong_shape_t shape,
                                        loong_nn_start_t start, char *full)
{
    loong_param_params_t p;
    memset(&p, 0, sizeof(p));
    const char *scope = loong_graph_scope(nn->graph);
    snprintf(full, LOONG_NN_NAME, "%s%s%s", scope, scope[0] != '\0' ? "." : "",
             name);
    bool matrix = shape.rank > 1;
    p.name = full;
    p.shape = shape;
    loong_precision_t precision = loong_graph_precision(nn->graph);
    p.dtype = matrix ? precision.compute : precision.wide;
    p.init = start.kind;
    p.std = start.std;
    p.weight_decay = matrix ? 1.0 : 0.0;
    p.frozen = frozen(nn, full);
    apply_rules(nn, &p);
    return p;
}

loong_val_t loong_nn_table(loong_nn_t *nn, const char *name,
                           loong_nn_slice_t rows, int64_t cols, double std)
{
    char full[LOONG_NN_NAME];
    loong_nn_start_t start = {LOONG_INIT_NORMAL, std};
    loong_placement_t none;
    loong_param_params_t p = loongi_nn_describe(
        nn, name, loong_shape_2d(rows.total, cols), start, full);
    memset(&none, 0, sizeof(none));
    p.padding = rows.padding;
    p.place = loongi_nn_part(none, 0, rows);
    return loong_graph_param(nn->graph, &p);
}

loong_val_t loong_nn_matrix(loong_nn_t *nn, const char *name, int64_t rows,
                             int64_t cols, double std)
{
    char full[LOONG_NN_NAME];
    loong_nn_start_t start = {LOONG_INIT_NORMAL, std};
    loong_param_params_t p = loongi_nn_describe(
        nn, name, loong_shape_2d(rows, cols), start, full);
    p.place = on_stream(nn);
    return loong_graph_param(nn->graph, &p);
}

loong_val_t loong_nn_wide_matrix(loong_nn_t *nn, const char *name,
                                 int64_t rows, int64_t cols, double std)
{
    char full[LOONG_NN_NAME];
    loong_nn_start_t start = {LOONG_INIT_NORMAL, std};
    loong_param_params_t p = loongi_nn_describe(
        nn, name, loong_shape_2d(rows, cols), start, full);
    p.dtype = loong_graph_precision(nn->graph).wide;
    p.place = on_stream(nn);
    return loong_graph_param(nn->graph, &p);
}

loong_placement_t loongi_nn_expert_place(const loong_nn_t *nn,
                                         const loong_nn_experts_t *experts,
                                         int dim)
{
    const loong_nn_slice_t *ffn = &experts->ffn;
    loong_placement_t place;
    memset(&place, 0, sizeof(place));
    if (dim == 0) {
        place = loongi_nn_whole(nn, LOONG_GROUP_ETP, true);
    } else if (ffn->count < ffn->total) {
        place.inner_parts = dim == 1 ? 2 : 1;
        place.inner_dim = dim;
        place.inner_begin = ffn->begin;
        place.inner_count = ffn->count;
    }
    place.expert = true;
    return loongi_nn_part(place, 0, experts->experts);
}

static loong_val_t vector(loong_nn_t *nn, const char *name, int64_t size,
                          loong_nn_start_t start, loong_placement_t place)
{
    char full[LOONG_NN_NAME];
    loong_param_params_t p =
        loongi_nn_describe(nn, name, loong_shape_1d(size), start, full);
    p.place = place;
    return loong_graph_param(nn->graph, &p);
}

loong_val_t loong_nn_vector(loong_nn_t *nn, const char *name, int64_t size,
                             loong_init_kind_t init)
{
    loong_nn_start_t start = {init, 0.0};
    return vector(nn, name, size, start, on_stream(nn));
}

loong_val_t loongi_nn_sign_vector(loong_nn_t *nn, const char *name,
                                  int64_t size, double rate)
{
    char full[LOONG_NN_NAME];
    loong_nn_start_t zeros = {LOONG_INIT_ZEROS, 0.0};
    loong_param_params_t p =
        loongi_nn_describe(nn, name, loong_shape_1d(size), zeros, full);
    p.place = on_stream(nn);
    p.frozen = p.frozen || rate == 0.0;
    p.sign_rate = rate;
    return loong_graph_param(nn->graph, &p);
}

/* ---- linear layers ------------------------------------------------------ */

static int64_t width_of(const loong_nn_t *nn, loong_val_t x)
{
    loong_shape_t shape = loong_value_shape(nn->graph, x);
    return shape.rank > 0 ? shape.dim[shape.rank - 1] : 0;
}

static loong_val_t column_product(loong_nn_t *nn, int count,
                                  const loong_nn_column_t *columns,
                                  loong_val_t x, bool bias, bool magnitude)
{
    char full[2][LOONG_NN_MAX_PACK][LOONG_NN_NAME];
    char name[64];
    loong_param_params_t w[LOONG_NN_MAX_PACK];
    loong_param_params_t b[LOONG_NN_MAX_PACK];
    loong_nn_start_t normal = {LOONG_INIT_NORMAL, nn->init_std};
    loong_nn_start_t zeros = {LOONG_INIT_ZEROS, 0.0};
    for (int i = 0; i < count; i++) {
        const loong_nn_column_t *c = &columns[i];
        loong_placement_t place;
        memset(&place, 0, sizeof(place));
        if (c->held_by_group) {
            place = loongi_nn_whole(nn, c->holders, true);
        }
        place = loongi_nn_part(place, 0, c->out);
        snprintf(name, sizeof(name), "%s.weight", c->name);
        w[i] = loongi_nn_describe(nn, name, loong_shape_2d(c->out.total,
                                                 width_of(nn, x)),
                        normal, full[0][i]);
        snprintf(name, sizeof(name), "%s.bias", c->name);
        b[i] = loongi_nn_describe(nn, name, loong_shape_1d(c->out.total), zeros,
                        full[1][i]);
        w[i].place = b[i].place = place;
        loongi_nn_quantize(nn, &w[i]);
    }
    loong_val_t weight = loong_graph_pack(nn->graph, count, w);
    loong_val_t offset =
        bias ? loong_graph_pack(nn->graph, count, b) : LOONG_NONE;
    loong_nn_product_t product =
        loongi_nn_product(nn, &w[0], x, weight, offset, magnitude);
    return loongi_nn_adapt_columns(nn, count, columns, &product);
}

loong_val_t loong_nn_column_linear(loong_nn_t *nn, int count,
                                    const loong_nn_column_t *columns,
                                    loong_val_t x, bool bias)
{
    loong_val_t parts[LOONG_NN_MAX_PACK];
    int num_parts = 0;
    for (int i = 0; i < count;) {
        bool magnitude = false;
        int alike = loongi_nn_alike(nn, count - i, columns + i, &magnitude);
        parts[num_parts++] =
            column_product(nn, alike, columns + i, x, bias, magnitude);
        i += alike;
    }
    return num_parts == 1 ? parts[0]
                          : loong_concat(nn->graph, num_parts, parts);
}

loong_val_t loong_nn_row_linear(loong_nn_t *nn, const char *name, loong_val_t x,
                                loong_nn_slice_t in, int64_t out, bool bias)
{
    char full[LOONG_NN_NAME];
    char part_name[64];
    loong_nn_start_t normal = {LOONG_INIT_NORMAL, nn->output_init_std};
    loong_nn_start_t zeros = {LOONG_INIT_ZEROS, 0.0};
    loong_placement_t none;
    memset(&none, 0, sizeof(none));
    snprintf(part_name, sizeof(part_name), "%s.weight", name);
    loong_param_params_t p = loongi_nn_describe(
        nn, part_name, loong_shape_2d(out, in.total), normal, full);
    p.place = loongi_nn_part(none, 1, in);
    loongi_nn_quantize(nn, &p);
    loong_val_t w = loong_graph_param(nn->graph, &p);
    loong_val_t b = LOONG_NONE;
    if (bias && loong_graph_mesh(nn->graph)->coord[LOONG_AXIS_TP] == 0) {
        snprintf(part_name, sizeof(part_name), "%s.bias", name);
        b = vector(nn, part_name, out, zeros, none);
    }
    loong_nn_product_t product = loongi_nn_product(
        nn, &p, x, w, b, loongi_nn_has_magnitude(nn, name));
    return loongi_nn_adapt_rows(nn, name, in, &product);
}

loong_val_t loongi_nn_expert_linear(loong_nn_t *nn, int dim,
                                    const loong_nn_experts_t *experts,
                                    const loong_expert_rows_t *rows,
                                    loong_val_t x)
{
    bool in = dim == 1;
    char full[LOONG_NN_NAME];
    loong_nn_start_t start = {LOONG_INIT_NORMAL,
                              in ? nn->init_std : nn->output_init_std};
    loong_shape_t shape = {3, {experts->experts.total, 0, 0, 0}};
    shape.dim[dim] = (in ? 2 : 1) * experts->ffn.total;
    shape.dim[3 - dim] = experts->hidden;
    loong_param_params_t p = loongi_nn_describe(
        nn, in ? "gate_up_proj" : "down_proj", shape, start, full);
    p.place = loongi_nn_expert_place(nn, experts, dim);
    loongi_nn_quantize(nn, &p);
    loong_val_t w = loong_graph_param(nn->graph, &p);
    loong_val_t y =
        p.quant == LOONG_QUANT_NONE
            ? loong_grouped_linear(nn->graph, x, w, rows)
            : loong_grouped_linear_quantized(nn->graph, x, w, rows, p.quant);
    return loongi_nn_adapt_experts(nn, dim, experts, rows, x, y);
}

/* ---- norms -------------------------------------------------------------- */

typedef struct norm_spec {
    loong_norm_kind_t kind;
    int64_t width;
    double eps;
    loong_placement_t place;
} norm_spec_t;

static loong_val_t norm(loong_nn_t *nn, const char *name, loong_val_t x,
                        const norm_spec_t *spec)
{
    loong_nn_start_t ones = {LOONG_INIT_ONES, 0.0};
    loong_nn_start_t zeros = {LOONG_INIT_ZEROS, 0.0};
    loong_graph_push(nn->graph, "%s", name);
    bool more = spec->kind == LOONG_NORM_RMS_1P;
    loong_val_t w =
        vector(nn, "weight", spec->width, more ? zeros : ones, spec->place);
    loong_val_t y;
    w = more ? loong_shift(nn->graph, w, 1.0) : w;
    if (spec->kind != LOONG_NORM_LAYER) {
        y = loong_rmsnorm(nn->graph, x, w, spec->eps);
    } else {
        loong_val_t b = vector(nn, "bias", spec->width, zeros, spec->place);
        y = loong_layernorm(nn->graph, x, w, b, spec->eps);
    }
    loong_graph_pop(nn->graph);
    return y;
}

loong_val_t loong_nn_norm(loong_nn_t *nn, const char *name,
                           loong_norm_kind_t kind, loong_val_t x,
                           int64_t width, double eps)
{
    norm_spec_t spec = {kind, width, eps, on_stream(nn)};
    return norm(nn, name, x, &spec);
}

/* ---- attention ---------------------------------------------------------- */

loong_nn_heads_t loong_nn_heads(const loong_mesh_t *mesh, int heads,
                                 int kv_heads)
{
    int64_t size = mesh->size[LOONG_AXIS_TP];
    int64_t rank = mesh->coord[LOONG_AXIS_TP];
    int64_t each = heads / kv_heads; /* query heads of a key head */
    int64_t ranks = loong_mesh_group_size(mesh, LOONG_GROUP_KV);
    int64_t index = loong_mesh_group_rank(mesh, LOONG_GROUP_KV);
    loong_nn_heads_t h;
    h.shared = ranks > 1;
    if (!h.shared) {
        h.kv.begin = kv_heads * rank / size;
        h.kv.count = kv_heads * (rank + 1) / size - h.kv.begin;
        h.q.begin = h.kv.begin * each;
        h.q.count = h.kv.count * each;
    } else {
        h.kv.begin = rank / ranks;
        h.kv.count = 1;
        h.q.begin = h.kv.begin * each + each * index / ranks;
        h.q.count = h.kv.begin * each + each * (index + 1) / ranks - h.q.begin;
    }
    h.kv.total = kv_heads;
    h.q.total = heads;
    h.kv.padding = h.q.padding = 0;
    return h;
}

loong_nn_slice_t loongi_nn_channels(loong_nn_slice_t heads, int64_t head_dim)
{
    loong_nn_slice_t share = {heads.begin * head_dim, heads.count * head_dim,
                              heads.total * head_dim, 0};
    return share;
}

/* One norm over the heads of all ranks of TP. A head that several of them hold
 * counts as often, in the sum of squares and in what it is divided by: the mean
 * stays, and each holder has its part of the head's gradient. */
static loong_val_t norm_of_all(loong_nn_t *nn, const char *name, loong_val_t x,
                               loong_nn_slice_t channels, bool shared,
                               double eps)
{
    loong_graph_t *g = nn->graph;
    loong_nn_start_t ones = {LOONG_INIT_ONES, 0.0};
    int holders = shared ? loong_mesh_group_size(loong_graph_mesh(g),
                                                 LOONG_GROUP_KV)
                         : 1;
    loong_placement_t place;
    memset(&place, 0, sizeof(place));
    if (shared) {
        place = loongi_nn_whole(nn, LOONG_GROUP_KV, true);
    }
    place = loongi_nn_part(place, 0, channels);
    loong_graph_push(g, "%s", name);
    loong_val_t w = vector(nn, "weight", channels.total, ones, place);
    loong_val_t m =
        loong_mean_squares(g, x, 1.0 / (double)(channels.total * holders));
    m = loong_all_reduce(g, m, LOONG_GROUP_TP);
    m = loong_replicate(g, m, LOONG_GROUP_TP);
    x = loong_rms_scale(g, x, m, w, eps);
    loong_graph_pop(g);
    return x;
}

/* Norm and position of queries or keys. */
static loong_val_t head_position(loong_nn_t *nn, bool keys, loong_val_t x,
                                 const loong_nn_attention_t *p,
                                 const loong_nn_heads_t *h,
                                 const loong_nn_sequence_t *s)
{
    const char *name = keys ? "k_norm" : "q_norm";
    if (p->qk_norm && p->qk_norm_whole) {
        x = norm_of_all(
            nn, name, x, loongi_nn_channels(keys ? h->kv : h->q, p->head_dim),
            keys && h->shared, p->norm_eps);
    } else if (p->qk_norm) {
        norm_spec_t spec = {LOONG_NORM_RMS, p->head_dim, p->norm_eps,
                            loongi_nn_whole(nn, LOONG_GROUP_TP, true)};
        x = norm(nn, name, x, &spec);
    }
    if (s->rope_table != LOONG_NONE) {
        x = loong_rope(nn->graph, x, s->rope_table, p->head_dim,
                       p->interleaved);
    }
    return x;
}

/* The three projections: one product, or two when other ranks hold the same
 * key head. */
static void project(loong_nn_t *nn, loong_val_t x,
                    const loong_nn_attention_t *p, const loong_nn_heads_t *h,
                    loong_val_t qkv[3])
{
    loong_graph_t *g = nn->graph;
    loong_nn_slice_t q = loongi_nn_channels(h->q, p->head_dim);
    loong_nn_slice_t kv = loongi_nn_channels(h->kv, p->head_dim);
    const loong_nn_column_t columns[3] = {
        {"q_proj", q, false, LOONG_GROUP_KV, "qkv_proj"},
        {"k_proj", kv, h->shared, LOONG_GROUP_KV, "qkv_proj"},
        {"v_proj", kv, h->shared, LOONG_GROUP_KV, "qkv_proj"},
    };
    if (h->shared) {
        qkv[0] = loong_nn_column_linear(nn, 1, columns, x, p->qkv_bias);
        loong_val_t both = loong_value_continues(
            g, loong_nn_column_linear(nn, 2, columns + 1, x, p->qkv_bias));
        qkv[1] = loong_slice(g, both, 0, kv.count);
        qkv[2] = loong_slice(g, both, kv.count, kv.count);
        return;
    }
    loong_val_t all = loong_nn_column_linear(nn, 3, columns, x, p->qkv_bias);
    qkv[0] = loong_slice(g, all, 0, q.count);
    qkv[1] = loong_slice(g, all, q.count, kv.count);
    qkv[2] = loong_slice(g, all, q.count + kv.count, kv.count);
}

loong_val_t loong_nn_attention(loong_nn_t *nn, loong_val_t x,
                                const loong_nn_attention_t *params,
                                const loong_nn_sequence_t *sequence)
{
    const loong_nn_attention_t *p = params;
    loong_graph_t *g = nn->graph;
    loong_nn_heads_t h =
        loong_nn_heads(loong_graph_mesh(g), p->heads, p->kv_heads);
    loong_val_t qkv[3];
    loong_graph_push(g, "self_attn");
    x = loong_nn_enter(nn, x);
    project(nn, x, p, &h, qkv);
    loong_val_t q = head_position(nn, false, qkv[0], p, &h, sequence);
    loong_val_t k = head_position(nn, true, qkv[1], p, &h, sequence);
    loong_attention_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.heads = (int)h.q.count;
    attr.kv_heads = (int)h.kv.count;
    attr.first_head = (int)h.q.begin;
    attr.head_dim = p->head_dim;
    attr.causal = !p->bidirectional;
    attr.window = p->window;
    attr.max_seqlen = p->max_seqlen;
    attr.scale = p->scale;
    attr.dropout = p->dropout;
    attr.stream = p->stream;
    loong_graph_push(g, "core");
    loong_attention_operands_t operands = {
        q, k, qkv[2], sequence->cu_seqlens,
        p->dropout > 0.0 ? sequence->token_key : LOONG_NONE, LOONG_NONE,
        LOONG_NONE, p->bidirectional ? LOONG_NONE : sequence->key_ends};
    loong_val_t o = loongi_context_attention(nn, &operands, &attr);
    loong_graph_pop(g);
    o = loong_nn_row_linear(nn, "o_proj", o,
                            loongi_nn_channels(h.q, p->head_dim), p->hidden,
                            p->output_bias);
    o = loong_nn_leave(nn, o);
    loong_graph_pop(g);
    return o;
}
