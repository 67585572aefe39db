/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that read texts with pictures, in drawn layouts of their components on
 * several simulated devices: rows and gradients go from device to device, or
 * with comm.device_backend staged through host memory, or wait there with
 * features: host. All give the same bits, and losses and norms of one rank of
 * the processor; the last one needs less of a device's memory. */
#include "train_run.h"

#include <stdlib.h>

#include "edges.h"
#include "loong/register.h"
#include "rng.h"

enum { SHORT = 2, KEYS = 400, TEXT = 3000 };

/* In fp64 these are the processor's. */
#define HOST_OPS                                                           \
    "host_ops: [accumulate, adamw, add, add_layernorm, add_rmsnorm, "      \
    "attention, attention_grad, copy, cross_entropy, embedding, "          \
    "embedding_grad, "                                                     \
    "gelu, gelu_grad, layernorm, layernorm_grad, linear, linear_dw, "      \
    "linear_dw_db, rmsnorm, rmsnorm_grad, rope, rope_table, select_rows, " \
    "sumsq, swiglu, swiglu_grad, zero], "

typedef struct layout {
    int ranks;
    int pipeline;       /* of the language model */
    char encoder[KEYS]; /* keys of the components */
    char projector[KEYS];
    char foundation[KEYS];
    char parallel[KEYS];
    const char *join;
} layout_t;

/* Where rows go, and where they wait. */
typedef enum way { DIRECT, STAGED, ON_HOST } way_t;
static const char *const ways[] = {
    "", "comm: {device_backend: staged}\n", "features: host\n"};

static void write_recipe(const layout_t *l, const char *device,
                         const char *dtype, way_t way, char text[TEXT])
{
    bool wide = strcmp(dtype, "fp64") == 0 && strcmp(device, "cuda") == 0;
    snprintf(text, TEXT,
             "seed: 11\n"
             "device: %s\n"
             "model:\n"
             "  image_encoder: {family: clip_vision_model, num_layers: 2,\n"
             "    hidden_size: 8, ffn_hidden_size: 12, image_size: 8,\n"
             "    num_attention_heads: 2, patch_size: 4%s}\n"
             "  image_projector: {family: mlp_projector%s}\n"
             "  foundation: {family: llama, num_layers: 2, hidden_size: 16,\n"
             "    ffn_hidden_size: 24, num_attention_heads: 2,\n"
             "    vocab_size: 12, max_position_embeddings: 24%s}\n"
             "parallel: {%s}\n"
             "join: %s\n"
             "precision: {params_dtype: %s}\n"
             "data: {tokenizer: %s, image_token: <picture>, max_images: 4,\n"
             "  train: [{path: %s/texts.jsonl}], seq_length: 24}\n"
             "train: {%sglobal_batch_size: 8, micro_batch_size: 1,\n"
             "  train_iters: %d}\n"
             "optimizer: {lr: 1e-2, lr_decay_style: constant}\n"
             "%s",
             device, l->encoder, l->projector, l->foundation, l->parallel,
             l->join, dtype, train_dir(), train_dir(), wide ? HOST_OPS : "",
             SHORT, ways[way]);
}

/* ---- layouts ------------------------------------------------------------- */

/* All components on all ranks, or the language model on ranks of its own, with
 * the projector or without; pipelines, tensor parallel ranks, shards. */
