/* SPDX-License-Identifier: Apache-2.0
 *
 * Families that cannot be tied: whose stages ask for one parameter in different
 * ways or orders. They are refused by name. Read
 * src/component/component_ties.c before. */
#include "test.h"

#include "loong/family.h"
#include "loong/loss_ops.h"
#include "loong/nn.h"
#include "loong/register.h"
#include "model.h"

enum { H = 4, LAYERS = 4 };

typedef struct config {
    unsigned layers; /* bits: those that multiply with "shared" and "other" */
    bool swapped;    /* the last stage asks for "other" first */
    bool packed;     /* it packs the two */
} config_t;

static loong_val_t shared(loong_nn_t *nn, bool second)
{
    return loong_nn_matrix(nn, second ? "other" : "shared", H, H, 0.5);
}

/* One rank alone has a matrix of its own there. */
static loong_val_t packed(loong_nn_t *nn, loong_val_t x, bool last)
{
    loong_param_params_t p[2];
    memset(p, 0, sizeof(p));
    for (int k = 0; k < 2; k++) {
        p[k].name = k == 0 ? "shared" : "other";
        p[k].shape = loong_shape_2d(H, H);
        p[k].dtype = LOONG_F64;
    }
    loong_val_t up = last ? loong_graph_pack(nn->graph, 2, p)
                          : loong_nn_matrix(nn, "up", 2 * H, H, 0.5);
    x = loong_linear(nn->graph, x, up, LOONG_NONE);
    return loong_linear(nn->graph, x,
                        loong_nn_matrix(nn, "down", H, 2 * H, 0.5), LOONG_NONE);
}

static loong_status_t build(loong_graph_t *g, const void *config,
                            const loong_model_request_t *request)
{
    const config_t *c = config;
    loong_nn_t nn = loong_nn_begin(g, request, 0.5);
    loong_shape_t shape = loong_shape_2d(request->rows, H);
    loong_val_t x = request->begins
                        ? loong_graph_input(g, "x", LOONG_F64, shape)
                        : loong_nn_stage_input(&nn, request->rows, H);
    loong_val_t w[2] = {LOONG_NONE, LOONG_NONE}; /* once in a graph */
    bool last = request->ends && !request->begins;
    int swap = c->swapped && last;
    for (int i = 0; i < request->num_layers; i++) {
        int layer = request->first_layer + i;
        char name[16];
        snprintf(name, sizeof(name), "own%d", layer);
        x = loong_linear(g, x, loong_nn_matrix(&nn, name, H, H, 0.5),
                         LOONG_NONE);
        if (c->packed && layer == LAYERS - 1) {
            x = packed(&nn, x, last);
            continue;
        }
        for (int k = 0; k < 2 && (c->layers >> layer & 1u) != 0; k++) {
            int which = k ^ swap;
            w[which] = w[which] < 0 ? shared(&nn, which == 1) : w[which];
            x = loong_linear(g, x, w[which], LOONG_NONE);
        }
    }
    if (!request->ends) {
        loong_nn_stage_output(&nn, x);
        return loong_graph_status(g);
    }
    const loong_loss_params_t loss = {
        .name = "squares", .normaliser = "rows", .weight = 1.0};
    loong_val_t target = loong_graph_input(g, "target", LOONG_F64, shape);
    loong_loss(g, loong_squared_error(g, x, target), &loss);
    return loong_graph_status(g);
}

static void facts(const void *config, loong_model_facts_t *facts)
{
    (void)config;
    facts->num_layers = LAYERS;
}

static const loong_family_t family = {
    .name = "sharing", .facts = facts, .build = build};

/* Plans a rank of a pipeline: one layer a stage. */
static void check(int ranks, const char *schedule, const config_t *config,
                  const char *says)
{
    loong_context_t *ctx = test_context();
    const loong_mesh_params_t mesh = {.world = ranks,
                                      .tp = 1,
                                      .cp = 1,
                                      .pp = ranks,
                                      .ep = 1,
                                      .etp = 1,
                                      .kv_heads = 1};
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int rank = 0; rank < ranks; rank++) {
        loong_model_t *model = NULL;
        loong_component_params_t p;
        memset(&p, 0, sizeof(p));
        p.name = "sharer";
        p.family = &family;
        p.config = config;
        p.request.rows = 3;
        p.precision.compute = p.precision.wide = LOONG_F64;
        p.compile.device = p.shards.device = "cpu";
        p.compile.threads = p.shards.threads = 1;
        p.optimizer.group[0].eps = 1e-8;
        p.shards.bucket_bytes = 1 << 14;
        p.layers_per_chunk = ranks < LAYERS ? 1 : 0;
        p.schedule = schedule;
        p.micro_batches = LAYERS;
        p.train = true;
        assert_ok(ctx, loong_mesh_create(ctx, &mesh, rank, &p.mesh));
        if (says == NULL) {
            assert_ok(ctx, loongi_model_create(ctx, 1, &p, &model));
        } else {
            assert_fails(ctx, loongi_model_create(ctx, 1, &p, &model),
                         LOONG_ERR_UNSUPPORTED, says);
        }
        loongi_model_destroy(&model);
    }
    test_context_end(&ctx);
}

static void test_holders(void **state)
{
    (void)state;
    static const struct {
        config_t config;
        const char *says;
    } cases[] = {
        {{0, false, false}, NULL},
        {{1u << 2, false, false}, NULL},
        {{1u | 1u << 3, false, false}, NULL},
        {{1u << 1 | 1u << 2, false, false}, NULL},
        {{15u, false, false}, NULL},
        {{1u | 1u << 3, true, false},
         "stage 3 has the tied 'shared' and 'other' in another order"},
        {{1u | 1u << 1 | 1u << 3, false, true},
         "stages 0 and 3 have the parameter 'shared' in two ways: its shape"}};
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        check(4, "1f1b", &cases[i].config, cases[i].says);
        check(2, "interleaved", &cases[i].config, cases[i].says);
        check(2, "zero_bubble_v", &cases[i].config, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_holders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
