/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference: differentiated graphs, node by node, micro-batch after
 * micro-batch, every value in dense storage of its own. It knows no passes, no
 * programs and no plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "loong/ops.h"

enum { MAX_STAGES = 32 };

typedef struct stage {
    loong_graph_t *g;
    char **data;     /* per value */
    bool *begun;     /* per value: a gradient that this step has begun */
} stage_t;

typedef struct interpreter {
    loong_context_t *ctx;
    const fake_model_t *model;
    fake_reference_t *out;
    fake_world_t world;
    stage_t stages[MAX_STAGES];
    loong_frame_t frame;
    int stage;
} interpreter_t;

uint64_t fake_result_key(int stage, int step, const char *name)
{
    uint64_t key = fake_mix((uint64_t)stage, (uint64_t)step + 1000);
    for (; *name != '\0'; name++) {
        key = fake_mix(key, (uint64_t)*name);
    }
    return key | 1;
}

uint64_t fake_message_key(int stage, int step, int micro_batch,
                          const char *name)
{
    return fake_mix(fake_result_key(stage, step, name),
                    (uint64_t)micro_batch + 77) | 1;
}

void fake_update(void *param, size_t param_size, const void *grad,
                 size_t grad_size, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++) {
        uint64_t p = 0;
        uint64_t x = 0;
        memcpy(&p, (char *)param + (size_t)i * param_size, param_size);
        memcpy(&x, (const char *)grad + (size_t)i * grad_size, grad_size);
        p = fake_mix(p, x);
        memcpy((char *)param + (size_t)i * param_size, &p, param_size);
    }
}

void fake_combine(void *a, const void *b, size_t size, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++) {
        uint64_t x = 0;
        uint64_t y = 0;
        memcpy(&x, (char *)a + (size_t)i * size, size);
        memcpy(&y, (const char *)b + (size_t)i * size, size);
        x = 5 * x + y;
        memcpy((char *)a + (size_t)i * size, &x, size);
    }
}

/* ---- values ------------------------------------------------------------- */

static int64_t cols_of(const loong_value_t *v)
{
    return v->shape.dim[v->shape.rank - 1];
}

static int64_t rows_of(const loong_value_t *v)
{
    return loongi_shape_elements(&v->shape) / cols_of(v);
}

static loong_karg_t dense_arg(const interpreter_t *k, loong_val_t v)
{
    loong_karg_t arg;
    memset(&arg, 0, sizeof(arg));
    if (v != LOONG_NONE) {
        const loong_value_t *value = &k->stages[k->stage].g->values[v];
        arg.dtype = value->dtype;
        arg.rank = value->shape.rank;
        memcpy(arg.dim, value->shape.dim, sizeof(arg.dim));
        arg.ld = cols_of(value);
    }
    return arg;
}

/* ---- nodes -------------------------------------------------------------- */

/* A view is a copy here: `rows` of the input from a column on. */
static void run_view(const stage_t *s, const loong_node_t *node)
{
    const loong_value_t *in = &s->g->values[node->in[0]];
    const loong_value_t *out = &s->g->values[node->out[0]];
    size_t size = loong_dtype_size(in->dtype);
    if (node->op->view_column == NULL) {
        memcpy(s->data[node->out[0]], s->data[node->in[0]],
               loongi_value_bytes(s->g, node->out[0]));
        return;
    }
    size_t begin = size * (size_t)node->op->view_column(node->attr);
    size_t from = size * (size_t)cols_of(in);
    size_t to = size * (size_t)cols_of(out);
    for (int64_t r = 0; r < rows_of(out); r++) {
        memcpy(s->data[node->out[0]] + (size_t)r * to,
               s->data[node->in[0]] + (size_t)r * from + begin, to);
    }
}

/* Runs a kernel for a node whose operands are all in its own lists. */
static void run_kernel(interpreter_t *k, const loong_node_t *node, bool add)
{
    loong_kernel_query_t q;
    void *ptr[LOONG_MAX_OPERANDS];
    const stage_t *s = &k->stages[k->stage];
    memset(&q, 0, sizeof(q));
    q.op = node->op->name;
    q.attr = node->attr;
    q.num_in = node->num_in;
    q.num_out = node->num_out;
    for (int i = 0; i < q.num_in + q.num_out; i++) {
        loong_val_t v =
            i < q.num_in ? node->in[i] : node->out[i - q.num_in];
        q.arg[i] = dense_arg(k, v);
        ptr[i] = v != LOONG_NONE ? s->data[v] : NULL;
    }
    const loong_kernel_t *kernel =
        loong_find_kernel(k->ctx, q.op, FAKE_DEVICE, 0);
    char workspace[256];
    loong_kernel_call_t call = {k->ctx, &q,        NULL,      &k->frame,
                                ptr,    workspace, &k->world, add ? 1 : 0, 0,
                                NULL,   NULL,      NULL, NULL, false};
    if (kernel->run(&call) != LOONG_OK) {
        fprintf(stderr, "the reference fails: %s\n", k->world.error);
        abort();
    }
}

