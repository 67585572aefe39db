/* SPDX-License-Identifier: Apache-2.0
 *
 * Random stages: graphs with views, views of views, concats, in-place ops, ops
 * with several outputs, parameters alone, packed and read twice, states,
 * losses of both kinds, relayed and gapped boundary tensors. */
#include <stdio.h>
#include <string.h>

#include "fake.h"
#include "loong/ops.h"
#include "rng.h"

enum { MAX_POOL = 64, ROWS = 5 };

uint64_t fake_draw(uint64_t seed, uint64_t index, uint64_t bound)
{
    return (uint64_t)(loongi_rng_uniform(seed, 77, index) * (double)bound);
}

typedef struct builder {
    loong_graph_t *g;
    const fake_model_t *model;
    int stage;
    uint64_t seed;
    uint64_t drawn;
    int num_pool;
    loong_val_t pool[MAX_POOL];
    bool read[MAX_POOL]; /* by somebody */
    int params;
    int layer;
} builder_t;

static int draw(builder_t *b, int bound)
{
    return (int)fake_draw(b->seed, b->drawn++, (uint64_t)bound);
}

static bool chance(builder_t *b, int percent)
{
    return draw(b, 100) < percent;
}

/* ---- the model ---------------------------------------------------------- */

fake_model_t fake_model_make(uint64_t seed, int stages)
{
    static const loong_precision_t precisions[] = {
        {LOONG_F32, LOONG_F32},
        {LOONG_BF16, LOONG_F32},
        {LOONG_F64, LOONG_F64}};
    fake_model_t m = {seed, stages, false, precisions[0]};
    m.tied = fake_draw(seed, 1, 2) == 0;
    m.precision = precisions[fake_draw(seed, 4, 3)];
    return m;
}

loong_frame_t fake_model_frame(int stage, int step, int micro_batch,
                               int micro_batches)
{
    loong_frame_t f;
    memset(&f, 0, sizeof(f));
    f.step = step;
    f.micro_batch = micro_batch;
    f.seed = (uint64_t)stage;
    f.first = micro_batch == 0;
    f.last = micro_batch + 1 == micro_batches;
    return f;
}

/* Tensors that cross the border after a stage. */
static int num_border(const fake_model_t *m, int border)
{
    return 1 + (int)fake_draw(m->seed, 200 + (uint64_t)border, 3);
}

static loong_tensor_type_t border_type(const fake_model_t *m, int border,
                                       int i)
{
    uint64_t at = 300u + 8u * (uint64_t)border + (uint64_t)i;
    loong_tensor_type_t t = {m->precision.compute, loong_shape_2d(ROWS, 4)};
    t.shape.dim[1] = 2 + 2 * (int64_t)fake_draw(m->seed, at, 4);
    if (i == 2) { /* shared indices */
        t.dtype = LOONG_I32;
    }
    return t;
}

/* ---- pieces ------------------------------------------------------------- */

static void push(builder_t *b, loong_val_t v)
{
    if (v != LOONG_NONE && b->num_pool < MAX_POOL) {
        b->read[b->num_pool] = false;
        b->pool[b->num_pool++] = v;
    }
}

/* A value of the pool, rather a late one; it counts as read. */
static loong_val_t pick(builder_t *b)
{
    int at = draw(b, b->num_pool);
    if (chance(b, 60)) {
        at = b->num_pool - 1 - draw(b, LOONG_MIN(b->num_pool, 3));
    }
    b->read[at] = true;
    return b->pool[at];
}

static loong_tensor_type_t random_type(builder_t *b)
{
    loong_tensor_type_t t = {b->model->precision.compute,
                             loong_shape_2d(ROWS, 2 + 2 * draw(b, 4))};
    if (chance(b, 25)) {
        t.dtype = b->model->precision.wide;
    }
    return t;
}

