/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters beside their model: a divergence from it, how they start, what is
 * refused then, and exports that are merged. */
#include <math.h>

#include "hf_weights.h"
#include "lora_job.h"
#include "peft.h"

/* A second forward without adapters, over the same parameters. */
static void a_divergence_is_from_the_model_without(void **state)
{
    (void)state;
    static const struct {
        const char *of;
        int ranks;
        const char *keys;
    } layouts[] = {
        {"llama", 1, "train.micro_batch_size=4\n"},
        {"llama", 4,
         "parallel.tensor_model_parallel_size=2\n"
         "parallel.sequence_parallel=true\n"
         "parallel.context_parallel_size=2\n"},
        {"llama", 2, "parallel.pipeline_model_parallel_size=2\n"},
        {"head", 2,
         "parallel.tensor_model_parallel_size=2\n"
         "parallel.sequence_parallel=true\n"},
        {"qwen2_moe", 2,
         "parallel.tensor_model_parallel_size=2\n"
         "parallel.sequence_parallel=true\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        const lora_case_t *c = lora_case(layouts[i].of);
        job_place_t p = lora_begin(c);
        char keys[512];
        snprintf(keys, sizeof(keys), "train.kl_loss_coeff=0.3\n%s",
                 layouts[i].keys);
        lora_run(&p, c, layouts[i].ranks, keys);
        lora_compare_curve(&p, c, "kl_", layouts[i].keys, LORA_STEPS, 1e-8);
        lora_compare(&p, c, "kl_", layouts[i].keys, 1e-9);
        job_end(&p);
    }
}

/* Before the first step the model is the base: lengths of rows are those of
 * its matrices, of a quantised one of what its codes stand for. */
static void magnitudes_begin_as_norms(void **state)
{
    (void)state;
    enum { ROWS = 64, MOST = 128 };
#define AT_ONCE "~finetune.adapter\ntrain.exit_interval=1\noptimizer.lr=0\n"
    static const struct {
        lora_case_t plain;
        const char *base, *dora;
    } kinds[] = {
        {{"", "llama3_gqa_tied", AT_ONCE},
         GOLDEN "fixtures/llama3_gqa_tied",
         "parallel.tensor_model_parallel_size=2\n"},
        /* One row of up_proj is zeros, which have no direction. */
        {{"", "../qlora/plain",
          AT_ONCE "finetune.method=qlora\n"
                  "finetune.target_modules=[q_proj, down_proj]\n"},
         GOLDEN "qlora/nf4",
         "parallel.data_parallel_sharding=optim_grads_params\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(kinds); i++) {
        const lora_case_t *plain = &kinds[i].plain;
        job_place_t p = lora_begin(plain);
        job_place_t other = lora_begin(plain);
        double loss[2];
        double row[MOST];
        double *values = NULL;
        char keys[200];
        loong_hf_t *hf = NULL;
        snprintf(keys, sizeof(keys), "%sfinetune.use_dora=true\n",
                 kinds[i].dora);
        lora_run(&p, plain, 2, keys);
        lora_run(&other, plain, 1, "");
        assert_int_equal(job_metrics(&p, NULL, "loss", &loss[0], 1), 1);
        assert_int_equal(job_metrics(&other, NULL, "loss", &loss[1], 1), 1);
        assert_true(fabs(loss[0] - loss[1]) <= 1e-8);
        int64_t rows = job_tensor(
            &p, "save", "param",
            "foundation.layers.1.mlp.down_proj.lora_magnitude_vector", &values);
        assert_ok(p.ctx, loongi_hf_open(p.ctx, kinds[i].base, &hf));
        const loong_hf_param_t *w = loongi_hf_map_find(
            loongi_hf_get_map(hf), "layers.1.mlp.down_proj.weight");
        assert_int_equal(w->shape[0], rows);
        assert_true(rows <= ROWS && w->shape[1] <= MOST);
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0.0;
            assert_ok(p.ctx, loongi_hf_read(hf, w->name, r, 1, LOONG_F64, row));
            for (int64_t c = 0; c < w->shape[1]; c++) {
                sum += row[c] * row[c];
            }
            assert_true(fabs(values[r] - sqrt(sum)) <= 1e-12);
        }
        loongi_hf_close(&hf);
        free(values);
        job_end(&other);
        job_end(&p);
    }
}

/* b of an adapter whose a is 1 and which makes what one with lengths of rows
 * makes of dropout's x: m / |w + s b a| (w + s b a) - w. */
static void widen(loong_peft_t *of, const loong_hf_t *hf,
                  const loong_peft_module_t *m, loong_peft_module_t *to)
{
    int64_t rank = m->a.shape[0];
    int64_t in = m->a.shape[1];
    int64_t out = m->b.shape[0];
    char name[300];
    double *v = NULL;
    assert_ok(
        of->ctx,
        loongi_arena_alloc(
            of->arena,
            (size_t)(in * in + out * (in + rank + 1) + rank * in) * sizeof(*v),
            &v));
    double *one = v;
    double *w = one + in * in;
    double *b = w + out * in;
    double *a = b + out * rank;
    double *length = a + rank * in;
    assert_ok(of->ctx, loongi_peft_values(of, &m->a, a));
    assert_ok(of->ctx, loongi_peft_values(of, &m->b, b));
    assert_ok(of->ctx, loongi_peft_values(of, &m->magnitude, length));
    snprintf(name, sizeof(name), "%s.weight", m->name + strlen("model."));
    assert_ok(of->ctx, loongi_hf_read(hf, name, 0, out, LOONG_F64, w));
    for (int64_t i = 0; i < in; i++) {
        one[i * in + i] = 1.0;
    }
    for (int64_t r = 0; r < out; r++) {
        double row[128];
        double sum = 0.0;
        for (int64_t c = 0; c < in; c++) {
            row[c] = w[r * in + c];
            for (int64_t k = 0; k < rank; k++) {
                row[c] += m->scale * b[r * rank + k] * a[k * in + c];
            }
            sum += row[c] * row[c];
        }
        for (int64_t c = 0; c < in; c++) {
            w[r * in + c] = row[c] * length[r] / sqrt(sum) - w[r * in + c];
        }
    }
    const loong_peft_module_t made = {
        .name = m->name,
        .scale = 1.0,
        .a = {LOONG_F64, LOONG_F64, 2, {in, in}, one},
        .b = {LOONG_F64, LOONG_F64, 2, {out, in}, w}};
    *to = made;
}

/* With the same dropout, which is verified without lengths of rows. */
static void magnitudes_with_dropout_are_a_wide_adapter(void **state)
{
    (void)state;
#define DROPPED "finetune.dropout=0.3\ntrain.exit_interval=1\n"
    const lora_case_t *c = lora_case("dora");
    const lora_case_t wide = {
        "dora", c->fixture,
        "finetune.rank=32\nfinetune.alpha=32\n"
        "finetune.rank_pattern=[{scope: down_proj, rank: 52}]\n"
        "finetune.alpha_pattern=[{scope: down_proj, alpha: 52}]\n"
        "finetune.target_modules=[q_proj, v_proj, gate_proj, up_proj, "
        "down_proj]\n"};
    job_place_t p = lora_begin(c);
    job_place_t other = lora_begin(c);
    loong_peft_t *dora = NULL;
    loong_peft_t *made = NULL;
    loong_hf_t *hf = NULL;
    char keys[512];
    double loss[2];
    assert_ok(p.ctx,
              loongi_hf_open(p.ctx, GOLDEN "fixtures/llama3_gqa_tied", &hf));
    assert_ok(p.ctx, loongi_peft_read(p.ctx, GOLDEN "lora/dora", &dora));
    assert_ok(p.ctx, loongi_peft_create(p.ctx, dora->num_modules, 0, &made));
    for (int64_t i = 0; i < dora->num_modules; i++) {
        widen(dora, hf, &dora->modules[i], &made->modules[i]);
    }
    made->num_modules = dora->num_modules;
    snprintf(keys, sizeof(keys), "%s/wide", p.dir);
    assert_ok(p.ctx, loongi_peft_write(made, keys));
    snprintf(keys, sizeof(keys), "finetune.adapter=%s/wide\n" DROPPED, p.dir);
    lora_run(&p, c, 1, DROPPED);
    lora_run(&other, &wide, 1, keys);
    assert_int_equal(job_metrics(&p, NULL, "loss", &loss[0], 1), 1);
    assert_int_equal(job_metrics(&other, NULL, "loss", &loss[1], 1), 1);
    if (!(fabs(loss[0] - loss[1]) <= 1e-8)) {
        fail_msg("%.12g, wanted %.12g", loss[0], loss[1]);
    }
    loongi_peft_destroy(&made);
    loongi_peft_destroy(&dora);
    loongi_hf_close(&hf);
    job_end(&other);
    job_end(&p);
}

static double element(const loong_safetensors_t *file, const char *name,
                      int64_t row, int64_t col)
{
    const loong_safetensor_t *t = loongi_safetensors_find(file, name);
    assert_non_null(t);
    return lora_at(t, row * t->shape[1] + col);
}

/* w + alpha / rank b a, rounded once. */
static void a_merge_is_exact_to_rounding(void **state)
{
    (void)state;
#define Q "model.layers.1.self_attn.q_proj"
    const lora_case_t *c = lora_case("llama");
    job_place_t p = lora_begin(c);
    char path[1024];
    char out[2][400];
    loong_safetensors_t *file[3];
    lora_run(&p, c, 1, "train.exit_interval=2\n");
    lora_export(&p, true, "merged", out[0]);
    lora_export(&p, false, "adapter", out[1]);
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
    const lora_case_t *c = lora_case("nf4");
    job_place_t p = lora_begin(c);
    char path[1024];
    char out[2][400];
    double base[2][SIDE * SIDE];
    loong_safetensors_t *made = NULL;
    loong_hf_t *hf = NULL;
    lora_run(&p, c, 1, "train.exit_interval=2\n");
    lora_export(&p, true, "merged", out[0]);
    lora_export(&p, false, "adapter", out[1]);
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
        {"finetune.target_modules=[q_proj, lm_head]\n",
         "up_proj down_proj, and the head is the matrix of embed_tokens"},
        {"finetune.modules_to_save=[nrm]\n",
         "finetune.modules_to_save[0]: no parameter matches nrm; their names"},
        {"finetune.modules_to_save=[down_proj]\n",
         "layers.1.mlp.down_proj has an adapter and is trained as it is"},
        {"finetune.modules_to_save=[embed_tokens]\n",
         "embed_tokens.weight is trained as it is, and is the head as well"},
        {"finetune.rank_pattern=[{scope: k_proj, rank: 2}]\n",
         "finetune.rank_pattern[0].scope: no parameter matches k_proj"},
        {"finetune.rank=5\n", "has rank 4, here it has 5"},
        {"finetune.use_dora=true\n", "has no magnitudes: finetune.use_dora"},
        {"finetune.use_dora=true\n~init.from_hf\n",
         "finetune.use_dora: begins with the lengths of the rows"},
        {"finetune.use_dora=true\nfinetune.target_modules=[embed_tokens]\n",
         "finetune.use_dora: adapters of embeddings have no magnitudes"},
        {"finetune.alpha=7\n", "is multiplied by 1.5, here by 1.75"},
        {"finetune.target_modules=[q_proj, v_proj]\n",
         "finetune.target_modules leaves it out"},
        {"finetune.target_modules=[q_proj, v_proj, down_proj, k_proj]\n",
         "there is no base_model.model"},
    };
    const lora_case_t *c = lora_case("llama");
    job_place_t p = lora_begin(c);
    for (int i = 0; i < LOONG_COUNT_OF(refusals); i++) {
        job_result_t r;
        char keys[2048];
        snprintf(
            keys, sizeof(keys),
            "~model\ntraining_phase=pretrain\ndata.train=[{path: $DIR/text}]\n"
            "init.from_hf=" GOLDEN "fixtures/llama3_gqa_tied\n"
            "finetune.adapter=" GOLDEN "lora/llama\n"
            "finetune.method=lora\nexport.hf=$DIR/out\n%s%s",
            c->keys, refusals[i][0]);
        job_run(&p, 1, keys, &r);
        if (r.status == LOONG_OK || strstr(r.error, refusals[i][1]) == NULL) {
            fail_msg("'%s' is not in: %s", refusals[i][1], r.error);
        }
    }
    job_end(&p);
}

