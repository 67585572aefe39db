/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared object that loongrun opens: which of two rings does a point lie on?
 * It brings a source of points, the processor that turns them into inputs, an
 * op with its gradient (squared hinge loss), a family, its names in Hugging
 * Face directories, and a key of its own.
 *
 *   cc -shared -fPIC rings.c $(pkg-config --cflags --libs loong) -lm \
 *       -o rings.so
 *   loongrun rings.yaml
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <loong/extension.h>
#include <loong/family.h>
#include <loong/hub.h>
#include <loong/nn.h>
#include <loong/ops.h>
#include <loong/register.h>

#define TRY(expr_)                            \
    do {                                      \
        loong_status_t try_status_ = (expr_); \
        if (try_status_ != LOONG_OK) {        \
            return try_status_;               \
        }                                     \
    } while (0)

/* ---- the source: data.train: [{path: NUMBER OF POINTS, source: rings}] --- */

typedef struct rings {
    loong_source_info_t info;
    char path[32];
} rings_t;

static void close_rings(void *source)
{
    free(source);
}

static loong_status_t open_rings(loong_context_t *ctx,
                                 const loong_source_params_t *params,
                                 void **source_p)
{
    rings_t *r = calloc(1, sizeof(*r));
    (void)ctx;
    if (r == NULL) {
        return LOONG_ERR_MEMORY;
    }
    snprintf(r->path, sizeof(r->path), "%s", params->path);
    r->info.path = r->path;
    r->info.samples = strtoll(params->path, NULL, 10);
    r->info.hash = (uint64_t)r->info.samples;
    if (r->info.samples < 1) {
        close_rings(r);
        return LOONG_ERR_CONFIG;
    }
    *source_p = r;
    return LOONG_OK;
}

static void rings_info(const void *source, loong_source_info_t *info)
{
    *info = ((const rings_t *)source)->info;
}

/* A pure function of i: points of ring 0 have radius 1, those of ring 1 have
 * 2, both with some noise. */
static loong_status_t read_point(const void *source, int64_t i,
                                 loong_items_t *items)
{
    (void)source;
    TRY(loong_items_begin(items, 64));
    double *xy = loong_items_take(items, 2 * sizeof(*xy));
    double angle = 2.399963 * (double)i;
    double radius = 1.0 + (double)(i % 2) + 0.2 * sin(7.1 * (double)i);
    xy[0] = radius * cos(angle);
    xy[1] = radius * sin(angle);
    items->count = 2;
    items->item[0] = (loong_item_t){.type = LOONG_ITEM_VALUES, .size = {2, 0},
                                    .values = xy};
    items->item[1] = (loong_item_t){.type = LOONG_ITEM_LABEL, .label = i % 2};
    return LOONG_OK;
}

static const loong_source_class_t source = {
    .struct_size = sizeof(source), .name = "rings", .concurrent = true,
    .open = open_rings, .close = close_rings, .get_info = rings_info,
    .read = read_point};

/* ---- the processor ------------------------------------------------------- */

typedef struct row {
    double xy[2];
    int32_t label; /* -1: no point */
} row_t;

static const char *const normalisers[] = {"points", NULL};

static loong_status_t check(loong_context_t *ctx, const void *config,
                            const char *data)
{
    (void)ctx, (void)config, (void)data;
    return LOONG_OK;
}

static loong_status_t begin(const void *config, loong_items_t *items)
{
    (void)config;
    return loong_items_begin(items, 64);
}

static size_t row_size(const void *config, const loong_items_t *items)
{
    (void)items; /* all are alike */
    (void)config;
    return sizeof(row_t);
}

static loong_status_t keep(const void *config, int64_t draw,
                           const loong_items_t *items, void *memory,
                           double sums[LOONG_MAX_NORMALISERS])
{
    row_t *row = memory;
    (void)config, (void)draw;
    *row = (row_t){{0.0, 0.0}, -1};
    if (items != NULL) {
        memcpy(row->xy, items->item[0].values, sizeof(row->xy));
        row->label = (int32_t)items->item[1].label;
        sums[0] += 1.0;
    }
    return LOONG_OK;
}

static loong_status_t example(const void *config, int64_t i,
                              loong_items_t *items)
{
    (void)config;
    return read_point(NULL, i, items);
}

/* Inputs: points wide [N,2], labels i32 [N]. */
static loong_status_t bind(loong_context_t *ctx, const void *config,
                           loong_field_t *field)
{
    (void)ctx, (void)config;
    bool points = strcmp(field->name, "points") == 0;
    field->kind = points ? "points" : "labels";
    return points || strcmp(field->name, "labels") == 0 ? LOONG_OK
                                                        : LOONG_ERR_CONFIG;
}