static void run_node(interpreter_t *k, const loong_node_t *node)
{
    const stage_t *s = &k->stages[k->stage];
    if (node->op->view) {
        run_view(s, node);
    } else if (strcmp(node->op->name, "accumulate") == 0) {
        loong_val_t to = node->in[0];
        loong_node_t write = *node; /* x -> gradient or state */
        bool grad = s->g->values[to].kind == LOONG_VALUE_GRAD;
        write.num_in = write.num_out = 1;
        write.in = &node->in[1];
        write.out = &to;
        run_kernel(k, &write, !grad || s->begun[to]);
        s->begun[to] = true;
    } else {
        run_kernel(k, node, false);
    }
}

/* ---- micro-batches ------------------------------------------------------ */

static void note(interpreter_t *k, const char *name, loong_val_t v)
{
    const stage_t *s = &k->stages[k->stage];
    const loong_value_t *value = &s->g->values[v];
    int64_t rows = rows_of(value);
    size_t size = loong_dtype_size(value->dtype);
    int64_t stride = cols_of(value) * (int64_t)size;
    fake_table_put(&k->out->results,
                   fake_message_key(k->stage, (int)k->frame.step,
                                    (int)k->frame.micro_batch, name),
                   fake_digest(s->data[v], rows, cols_of(value), size,
                               stride));
}

static const loong_input_t *find_output(const loong_graph_t *g,
                                        const char *name)
{
    for (int i = 0; i < g->num_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            return &g->outputs[i];
        }
    }
    return NULL;
}

/* Loader inputs are made up, others come from the output of their name of a
 * neighbour: activations from the stage before, gradients from the next. */
static void fill_inputs(interpreter_t *k, bool backward)
{
    const stage_t *s = &k->stages[k->stage];
    for (int i = 0; i < s->g->num_inputs; i++) {
        const loong_input_t *input = &s->g->inputs[i];
        size_t bytes = loongi_value_bytes(s->g, input->value);
        bool grad = strstr(input->name, ".grad") != NULL;
        if (grad != backward) {
            continue;
        }
        if (strcmp(input->name, "ids") == 0) {
            fake_fill(s->data[input->value], bytes,
                      fake_message_key(k->stage, (int)k->frame.step,
                                       (int)k->frame.micro_batch, "ids"));
            continue;
        }
        const stage_t *from = &k->stages[k->stage + (grad ? 1 : -1)];
        memcpy(s->data[input->value],
               from->data[find_output(from->g, input->name)->value], bytes);
    }
}

static void run_stage(interpreter_t *k, int stage, int step, int micro_batch,
                      int micro_batches, bool backward)
{
    k->stage = stage;
    k->frame =
        fake_model_frame(stage, step, micro_batch, micro_batches);
    const loong_graph_t *g = k->stages[stage].g;
    fill_inputs(k, backward);
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        if ((node->program == LOONG_PROGRAM_B) == backward) {
            run_node(k, node);
        }
    }
    for (int i = 0; i < g->num_outputs && backward; i++) {
        note(k, g->outputs[i].name, g->outputs[i].value);
    }
    for (int i = 0; i < g->num_losses && backward; i++) {
        note(k, g->losses[i].params.name, g->losses[i].value);
    }
}

/* ---- steps -------------------------------------------------------------- */

static loong_val_t find_value(const loong_graph_t *g, loong_value_kind_t kind,
                              int32_t index)
{
    for (int64_t v = 0; v < g->num_values; v++) {
        if (g->values[v].kind == kind && g->values[v].index == index) {
            return (loong_val_t)v;
        }
    }
    return LOONG_NONE;
}

static loong_val_t find_tied(const loong_graph_t *g, loong_value_kind_t kind)
{
    for (int64_t p = 0; p < g->num_params; p++) {
        if (strcmp(g->params[p].params.name, FAKE_TIED) == 0) {
            return find_value(g, kind, (int32_t)p);
        }
    }
    return LOONG_NONE;
}

/* The gradients of a parameter that two stages hold are summed, the first
 * stage's first. */
