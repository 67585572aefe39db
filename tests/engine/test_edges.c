/* SPDX-License-Identifier: Apache-2.0
 *
 * Three components in one step: "maker" has items of three rows and sends two
 * of each, "middle" hands them on, "reader" has the loss. Gradients of all
 * three against the formula, in layouts where they have other tensor and data
 * parallel ranks, in every sharding, with micro-batches that have no items: of
 * these nothing is computed. What is not bound or not reached is refused. */
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
    loong_sharding_t sharding;
    int hollow; /* 1: some micro-batches have no items, 2: all of a replica */
} layout_t;

/* A rank, and what ran on it in micro-batches without items. */
typedef struct rank {
    const layout_t *layout;
    int cell_rank;
    bool hollow; /* the entry that runs */
    int products, collectives;
} rank_t;

static int block_of(const layout_t *l)
{
    return LOONG_MAX(l->maker, l->reader);
}

/* Items that a reader's replica has room for: all of a cell. */
static int room_of(const layout_t *l)
{
    return ITEMS * l->reader / l->maker;
}

static bool is_hollow(const layout_t *l, int replica, int micro_batch)
{
    return (l->hollow > 0 && (replica + micro_batch) % 3 == 0) ||
           (l->hollow > 1 && replica % 2 == 0);
}