static loong_status_t fill(loong_context_t *ctx, const void *config,
                           void *const *rows, const loong_field_t *field)
{
    (void)ctx, (void)config;
    bool points = *(const char *)field->kind == 'p';
    for (int64_t i = 0; i < field->count; i++) {
        const row_t *row = rows[points ? i / 2 : i];
        if (!points) {
            ((int32_t *)field->to)[i] = row->label;
        } else if (field->dtype == LOONG_F64) {
            ((double *)field->to)[i] = row->xy[i % 2];
        } else {
            ((float *)field->to)[i] = (float)row->xy[i % 2];
        }
    }
    return LOONG_OK;
}

static const loong_processor_t processor = {
    .struct_size = sizeof(processor), .name = "point",
    .reads = 1u << LOONG_ITEM_VALUES | 1u << LOONG_ITEM_LABEL,
    .normalisers = normalisers, .check = check, .begin = begin,
    .row_size = row_size, .keep = keep, .example = example, .bind = bind,
    .fill = fill};

/* ---- the op: max(0, margin - y s)^2, y = 1 for label 1, -1 for label 0 --- */

typedef struct hinge_attr {
    double margin;
} hinge_attr_t;

/* (score [N,1], labels i32 [N]) -> loss [N]; 0 where the label is negative. */
static loong_status_t rows_of(const loong_op_call_t *call)
{
    call->out[0] = call->in[0];
    call->out[0].shape = loong_shape_1d(call->in[0].shape.dim[0]);
    return LOONG_OK;
}