static loong_val_t make_param(builder_t *b)
{
    char name[2][24];
    loong_param_params_t p[2];
    memset(p, 0, sizeof(p));
    bool pack = chance(b, 25);
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof(name[i]), "p%d.%d", b->params, i);
        p[i].name = name[i];
        p[i].shape = loong_shape_2d(2 + draw(b, 3), 4);
        p[i].dtype = b->model->precision.compute;
        p[i].frozen = i == 0 ? chance(b, 15) : p[0].frozen;
        p[i].weight_decay = i == 0 ? chance(b, 50) : p[0].weight_decay;
    }
    if (!pack && chance(b, 30)) {
        p[0].shape = loong_shape_1d(3 + draw(b, 5));
        p[0].dtype = b->model->precision.wide;
    }
    b->params++;
    return pack ? loong_graph_pack(b->g, 2, p) : loong_graph_param(b->g, p);
}

static loong_val_t tied_param(builder_t *b)
{
    loong_param_params_t p;
    memset(&p, 0, sizeof(p));
    p.name = FAKE_TIED;
    p.shape = loong_shape_2d(6, 8);
    p.dtype = b->model->precision.compute;
    return loong_graph_param(b->g, &p);
}

/* One fake op; outputs after the first go to the pool. */
static loong_val_t fake(builder_t *b, int num_in, const loong_val_t *in,
                        loong_tensor_type_t type)
{
    fake_attr_t a;
    loong_val_t out[FAKE_MAX_OUT];
    memset(&a, 0, sizeof(a));
    a.key = fake_mix(fake_mix(b->seed, (uint64_t)b->stage), b->drawn);
    a.variant = draw(b, FAKE_VARIANTS);
    a.workspace = chance(b, 30) ? 8 + 8 * draw(b, 12) : 0;
    a.joint = chance(b, 25);
    a.save_in = (uint32_t)draw(b, 16);
    a.save_out = (uint32_t)draw(b, 8);
    a.out[0] = type;
    for (int o = 1; o < FAKE_MAX_OUT; o++) {
        if (chance(b, 30)) {
            a.out[o] = chance(b, 50) ? type : random_type(b);
        }
    }
    loong_graph_apply(b->g, fake_op(a.variant), &a, num_in, in, FAKE_MAX_OUT,
                      out);
    for (int o = 1; o < FAKE_MAX_OUT; o++) {
        push(b, out[o]);
    }
    return out[0];
}

static loong_val_t fake_from_pool(builder_t *b, loong_tensor_type_t type)
{
    loong_val_t in[4];
    int n = 1 + draw(b, 3);
    for (int i = 0; i < n; i++) {
        in[i] = pick(b);
    }
    if (chance(b, 50)) {
        in[n++] = make_param(b);
    } else if (b->model->tied && (b->stage == 0 ||
                                  b->stage + 1 == b->model->stages) &&
               chance(b, 40)) {
        in[n++] = tied_param(b);
    }
    return fake(b, n, in, type);
}

static bool same_type(const loong_graph_t *g, loong_val_t a, loong_val_t b)
{
    loong_shape_t x = loong_value_shape(g, a);
    loong_shape_t y = loong_value_shape(g, b);
    return loong_value_dtype(g, a) == loong_value_dtype(g, b) &&
           x.rank == y.rank && x.dim[0] == y.dim[0] && x.dim[1] == y.dim[1];
}

static void build_add(builder_t *b)
{
    loong_val_t x = pick(b);
    loong_val_t y = x;
    for (int i = 0; i < 6; i++) {
        loong_val_t v = pick(b);
        y = same_type(b->g, x, v) ? v : y;
    }
    push(b, loong_add(b->g, x, y));
}

