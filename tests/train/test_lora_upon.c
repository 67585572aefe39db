/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that are merged into the model before a training begins: new ones
 * upon them take the steps of peft's, and what is exported belongs to the model
 * as it was. */
#include <math.h>

#include "lora_job.h"

#define EARLIER                                                   \
    "init.adapters=['" GOLDEN "lora/llama=0.5', '" GOLDEN "lora/" \
    "llama_plus']\n"
#define MODULE "base_model.model.model."

static const lora_case_t upon = {
    "upon", "llama3_gqa_tied",
    "finetune.rank=3\nfinetune.alpha=5\n"
    "finetune.target_modules=[q_proj, o_proj, up_proj]\n"};

static double loss_of(const job_place_t *p)
{
    double loss[LORA_STEPS + 1];
    assert_int_equal(job_metrics(p, NULL, "loss", loss, LORA_STEPS + 1), 1);
    return loss[0];
}

/* That of a step, from 0. */
static double wanted_of(const lora_case_t *c, int step)
{
    char path[512];
    double wanted = NAN;
    snprintf(path, sizeof(path), GOLDEN "lora/%s/curve.txt", c->name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int k = 0; k <= step; k++) {
        assert_int_equal(fscanf(file, "%lf %*f", &wanted), 1);
    }
    fclose(file);
    return wanted;
}

static void same_loss(const job_place_t *p, const lora_case_t *c, int step,
                      double bound)
{
    double loss = loss_of(p);
    double wanted = wanted_of(c, step);
    if (!(fabs(loss - wanted) <= bound * wanted)) {
        fail_msg("%s: %.12g, wanted %.12g", c->name, loss, wanted);
    }
}

/* The checkpoint has the new adapter alone. */
static void compare_new(const job_place_t *p)
{
    loong_safetensors_t *wanted = NULL;
    assert_ok(p->ctx,
              loongi_safetensors_open(
                  p->ctx, GOLDEN "lora/upon/final.safetensors", &wanted));
    for (int64_t i = 0; i < loongi_safetensors_count(wanted); i++) {
        const loong_safetensor_t *w = loongi_safetensors_get(wanted, i);
        double *values = NULL;
        char name[300];
        snprintf(name, sizeof(name), "foundation.%s", w->name + strlen(MODULE));
        int64_t count = job_tensor(p, "save", "param", name, &values);
        assert_int_equal(count, w->shape[0] * w->shape[1]);
        for (int64_t k = 0; k < count; k++) {
            if (!(fabs(values[k] - lora_at(w, k)) <= 1e-9)) {
                fail_msg("%s [%d] is %.12g, wanted %.12g", name, (int)k,
                         values[k], lora_at(w, k));
            }
        }
        free(values);
    }
    loongi_safetensors_close(&wanted);
}

static void steps_upon_earlier_ones_are_those_of_peft(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *keys;
    } layouts[] = {
        {1, ""},
        {2, "parallel.tensor_model_parallel_size=2\n"
            "parallel.sequence_parallel=true\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char keys[1024];
        job_place_t p = lora_begin(&upon);
        snprintf(keys, sizeof(keys), EARLIER "%s", layouts[i].keys);
        lora_run(&p, &upon, layouts[i].ranks, keys);
        lora_compare_curve(&p, &upon, "", keys, LORA_STEPS, 1e-8);
        compare_new(&p);
        job_end(&p);
    }
}

/* Every kind of adapter, in the model instead of beside it: nothing is added by
 * a new one before its first step. */
static void a_model_with_adapters_in_has_their_loss(void **state)
{
    (void)state;
    const lora_case_t *c = NULL;
    static const lora_case_t older = {"mixtral_older", "mixtral",
                                      "foundation.moe_aux_loss_coeff=0\n"};
    for (int i = 0; i == 0 || c != &older; i++) {
        c = lora_case_at(i) != NULL ? lora_case_at(i) : &older;
        const lora_case_t plain = {c->name, c->fixture, ""};
        const char *own = strstr(c->keys, "foundation.");
        char keys[1024];
        if (strstr(c->keys, "qlora") != NULL) {
            continue; /* is refused */
        }
        job_place_t p = lora_begin(&plain);
        snprintf(keys, sizeof(keys),
                 "init.adapters=['" GOLDEN "lora/%s']\n~finetune.adapter\n"
                 "train.exit_interval=1\noptimizer.lr=0\n%s",
                 c->name, own != NULL ? own : "");
        lora_run(&p, &plain, 1, keys);
        same_loss(&p, c, 0, 1e-8);
        job_end(&p);
    }
}

/* The adapter that is exported is of the model as it was, with what the
 * earlier ones make; the merged model goes without any. A run that goes on
 * needs the same earlier ones. */
