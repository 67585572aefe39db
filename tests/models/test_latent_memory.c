/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention in training on the processor has no buffer that grows with
 * the square of the sequence: neither a value of the compiled programs nor the
 * workspace of a kernel is as large as one head's scores (fp32), and what is
 * planned for all of them grows with T. There is no other memory: nothing is
 * allocated in a step. */
#include "decoder_config.h"
#include "loong/register.h"
#include "model.h"
#include "test.h"

enum { SHORT = 4096 };

typedef struct planned {
    int64_t scratch, slot, state;
    int64_t largest;   /* bytes of the largest value that is no parameter */
    int64_t workspace; /* likewise of a launch */
    int attention;     /* launches of it, forward and backward */
} planned_t;

static const char *const keys[][2] = {
    {"family", "deepseek_v2"},   {"num_layers", "1"},
    {"hidden_size", "1024"},     {"ffn_hidden_size", "512"},
    {"vocab_size", "256"},       {"num_attention_heads", "4"},
    {"q_lora_rank", "256"},      {"kv_lora_rank", "512"},
    {"qk_head_dim", "128"},      {"qk_pos_emb_head_dim", "64"},
    {"v_head_dim", "128"},       {"max_position_embeddings", "16384"}};

static void configure(loong_context_t *ctx, const char *absorb,
                      loong_decoder_config_t *config)
{
    loong_pairs_t *pairs = NULL;
    assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        assert_ok(ctx, loongi_pairs_set(pairs, keys[i][0], keys[i][1]));
    }
    assert_ok(ctx, loongi_pairs_set(pairs, "mla_absorb", absorb));
    assert_ok(ctx, loongi_decoder_configure(ctx, pairs, config));
    loongi_pairs_destroy(&pairs);
}

static int64_t bytes_of(const loong_karg_t *arg)
{
    int64_t bytes = arg->rank > 0 ? (int64_t)loong_dtype_size(arg->dtype) : 0;
    for (int d = 0; d < arg->rank; d++) {
        bytes *= arg->dim[d];
    }
    return bytes;
}

static void look(const loong_program_t *program, planned_t *out)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *step = &program->steps[i];
        const loong_kernel_query_t *q = &step->query;
        for (int k = 0; k < q->num_in + q->num_out; k++) {
            loong_base_t base = step->operand[k].base;
            if (base == LOONG_BASE_SCRATCH || base == LOONG_BASE_SLOT) {
                out->largest = LOONG_MAX(out->largest, bytes_of(&q->arg[k]));
            }
        }
        if (step->kernel != NULL && step->kernel->workspace != NULL) {
            out->workspace = LOONG_MAX(out->workspace,
                                       (int64_t)step->kernel->workspace(q));
        }
        out->attention += strncmp(q->op, "attention", 9) == 0;
    }
}

static planned_t plan(loong_dtype_t compute, const char *absorb, int64_t tokens)
{
    loong_context_t *ctx = test_context();
    loong_decoder_config_t config;
    loong_component_params_t p;
    loong_model_t *model = NULL;
    planned_t out = {0};
    assert_ok(ctx, loong_register_builtin(ctx));
    configure(ctx, absorb, &config);
    memset(&p, 0, sizeof(p));
    p.family = loong_find_family(ctx, "deepseek_v2");
    p.config = &config;
    p.request.rows = p.request.seq_length = p.request.max_seqlen = tokens;
    p.request.max_segments = 1;
    p.precision.compute = compute;
    p.precision.wide = LOONG_F32;
    p.compile.device = "cpu";
    p.compile.threads = 2;
    p.compile.fuse = p.compile.in_place = true;
    p.shards.device = "cpu";
    p.shards.threads = 2;
    p.shards.bucket_bytes = 1 << 20;
    p.mesh = loong_mesh_single();
    p.schedule = "auto";
    p.micro_batches = 1;
    p.train = true;
    assert_ok(ctx, loongi_model_create(ctx, 1, &p, &model));
    const loong_model_chunk_t *chunk =
        model->stages[0]->chunk[LOONG_VARIANT_TRAIN];
    for (int k = 0; k < LOONG_PROGRAM_COUNT; k++) {
        look(&chunk->programs[k], &out);
    }
    out.scratch = chunk->scratch_bytes;
    out.slot = chunk->slot_bytes;
    out.state = chunk->state_bytes;
    loongi_model_destroy(&model);
    test_context_end(&ctx);
    return out;
}

/* b is of twice the tokens: at most twice the bytes, and the padding of some
 * tiles. With squares in it, it would be more. */
static void assert_doubles(const char *what, int64_t a, int64_t b)
{
    if (b > 2 * a + (64 << 10)) {
        fail_msg("%s: %lld bytes for T, %lld for 2 T", what, (long long)a,
                 (long long)b);
    }
}

static void check(const char *name, loong_dtype_t compute, const char *absorb)
{
    planned_t at[3];
    for (int i = 0; i < 3; i++) {
        int64_t tokens = (int64_t)SHORT << i;
        int64_t scores = tokens * tokens * (int64_t)sizeof(float);
        at[i] = plan(compute, absorb, tokens);
        const planned_t *p = &at[i];
        print_message("%s, T %lld: scratch %.1f, slot %.1f, largest value "
                      "%.1f, workspace %.1f; T x T would be %.1f MiB\n",
                      name, (long long)tokens, (double)p->scratch / (1 << 20),
                      (double)p->slot / (1 << 20),
                      (double)p->largest / (1 << 20),
                      (double)p->workspace / (1 << 20),
                      (double)scores / (1 << 20));
        assert_int_equal(p->attention, 2);
        assert_true(p->largest < scores && p->workspace < scores);
        if (i > 0) {
            assert_doubles("scratch", at[i - 1].scratch, p->scratch);
            assert_doubles("slot", at[i - 1].slot, p->slot);
            assert_doubles("state", at[i - 1].state, p->state);
            assert_doubles("largest value", at[i - 1].largest, p->largest);
            assert_doubles("workspace", at[i - 1].workspace, p->workspace);
        }
    }
}

static void memory_grows_with_tokens(void **state)
{
    (void)state;
    check("fp32, plain", LOONG_F32, "false");
    check("fp32, absorbed", LOONG_F32, "true");
    check("bf16, plain", LOONG_BF16, "false");
    check("bf16, absorbed", LOONG_BF16, "true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_grows_with_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
