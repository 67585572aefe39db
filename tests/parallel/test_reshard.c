/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of one layout, loaded by another: parameters and moments bit for
 * bit, the next loss the same, and no rank reads more than it holds. A matrix
 * of pairs, from and to; LOONG_ALL_PAIRS takes all, else one for each. */
#include "file.h"
#include "layout_job.h"
#include "layout_run.h"
#include "native.h"

/* Untied, uneven, norms of heads, biases. */
#define DENSE                                                                 \
    "{family: qwen3, num_layers: 4, hidden_size: 24, ffn_hidden_size: 40, "   \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, qk_layernorm: true, "       \
    "add_qkv_bias: true, activation: swiglu, "                                \
    "untie_embeddings_and_output_weights: true}"
/* Tied ends, learned positions, every bias. */
#define TIED                                                                  \
    "{family: gpt2, num_layers: 4, hidden_size: 24, ffn_hidden_size: 50, "    \
    "num_attention_heads: 4, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, max_position_embeddings: 64}"
#define MOE                                                                   \
    "{family: qwen3_moe, num_layers: 2, hidden_size: 24, "                    \
    "ffn_hidden_size: 40, num_attention_heads: 4, num_query_groups: 2, "      \
    "kv_channels: 8, vocab_size: 61, max_position_embeddings: 64, "           \
    "num_experts: 8, moe_ffn_hidden_size: 20, qk_layernorm: true, "           \
    "moe_router_topk: 3, moe_aux_loss_coeff: 0.05, "                          \
    "untie_embeddings_and_output_weights: true}"

#define TP "tensor_model_parallel_size: "
#define SP "sequence_parallel: true"
#define EP "expert_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define CHUNKS "num_layers_per_virtual_pipeline_stage: 1"
#define CP "context_parallel_size: "
#define SHARD "data_parallel_sharding: "

/* What all ranks together read: every tensor once, and so many more times the
 * parameters (not experts), the experts, and what tensor parallel ranks hold
 * alike (norms, the router, with their moments). */
typedef struct layout {
    int ranks;
    const char *parallel;
    int dense;
    int experts;
    int alike;
} layout_t;

static const layout_t dense[] = {
    {1, "{}", 0, 0, 0},
    {2, "{}", 1, 0, 0},
    {2, "{" SHARD "none}", 3, 0, 0},
    {3, "{" SHARD "optim_grads, bucket_bytes: 4096}", 2, 0, 0},
    {3, "{" SHARD "optim_grads_params, bucket_bytes: 4096}", 0, 0, 0},
    {2, "{" TP "2, " SP "}", 0, 0, 3},
    {2, "{" CP "2}", 1, 0, 0},
    {2, "{" PP "2}", 0, 0, 0},
    {2, "{" PP "2, " CHUNKS "}", 0, 0, 0},
    {2, "{" PP "2, pipeline_model_parallel_layout: E|t|ttt|L}\n"
        "schedule: zero_bubble_v", 0, 0, 0},
    {8, "{" SHARD "optim_grads_params, " TP "2, " PP "2, bucket_bytes: 4096}",
     0, 0, 3},
};

static const layout_t tied[] = {
    {1, "{}", 0, 0, 0},
    {3, "{" SHARD "optim_grads_params, bucket_bytes: 4096}", 0, 0, 0},
    {2, "{" CP "2, " SHARD "optim_grads}", 1, 0, 0},
    {2, "{" PP "2, " CHUNKS "}", -1, 0, 0}, /* both ends hold the embedding */
    {4, "{" PP "2, " TP "2}\nschedule: zero_bubble_h1", -1, 0, 0},
};

static const layout_t moe[] = {
    {1, "{}", 0, 0, 0},
    {2, "{}", 1, 1, 0},
    {2, "{" EP "2}", 1, 0, 0},
    {4, "{" EP "4, " SHARD "optim_grads}", 3, 0, 0},
    {4, "{" EP "2, " SHARD "optim_grads_params, bucket_bytes: 4096}", 0, 0, 0},
    {4, "{" TP "2, " SP ", " EP "4}", 1, 0, 4},
    {4, "{" PP "2, " EP "2}\nschedule: zero_bubble_h1", 1, 0, 0},
    {2, "{" PP "2, " CHUNKS "}", 0, 0, 0},
    {4, "{" CP "2, " EP "4, " SHARD "none}", 9, 0, 0},
};

typedef struct matrix {
    const char *model;
    const char *dtype;
    double bound; /* of the next loss */
    int away;     /* everyday: from a layout to the one so many behind it */
    int count;
    const layout_t *layouts;
} matrix_t;

static layout_run_t make_run(const matrix_t *m, const char *save, int layout)
{
    layout_run_t run = {.save = save, .model = m->model,
                        .parallel = m->layouts[layout].parallel, .more = "",
                        .dtype = m->dtype, .ranks = m->layouts[layout].ranks,
                        .micro_batch_size = 2, .steps = 3};
    return run;
}

/* Of a checkpoint: bytes of parameters that are no experts, of experts, and of
 * parameters that tensor parallel ranks hold alike. */
typedef struct sizes {
    int64_t all;
    int64_t dense;
    int64_t experts;
    int64_t alike;
} sizes_t;

