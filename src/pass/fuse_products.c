/* SPDX-License-Identifier: Apache-2.0
 *
 * What products do beside multiplying, formed where the device multiplies so.
 * GELU becomes a part of the products around it: of the one that makes what it
 * is applied to, and, in the backward, of the one that makes its gradient; the
 * tanh form alone, which libraries have. The gradient of a bias comes with that
 * of its weight. An adapter's product that is one term of a gradient's sum adds
 * to the other one. Called by compile.c. Read passes.h before. */
#include <string.h>

#include "loong/ops.h"
#include "loong/register.h"
#include "passes.h"

static const char gelu_grad_name[] = "linear_gelu_grad";
static const char sums_name[] = "linear_dw_db";

static bool is_fast(const loong_context_t *ctx, const char *op,
                    const char *device)
{
    const loong_kernel_t *best = loong_find_kernel(ctx, op, device, 0);
    const loong_kernel_t *reference = NULL;
    const loong_kernel_t *next = NULL;
    for (int i = 0; (next = loong_find_kernel(ctx, op, "cpu", i)) != NULL;
         i++) {
        reference = next; /* the last one */
    }
    return best != NULL && best != reference;
}

bool loongi_fuses_products(const loong_context_t *ctx, const char *device)
{
    return is_fast(ctx, gelu_grad_name, device);
}

static bool is_tanh_form(const loong_node_t *node)
{
    const loong_gelu_attr_t *attr = node->attr;
    return attr->form == LOONG_ACT_GELU_TANH;
}

/* A value that one product makes, without an activation, for node n alone;
 * both are treated alike by what goes by scopes. */
static bool is_product_for(const loong_graph_t *g, int64_t n, loong_val_t v,
                           const int32_t *uses,
                           const loong_fuse_scopes_t *scopes)
{
    const loong_node_t *node = &g->nodes[n];
    const loong_value_t *value = &g->values[v];
    const loong_node_t *product = loongi_producer(g, v);
    if (product == NULL || product->dead || uses[v] != 1 ||
        strcmp(product->op->name, "linear") != 0 || value->index != 0 ||
        value->root != v || value->into >= 0 ||
        product->program != node->program) {
        return false;
    }
    const loong_linear_attr_t *attr = product->attr;
    return attr->activation == LOONG_ACT_NONE &&
           loongi_scope_any(scopes->num_wide, scopes->wide, node->scope) ==
               loongi_scope_any(scopes->num_wide, scopes->wide,
                                product->scope) &&
           loongi_scope_instance(scopes->num_recompute, scopes->recompute,
                                 node->scope) ==
               loongi_scope_instance(scopes->num_recompute, scopes->recompute,
                                     product->scope);
}

/* The attributes of a product, with GELU. */
static loong_status_t add_gelu(loong_graph_t *g, loong_node_t *product)
{
    loong_linear_attr_t *attr = NULL;
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*attr), &attr));
    *attr = *(const loong_linear_attr_t *)product->attr;
    attr->activation = LOONG_ACT_GELU_TANH;
    product->attr = attr;
    return LOONG_OK;
}

/* Output `index` of a product is v, which another node made. */
static void take_over(loong_graph_t *g, loong_node_t *product, int index,
                      loong_val_t v)
{
    product->out[index] = v;
    g->values[v].node = (int32_t)(product - g->nodes);
    g->values[v].index = index;
}

/* gelu(linear(x)) becomes linear(x), whose second output is what GELU was
 * applied to: the gradient reads it. */
static loong_status_t fuse_forward(loong_graph_t *g, loong_node_t *gelu)
{
    loong_val_t before = gelu->in[0];
    loong_node_t *product = loongi_producer(g, before);
    loong_val_t *out = NULL;
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*out) * 2, &out));
    LOONG_TRY(add_gelu(g, product));
    product->out = out;
    product->num_out = 2;
    take_over(g, product, 0, gelu->out[0]);
    take_over(g, product, 1, before);
    gelu->out[0] = LOONG_NONE; /* one producer */
    gelu->dead = true;
    return LOONG_OK;
}

loong_status_t loongi_pass_fuse_gelu(loong_graph_t *g,
                                     const loong_fuse_scopes_t *scopes)
{
    const loong_op_t *gelu = loong_find_op(g->ctx, "gelu");
    int32_t *uses = NULL;
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; n < g->num_nodes && status == LOONG_OK; n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->op == gelu && !node->dead && is_tanh_form(node) &&
            g->values[node->out[0]].root == node->out[0] &&
            is_product_for(g, n, node->in[0], uses, scopes)) {
            status = fuse_forward(g, node);
        }
    }
    loongi_free(g->ctx, uses);
    return status;
}

/* gelu_grad(linear(dy), before) becomes linear_gelu_grad(dy, before). */
static loong_status_t fuse_gradient(loong_graph_t *g, loong_node_t *gelu_grad)
{
    loong_node_t *product = loongi_producer(g, gelu_grad->in[0]);
    loong_val_t *in = NULL;
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*in) * 3, &in));
    LOONG_TRY(add_gelu(g, product));
    in[0] = product->in[0];
    in[1] = product->in[1];
    in[2] = gelu_grad->in[1];
    product->op = loong_find_op(g->ctx, gelu_grad_name);
    product->in = in;
    product->num_in = 3;
    product->num_out = 1;
    take_over(g, product, 0, gelu_grad->out[0]);
    gelu_grad->out[0] = LOONG_NONE;
    gelu_grad->dead = true;
    return LOONG_OK;
}

