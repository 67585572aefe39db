/* SPDX-License-Identifier: Apache-2.0
 *
 * Where GELU becomes a part of the products around it, and the gradient of a
 * bias of that of its weight: on devices whose products have it, in GELU's tanh
 * form, and not across what goes by scopes. That results stay: cuda_golden,
 * cuda_gemm_train. */
#include "graph_impl.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "program.h"
#include "test.h"

enum { T = 16, H = 8, FFN = 32 };

typedef struct build {
    const char *device;
    bool tanh;
    bool train;
    bool fuse;
    bool twice; /* somebody else reads what GELU is applied to */
    const char *wide; /* scope in fp32, or NULL */
    const char *again; /* scope that is run again, or NULL */
    bool overlap;
} build_t;

static loong_val_t param(loong_graph_t *g, const char *name, int64_t rows,
                         int64_t cols)
{
    loong_param_params_t p;
    memset(&p, 0, sizeof(p));
    p.name = name;
    p.shape = cols > 0 ? loong_shape_2d(rows, cols) : loong_shape_1d(rows);
    p.dtype = cols > 0 ? g->precision.compute : g->precision.wide;
    p.init = LOONG_INIT_NORMAL;
    p.std = 1.0;
    return loong_graph_param(g, &p);
}

static void build_graph(loong_graph_t *g, const build_t *b)
{
    loong_val_t x = loong_graph_boundary_input(
        g, "x", g->precision.compute, loong_shape_2d(T, H));
    loong_graph_push(g, "up");
    loong_val_t h = loong_linear(g, x, param(g, "w", FFN, H),
                                 param(g, "b", FFN, 0));
    loong_graph_pop(g);
    loong_graph_push(g, "act");
    loong_val_t y =
        loong_gelu(g, h, b->tanh ? LOONG_ACT_GELU_TANH : LOONG_ACT_GELU);
    loong_graph_pop(g);
    loong_graph_push(g, "down");
    y = loong_linear(g, b->twice ? loong_add(g, y, h) : y,
                     param(g, "v", H, FFN), param(g, "c", H, 0));
    loong_graph_pop(g);
    loong_graph_boundary_output(g, "y", loong_scale(g, y, 1.0));
}

static void put_names(const loong_model_chunk_t *c, loong_program_kind_t kind,
                      char *to, size_t size)
{
    const loong_program_t *p = &c->programs[kind];
    for (int64_t i = 0; i < p->num_steps; i++) {
        size_t length = strlen(to);
        snprintf(to + length, size - length, "%s ", p->steps[i].query.op);
    }
}

/* The ops of all programs, and whether `first` gives both outputs of the first
 * product. */
static void compile(const build_t *b, char names[512], bool *before_p)
{
    loong_context_t *ctx = test_context();
    loong_precision_t precision = {LOONG_BF16, LOONG_F32};
    loong_graph_t *g = NULL;
    loong_model_chunk_t *c = NULL;
    loong_compile_params_t params;
    memset(&params, 0, sizeof(params));
    params.device = b->device;
    params.threads = 1;
    params.fuse = b->fuse;
    params.in_place = true;
    params.overlap = params.lanes = b->overlap;
    params.wide = &b->wide;
    params.num_wide = b->wide != NULL;
    params.recompute = &b->again;
    params.num_recompute = b->again != NULL;
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    build_graph(g, b);
    assert_ok(ctx, loong_graph_status(g));
    assert_ok(ctx, loongi_model_chunk_compile(g, b->train, &params, &c));
    loong_graph_destroy(&g);
    names[0] = '\0';
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        put_names(c, (loong_program_kind_t)p, names, 512);
    }
    const loong_program_t *f =
        &c->programs[b->train ? LOONG_PROGRAM_F : LOONG_PROGRAM_E];
    int64_t first = 0; /* behind casts of what comes in, if there are any */
    while (first + 1 < f->num_steps &&
           strcmp(f->steps[first].query.op, "linear") != 0) {
        first++;
    }
    const loong_kernel_query_t *q = &f->steps[first].query;
    *before_p = q->num_out > 1 && q->arg[q->num_in + 1].rank > 0;
    loongi_model_chunk_destroy(&c);
    test_context_end(&ctx);
}

static bool has(const char *names, const char *op)
{
    char word[64];
    char all[520];
    snprintf(word, sizeof(word), " %s ", op);
    snprintf(all, sizeof(all), " %s", names);
    return strstr(all, word) != NULL;
}

typedef struct want {
    build_t build;
    bool forward, backward; /* fused */
} want_t;

static const want_t wants[] = {
    {{"cuda", true, true, true, false, NULL, NULL, false}, true, true},
    {{"cuda", true, false, true, false, NULL, NULL, false}, true, false},
    {{"cuda", false, true, true, false, NULL, NULL, false}, false, false},
    {{"cuda", true, true, false, false, NULL, NULL, false}, false, false},
    {{"cpu", true, true, true, false, NULL, NULL, false}, false, false},
    {{"cuda", true, true, true, true, NULL, NULL, false}, false, false},
    {{"cuda", true, true, true, false, "up", NULL, false}, false, true},
    {{"cuda", true, true, true, false, "down", NULL, false}, true, false},
    {{"cuda", true, true, true, false, NULL, "act", false}, false, false},
    {{"cuda", true, true, true, false, NULL, "*", false}, false, false},
    {{"cuda", true, true, true, false, NULL, NULL, true}, false, false},
};

static void test_formed(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(wants); i++) {
        const want_t *w = &wants[i];
        char names[512];
        bool before = false;
        compile(&w->build, names, &before);
        print_message("%d: %s\n", i, names);
        assert_int_equal(!has(names, "gelu"), w->forward);
        assert_int_equal(before, w->forward && w->build.train);
        assert_int_equal(has(names, "linear_gelu_grad"), w->backward);
        assert_int_equal(has(names, "gelu_grad"),
                         w->build.train && !w->backward);
        bool sums = w->build.train && w->build.fuse && !w->build.overlap &&
                    strcmp(w->build.device, "cpu") != 0;
        assert_int_equal(has(names, "linear_dw_db"), sums);
        assert_int_equal(has(names, "sum_rows"), w->build.train && !sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