static void draw(uint64_t seed, int most, layout_t *l)
{
    static const char *const joins[] = {"coupled", "phases", "two_pass",
                                        "bubbles"};
    static const char *const shardings[] = {"none", "optim", "optim_grads",
                                            "optim_grads_params"};
    uint64_t drawn = 0;
#define DRAW(bound_) ((int)(loongi_rng_uniform(seed, 1, drawn++) * (bound_)))
    memset(l, 0, sizeof(*l));
    l->ranks = most == 2 ? 2 : 2 + 2 * DRAW(2);
    bool apart = DRAW(2) == 1;
    int own = apart ? l->ranks / 2 : l->ranks; /* of the language model */
    bool pipeline = own > 1 && DRAW(2) == 0;
    bool split = own > 1 && DRAW(2) == 0; /* the encoder, in TP ranks */
    /* Else all that a rank reads it makes itself. */
    bool tp = own / (pipeline ? 2 : 1) > 1 &&
              (DRAW(2) == 0 || (!apart && !pipeline && !split));
    l->join = joins[DRAW(pipeline && !apart && !split ? 4 : 3)];
    l->pipeline = pipeline ? 2 : 1;
    bool gaps = strcmp(l->join, "bubbles") == 0;
    snprintf(l->parallel, KEYS,
             "pipeline_model_parallel_size: %d, "
             "tensor_model_parallel_size: %d, bucket_bytes: 4096, "
             "data_parallel_sharding: %s",
             l->pipeline, tp ? 2 : 1, shardings[gaps ? DRAW(2) : DRAW(4)]);
    if (apart) {
        bool beside = DRAW(2) == 0;
        snprintf(l->encoder, KEYS, ", ranks: 0-%d", own - 1);
        snprintf(l->projector, KEYS, ", ranks: %d-%d", beside ? own : 0,
                 beside ? l->ranks - 1 : own - 1);
        snprintf(l->foundation, KEYS, ", ranks: %d-%d", own, l->ranks - 1);
    }
    if (split) {
        strcat(l->encoder, ", parallel: {tensor_model_parallel_size: 2}");
    }
    if (DRAW(4) == 0) {
        strcat(l->encoder, ", freeze: true");
    }
#undef DRAW
}

static void tell(const layout_t *l, const char *dtype, uint64_t seed)
{
    print_message("seed %d, %s, %d ranks, %s; encoder%s; projector%s; %s\n",
                  (int)seed, dtype, l->ranks, l->join, l->encoder, l->projector,
                  l->parallel);
}

/* ---- trainings ----------------------------------------------------------- */

static job_t run(const layout_t *l, const char *device, const char *dtype,
                 way_t way)
{
    static char text[TEXT];
    job_t job = make_job(device, dtype);
    write_recipe(l, device, dtype, way, text);
    job.recipe = text;
    job.ranks = l->ranks;
    job.steps = SHORT;
    train(&job);
    return job;
}

/* The same components on one rank of the processor. */
static job_t run_one(const layout_t *l, const char *dtype)
{
    layout_t one = {.ranks = 1, .join = "coupled"};
    if (strstr(l->encoder, "freeze") != NULL) {
        strcpy(one.encoder, ", freeze: true");
    }
    return run(&one, "cpu", dtype, DIRECT);
}

/* Did rows wait in host memory where they may? */
static bool try_layout(uint64_t seed, int most, const char *dtype)
{
    layout_t l;
    draw(seed, most, &l);
    tell(&l, dtype, seed);
    cudasim_seed(seed + 1);
    bool wide = strcmp(dtype, "fp64") == 0;
    job_t one = run_one(&l, dtype);
    job_t direct = run(&l, "cuda", dtype, DIRECT);
    compare(&one, &direct, wide ? 1e-9 : 256.0 * 0x1p-24);
    assert_true(direct.links > 0 && direct.waiting == 0);
    job_t host = {.waiting = 0};
    if (!wide) {
        job_t staged = run(&l, "cuda", dtype, STAGED);
        assert_int_equal(staged.links, 0);
        assert_memory_equal(staged.loss, direct.loss, sizeof(direct.loss));
        assert_memory_equal(staged.norm, direct.norm, sizeof(direct.norm));
        host = run(&l, "cuda", dtype, ON_HOST);
        assert_memory_equal(host.loss, direct.loss, sizeof(direct.loss));
        assert_memory_equal(host.norm, direct.norm, sizeof(direct.norm));
    }
    return host.waiting > 0;
}

/* ---- memory -------------------------------------------------------------- */

/* Bytes of areas on the device, and on the host, rows and gradients. */
typedef struct planned {
    int64_t rank;
    int64_t device[2], host[2];
    char told[TEXT];
} planned_t;

