/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of low rank begin with a peft directory and take the steps that
 * peft takes (tests/golden/lora.py): loss, gradient norm, and every matrix at
 * the end, as the export has it. A checkpoint of adapters leaves the model
 * beside them to its directory; an export can be merged. */
#include <math.h>

#include "convert.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "loong/dataset.h"
#include "peft.h"
#include "safetensors.h"
#include "train_job.h"

#define GOLDEN LOONG_SOURCE_DIR "/tests/golden/"

enum { STEPS = 20, TOKENS = 65 };

typedef struct lora_case {
    const char *name;
    const char *fixture;
    const char *keys;
} case_t;

#define CODES "finetune.method=qlora\nfinetune.rank=4\nfinetune.alpha=8\n"

static const case_t cases[] = {
    {"llama", "llama3_gqa_tied",
     "finetune.rank=4\nfinetune.alpha=6\n"
     "finetune.target_modules=[q_proj, v_proj, linear_fc2]\n"},
    {"llama_plus", "llama3_gqa_tied",
     "finetune.rank=2\nfinetune.alpha=4\nfinetune.loraplus_lr_ratio=8\n"
     "finetune.target_modules=[k_proj, up_proj]\n"},
    {"qwen2", "qwen2_gqa",
     "finetune.rank=3\nfinetune.alpha=5\nfinetune.use_rslora=true\n"
     "finetune.rank_pattern=[{scope: k_proj, rank: 2}]\n"
     "finetune.alpha_pattern=[{scope: up_proj, alpha: 7}]\n"
     "finetune.bias=all\n"},
    {"phi3", "phi3_tied",
     "finetune.rank=3\nfinetune.alpha=4\n"
     "finetune.target_modules=[qkv_proj, o_proj, gate_up_proj]\n"},
    {"gpt2", "gpt2_untied",
     "finetune.rank=2\nfinetune.alpha=3\n"
     "finetune.target_modules=[c_attn, c_proj, c_fc, wte]\n"
     "finetune.modules_to_save=[norm]\n"
     "foundation.hidden_dropout=0\nfoundation.attention_dropout=0\n"
     "foundation.embedding_dropout=0\n"},
    {"qwen2_moe", "qwen2_moe",
     "finetune.rank=3\nfinetune.alpha=4\n"
     "finetune.target_modules=[q_proj, k_proj, o_proj, "
     "shared_expert.gate_proj, shared_expert.down_proj, "
     "experts.gate_up_proj]\n"
     "foundation.moe_aux_loss_coeff=0\n"},
    {"mixtral", "mixtral",
     "finetune.rank=2\nfinetune.alpha=3\n"
     "finetune.rank_pattern=[{scope: down_proj, rank: 3}]\n"
     "finetune.target_modules=[q_proj, v_proj, w1, w3, experts.down_proj]\n"
     "foundation.moe_aux_loss_coeff=0\n"},
    /* Codes of the files, and codes made here (tests/golden/qlora.py). */
    {"nf4", "../qlora/plain", CODES "finetune.quantization=nf4\n"},
    {"nf4_double", "../qlora/nf4_double",
     CODES "finetune.double_quantization=true\n"},
    {"int8", "../qlora/plain",
     CODES "finetune.quantization=int8\n"
           "finetune.target_modules=[q_proj, v_proj]\n"},
};

static int64_t vocab_of(loong_context_t *ctx, const char *fixture)
{
    loong_hf_t *hf = NULL;
    char path[512];
    int64_t vocab = 0;
    snprintf(path, sizeof(path), GOLDEN "fixtures/%s", fixture);
    assert_ok(ctx, loongi_hf_open(ctx, path, &hf));
    assert_true(loongi_pairs_int(loongi_hf_model(hf), "vocab_size", &vocab));
    loongi_hf_close(&hf);
    return vocab;
}