/* A value in slices that cover it, each worked on, side by side again. */
static void build_slices(builder_t *b)
{
    loong_val_t x = pick(b);
    loong_shape_t shape = loong_value_shape(b->g, x);
    int64_t cols = shape.dim[1];
    loong_val_t part[2];
    if (cols < 2) {
        return;
    }
    int64_t cut = 1 + draw(b, (int)cols - 1);
    for (int i = 0; i < 2; i++) {
        part[i] = loong_slice(b->g, x, i == 0 ? 0 : cut,
                              i == 0 ? cut : cols - cut);
        if (chance(b, 70)) {
            loong_tensor_type_t type = {loong_value_dtype(b->g, x), shape};
            type.shape.dim[1] = 2 + 2 * draw(b, 3);
            part[i] = fake(b, 1, &part[i], type);
        }
    }
    push(b, loong_concat(b->g, 2, part));
}

static void build_view(builder_t *b)
{
    loong_val_t x = pick(b);
    loong_shape_t s = loong_value_shape(b->g, x);
    if (chance(b, 50) && s.dim[1] > 1) {
        int64_t begin = draw(b, (int)s.dim[1]);
        x = loong_slice(b->g, x, begin,
                        1 + draw(b, (int)(s.dim[1] - begin)));
        s = loong_value_shape(b->g, x);
    }
    if (chance(b, 50) && s.dim[1] % 2 == 0) {
        x = loong_reshape(b->g, x, loong_shape_2d(2 * s.dim[0], s.dim[1] / 2));
    }
    push(b, x);
}

static void build_state(builder_t *b)
{
    char name[24];
    loong_val_t x = pick(b);
    loong_shape_t s = loong_value_shape(b->g, x);
    snprintf(name, sizeof(name), "s%d", b->params++);
    loong_val_t in[2] = {
        loong_graph_state(b->g, name, b->model->precision.wide, s), x};
    loong_graph_apply(b->g, loong_find_op(b->g->ctx, "accumulate"), NULL, 2,
                      in, 0, NULL);
}

/* ---- a stage ------------------------------------------------------------ */

static void build_begin(builder_t *b)
{
    loong_val_t in[4];
    int n = 0;
    int borders = b->stage > 0 ? num_border(b->model, b->stage - 1) : 0;
    for (int i = 0; i < borders; i++) {
        char name[16];
        snprintf(name, sizeof(name), "b%d", i);
        loong_tensor_type_t t = border_type(b->model, b->stage - 1, i);
        in[n++] = loong_graph_boundary_input(b->g, name, t.dtype, t.shape);
    }
    if (b->stage == 0 || chance(b, 30)) {
        in[n++] = loong_graph_input(b->g, "ids", LOONG_I32,
                                    loong_shape_1d(ROWS));
    }
    if (b->stage == 0) {
        in[n++] = b->model->tied ? tied_param(b) : make_param(b);
    }
    push(b, fake(b, n, in, random_type(b)));
    for (int i = 0; i < borders; i++) {
        if (loong_value_dtype(b->g, in[i]) != LOONG_I32 && chance(b, 50)) {
            push(b, in[i]);
        }
    }
}

static void build_middle(builder_t *b)
{
    int nodes = 3 + draw(b, 10);
    for (int i = 0; i < nodes && b->num_pool < MAX_POOL - 12; i++) {
        if (i % 3 == 0) {
            loong_graph_pop(b->g);
            loong_graph_push(b->g, "layers_%d", b->layer++);
        }
        loong_graph_push(b->g, chance(b, 50) ? "attn" : "mlp");
        int what = draw(b, 12);
        if (what < 6) {
            push(b, fake_from_pool(b, random_type(b)));
        } else if (what < 8) {
            build_add(b);
        } else if (what < 10) {
            build_slices(b);
        } else if (what < 11) {
            build_view(b);
        } else {
            build_state(b);
        }
        loong_graph_pop(b->g);
    }
    loong_graph_pop(b->g);
}

