/* SPDX-License-Identifier: Apache-2.0
 *
 * What compiling a graph asks of ops and tells kernels. */
#include "loong/register.h"
#include "program.h"
#include "test.h"

/* ---- a user's collective ------------------------------------------------- */

typedef struct gossip {
    double share;
    loong_group_t group;
} gossip_t;

static loong_status_t infer_gossip(const loong_op_call_t *call)
{
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_group_t group_of_gossip(const void *attr)
{
    return ((const gossip_t *)attr)->group;
}

static loong_status_t never(const loong_kernel_call_t *call)
{
    return LOONG_FAIL(call->ctx, LOONG_ERR_INTERNAL, "nothing runs");
}

static loong_model_chunk_t *compile_gossip(loong_context_t *ctx, const char *op,
                                           loong_group_t group)
{
    loong_graph_t *g = NULL;
    loong_model_chunk_t *chunk = NULL;
    loong_val_t y;
    const gossip_t attr = {0.5, group};
    const loong_precision_t precision = {LOONG_F32, LOONG_F32};
    const loong_compile_params_t params = {.device = "cpu", .threads = 1};
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    loong_val_t x = loong_graph_input(g, "x", LOONG_F32, loong_shape_2d(4, 6));
    loong_graph_apply(g, loong_find_op(ctx, op), &attr, 1, &x, 1, &y);
    loong_graph_output(g, "y", y);
    loong_status_t status =
        loongi_model_chunk_compile(g, false, &params, &chunk);
    assert_true((status == LOONG_OK) == (chunk != NULL));
    loong_graph_destroy(&g);
    return chunk;
}

/* An op tells its group, wherever its attributes have it; one that does not is
 * refused where its kernel communicates. */
static void test_collective_of_a_user(void **state)
{
    (void)state;
    static const loong_op_t ops[] = {{.name = "gossip",
                                      .attr_size = sizeof(gossip_t),
                                      .min_in = 1,
                                      .max_in = 1,
                                      .num_out = 1,
                                      .infer = infer_gossip,
                                      .group = group_of_gossip},
                                     {.name = "hearsay",
                                      .attr_size = sizeof(gossip_t),
                                      .min_in = 1,
                                      .max_in = 1,
                                      .num_out = 1,
                                      .infer = infer_gossip}};
    static const loong_kernel_t kernels[] = {
        {"gossip_ref", "gossip", .run = never, .communicates = true},
        {"hearsay_ref", "hearsay", .run = never, .communicates = true}};
    loong_context_t *ctx = test_context();
    for (int i = 0; i < 2; i++) {
        assert_ok(ctx, loong_register_op(ctx, &ops[i]));
        assert_ok(ctx, loong_register_kernel(ctx, &kernels[i]));
    }
    for (int group = 0; group < LOONG_GROUP_COUNT; group++) {
        loong_model_chunk_t *chunk =
            compile_gossip(ctx, "gossip", (loong_group_t)group);
        assert_non_null(chunk);
        const loong_program_t *p = &chunk->programs[LOONG_PROGRAM_E];
        assert_int_equal(p->num_steps, 1);
        assert_int_equal(p->steps[0].group, group);
        loongi_model_chunk_destroy(&chunk);
    }
    assert_null(compile_gossip(ctx, "hearsay", LOONG_GROUP_TP));
    assert_non_null(strstr(loong_context_error(ctx),
                           "kernel hearsay_ref communicates, but op hearsay "
                           "does not tell the group"));
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collective_of_a_user),
    };
    return cmocka_run_group_tests_name("compile", tests, NULL, NULL);
}