static job_place_t begin(const case_t *c)
{
    job_place_t p = job_begin();
    int32_t ids[TOKENS];
    char prefix[300];
    int64_t vocab = vocab_of(p.ctx, c->fixture);
    snprintf(prefix, sizeof(prefix), "%s/text", p.dir);
    loong_dataset_writer_params_t params = {prefix, loong_dataset_dtype(vocab),
                                            false};
    loong_dataset_writer_t *writer = NULL;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (int32_t)((7 * i * i + 3 * i + 1) % vocab);
    }
    assert_ok(p.ctx, loong_dataset_writer_create(p.ctx, &params, &writer));
    assert_ok(p.ctx, loong_dataset_writer_add(writer, ids, NULL, TOKENS));
    assert_ok(p.ctx, loong_dataset_writer_end_document(writer));
    assert_ok(p.ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
    return p;
}

static void run(const job_place_t *p, const case_t *c, int ranks,
                const char *keys)
{
    job_result_t r;
    char all[4096];
    snprintf(all, sizeof(all),
             "~model\ntraining_phase=pretrain\ndata.train=[{path: "
             "$DIR/text}]\ndata.seq_length=16\n"
             "train.global_batch_size=4\ntrain.micro_batch_size=1\n"
             "train.train_iters=20\noptimizer.lr=0.01\n"
             "optimizer.lr_decay_style=constant\noptimizer.clip_grad=0\n"
             "optimizer.weight_decay=0\n"
             "init.from_hf=" GOLDEN "fixtures/%s\n"
             "finetune.adapter=" GOLDEN "lora/%s\nfinetune.method=lora\n%s%s",
             c->fixture, c->name, c->keys, keys);
    job_run(p, ranks, all, &r);
    if (r.status != LOONG_OK && r.status != LOONG_ERR_INTERRUPTED) {
        fail_msg("%s: status %d: %s %s", c->name, (int)r.status, r.error,
                 r.log);
    }
}

/* which: "" or "kl_", a training with a divergence. The log has nine digits. */
static void compare_curve(const job_place_t *p, const case_t *c,
                          const char *which, const char *what, int steps,
                          double bound)
{
    static const char *const keys[] = {"loss", "grad_norm", "kl_loss"};
    double got[3][STEPS + 1];
    char path[512];
    int columns = which[0] != '\0' ? 3 : 2;
    snprintf(path, sizeof(path), GOLDEN "lora/%s/%scurve.txt", c->name, which);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int k = 0; k < columns; k++) {
        assert_int_equal(job_metrics(p, NULL, keys[k], got[k], STEPS + 1),
                         STEPS);
    }
    for (int i = 0; i < steps; i++) {
        for (int k = 0; k < columns; k++) {
            double wanted = NAN;
            assert_int_equal(fscanf(file, "%lf", &wanted), 1);
            if (!(fabs(got[k][i] - wanted) <= bound * fabs(wanted))) {
                fail_msg("%s, %s: %s of step %d: %.12g, wanted %.12g", c->name,
                         what, keys[k], i, got[k][i], wanted);
            }
        }
    }
    fclose(file);
}

static void export(const job_place_t *p, bool merge, const char *to,
                   char path[400])
{
    char from[400];
    loong_checkpoint_export_params_t params = {.checkpoint = from,
                                               .out_dir = path,
                                               .bos_token_id = -1,
                                               .eos_token_id = -1,
                                               .pad_token_id = -1,
                                               .merge = merge};
    snprintf(from, sizeof(from), "%s/save", p->dir);
    snprintf(path, 400, "%s/%s", p->dir, to);
    assert_ok(p->ctx, loong_checkpoint_export(p->ctx, &params));
}

static double at(const loong_safetensor_t *t, int64_t element)
{
    double value = 0.0;
    const char *from =
        (const char *)t->data + (size_t)element * loong_dtype_size(t->dtype);
    assert_ok(NULL, loongi_convert(NULL, t->dtype, from, LOONG_F64, &value, 1));
    return value;
}

