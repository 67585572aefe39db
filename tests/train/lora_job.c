/* SPDX-License-Identifier: Apache-2.0 */
#include "lora_job.h"

#include <math.h>

#include "convert.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "loong/dataset.h"

enum { TOKENS = 65 };

#define CODES "finetune.method=qlora\nfinetune.rank=4\nfinetune.alpha=8\n"

static const lora_case_t cases[] = {
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
     "finetune.rank=7\nfinetune.alpha=3\n"
     "finetune.rank_pattern=[{scope: c_attn, rank: 2}, {scope: c_proj, "
     "rank: 2}, {scope: linear_fc1, rank: 2}, {scope: wte, rank: 2}]\n"
     "finetune.target_modules=[c_attn, c_proj, c_fc, wte]\n"
     "finetune.modules_to_save=[norm]\n"
     "foundation.hidden_dropout=0\nfoundation.attention_dropout=0\n"
     "foundation.embedding_dropout=0\n"},
    /* Rows of matrices have lengths of their own. */
    {"dora", "llama3_gqa_tied",
     "finetune.rank=4\nfinetune.alpha=6\nfinetune.use_dora=true\n"
     "finetune.target_modules=[q_proj, v_proj, gate_proj, up_proj, "
     "down_proj]\n"},
    {"dora_qwen2", "qwen2_gqa",
     "finetune.rank=3\nfinetune.alpha=5\nfinetune.use_dora=true\n"
     "finetune.use_rslora=true\n"
     "finetune.rank_pattern=[{scope: k_proj, rank: 2}]\n"
     "finetune.bias=all\n"},
    {"dora_gpt2", "gpt2_untied",
     "finetune.rank=2\nfinetune.alpha=3\nfinetune.use_dora=true\n"
     "finetune.target_modules=[c_attn, c_proj, c_fc]\n"
     "foundation.hidden_dropout=0\nfoundation.attention_dropout=0\n"
     "foundation.embedding_dropout=0\n"},
    {"head", "llama2_mha",
     "finetune.rank=4\nfinetune.alpha=6\n"
     "finetune.target_modules=[q_proj, output_layer]\n"
     "finetune.rank_pattern=[{scope: lm_head, rank: 3}]\n"},
    {"head_gpt2", "gpt2_untied",
     "finetune.rank=2\nfinetune.alpha=3\n"
     "finetune.target_modules=[c_attn, lm_head]\nfinetune.bias=all\n"
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
    {"dora_nf4", "../qlora/plain",
     CODES "finetune.use_dora=true\nfinetune.target_modules=[q_proj, v_proj, "
           "gate_proj, up_proj, down_proj]\n"},
    {"moe_nf4", "../qlora/moe",
     CODES "finetune.target_modules=[q_proj, o_proj, experts.gate_up_proj, "
           "experts.down_proj]\nfoundation.moe_aux_loss_coeff=0\n"},
    {"moe_nf4_double", "../qlora/moe_nf4_double",
     "finetune.method=qlora\nfinetune.rank=2\nfinetune.alpha=8\n"
     "finetune.double_quantization=true\n"
     "finetune.target_modules=[v_proj, experts.down_proj]\n"
     "foundation.moe_aux_loss_coeff=0\n"},
};

const lora_case_t *lora_case_at(int index)
{
    return index < LOONG_COUNT_OF(cases) ? &cases[index] : NULL;
}

const lora_case_t *lora_case(const char *name)
{
    int i = 0;
    while (strcmp(cases[i].name, name) != 0) {
        i++;
    }
    return &cases[i];
}

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

job_place_t lora_begin(const lora_case_t *c)
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

void lora_run(const job_place_t *p, const lora_case_t *c, int ranks,
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

void lora_compare_curve(const job_place_t *p, const lora_case_t *c,
                        const char *which, const char *what, int steps,
                        double bound)
{
    static const char *const keys[] = {"loss", "grad_norm", "kl_loss"};
    double got[3][LORA_STEPS + 1];
    char path[512];
    int columns = strcmp(which, "kl_") == 0 ? 3 : 2;
    snprintf(path, sizeof(path), GOLDEN "lora/%s/%scurve.txt", c->name, which);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int k = 0; k < columns; k++) {
        assert_int_equal(job_metrics(p, NULL, keys[k], got[k], LORA_STEPS + 1),
                         LORA_STEPS);
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

void lora_export(const job_place_t *p, bool merge, const char *to,
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

double lora_at(const loong_safetensor_t *t, int64_t element)
{
    double value = 0.0;
    const char *from =
        (const char *)t->data + (size_t)element * loong_dtype_size(t->dtype);
    assert_ok(NULL, loongi_convert(NULL, t->dtype, from, LOONG_F64, &value, 1));
    return value;
}

void lora_compare(const job_place_t *p, const lora_case_t *c, const char *which,
                  const char *what, double bound)
{
    char path[512];
    char out[400];
    loong_safetensors_t *wanted = NULL;
    loong_safetensors_t *made = NULL;
    lora_export(p, false, "adapter", out);
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
            double a = lora_at(g, k);
            double b = lora_at(w, k);
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