static loong_status_t find_hollow(void *user, int component, int micro_batch,
                                  bool *hollow_p)
{
    const rank_t *r = user;
    *hollow_p = component < 2 && is_hollow(r->layout,
                                           r->cell_rank / r->layout->maker,
                                           micro_batch);
    return LOONG_OK;
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

static int64_t most_rows(void *user, int edge)
{
    (void)user;
    (void)edge;
    return ITEMS;
}

static loong_status_t list_rows(void *user, const loong_message_t *m,
                                loong_segment_list_t *list)
{
    const layout_t *l = ((const rank_t *)user)->layout;
    int from = m->backward ? m->to_rank : m->from_rank;
    int to = m->backward ? m->from_rank : m->to_rank;
    int items =
        is_hollow(l, from / l->maker, m->from_micro_batch) ? 0 : ITEMS;
    for (int i = 0; i < items; i++) {
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
        if (m->backward) {
            s = (loong_segment_t){s.to_row, s.from_row, s.rows};
        }
        LOONG_TRY(loongi_segment_add(NULL, list, s));
    }
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

static void expect_gradients(const layout_t *l, double w[COMPONENTS][H * H],
                             double dw[COMPONENTS][H * H])
{
    int block = block_of(l);
    memset(dw, 0, COMPONENTS * sizeof(dw[0]));
    for (int r = 0; r < l->world / l->maker; r++) {
        int cell = r * l->maker / block;
        int e = r % (block / l->maker);
        for (int b = 0; b < MICRO_BATCHES; b++) {
            if (is_hollow(l, e, b)) {
                continue;
            }
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

/* Where there are no items what is read is spoilt. */
static void fill(const loong_model_t *m, const loong_entry_t *e,
                 int64_t replica, bool hollow)
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
            to[k] = hollow ? NAN
                           : number(e->component == 0 ? 0 : 9, replica,
                                    e->micro_batch, k);
        }
    }
}

static void count_step(void *user, const loong_program_t *program,
                       int64_t index, void *const *ptr,
                       const loong_step_time_t *time)
{
    const loong_step_t *step = &program->steps[index];
    rank_t *r = user;
    (void)ptr;
    (void)time;
    r->products += r->hollow && strncmp(step->query.op, "linear", 6) == 0;
    r->collectives += r->hollow && step->kernel->communicates;
}

static loong_status_t run_step(const loong_model_t *m, rank_t *r)
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
        if (e->kind == LOONG_ENTRY_REDUCE) {
            LOONG_TRY(loongi_model_reduce(m, e, &frame));
        } else if (e->kind < (loong_entry_kind_t)LOONG_PROGRAM_COUNT) {
            LOONG_TRY(loongi_model_need(m, LOONG_VARIANT_TRAIN, e));
            LOONG_TRY(loongi_model_frame(m, e, &frame));
            r->hollow = frame.hollow;
            if (e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_E) {
                fill(m, e, c->params.mesh.coord[LOONG_AXIS_DP], r->hollow);
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
    p.shards.sharding = l->sharding;
    p.schedule = "auto";
    p.join = l->join;
    p.micro_batches = MICRO_BATCHES;
    p.train = true;
    p.mesh = loong_mesh_single();
    return p;
}

/* Elements of the one bucket of a component that this rank has. */
static const double *values_of(const loong_model_t *m, int component,
                               bool gradient, int64_t *begin_p, int64_t *end_p)
{
    const loong_stage_t *s = m->stages[component];
    const loong_bucket_t *b = loongi_shards_bucket(s->shards, 0, 0);
    if (b == NULL) { /* frozen, and on all ranks */
        *begin_p = 0;
        *end_p = H * H;
        return (void *)(s->run.base[LOONG_BASE_PARAM] +
                        s->layout->flats[0].param_offset);
    }
    *begin_p = gradient ? b->update_begin : b->param_begin;
    *end_p = LOONG_MIN(gradient ? b->update_end : b->param_end, H * H);
    return (void *)(gradient ? s->run.base[LOONG_BASE_GRAD] +
                                   loongi_shards_grad(s->shards, b, *begin_p)
                             : s->run.base[LOONG_BASE_PARAM] + b->param);
}

/* The weights of all components, from all ranks that have something of them. */
static loong_status_t gather(const loong_model_t *m, loong_comm_t *comm,
                             double w[COMPONENTS][H * H])
{
    double sum[2][COMPONENTS][H * H] = {{{0}}};
    for (int c = 0; c < COMPONENTS; c++) {
        int64_t begin, end;
        const double *own = values_of(m, c, false, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            sum[0][c][i] = own[i - begin];
            sum[1][c][i] = 1.0;
        }
    }
    LOONG_TRY(loong_comm_all_reduce(comm, sum, 2 * COMPONENTS * H * H,
                                    LOONG_F64, LOONG_REDUCE_SUM, "weights"));
    for (int i = 0; i < COMPONENTS * H * H; i++) {
        (&w[0][0])[i] = (&sum[0][0][0])[i] / (&sum[1][0][0])[i];
    }
    return LOONG_OK;
}

static loong_status_t compare(const layout_t *l, const loong_model_t *m,
                              loong_comm_t *comm)
{
    double w[COMPONENTS][H * H];
    double dw[COMPONENTS][H * H];
    LOONG_TRY(gather(m, comm, w));
    expect_gradients(l, w, dw);
    for (int c = l->frozen; c < COMPONENTS; c++) {
        int64_t begin, end;
        const double *found = values_of(m, c, true, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            if (!(fabs(found[i - begin] - dw[c][i]) <= 1e-12)) {
                fail_msg("%d ranks, %d and %d, %s, %s, hollow %d: gradient %d "
                         "of %s is %.17g, not %.17g",
                         l->world, l->maker, l->reader, l->join,
                         loongi_sharding_name(l->sharding), l->hollow, (int)i,
                         names[c], found[i - begin], dw[c][i]);
            }
        }
    }
    return LOONG_OK;
}

/* Hollow entries compute nothing; replicas meet in them where gradients, or
 * parameters, are shared out. */
static void check_counts(const loong_model_t *m, const rank_t *r)
{
    const loong_shards_t *s = m->stages[1]->shards;
    bool any = false;
    for (int b = 0; b < MICRO_BATCHES; b++) {
        any = any || is_hollow(r->layout, r->cell_rank / r->layout->maker, b);
    }
    assert_int_equal(r->products, 0);
    if (s->params.sharding >= LOONG_SHARDING_GRADS && s->buckets[0].size > 1) {
        assert_int_equal(r->collectives > 0, any);
    }
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    layout_t *l = user;
    loong_component_params_t p[COMPONENTS];
    config_t config[COMPONENTS];
    rank_t rank = {.layout = l};
    const loong_edge_rows_t rows = {&rank, most_rows, list_rows, find_hollow};
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
    rank.cell_rank = model->ranks.cell_rank;
    for (int c = 0; c < COMPONENTS; c++) {
        model->components[c]->run.hook = count_step;
        model->components[c]->run.hook_user = &rank;
    }
    for (int step = 0; step < 2; step++) {
        LOONG_TRY(run_step(model, &rank));
        LOONG_TRY(compare(l, model, comm));
    }
    check_counts(model, &rank);
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
        for (int k = 0; k < 12; k++) {
            layout_t l = {ranks[i][0],
                          ranks[i][1],
                          ranks[i][2],
                          k / 2 % 2,
                          joins[k % 2],
                          (loong_sharding_t)((i + k) % LOONG_SHARDING_COUNT),
                          k / 4};
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
    const layout_t l = {.world = 1, .maker = 1, .reader = 1};
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
