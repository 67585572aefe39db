/* SPDX-License-Identifier: Apache-2.0
 *
 * Three components in one step: "maker" has items of three rows and sends two
 * of each, "middle" hands them on, "reader" has the loss. Gradients of all
 * three against the formula, in layouts where they have other tensor and data
 * parallel ranks; what is not bound or not reached is refused. */
#include "test.h"

#include <math.h>

#include "edges.h"
#include "loong/family.h"
#include "loong/loss_ops.h"
#include "loong/ops.h"
#include "loong/register.h"

enum { H = 4, ITEMS = 4, MICRO_BATCHES = 3, COMPONENTS = 3 };

static const char *const names[COMPONENTS] = {"maker", "middle", "reader"};

/* ---- three kinds --------------------------------------------------------- */

typedef struct config {
    int kind; /* of names */
    bool frozen;
} config_t;

static loong_val_t product(loong_graph_t *g, loong_val_t x, const config_t *c)
{
    const loong_param_params_t p = {.name = "weight",
                                    .shape = loong_shape_2d(H, H),
                                    .dtype = LOONG_F64,
                                    .init = LOONG_INIT_NORMAL,
                                    .std = 0.5,
                                    .frozen = c->frozen};
    return loong_linear(g, x, loong_graph_param(g, &p), LOONG_NONE);
}

static loong_status_t build(loong_graph_t *g, const void *config,
                            const loong_model_request_t *request)
{
    const config_t *c = config;
    loong_shape_t shape = loong_shape_2d(request->rows, H);
    if (c->kind == 0) {
        loong_val_t x = loong_graph_input(g, "x", LOONG_F64, shape);
        loong_graph_send(g, "features", product(g, x, c));
    } else if (c->kind == 1) {
        loong_val_t x = loong_graph_receive(g, "features", LOONG_F64, shape);
        loong_graph_send(g, "rows", product(g, x, c));
    } else {
        const loong_loss_params_t loss = {
            .name = "squares", .normaliser = "rows", .weight = 1.0};
        loong_val_t x = loong_graph_receive(g, "rows", LOONG_F64, shape);
        loong_val_t target = loong_graph_input(g, "target", LOONG_F64, shape);
        loong_loss(g, loong_squared_error(g, product(g, x, c), target), &loss);
    }
    return loong_graph_status(g);
}

static void facts(const void *config, loong_model_facts_t *facts)
{
    (void)config;
    (void)facts;
}

static const loong_family_t families[COMPONENTS] = {
    {.name = "maker", .facts = facts, .build = build},
    {.name = "middle", .facts = facts, .build = build},
    {.name = "reader", .facts = facts, .build = build}};

/* ---- layouts ------------------------------------------------------------- */

typedef struct layout {
    int world, maker, reader; /* tensor parallel ranks of these */
    int frozen;               /* components, from the first on */
    const char *join;
} layout_t;

static int block_of(const layout_t *l)
{
    return LOONG_MAX(l->maker, l->reader);
}

/* Items that a reader's replica has room for: all of a cell. */
static int room_of(const layout_t *l)
{
    return ITEMS * l->reader / l->maker;
}

static double number(int what, int64_t replica, int micro_batch, int64_t i)
{
    return sin(1.0 + what + 3.7 * (double)replica + 1.3 * micro_batch +
               0.71 * (double)i);
}

/* Item i of replica e of a cell is item g = e ITEMS + i; it stands in reader
 * g % D, those of later ones in front. */
static void reader_of(const layout_t *l, int e, int i, int *reader_p, int *at_p)
{
    int readers = block_of(l) / l->reader;
    int g = e * ITEMS + i;
    *reader_p = g % readers;
    *at_p = room_of(l) - 1 - g / readers;
}

static loong_status_t list_rows(void *user, const loong_message_t *m,
                                loong_segment_t *segments, int64_t *count_p)
{
    const layout_t *l = user;
    int from = m->backward ? m->to_rank : m->from_rank;
    int to = m->backward ? m->from_rank : m->to_rank;
    int64_t count = 0;
    for (int i = 0; i < ITEMS; i++) {
        loong_segment_t s = {3 * i + 1, 2 * i, 2};
        int e = from / l->maker;
        int reader = to / l->maker;
        int at = 0;
        if (m->edge == 1) {
            int place = 0;
            reader_of(l, e, i, &reader, &place);
            s = (loong_segment_t){2 * i, 2 * place, 2};
            at = to / l->reader;
        } else {
            at = e;
        }
        if (reader != at) {
            continue;
        }
        segments[count++] =
            m->backward ? (loong_segment_t){s.to_row, s.from_row, s.rows} : s;
    }
    *count_p = count;
    return LOONG_OK;
}

/* ---- the formula --------------------------------------------------------- */

static void multiply(const double *x, const double *w, double *y)
{
    for (int n = 0; n < H; n++) {
        y[n] = 0.0;
        for (int k = 0; k < H; k++) {
            y[n] += x[k] * w[n * H + k];
        }
    }
}