/* What nobody has read is read now, but for a few. */
static loong_val_t build_join(builder_t *b, loong_tensor_type_t type)
{
    loong_val_t in[4] = {b->pool[0], LOONG_NONE, LOONG_NONE, LOONG_NONE};
    int n = 1;
    for (int i = 0; i < b->num_pool; i++) {
        if (b->read[i] || chance(b, 15)) {
            continue;
        }
        b->read[i] = true;
        in[n++] = b->pool[i];
        if (n == 4) {
            in[0] = fake(b, n, in, type);
            n = 1;
        }
    }
    return fake(b, n, in, type);
}

static void build_loss(builder_t *b)
{
    loong_tensor_type_t type = {b->model->precision.compute,
                                loong_shape_2d(ROWS, 8)};
    loong_val_t in[2];
    loong_val_t out[FAKE_MAX_OUT];
    fake_attr_t a;
    memset(&a, 0, sizeof(a));
    a.key = fake_mix(b->seed, 4711);
    a.out[0].dtype = b->model->precision.wide;
    a.out[0].shape = loong_shape_1d(ROWS);
    in[0] = build_join(b, type);
    in[1] = b->model->tied ? tied_param(b) : make_param(b);
    if (chance(b, 40)) { /* a loss whose gradient is made backward */
        a.save_in = 3;
        loong_graph_apply(b->g, fake_op(7), &a, 2, in, FAKE_MAX_OUT, out);
    } else {
        a.workspace = 48;
        a.out[1] = type;
        a.out[2].dtype = b->model->precision.wide;
        a.out[2].shape = loong_value_shape(b->g, in[1]);
        loong_graph_apply(b->g, fake_loss_op(), &a, 2, in, FAKE_MAX_OUT, out);
    }
    const loong_loss_params_t loss = {
        .name = "loss", .normaliser = "rows", .weight = 1.0};
    loong_graph_loss(b->g, out[0], &loss);
}

/* A boundary tensor: made here, a slice of something wider, or what came in. */
static loong_val_t border_value(builder_t *b, loong_tensor_type_t type,
                                loong_val_t joined, int i)
{
    char name[16];
    snprintf(name, sizeof(name), "b%d", i);
    if (b->stage > 0 && i > 0 && i < num_border(b->model, b->stage - 1)) {
        loong_tensor_type_t from = border_type(b->model, b->stage - 1, i);
        bool same = from.dtype == type.dtype &&
                    from.shape.dim[1] == type.shape.dim[1];
        if (same && (type.dtype == LOONG_I32 || chance(b, 40))) {
            return loong_graph_input(b->g, name, type.dtype, type.shape);
        }
    }
    if (type.dtype != LOONG_I32 && chance(b, 30)) {
        loong_tensor_type_t wide = type;
        wide.shape.dim[1] += 3;
        loong_val_t v = fake(b, 1, &joined, wide);
        return loong_slice(b->g, v, 2, type.shape.dim[1]);
    }
    return fake(b, 1, &joined, type);
}

static void build_end(builder_t *b)
{
    int n = num_border(b->model, b->stage);
    loong_val_t joined = build_join(b, random_type(b));
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "b%d", i);
        loong_tensor_type_t t = border_type(b->model, b->stage, i);
        loong_graph_boundary_output(b->g, name,
                                    border_value(b, t, joined, i));
    }
}

loong_status_t fake_model_build(loong_context_t *ctx, const fake_model_t *model,
                                int stage, loong_graph_t **graph_p)
{
    builder_t b;
    memset(&b, 0, sizeof(b));
    LOONG_TRY(loong_graph_create(ctx, model->precision, &b.g));
    b.model = model;
    b.stage = stage;
    b.seed = fake_mix(model->seed, 31 + (uint64_t)stage);
    loong_graph_push(b.g, "begin");
    build_begin(&b);
    build_middle(&b);
    if (chance(&b, 30)) {
        loong_graph_output(b.g, "probe", pick(&b));
    }
    loong_graph_push(b.g, "end");
    if (stage + 1 == model->stages) {
        build_loss(&b);
    } else {
        build_end(&b);
    }
    loong_graph_pop(b.g);
    *graph_p = b.g;
    return loong_graph_status(b.g);
}