/* Every tensor of peft's is in the export, of the same numbers. */
static void compare_adapter(const job_place_t *p, const case_t *c,
                            const char *which, const char *what, double bound)
{
    char path[512];
    char out[400];
    loong_safetensors_t *wanted = NULL;
    loong_safetensors_t *made = NULL;
    export(p, false, "adapter", out);
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", out);
    assert_ok(p->ctx, loongi_safetensors_open(p->ctx, path, &made));
    snprintf(path, sizeof(path), GOLDEN "lora/%s/%sfinal.safetensors", c->name,
             which);
    assert_ok(p->ctx, loongi_safetensors_open(p->ctx, path, &wanted));
    for (int64_t i = 0; i < loongi_safetensors_count(wanted); i++) {
        const loong_safetensor_t *w = loongi_safetensors_get(wanted, i);
        const loong_safetensor_t *g = loongi_safetensors_find(made, w->name);
        if (g == NULL || loongi_shape_count(g->ndim, g->shape) !=
                             loongi_shape_count(w->ndim, w->shape)) {
            fail_msg("%s, %s: no %s like peft's", c->name, what, w->name);
            return;
        }
        for (int64_t k = 0; k < loongi_shape_count(w->ndim, w->shape); k++) {
            double a = at(g, k);
            double b = at(w, k);
            if (!(fabs(a - b) <= bound)) {
                fail_msg("%s, %s: %s [%d] is %.12g, wanted %.12g", c->name,
                         what, w->name, (int)k, a, b);
            }
        }
    }
    assert_int_equal(loongi_safetensors_count(made),
                     loongi_safetensors_count(wanted));
    loongi_safetensors_close(&made);
    loongi_safetensors_close(&wanted);
}

static void twenty_steps_are_those_of_peft(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        int steps;    /* that are compared: Adam takes rounding for gradients */
        double bound; /* of them, relative */
        const char *keys;
    } layouts[] = {
        {1, STEPS, 1e-8, "train.micro_batch_size=4\n"},
        {1, 4, 1e-5, "precision.params_dtype=fp32\n"},
        {2, STEPS, 1e-8,
         "parallel.tensor_model_parallel_size=2\n"
         "parallel.sequence_parallel=true\n"
         "recompute.granularity=full\n"},
        {2, STEPS, 1e-8,
         "parallel.data_parallel_sharding=optim_grads_params\n"
         "recompute.granularity=full\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        for (int k = 0; k < LOONG_COUNT_OF(layouts); k++) {
            /* Two ranks of TP would cut blocks of 64 elements. */
            if (k == (strncmp(cases[i].name, "nf4", 3) == 0 ? 2 : 3)) {
                continue;
            }
            job_place_t p = begin(&cases[i]);
            run(&p, &cases[i], layouts[k].ranks, layouts[k].keys);
            compare_curve(&p, &cases[i], "", layouts[k].keys, layouts[k].steps,
                          layouts[k].bound);
            if (layouts[k].steps == STEPS) {
                compare_adapter(&p, &cases[i], "", layouts[k].keys, 1e-9);
            }
            job_end(&p);
        }
    }
}