static void exports_belong_to_the_model_as_it_was(void **state)
{
    (void)state;
    char keys[2048];
    char out[2][400];
    job_result_t r;
    job_place_t p = lora_begin(&upon);
    lora_run(&p, &upon, 1, EARLIER "train.exit_interval=8\n");
    lora_export(&p, false, "adapter", out[0]);
    lora_export(&p, true, "merged", out[1]);
    const lora_case_t sum = {
        "upon", "llama3_gqa_tied",
        "finetune.rank=3\nfinetune.alpha=3\n"
        "finetune.target_modules=[q_proj, k_proj, v_proj, o_proj, up_proj, "
        "down_proj]\n"
        "finetune.rank_pattern=[{scope: q_proj, rank: 7}, {scope: k_proj, "
        "rank: 2}, {scope: v_proj, rank: 4}, {scope: up_proj, rank: 5}, "
        "{scope: down_proj, rank: 4}]\n"
        "finetune.alpha_pattern=[{scope: q_proj, alpha: 7}, {scope: k_proj, "
        "alpha: 2}, {scope: v_proj, alpha: 4}, {scope: up_proj, alpha: 5}, "
        "{scope: down_proj, alpha: 4}]\n"};
    job_place_t again = lora_begin(&sum);
    snprintf(keys, sizeof(keys), "finetune.adapter=%s\ntrain.exit_interval=1\n",
             out[0]);
    lora_run(&again, &sum, 1, keys);
    same_loss(&again, &upon, 8, 1e-6); /* its matrices are float32 */
    job_end(&again);
    again = lora_begin(&upon);
    snprintf(keys, sizeof(keys),
             "init.from_hf=%s\n~finetune.adapter\ntrain.exit_interval=1\n",
             out[1]);
    lora_run(&again, &upon, 1, keys);
    same_loss(&again, &upon, 8, 1e-6); /* as the files */
    job_end(&again);
    lora_run(&p, &upon, 1, EARLIER "checkpoint.load=auto\n");
    lora_compare_curve(&p, &upon, "", "resumed", LORA_STEPS, 1e-8);
    snprintf(keys, sizeof(keys),
             "~model\ntraining_phase=pretrain\ndata.train=[{path: "
             "$DIR/text}]\ninit.from_hf=" GOLDEN "fixtures/llama3_gqa_tied\n"
             "finetune.method=lora\n%scheckpoint.load=auto\n"
             "optimizer.lr_decay_style=constant\noptimizer.clip_grad=0\n"
             "optimizer.weight_decay=0\n"
             "train.train_iters=30\ndata.seq_length=16\n"
             "train.global_batch_size=4\ntrain.micro_batch_size=1\n"
             "optimizer.lr=0.01\ninit.adapters=['" GOLDEN "lora/llama']\n",
             upon.keys);
    job_run(&p, 1, keys, &r);
    if (strstr(r.error, "with init.adapters: its weights are") == NULL) {
        fail_msg("other adapters are not refused: %s", r.error);
    }
    job_end(&p);
}

static void what_cannot_be_merged_is_refused(void **state)
{
    (void)state;
#define AT(adapter_) "init.adapters=['" GOLDEN "lora/" adapter_ "']\n"
    static const char *const refusals[][2] = {
        {AT("qwen2") "~export.hf\n", "matrices are ["},
        {AT("gpt2") "~export.hf\n", "has no matrix of this name"},
        {AT("llama=x"), "behind = a number is wanted"},
        {AT("llama_ends"), "adapter of embed_tokens cannot be merged"},
        {AT("dora=0.5") "~export.hf\n",
         "has magnitudes (use_dora): there is no weight but 1"},
        {AT("dora"), "of which magnitudes (use_dora) can be no part"},
        {AT("llama") "finetune.use_dora=true\n",
         "lora_magnitude_vector can be no part"},
        {AT("llama") "finetune.modules_to_save=[norm]\n",
         "of which norm.weight can be no part"},
        {AT("llama") "finetune.method=qlora\n", "codes have no place"},
        {AT("llama") "~init.from_hf\nmodel.foundation={family: llama, "
                     "num_layers: 1, "
                     "hidden_size: 8, num_attention_heads: 1, vocab_size: 512, "
                     "max_position_embeddings: 64}\n",
         "init.from_hf says which"},
    };
    job_place_t p = lora_begin(&upon);
    for (int i = 0; i < LOONG_COUNT_OF(refusals); i++) {
        job_result_t r;
        char keys[2048];
        snprintf(keys, sizeof(keys),
                 "~model\ntraining_phase=pretrain\n"
                 "data.train=[{path: $DIR/text}]\n"
                 "init.from_hf=" GOLDEN "fixtures/llama3_gqa_tied\n"
                 "finetune.method=lora\nexport.hf=$DIR/out\n%s%s",
                 upon.keys, refusals[i][0]);
        job_run(&p, 1, keys, &r);
        if (r.status == LOONG_OK || strstr(r.error, refusals[i][1]) == NULL) {
            fail_msg("'%s' is not in: %s", refusals[i][1], r.error);
        }
    }
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_upon_earlier_ones_are_those_of_peft),
        cmocka_unit_test(a_model_with_adapters_in_has_their_loss),
        cmocka_unit_test(exports_belong_to_the_model_as_it_was),
        cmocka_unit_test(what_cannot_be_merged_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