static void reduce_tied(interpreter_t *k)
{
    int last = k->model->stages - 1;
    stage_t *a = &k->stages[0];
    stage_t *b = &k->stages[last];
    loong_val_t x = find_tied(a->g, LOONG_VALUE_GRAD);
    loong_val_t y = find_tied(b->g, LOONG_VALUE_GRAD);
    if (last == 0 || x < 0 || y < 0 || !a->begun[x] || !b->begun[y]) {
        return;
    }
    size_t bytes = loongi_value_bytes(a->g, x);
    fake_combine(a->data[x], b->data[y],
                 loong_dtype_size(a->g->values[x].dtype),
                 loongi_shape_elements(&a->g->values[x].shape));
    memcpy(b->data[y], a->data[x], bytes);
}

static void finish_stage(interpreter_t *k, int stage, int step)
{
    stage_t *s = &k->stages[stage];
    const loong_graph_t *g = s->g;
    for (int64_t v = 0; v < g->num_values; v++) {
        const loong_value_t *value = &g->values[v];
        size_t size = loong_dtype_size(value->dtype);
        bool state = value->kind == LOONG_VALUE_STATE;
        if (!state && (value->kind != LOONG_VALUE_GRAD || !s->begun[v])) {
            continue;
        }
        int64_t elements = loongi_shape_elements(&value->shape);
        fake_table_put(&k->out->results,
                       fake_result_key(stage, step, value->name),
                       fake_digest(s->data[v], 1, elements, size,
                                   elements * (int64_t)size));
        loong_val_t p = find_value(g, LOONG_VALUE_PARAM, value->index);
        if (!state) {
            fake_update(s->data[p], loong_dtype_size(g->values[p].dtype),
                        s->data[v], size, elements);
        }
    }
    memset(s->begun, 0, (size_t)g->num_values * sizeof(*s->begun));
}

static void make_stage(interpreter_t *k, int stage)
{
    stage_t *s = &k->stages[stage];
    if (fake_model_build(k->ctx, k->model, stage, &s->g) != LOONG_OK ||
        loongi_graph_differentiate(s->g) != LOONG_OK) {
        fprintf(stderr, "the reference fails: %s\n",
                loong_context_error(k->ctx));
        abort();
    }
    s->data = calloc((size_t)s->g->num_values, sizeof(*s->data));
    s->begun = calloc((size_t)s->g->num_values, sizeof(*s->begun));
    for (int64_t v = 0; v < s->g->num_values; v++) {
        const loong_value_t *value = &s->g->values[v];
        size_t bytes = loongi_value_bytes(s->g, (loong_val_t)v);
        s->data[v] = calloc(1, bytes + 1);
        if (value->kind != LOONG_VALUE_PARAM) {
            continue;
        }
        char *at = s->data[v]; /* each member by its own name */
        for (int m = 0; m < value->members; m++) {
            const loong_param_params_t *p =
                &s->g->params[value->index + m].params;
            size_t n = (size_t)loongi_shape_elements(&p->shape) *
                       loong_dtype_size(value->dtype);
            bool tied = strcmp(p->name, FAKE_TIED) == 0;
            fake_fill(at, n, fake_result_key(tied ? 0 : stage, -1, p->name));
            at += n;
        }
    }
}

void fake_reference_run(loong_context_t *ctx, const fake_model_t *model,
                        int steps, int micro_batches,
                        fake_reference_t *reference)
{
    interpreter_t k;
    memset(&k, 0, sizeof(k));
    memset(reference, 0, sizeof(*reference));
    k.ctx = ctx;
    k.model = model;
    k.out = reference;
    k.world.seen = &reference->seen;
    k.world.record = true;
    for (int s = 0; s < model->stages; s++) {
        make_stage(&k, s);
    }
    for (int step = 0; step < steps; step++) {
        for (int m = 0; m < micro_batches; m++) {
            for (int s = 0; s < model->stages; s++) {
                run_stage(&k, s, step, m, micro_batches, false);
            }
            for (int s = model->stages - 1; s >= 0; s--) {
                run_stage(&k, s, step, m, micro_batches, true);
            }
        }
        reduce_tied(&k);
        for (int s = 0; s < model->stages; s++) {
            finish_stage(&k, s, step);
        }
    }
    for (int s = 0; s < model->stages; s++) {
        for (int64_t v = 0; v < k.stages[s].g->num_values; v++) {
            free(k.stages[s].data[v]);
        }
        free(k.stages[s].data);
        free(k.stages[s].begun);
        loong_graph_destroy(&k.stages[s].g);
    }
}

void fake_reference_free(fake_reference_t *reference)
{
    fake_table_free(&reference->seen);
    fake_table_free(&reference->results);
}