/* dw += dy' x, dx = dy w */
static void back(const double *dy, const double *x, const double *w, double *dw,
                 double *dx)
{
    for (int k = 0; k < H; k++) {
        dx[k] = 0.0;
        for (int n = 0; n < H; n++) {
            dx[k] += dy[n] * w[n * H + k];
            dw[n * H + k] += dy[n] * x[k];
        }
    }
}

static void expect_gradients(const layout_t *l, double *const w[COMPONENTS],
                             double dw[COMPONENTS][H * H])
{
    int block = block_of(l);
    memset(dw, 0, COMPONENTS * sizeof(dw[0]));
    for (int r = 0; r < l->world / l->maker; r++) {
        int cell = r * l->maker / block;
        int e = r % (block / l->maker);
        for (int b = 0; b < MICRO_BATCHES; b++) {
            for (int row = 0; row < 2 * ITEMS; row++) {
                double x[4][H];
                double d[H];
                double dx[H];
                int reader = 0;
                int at = 0;
                int from = row / 2 * 3 + 1 + row % 2;
                reader_of(l, e, row / 2, &reader, &at);
                for (int k = 0; k < H; k++) {
                    x[0][k] = number(0, r, b, from * H + k);
                }
                for (int c = 0; c < COMPONENTS; c++) {
                    multiply(x[c], w[c], x[c + 1]);
                }
                int64_t to = cell * (block / l->reader) + reader;
                for (int k = 0; k < H; k++) {
                    d[k] =
                        x[3][k] - number(9, to, b, (2 * at + row % 2) * H + k);
                }
                for (int c = COMPONENTS - 1; c >= 0; c--) {
                    back(d, x[c], w[c], dw[c], dx);
                    memcpy(d, dx, sizeof(d));
                }
            }
        }
    }
}

/* ---- a step -------------------------------------------------------------- */

static void fill(const loong_model_t *m, const loong_entry_t *e,
                 int64_t replica)
{
    const loong_model_chunk_t *c = m->chunks[LOONG_VARIANT_TRAIN][e->component];
    loong_binding_t run = loongi_model_bind(m, LOONG_VARIANT_TRAIN, e);
    for (int i = 0; i < c->num_inputs; i++) {
        const loong_port_t *p = &c->inputs[i];
        if (!loongi_port_is_data(p)) {
            continue;
        }
        double *to = (void *)(run.base[p->operand.base] + p->operand.offset);
        for (int64_t k = 0; k < loongi_shape_elements(&p->shape); k++) {
            to[k] =
                number(e->component == 0 ? 0 : 9, replica, e->micro_batch, k);
        }
    }
}

static loong_status_t run_step(const loong_model_t *m)
{
    const loong_rank_schedule_t *list =
        loongi_model_entries(m, LOONG_VARIANT_TRAIN);
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *e = &list->entries[i];
        loong_frame_t frame = {.micro_batch = e->micro_batch,
                               .first = e->micro_batch == 0,
                               .last = e->micro_batch + 1 == MICRO_BATCHES};
        const loong_frame_t *frames[2] = {&frame, NULL};
        frame.loss_scale[0] = 0.5 * H; /* of means of squares */
        if (e->kind == LOONG_ENTRY_U) {
            continue;
        }
        const loong_component_t *c = loongi_model_component(m, e);
        const loong_stage_t *s = loongi_model_stage(m, e);
        if (e->kind == LOONG_ENTRY_REDUCE) {
            LOONG_TRY(loongi_program_run(&s->run, &s->optimizer->late, &frame));
        } else if (e->kind < (loong_entry_kind_t)LOONG_PROGRAM_COUNT) {
            LOONG_TRY(loongi_model_need(m, LOONG_VARIANT_TRAIN, e));
            if (e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_E) {
                fill(m, e, c->params.mesh.coord[LOONG_AXIS_DP]);
            }
            LOONG_TRY(loongi_model_run(m, LOONG_VARIANT_TRAIN, i, frames));
        } else {
            LOONG_TRY(loongi_model_begin(m, LOONG_VARIANT_TRAIN, e));
        }
    }
    return loongi_model_finish(m, LOONG_VARIANT_TRAIN);
}

static loong_component_params_t params_of(const layout_t *l, int component,
                                          const config_t *config)
{
    loong_component_params_t p;
    int64_t rows[COMPONENTS] = {3 * ITEMS, 2 * ITEMS, 2 * room_of(l)};
    memset(&p, 0, sizeof(p));
    p.name = names[component];
    p.family = &families[component];
    p.config = config;
    p.request.rows = rows[component];
    p.precision.compute = p.precision.wide = LOONG_F64;
    p.compile.device = p.shards.device = "cpu";
    p.compile.threads = p.shards.threads = 1;
    p.optimizer.group[0].eps = 1e-8;
    p.shards.bucket_bytes = 1 << 14;
    p.schedule = "auto";
    p.join = l->join;
    p.micro_batches = MICRO_BATCHES;
    p.train = true;
    p.mesh = loong_mesh_single();
    return p;
}