static loong_status_t fuse_gradients(loong_graph_t *g,
                                     const loong_fuse_scopes_t *scopes)
{
    const loong_op_t *gelu_grad = loong_find_op(g->ctx, "gelu_grad");
    int32_t *uses = NULL;
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; n < g->num_nodes && status == LOONG_OK; n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->op != gelu_grad || node->dead || !is_tanh_form(node) ||
            g->values[node->out[0]].root != node->out[0] ||
            !is_product_for(g, n, node->in[0], uses, scopes)) {
            continue;
        }
        const loong_value_t *dy = &g->values[node->in[0]];
        bool bias = g->nodes[dy->node].num_in > 2; /* none of a gradient */
        if (!bias && g->values[node->in[1]].node < dy->node) {
            status = fuse_gradient(g, node);
        }
    }
    loongi_free(g->ctx, uses);
    return status;
}

/* sum_rows(dy) goes into linear_dw(dy, x), which stands before it. */
static loong_status_t fuse_sums(loong_graph_t *g, loong_node_t *dw,
                                loong_node_t *sums)
{
    loong_val_t *out = NULL;
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*out) * 2, &out));
    dw->op = loong_find_op(g->ctx, sums_name);
    out[0] = dw->out[0];
    dw->out = out;
    dw->num_out = 2;
    take_over(g, dw, 1, sums->out[0]);
    sums->out[0] = LOONG_NONE;
    sums->dead = true;
    return LOONG_OK;
}

static loong_status_t fuse_bias_gradients(loong_graph_t *g)
{
    const loong_op_t *linear_dw = loong_find_op(g->ctx, "linear_dw");
    const loong_op_t *sum_rows = loong_find_op(g->ctx, "sum_rows");
    int64_t *product = NULL; /* 1 + the last node that multiplies a value */
    LOONG_TRY(loongi_calloc(g->ctx, (size_t)g->num_values, sizeof(*product),
                            "products of gradients", &product));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; n < g->num_nodes && status == LOONG_OK; n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->dead) {
            continue;
        }
        if (node->op == linear_dw) {
            product[node->in[0]] = n + 1;
        } else if (node->op == sum_rows && product[node->in[0]] > 0) {
            loong_node_t *dw = &g->nodes[product[node->in[0]] - 1];
            if (dw->op == linear_dw && dw->program == node->program &&
                strcmp(dw->scope, node->scope) == 0) {
                status = fuse_sums(g, dw, node);
            }
        }
    }
    loongi_free(g->ctx, product);
    return status;
}

loong_status_t loongi_pass_fuse_gradients(loong_graph_t *g,
                                          const loong_fuse_scopes_t *scopes)
{
    LOONG_TRY(fuse_gradients(g, scopes));
    return fuse_bias_gradients(g);
}

/* ---- sums of gradients --------------------------------------------------- */

/* A product by an adapter's matrix, without a bias, that node n alone reads. */
static bool is_adapter_for(const loong_graph_t *g, int64_t n, loong_val_t v,
                           const int32_t *uses,
                           const loong_fuse_scopes_t *scopes)
{
    const loong_node_t *product = loongi_producer(g, v);
    if (!is_product_for(g, n, v, uses, scopes) || product->num_in > 2 ||
        !loong_value_is_param(g, product->in[1])) {
        return false;
    }
    const loong_value_t *x = &g->values[product->in[0]];
    const loong_value_t *w = &g->values[product->in[1]];
    return g->params[w->index].params.adapter != 0.0 && x->dtype == w->dtype &&
           x->dtype == g->values[v].dtype;
}

/* y + linear(x, w) becomes linear_add(y, x, w). */
static loong_status_t fuse_add(loong_graph_t *g, loong_node_t *add, int term)
{
    loong_node_t *product = loongi_producer(g, add->in[term]);
    const loong_linear_attr_t *of = product->attr;
    loong_linear_add_attr_t *attr = NULL;
    loong_val_t *in = NULL;
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*attr), &attr));
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*in) * 3, &in));
    attr->begin = 0;
    attr->transposed = of->transposed;
    in[0] = add->in[1 - term];
    in[1] = product->in[0];
    in[2] = product->in[1];
    add->op = loong_find_op(g->ctx, "linear_add");
    add->attr = attr;
    add->in = in;
    add->num_in = 3;
    product->dead = true;
    return LOONG_OK;
}

/* An adapter's passes over memory cost more than its sums. Of other products a
 * sum is rounded once or twice as parts and passes are cut, and so in other
 * layouts to other bits: these stay as they are. */
loong_status_t loongi_pass_fuse_sums(loong_graph_t *g, const char *device,
                                     const loong_fuse_scopes_t *scopes)
{
    const loong_op_t *add = loong_find_op(g->ctx, "add");
    int32_t *uses = NULL;
    if (!is_fast(g->ctx, "linear_add", device)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; n < g->num_nodes && status == LOONG_OK; n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->op != add || node->dead ||
            node->program != LOONG_PROGRAM_B) {
            continue;
        }
        if (is_adapter_for(g, n, node->in[1], uses, scopes)) {
            status = fuse_add(g, node, 1);
        } else if (is_adapter_for(g, n, node->in[0], uses, scopes)) {
            status = fuse_add(g, node, 0);
        }
    }
    loongi_free(g->ctx, uses);
    return status;
}