static planned_t plan(const char *join, way_t way)
{
    static char text[TEXT];
    layout_t l = {.ranks = 1, .join = join};
    loong_context_t *ctx = test_context();
    loong_comm_t *comm = NULL;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    const char *told = NULL;
    planned_t p;
    write_recipe(&l, "cuda", "fp32", way, text);
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    assert_ok(ctx, loong_recipe_parse(ctx, "edges", text, NULL, &recipe));
    loong_trainer_params_t params = {
        .comm = comm, .recipe = recipe, .plan_only = true, .plan_ranks = 1};
    assert_ok(ctx, loong_trainer_create(ctx, &params, &trainer));
    const loong_model_t *m = trainer->component->model;
    p.rank = trainer->plan.memory.rank;
    for (int d = 0; d < 2; d++) {
        p.device[d] = m->bytes[LOONG_BASE_EDGE + d];
        p.host[d] = m->area_bytes[d];
    }
    assert_ok(ctx, loong_trainer_describe(trainer, &told));
    snprintf(p.told, TEXT, "%s", told);
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    test_context_end(&ctx);
    return p;
}

/* Four pictures of four patches a micro-batch, eight of these a step. What the
 * projector reads, and the language model in places of its text; gradients of
 * the features, and of the encoder's rows, with those of class tokens. */
static void test_memory(void **state)
{
    enum {
        ALL = 8,
        PATCHES = 16 * 8 * 4,
        PLACES = 24 * 16 * 4,
        FEATURES = 16 * 16 * 4,
        ROWS = 20 * 8 * 4
    };
    (void)state;
    planned_t device = plan("phases", DIRECT);
    assert_int_equal(device.device[0], ALL * (PATCHES + PLACES));
    assert_int_equal(device.device[1], ALL * (FEATURES + ROWS));
    assert_int_equal(device.host[0] + device.host[1], 0);
    assert_null(strstr(device.told, "pinned"));
    planned_t host = plan("phases", ON_HOST);
    assert_int_equal(host.device[0], 2 * (PATCHES + PLACES));
    assert_int_equal(host.device[1], 2 * (FEATURES + ROWS));
    assert_int_equal(host.host[0], ALL * (PATCHES + PLACES));
    assert_int_equal(host.host[1], ALL * (FEATURES + ROWS));
    assert_int_equal(device.rank - host.rank,
                     (ALL - 2) * (PATCHES + PLACES + FEATURES + ROWS));
    assert_non_null(strstr(host.told, "pinned for what goes through host "
                                      "memory: 29.00 KiB on rank 0"));
    host = plan("two_pass", ON_HOST); /* what does not wait is on the device */
    assert_int_equal(host.device[1], 2 * FEATURES + ROWS);
    assert_int_equal(host.host[1], ALL * FEATURES);
    device = plan("coupled", DIRECT);
    host = plan("coupled", ON_HOST);
    assert_int_equal(host.rank, device.rank);
    assert_int_equal(host.host[0] + host.host[1], 0);
}

static int64_t count_of(const char *name, int64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? atoll(text) : fallback;
}

static void test_drawn(void **state)
{
    (void)state;
    assert_true(try_layout((uint64_t)count_of("EDGES_SEED", 124), 4, "fp32"));
}

static void test_long(void **state)
{
    (void)state;
    int64_t first = count_of("EDGES_SEED", 100);
    int64_t count = count_of("EDGES_COUNT", 24);
    int64_t waited = 0;
    for (int64_t i = 0; i < count; i++) {
        bool wide = i % 4 == 3; /* the host computes: slow */
        waited += try_layout((uint64_t)(first + i), wide ? 2 : 4,
                             wide ? "fp64" : "fp32");
    }
    print_message("in %d of %d layouts rows waited in host memory\n",
                  (int)waited, (int)count);
    assert_true(count < 12 || waited > count / 6);
}

/* ---- the data ------------------------------------------------------------ */

static int make_pictures(void **state)
{
    char command[1000];
    int result = make_data(state);
    snprintf(command, sizeof(command),
             "bash -c '. %s/tests/train/texts_with_pictures.sh; "
             "write_texts %s %s'",
             LOONG_SOURCE_DIR, LOONG_SOURCE_DIR, train_dir());
    return result == 0 ? system(command) : result;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_drawn),
    };
    const struct CMUnitTest more[] = {
        cmocka_unit_test(test_long),
    };
    bool all = argc > 1 && strcmp(argv[1], "long") == 0;
    return all ? cmocka_run_group_tests(more, make_pictures, remove_data)
               : cmocka_run_group_tests(tests, make_pictures, remove_data);
}