static loong_status_t like_score(const loong_op_call_t *call)
{
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static const loong_op_t hinge_grad = {
    .name = "hinge_grad", .attr_size = sizeof(hinge_attr_t), .min_in = 3,
    .max_in = 3, .num_out = 1, .infer = like_score};

static loong_status_t hinge_rule(const loong_grad_call_t *call)
{
    loong_val_t in[] = {call->in[0], call->in[1], call->out_grad[0]};
    loong_graph_apply(call->graph, &hinge_grad, call->attr, 3, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

extern const loong_op_t rings_hinge; /* for a test of its gradient */
const loong_op_t rings_hinge = {
    .name = "hinge", .attr_size = sizeof(hinge_attr_t), .min_in = 2,
    .max_in = 2, .num_out = 1, .infer = rows_of, .grad = hinge_rule};

static double element(const loong_kernel_call_t *call, int operand, int64_t i)
{
    return call->query->arg[operand].dtype == LOONG_F64
               ? ((const double *)call->ptr[operand])[i]
               : (double)((const float *)call->ptr[operand])[i];
}

static void put(const loong_kernel_call_t *call, int operand, int64_t i,
                double value)
{
    if (call->query->arg[operand].dtype == LOONG_F64) {
        ((double *)call->ptr[operand])[i] = value;
    } else {
        ((float *)call->ptr[operand])[i] = (float)value;
    }
}

static bool f32_or_f64(const loong_kernel_query_t *query,
                       char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE, "fp32 and fp64 only");
    return query->arg[0].dtype == LOONG_F32 || query->arg[0].dtype == LOONG_F64;
}

static loong_status_t run_hinge(const loong_kernel_call_t *call)
{
    const hinge_attr_t *attr = call->query->attr;
    const int32_t *labels = call->ptr[1];
    for (int64_t i = 0; i < loong_karg_rows(&call->query->arg[0]); i++) {
        double y = labels[i] > 0 ? 1.0 : -1.0;
        double gap = fmax(0.0, attr->margin - y * element(call, 0, i));
        put(call, 2, i, labels[i] < 0 ? 0.0 : gap * gap);
    }
    return LOONG_OK;
}

static loong_status_t run_hinge_grad(const loong_kernel_call_t *call)
{
    const hinge_attr_t *attr = call->query->attr;
    const int32_t *labels = call->ptr[1];
    for (int64_t i = 0; i < loong_karg_rows(&call->query->arg[0]); i++) {
        double y = labels[i] > 0 ? 1.0 : -1.0;
        double gap = fmax(0.0, attr->margin - y * element(call, 0, i));
        put(call, 3, i,
            labels[i] < 0 ? 0.0 : -2.0 * y * gap * element(call, 2, i));
    }
    return LOONG_OK;
}

static const loong_kernel_t kernels[] = {
    {.name = "hinge_plain", .op = "hinge", .device = "cpu",
     .support = f32_or_f64, .run = run_hinge},
    {.name = "hinge_grad_plain", .op = "hinge_grad", .device = "cpu",
     .support = f32_or_f64, .run = run_hinge_grad},
};

/* ---- the family: two linear layers --------------------------------------- */

#define M "model.foundation."
static const loong_recipe_key_t keys[] = {
    {M "margin", LOONG_RECIPE_REAL, "1", 0, 100, NULL, LOONG_RESUME_SAME,
     "of the rings' hinge loss"},
};

typedef struct config {
    int64_t hidden;
    hinge_attr_t hinge;
} config_t;

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    config_t *c = config;
    (void)ctx, (void)component;
    c->hidden = loong_recipe_int(recipe, M "hidden_size");
    c->hinge.margin = loong_recipe_real(recipe, M "margin");
    return LOONG_OK;
}

static void facts(const void *config, loong_model_facts_t *out)
{
    const config_t *c = config;
    out->flops_per_row = 6.0 * 3.0 * (double)c->hidden;
}

static loong_val_t linear(loong_nn_t *nn, const char *name, loong_val_t x,
                          int64_t in, int64_t out)
{
    char path[64];
    snprintf(path, sizeof(path), "%s.weight", name);
    loong_val_t w = loong_nn_matrix(nn, path, out, in, 0.5);
    snprintf(path, sizeof(path), "%s.bias", name);
    loong_val_t b = loong_nn_vector(nn, path, out, LOONG_INIT_ZEROS);
    return loong_linear(nn->graph, x, w, b);
}

static loong_status_t build(loong_graph_t *g, const void *config,
                            const loong_model_request_t *request)
{
    const config_t *c = config;
    loong_nn_t nn = loong_nn_begin(g, request, 0.5);
    const loong_loss_params_t loss = {.name = "hinge", .normaliser = "points",
                                      .weight = 1.0,
                                      .coupling = LOONG_LOSS_OF_ITEM};
    loong_val_t x =
        loong_graph_input(g, "points", loong_graph_precision(g).wide,
                          loong_shape_2d(request->rows, 2));
    loong_val_t labels = loong_graph_input(g, "labels", LOONG_I32,
                                           loong_shape_1d(request->rows));
    x = loong_gelu(g, linear(&nn, "first", x, 2, c->hidden), LOONG_ACT_GELU);
    x = linear(&nn, "second", x, c->hidden, 1);
    loong_val_t in[] = {x, labels};
    loong_val_t rows;
    loong_graph_apply(g, &rings_hinge, &c->hinge, 2, in, 1, &rows);
    loong_loss(g, rows, &loss);
    return loong_graph_status(g);
}

static const loong_family_t family = {
    .name = "rings", .processor = &processor,
    .config_size = sizeof(config_t), .configure = configure, .facts = facts,
    .build = build};

/* ---- in Hugging Face directories ----------------------------------------- */

static const loong_hub_field_t fields[] = {
    {"hidden_size", "hidden_size", LOONG_RECIPE_INT, NULL},
    {"hinge_margin", "margin", LOONG_RECIPE_REAL, "1"},
};

static const loong_hub_tensor_t tensors[] = {
    {"first.weight", "in_proj.weight", "hidden_size", "2"},
    {"first.bias", "in_proj.bias", "hidden_size", NULL},
    {"second.weight", "out_proj.weight", "1", "hidden_size"},
    {"second.bias", "out_proj.bias", "1", NULL},
};

static const loong_hub_type_t hub_type = {
    .struct_size = sizeof(hub_type), .model_type = "rings",
    .architecture = "RingsForPointClassification", .prefix = "rings.",
    .num_fields = 2, .fields = fields, .num_tensors = 4, .tensors = tensors};

/* ---- what loongrun calls ------------------------------------------------ */

static loong_status_t enter(loong_context_t *ctx)
{
    TRY(loong_register_op(ctx, &rings_hinge));
    TRY(loong_register_op(ctx, &hinge_grad));
    TRY(loong_register_kernel(ctx, &kernels[0]));
    TRY(loong_register_kernel(ctx, &kernels[1]));
    TRY(loong_register_source(ctx, &source));
    TRY(loong_register_hub_type(ctx, &hub_type));
    return loong_register_family(ctx, &family);
}

const loong_extension_t *loong_extension(void);
__attribute__((visibility("default"))) const loong_extension_t *
loong_extension(void)
{
    static const loong_extension_t extension = {
        .struct_size = sizeof(extension), .name = "rings", .num_keys = 1,
        .keys = keys, .enter = enter};
    return &extension;
}