/* The parameter or the gradient of a component. */
static double *values_of(const loong_model_t *m, int component, bool gradient)
{
    const loong_stage_t *s = m->stages[component];
    const loong_flat_t *flat = &s->layout->flats[0];
    return (void *)(s->run.base[gradient ? LOONG_BASE_GRAD : LOONG_BASE_PARAM] +
                    (gradient ? flat->grad_offset : flat->param_offset));
}

static void compare(const layout_t *l, const loong_model_t *m)
{
    double dw[COMPONENTS][H * H];
    double *w[COMPONENTS];
    for (int c = 0; c < COMPONENTS; c++) {
        w[c] = values_of(m, c, false);
    }
    expect_gradients(l, w, dw);
    for (int c = l->frozen; c < COMPONENTS; c++) {
        const double *found = values_of(m, c, true);
        for (int i = 0; i < H * H; i++) {
            if (!(fabs(found[i] - dw[c][i]) <= 1e-12)) {
                fail_msg("%d ranks, %d and %d, %s: gradient %d of %s is %.17g, "
                         "not %.17g",
                         l->world, l->maker, l->reader, l->join, i, names[c],
                         found[i], dw[c][i]);
            }
        }
    }
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    layout_t *l = user;
    loong_component_params_t p[COMPONENTS];
    config_t config[COMPONENTS];
    const loong_edge_rows_t rows = {l, ITEMS * 2, list_rows};
    loong_device_t *device = NULL;
    loong_resources_t *resources = NULL;
    loong_model_t *model = NULL;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cpu", 0, &device));
    for (int c = 0; c < COMPONENTS; c++) {
        loong_mesh_params_t mesh = {.world = l->world,
                                    .tp = c == 2 ? l->reader : l->maker,
                                    .cp = 1,
                                    .pp = 1,
                                    .ep = 1,
                                    .etp = 1,
                                    .kv_heads = 8};
        config[c] = (config_t){c, c < l->frozen};
        p[c] = params_of(l, c, &config[c]);
        LOONG_TRY(
            loong_mesh_create(ctx, &mesh, loong_comm_rank(comm), &p[c].mesh));
    }
    LOONG_TRY(loongi_model_create(ctx, COMPONENTS, p, &model));
    loongi_model_set_rows(model, &rows);
    LOONG_TRY(loongi_resources_create(ctx, device, comm, &p[0].resources,
                                      &resources));
    LOONG_TRY(loongi_model_allocate(model, resources));
    LOONG_TRY(loongi_model_initialize(model, 7));
    for (int step = 0; step < 2; step++) {
        LOONG_TRY(run_step(model));
        compare(l, model);
    }
    for (int c = 0; c < COMPONENTS; c++) {
        assert_int_equal(model->components[c]->params.train, c >= l->frozen);
    }
    loongi_model_destroy(&model);
    loongi_resources_destroy(&resources);
    loong_device_destroy(&device);
    return LOONG_OK;
}

static void test_layouts(void **state)
{
    (void)state;
    static const int ranks[][3] = {{1, 1, 1}, {2, 1, 1}, {2, 1, 2},
                                   {2, 2, 1}, {2, 2, 2}, {4, 1, 2},
                                   {4, 4, 1}, {4, 1, 4}, {4, 2, 1}};
    static const char *const joins[] = {"coupled", "phases"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(ranks); i++) {
        for (int k = 0; k < 4; k++) {
            layout_t l = {ranks[i][0], ranks[i][1], ranks[i][2], k / 2,
                          joins[k % 2]};
            loong_context_t *ctx = test_context();
            loong_threads_params_t params = {.size = l.world};
            params.context.log = test_log;
            params.context.log_level = LOONG_LOG_WARN;
            assert_ok(ctx, loong_threads_run(ctx, &params, run_rank, &l));
            test_context_end(&ctx);
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const layout_t l = {1, 1, 1, 0, NULL};
    config_t config[COMPONENTS] = {{0, false}, {1, false}, {2, false}};
    loong_component_params_t p[COMPONENTS];
    loong_context_t *ctx = test_context();
    loong_model_t *model = NULL;
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int c = 0; c < COMPONENTS; c++) {
        p[c] = params_of(&l, c, &config[c]);
    }
    assert_fails(ctx, loongi_model_create(ctx, 2, p + 1, &model),
                 LOONG_ERR_CONFIG,
                 "middle reads 'features', which no component before it makes");
    loong_component_params_t twice[] = {p[0], p[0], p[1], p[2]};
    twice[0].name = "first";
    assert_fails(ctx, loongi_model_create(ctx, 4, twice, &model),
                 LOONG_ERR_CONFIG,
                 "first is trained, but no loss reads what it makes");
    loong_mesh_params_t mesh = {.world = 2,
                                .tp = 1,
                                .cp = 2,
                                .pp = 1,
                                .ep = 1,
                                .etp = 1,
                                .kv_heads = 8};
    assert_ok(ctx, loong_mesh_create(ctx, &mesh, 0, &p[0].mesh));
    assert_fails(ctx, loongi_model_create(ctx, COMPONENTS, p, &model),
                 LOONG_ERR_UNSUPPORTED,
                 "middle: context_parallel_size 1, maker has 2");
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
