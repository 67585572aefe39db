/* SPDX-License-Identifier: Apache-2.0 */
#include "nn.h"

#include <stdio.h>
#include <string.h>

#include "graph_impl.h"

enum { NAME_SIZE = LOONG_MAX_SCOPE + 64 };

static bool frozen(const loong_nn_t *nn, const char *name)
{
    for (int i = 0; i < nn->num_freeze; i++) {
        if (loongi_scope_match(nn->freeze[i], name)) {
            return true;
        }
    }
    return false;
}

/* How a parameter starts, unless a rule says otherwise. */
typedef struct start {
    loong_init_kind_t kind;
    double std;
} start_t;

static void apply_rules(const loong_nn_t *nn, loong_param_params_t *p)
{
    for (int i = 0; i < nn->num_rules; i++) {
        const loong_nn_rule_t *rule = &nn->rules[i];
        if (!loongi_scope_match(rule->scope, p->name)) {
            continue;
        }
        if (!rule->sets_init) {
            p->weight_decay = rule->weight_decay;
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

/* Fills what all parameters have; `full` receives the name. */
static loong_param_params_t describe(const loong_nn_t *nn, const char *name,
                                     loong_shape_t shape, start_t start,
                                     char *full)
{
    loong_param_params_t p;
    memset(&p, 0, sizeof(p));
    const char *scope = nn->graph->scope;
    snprintf(full, NAME_SIZE, "%s%s%s", scope, scope[0] != '\0' ? "." : "",
             name);
    bool matrix = shape.rank > 1;
    p.name = full;
    p.shape = shape;
    p.dtype = matrix ? nn->graph->precision.compute : nn->graph->precision.wide;
    p.init = start.kind;
    p.std = start.std;
    p.weight_decay = matrix ? 1.0 : 0.0;
    p.frozen = frozen(nn, full);
    apply_rules(nn, &p);
    return p;
}

loong_val_t loongi_nn_matrix(loong_nn_t *nn, const char *name, int64_t rows,
                             int64_t cols, double std)
{
    char full[NAME_SIZE];
    start_t start = {LOONG_INIT_NORMAL, std};
    loong_param_params_t p = describe(nn, name, loong_shape_2d(rows, cols),
                                      start, full);
    return loong_graph_param(nn->graph, &p);
}

loong_val_t loongi_nn_vector(loong_nn_t *nn, const char *name, int64_t size,
                             loong_init_kind_t init)
{
    char full[NAME_SIZE];
    start_t start = {init, 0.0};
    loong_param_params_t p =
        describe(nn, name, loong_shape_1d(size), start, full);
    return loong_graph_param(nn->graph, &p);
}

static int64_t width_of(const loong_nn_t *nn, loong_val_t x)
{
    loong_shape_t shape = loong_value_shape(nn->graph, x);
    return shape.rank > 0 ? shape.dim[shape.rank - 1] : 0;
}

loong_val_t loongi_nn_linear(loong_nn_t *nn, const char *name, loong_val_t x,
                             int64_t out, bool bias, double std)
{
    char part[64];
    snprintf(part, sizeof(part), "%s.weight", name);
    loong_val_t w = loongi_nn_matrix(nn, part, out, width_of(nn, x), std);
    loong_val_t b = LOONG_NONE;
    if (bias) {
        snprintf(part, sizeof(part), "%s.bias", name);
        b = loongi_nn_vector(nn, part, out, LOONG_INIT_ZEROS);
    }
    return loong_linear(nn->graph, x, w, b);
}

loong_val_t loongi_nn_packed_linear(loong_nn_t *nn, int count,
                                    const char *const *names, loong_val_t x,
                                    const int64_t *out, bool bias)
{
    char full[2][LOONG_NN_MAX_PACK][NAME_SIZE];
    char part[64];
    loong_param_params_t w[LOONG_NN_MAX_PACK];
    loong_param_params_t b[LOONG_NN_MAX_PACK];
    start_t normal = {LOONG_INIT_NORMAL, nn->init_std};
    start_t zeros = {LOONG_INIT_ZEROS, 0.0};
    for (int i = 0; i < count; i++) {
        snprintf(part, sizeof(part), "%s.weight", names[i]);
        w[i] = describe(nn, part, loong_shape_2d(out[i], width_of(nn, x)),
                        normal, full[0][i]);
        snprintf(part, sizeof(part), "%s.bias", names[i]);
        b[i] = describe(nn, part, loong_shape_1d(out[i]), zeros, full[1][i]);
    }
    loong_val_t weight = loong_graph_pack(nn->graph, count, w);
    loong_val_t offset =
        bias ? loong_graph_pack(nn->graph, count, b) : LOONG_NONE;
    return loong_linear(nn->graph, x, weight, offset);
}

loong_val_t loongi_nn_norm(loong_nn_t *nn, const char *name,
                           loong_norm_kind_t kind, loong_val_t x,
                           int64_t width, double eps)
{
    char part[64];
    loong_graph_push(nn->graph, "%s", name);
    snprintf(part, sizeof(part), "weight");
    loong_val_t w = loongi_nn_vector(nn, part, width, LOONG_INIT_ONES);
    loong_val_t y;
    if (kind == LOONG_NORM_RMS) {
        y = loong_rmsnorm(nn->graph, x, w, eps);
    } else {
        loong_val_t b = loongi_nn_vector(nn, "bias", width, LOONG_INIT_ZEROS);
        y = loong_layernorm(nn->graph, x, w, b, eps);
    }
    loong_graph_pop(nn->graph);
    return y;
}

static loong_val_t head_position(loong_nn_t *nn, const char *norm,
                                 loong_val_t x, const loong_nn_attention_t *p,
                                 const loong_nn_sequence_t *s)
{
    if (p->qk_norm) {
        x = loongi_nn_norm(nn, norm, LOONG_NORM_RMS, x, p->head_dim,
                           p->norm_eps);
    }
    if (s->rope_table != LOONG_NONE) {
        x = loong_rope(nn->graph, x, s->rope_table, p->head_dim,
                       p->interleaved);
    }
    return x;
}

loong_val_t loongi_nn_attention(loong_nn_t *nn, loong_val_t x,
                                const loong_nn_attention_t *params,
                                const loong_nn_sequence_t *sequence)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    const loong_nn_attention_t *p = params;
    loong_graph_t *g = nn->graph;
    int64_t nq = (int64_t)p->heads * p->head_dim;
    int64_t nk = (int64_t)p->kv_heads * p->head_dim;
    int64_t widths[] = {nq, nk, nk};
    loong_graph_push(g, "self_attn");
    loong_val_t qkv =
        loongi_nn_packed_linear(nn, 3, names, x, widths, p->qkv_bias);
    loong_val_t q = loong_slice(g, qkv, 0, nq);
    loong_val_t k = loong_slice(g, qkv, nq, nk);
    loong_val_t v = loong_slice(g, qkv, nq + nk, nk);
    q = head_position(nn, "q_norm", q, p, sequence);
    k = head_position(nn, "k_norm", k, p, sequence);
    loong_attention_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.heads = p->heads;
    attr.kv_heads = p->kv_heads;
    attr.head_dim = p->head_dim;
    attr.causal = true;
    attr.window = p->window;
    attr.max_seqlen = p->max_seqlen;
    attr.scale = p->scale;
    attr.dropout = p->dropout;
    attr.stream = p->stream;
    loong_graph_push(g, "core");
    loong_val_t o =
        loong_attention(g, q, k, v, sequence->cu_seqlens,
                        p->dropout > 0.0 ? sequence->token_key : LOONG_NONE,
                        &attr);
    loong_graph_pop(g);
    o = loongi_nn_linear(nn, "o_proj", o, p->hidden, p->output_bias,
                         nn->output_init_std);
    loong_graph_pop(g);
    return o;
}

loong_val_t loongi_nn_mlp(loong_nn_t *nn, loong_val_t x, loong_mlp_kind_t kind,
                          int64_t hidden, int64_t ffn, bool bias)
{
    static const char *const names[] = {"gate_proj", "up_proj"};
    int64_t widths[] = {ffn, ffn};
    loong_graph_t *g = nn->graph;
    loong_val_t h;
    loong_graph_push(g, "mlp");
    if (kind == LOONG_MLP_SWIGLU) {
        h = loongi_nn_packed_linear(nn, 2, names, x, widths, bias);
        h = loong_swiglu(g, h);
    } else {
        h = loongi_nn_linear(nn, "up_proj", x, ffn, bias, nn->init_std);
        h = loong_gelu(g, h, kind == LOONG_MLP_GELU_TANH);
    }
    h = loongi_nn_linear(nn, "down_proj", h, hidden, bias,
                         nn->output_init_std);
    loong_graph_pop(g);
    return h;
}