/* It has scores of experts, not features: peft has none there either. */
static void a_router_has_no_adapter(void **state)
{
    (void)state;
    static const char *const gates[] = {"gate", "mlp.gate",
                                        "shared_expert_gate"};
    const lora_case_t *c = lora_case("qwen2_moe");
    job_place_t p = lora_begin(c);
    for (int i = 0; i < LOONG_COUNT_OF(gates); i++) {
        job_result_t r;
        char keys[2048];
        char wanted[128];
        snprintf(keys, sizeof(keys),
                 "~model\ntraining_phase=pretrain\n"
                 "data.train=[{path: $DIR/text}]\n"
                 "init.from_hf=" GOLDEN "fixtures/qwen2_moe\n"
                 "finetune.method=lora\n%s"
                 "finetune.target_modules=[q_proj, %s]\n",
                 c->keys, gates[i]);
        snprintf(wanted, sizeof(wanted),
                 "no layer that can have adapters is called %s; there are "
                 "embed_tokens q_proj ",
                 gates[i]);
        job_run(&p, 1, keys, &r);
        if (r.status == LOONG_OK || strstr(r.error, wanted) == NULL ||
            strstr(r.error, " gate ") != NULL ||
            strstr(r.error, " up_proj") == NULL) {
            fail_msg("'%s' is not in: %s", wanted, r.error);
        }
    }
    job_end(&p);
}

/* Of what files have as one layer, matrices b with a row less, and with those
 * of one part alone. */
static void other_rows_are_refused(void **state)
{
    (void)state;
    const lora_case_t *c = lora_case("phi3");
    job_place_t p = lora_begin(c);
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
                b->shape[0] =
                    k == 0 ? b->shape[0] - 1 : peft->modules[i].a.shape[1];
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
        cmocka_unit_test(a_divergence_is_from_the_model_without),
        cmocka_unit_test(magnitudes_begin_as_norms),
        cmocka_unit_test(magnitudes_with_dropout_are_a_wide_adapter),
        cmocka_unit_test(a_merge_is_exact_to_rounding),
        cmocka_unit_test(a_merge_is_of_what_codes_stand_for),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_router_has_no_adapter),
        cmocka_unit_test(other_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