static sizes_t sizes_of(const layout_place_t *place, const char *path)
{
    sizes_t s = {0, 0, 0, 0};
    loong_checkpoint_t *ck = NULL;
    assert_ok(place->ctx, loongi_checkpoint_open(place->ctx, path, &ck));
    s.all = loongi_checkpoint_bytes(ck);
    for (int64_t i = 0; i < loongi_checkpoint_count(ck); i++) {
        const loong_checkpoint_tensor_t *t = loongi_checkpoint_get(ck, i);
        int64_t bytes = (int64_t)loong_dtype_size(t->dtype);
        for (int d = 0; d < t->ndim; d++) {
            bytes *= t->shape[d];
        }
        if (strcmp(t->kind, "param") != 0) {
            continue;
        }
        bool expert = strstr(t->name, ".experts") != NULL;
        bool alike = strstr(t->name, "norm") != NULL ||
                     strstr(t->name, ".gate.weight") != NULL;
        s.experts += expert ? bytes : 0;
        s.dense += expert ? 0 : bytes;
        s.alike += alike ? bytes : 0;
    }
    loongi_checkpoint_close(&ck);
    return s;
}

static void check_loaded(const layout_t *layout, const layout_run_t *run,
                         const sizes_t *s)
{
    int64_t expected = s->all + layout->dense * s->dense +
                       layout->experts * s->experts +
                       layout->alike * s->alike;
    if (layout->dense >= 0 && run->loaded != expected) {
        fail_msg("%d ranks, %s: read %lld bytes of %lld, not %lld", run->ranks,
                 run->parallel, (long long)run->loaded, (long long)s->all,
                 (long long)expected);
    }
}

/* Loads `from`, saves it again, takes the next step. */
static double go_on(const layout_place_t *place, const matrix_t *m, int to,
                    const char *from)
{
    char path[2][128];
    layout_difference_t d;
    sizes_t sizes = sizes_of(place, from);
    layout_run_t run = make_run(m, "again", to);
    run.load = from;
    run.save_first = true;
    layout_run(place, &run);
    snprintf(path[0], sizeof(path[0]), "%s/again", place->dir);
    snprintf(path[1], sizeof(path[1]), "%s/again/step_00000002", place->dir);
    assert_ok(place->ctx, layout_job_compare(place->ctx, path[1], from, &d));
    if (d.worst[0][0] != '\0' || d.worst[1][0] != '\0') {
        fail_msg("%d ranks, %s, from %s: %s differs by %g, %s by %g",
                 run.ranks, run.parallel, from, d.worst[0], d.param,
                 d.worst[1], d.moment);
    }
    check_loaded(&m->layouts[to], &run, &sizes);
    assert_ok(place->ctx, loongi_dir_remove(place->ctx, path[0]));
    return run.loss;
}

static void check_matrix(const matrix_t *m)
{
    bool all = getenv("LOONG_ALL_PAIRS") != NULL;
    layout_place_t place = layout_begin();
    int pairs = 0;
    double worst = 0.0;
    for (int a = 0; a < m->count; a++) {
        char save[16];
        char from[128];
        snprintf(save, sizeof(save), "from%d", a);
        snprintf(from, sizeof(from), "%s/%s/step_00000002", place.dir, save);
        layout_run_t source = make_run(m, save, a);
        source.save_interval = 2;
        layout_run(&place, &source);
        double loss = source.loss; /* of step 3 */
        for (int b = 0; b < m->count; b++) {
            if (!all && b != (a + m->away) % m->count) {
                continue;
            }
            double other = go_on(&place, m, b, from);
            double apart = fabs(other - loss) / loss;
            worst = fmax(worst, apart);
            pairs++;
            if (!(apart <= m->bound)) {
                fail_msg("%s, from %s to %s: next loss %.9g, not %.9g",
                         m->dtype, m->layouts[a].parallel,
                         m->layouts[b].parallel, other, loss);
            }
        }
    }
    print_message("%s: %d pairs, the next loss differs by %.2g at most\n",
                  m->dtype, pairs, worst);
    layout_end(&place);
}

static void dense_models(void **state)
{
    (void)state;
    matrix_t m = {DENSE, "fp32", 1e-6, 1, LOONG_COUNT_OF(dense), dense};
    check_matrix(&m);
}

static void tied_models(void **state)
{
    (void)state;
    matrix_t m = {TIED, "fp64", 1e-9, 2, LOONG_COUNT_OF(tied), tied};
    check_matrix(&m);
}

static void mixtures_of_experts(void **state)
{
    (void)state;
    matrix_t m = {MOE, "fp32", 1e-6, 1, LOONG_COUNT_OF(moe), moe};
    check_matrix(&m);
}

/* Masters in two halves; a loss in bf16 has 8 bits. */
static void narrow_models(void **state)
{
    (void)state;
    matrix_t m = {MOE, "bf16", 1e-2, 5, LOONG_COUNT_OF(moe), moe};
    check_matrix(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_models),
        cmocka_unit_test(tied_models),
        cmocka_unit_test(mixtures_of_experts),
        cmocka_unit_test(narrow_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