/* On one rank. */
static void steps_of_other_files(void **state)
{
    (void)state;
    static const case_t others[] = {
        /* A module for each matrix of each expert, as with transformers 4. */
        {"mixtral_older", "mixtral",
         "finetune.rank=2\nfinetune.alpha=3\n"
         "finetune.rank_pattern=[{scope: gate_up_proj, rank: 4}]\n"
         "finetune.alpha_pattern=[{scope: gate_up_proj, alpha: 6}]\n"
         "finetune.target_modules=[gate_up_proj, down_proj]\n"
         "foundation.moe_aux_loss_coeff=0\n"},
        /* An embedding, whose head is the same matrix. */
        {"llama_ends", "llama3_gqa_tied",
         "finetune.rank=3\nfinetune.alpha=5\n"
         "finetune.target_modules=[embed_tokens, o_proj]\n"
         "finetune.rank_pattern=[{scope: embed_tokens, rank: 4}]\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(others); i++) {
        job_place_t p = begin(&others[i]);
        run(&p, &others[i], 1, "train.micro_batch_size=4\n");
        compare_curve(&p, &others[i], "", "one rank", STEPS, 1e-8);
        compare_adapter(&p, &others[i], "", "one rank", 1e-9);
        job_end(&p);
    }
}

/* A second forward without adapters, over the same parameters. */
static void a_divergence_is_from_the_model_without(void **state)
{
    (void)state;
    static const struct {
        int of; /* cases */
        int ranks;
        const char *keys;
    } layouts[] = {
        {0, 1, "train.micro_batch_size=4\n"},
        {0, 4,
         "parallel.tensor_model_parallel_size=2\n"
         "parallel.sequence_parallel=true\n"
         "parallel.context_parallel_size=2\n"},
        {5, 2,
         "parallel.tensor_model_parallel_size=2\n"
         "parallel.sequence_parallel=true\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        const case_t *c = &cases[layouts[i].of];
        job_place_t p = begin(c);
        char keys[512];
        snprintf(keys, sizeof(keys), "train.kl_loss_coeff=0.3\n%s",
                 layouts[i].keys);
        run(&p, c, layouts[i].ranks, keys);
        compare_curve(&p, c, "kl_", layouts[i].keys, STEPS, 1e-8);
        compare_adapter(&p, c, "kl_", layouts[i].keys, 1e-9);
        job_end(&p);
    }
}

static void ignore(void *user, const char *line)
{
    (void)user;
    (void)line;
}

static void verify(const job_place_t *p)
{
    char path[400];
    bool good = false;
    snprintf(path, sizeof(path), "%s/save", p->dir);
    assert_ok(p->ctx, loong_checkpoint_verify(p->ctx, path, NULL, ignore, NULL,
                                              &good));
    assert_true(good);
}

/* Stopped after 8 steps and gone on with in another layout. */
static void a_resume_reads_the_rest_where_it_was(void **state)
{
    (void)state;
    const case_t *c = &cases[0];
    double *values = NULL;
    job_place_t p = begin(c);
    run(&p, c, 1, "train.exit_interval=8\ncheckpoint.save_interval=8\n");
    verify(&p);
    run(&p, c, 2,
        "checkpoint.load=auto\nparallel.data_parallel_sharding="
        "optim_grads_params\n");
    compare_curve(&p, c, "", "resumed", STEPS, 1e-8);
    compare_adapter(&p, c, "", "resumed", 1e-9);
    assert_int_equal(
        job_tensor(&p, "save", "param",
                   "foundation.layers.0.self_attn.q_proj.lora_A.weight",
                   &values),
        4 * 32);
    free(values);
    job_end(&p);
}

/* Biases (qwen2) and a norm (gpt2) that an adapter's directory has. */
static void what_was_trained_beside_goes_on(void **state)
{
    (void)state;
    for (int i = 2; i <= 4; i += 2) {
        const case_t *c = &cases[i];
        double loss[STEPS + 1];
        double wanted = NAN;
        char keys[512];
        char path[512];
        char out[400];
        job_place_t first = begin(c);
        job_place_t second = begin(c);
        run(&first, c, 1, "train.exit_interval=8\n");
        export(&first, false, "adapter", out);
        snprintf(keys, sizeof(keys),
                 "finetune.adapter=%s\ntrain.exit_interval=1\n", out);
        run(&second, c, 1, keys);
        assert_int_equal(
            job_metrics(&second, NULL, "loss", loss, STEPS + 1), 1);
        snprintf(path, sizeof(path), GOLDEN "lora/%s/curve.txt", c->name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        for (int k = 0; k <= 8; k++) { /* samples are the same in each step */
            assert_int_equal(fscanf(file, "%lf %*f", &wanted), 1);
        }
        fclose(file);
        if (!(fabs(loss[0] - wanted) <= 1e-8 * wanted)) {
            fail_msg("%s: %.12g, wanted %.12g", c->name, loss[0], wanted);
        }
        job_end(&second);
        job_end(&first);
    }
}

static double element(const loong_safetensors_t *file, const char *name,
                      int64_t row, int64_t col)
{
    const loong_safetensor_t *t = loongi_safetensors_find(file, name);
    assert_non_null(t);
    return at(t, row * t->shape[1] + col);
}

/* w + alpha / rank b a, rounded once. */
static void a_merge_is_exact_to_rounding(void **state)
{
    (void)state;
#define Q "model.layers.1.self_attn.q_proj"
    const case_t *c = &cases[0];
    job_place_t p = begin(c);
    char path[1024];
    char out[2][400];
    loong_safetensors_t *file[3];
    run(&p, c, 1, "train.exit_interval=2\n");
    export(&p, true, "merged", out[0]);
    export(&p, false, "adapter", out[1]);
    for (int i = 0; i < 3; i++) {
        const char *const ends[] = {"model", "adapter_model", "model"};
        snprintf(path, sizeof(path), "%s/%s.safetensors",
                 i < 2 ? out[i] : GOLDEN "fixtures/llama3_gqa_tied", ends[i]);
        assert_ok(p.ctx, loongi_safetensors_open(p.ctx, path, &file[i]));
    }
    for (int64_t i = 0; i < 32 * 32; i++) {
        int64_t row = i / 32;
        double sum = element(file[2], Q ".weight", row, i % 32);
        for (int64_t k = 0; k < 4; k++) {
            sum += 1.5 *
                   element(file[1], "base_model.model." Q ".lora_B.weight", row,
                           k) *
                   element(file[1], "base_model.model." Q ".lora_A.weight", k,
                           i % 32);
        }
        double merged = element(file[0], Q ".weight", row, i % 32);
        assert_true(fabs(merged - sum) <= 6e-8 * fabs(sum) + 1e-12);
    }
    for (int i = 0; i < 3; i++) {
        loongi_safetensors_close(&file[i]);
    }
    job_end(&p);
}

/* Of a quantised model the numbers that its codes stand for, rounded to the
 * bf16 of its files. */
static void a_merge_is_of_what_codes_stand_for(void **state)
{
    (void)state;
    enum { SIDE = 64 };
    const case_t *c = cases;
    while (strcmp(c->name, "nf4") != 0) {
        c++;
    }
    job_place_t p = begin(c);
    char path[1024];
    char out[2][400];
    double base[2][SIDE * SIDE];
    loong_safetensors_t *made = NULL;
    loong_hf_t *hf = NULL;
    run(&p, c, 1, "train.exit_interval=2\n");
    export(&p, true, "merged", out[0]);
    export(&p, false, "adapter", out[1]);
    for (int i = 0; i < 2; i++) {
        assert_ok(p.ctx, loongi_hf_open(
                             p.ctx, i == 0 ? GOLDEN "qlora/nf4" : out[0], &hf));
        assert_ok(p.ctx, loongi_hf_read(hf, "layers.1.self_attn.q_proj.weight",
                                        0, SIDE, LOONG_F64, base[i]));
        loongi_hf_close(&hf);
    }
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", out[1]);
    assert_ok(p.ctx, loongi_safetensors_open(p.ctx, path, &made));
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        double sum = base[0][i];
        for (int64_t k = 0; k < 4; k++) {
            sum += 2.0 *
                   element(made, "base_model.model." Q ".lora_B.weight",
                           i / SIDE, k) *
                   element(made, "base_model.model." Q ".lora_A.weight", k,
                           i % SIDE);
        }
        assert_true(fabs(base[1][i] - sum) <= 0x1p-8 * fabs(sum) + 1e-12);
    }
    loongi_safetensors_close(&made);
    job_end(&p);
}

/* Names that no layer has, and an adapter of another rank. */
static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const refusals[][2] = {
        {"finetune.target_modules=[q_proj, w7]\n",
         "finetune.target_modules: no layer that can have adapters is called "
         "w7; there are embed_tokens q_proj k_proj v_proj o_proj gate_proj "
         "up_proj down_proj"},
        {"finetune.modules_to_save=[nrm]\n",
         "finetune.modules_to_save[0]: no parameter matches nrm; their names"},
        {"finetune.rank_pattern=[{scope: k_proj, rank: 2}]\n",
         "finetune.rank_pattern[0].scope: no parameter matches k_proj"},
        {"finetune.rank=5\n", "has rank 4, here it has 5"},
        {"finetune.alpha=7\n", "is multiplied by 1.5, here by 1.75"},
        {"finetune.target_modules=[q_proj, v_proj]\n",
         "finetune.target_modules leaves it out"},
        {"finetune.target_modules=[q_proj, v_proj, down_proj, k_proj]\n",
         "there is no base_model.model"},
    };
    job_place_t p = begin(&cases[0]);
    for (int i = 0; i < LOONG_COUNT_OF(refusals); i++) {
        job_result_t r;
        char keys[2048];
        snprintf(
            keys, sizeof(keys),
            "~model\ntraining_phase=pretrain\ndata.train=[{path: $DIR/text}]\n"
            "init.from_hf=" GOLDEN "fixtures/llama3_gqa_tied\n"
            "finetune.adapter=" GOLDEN "lora/llama\n"
            "finetune.method=lora\n%s%s",
            cases[0].keys, refusals[i][0]);
        job_run(&p, 1, keys, &r);
        if (r.status == LOONG_OK || strstr(r.error, refusals[i][1]) == NULL) {
            fail_msg("'%s' is not in: %s", refusals[i][1], r.error);
        }
    }
    job_end(&p);
}

/* Of what files have as one layer, matrices b with a row less, and with those
 * of one part alone. */
static void other_rows_are_refused(void **state)
{
    (void)state;
    const case_t *c = &cases[3];
    job_place_t p = begin(c);
    loong_peft_t *peft = NULL;
    char dir[512];
    snprintf(dir, sizeof(dir), "%s/other_rows", p.dir);
    assert_ok(p.ctx, loongi_peft_read(p.ctx, GOLDEN "lora/phi3", &peft));
    for (int k = 0; k < 2; k++) {
        job_result_t r;
        char keys[2048];
        for (int64_t i = 0; i < peft->num_modules; i++) {
            loong_peft_tensor_t *b = &peft->modules[i].b;
            if (strstr(peft->modules[i].name, "qkv_proj") != NULL) {
                b->shape[0] = k == 0 ? b->shape[0] - 1
                                     : peft->modules[i].a.shape[1];
            }
        }
        assert_ok(p.ctx, loongi_peft_write(peft, dir));
        snprintf(keys, sizeof(keys),
                 "~model\ntraining_phase=pretrain\n"
                 "data.train=[{path: $DIR/text}]\n"
                 "init.from_hf=" GOLDEN "fixtures/%s\nfinetune.adapter=%s\n"
                 "finetune.method=lora\n%s",
                 c->fixture, dir, c->keys);
        job_run(&p, 1, keys, &r);
        if (r.status == LOONG_OK || strstr(r.error, "lora_B") == NULL ||
            strstr(r.error, ", here [") == NULL) {
            fail_msg("rows of b are not refused: %s", r.error);
        }
    }
    loongi_peft_destroy(&peft);
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_are_those_of_peft),
        cmocka_unit_test(steps_of_other_files),
        cmocka_unit_test(a_divergence_is_from_the_model_without),
        cmocka_unit_test(a_resume_reads_the_rest_where_it_was),
        cmocka_unit_test(what_was_trained_beside_goes_on),
        cmocka_unit_test(a_merge_is_exact_to_rounding),
        cmocka_unit_test(a_merge_is_of_what_codes_stand_for),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(other_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
