/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-ckpt with adapters of peft's, in directories of their own: shown,
 * verified, there and back, added to one another and to their base.
 * tests/golden/lora_files.py compares with peft. */
#include "ckpt_program.h"

#define LORA LOONG_SOURCE_DIR "/tests/golden/lora"
#define BASE " --base " FIXTURES "/llama3_gqa_tied"

static void adapters_are_files_too(void **state)
{
    (void)state;
    assert_run("inspect " LORA "/llama", 0,
               "module q_proj (2): rank 4, alpha 6, times 1.5");
    assert_run("verify " LORA "/llama", 0, "was not looked at (--base DIR)");
    assert_run("verify " LORA "/llama" BASE, 0, "all fit the matrices of");
    assert_run("verify " LORA "/qwen2" BASE, 1, "12 problems");
    assert_run("import " LORA "/llama %/lora", 66, "--base DIR");
    assert_run("import " LORA "/llama %/lora" BASE, 0, "");
    assert_run("verify %/lora", 0, "all adapters are there");
    assert_run("export %/lora %/peft", 0, "");
    assert_run("diff " LORA "/llama %/peft", 0, "all values are equal");
    assert_run("diff %/lora %/peft", 1, "are compared with others of peft's");
    assert_run("import %/peft %/lora2" BASE, 0, "");
    assert_run("diff %/lora %/lora2", 0, "all values are equal");
    assert_run("merge %/peft=0.5 " LORA "/llama_plus %/sum", 0, "");
    assert_run("inspect %/sum", 0, "module up_proj (2): rank 2, alpha 2");
    assert_run("verify %/sum" BASE, 0, "all fit the matrices of");
    assert_run("merge %/sum " FIXTURES "/llama3_gqa_tied %/merged", 0, "");
    assert_run("merge %/peft " FIXTURES "/llama2_mha %/no", 1,
               "adapters of 'fixtures/llama3_gqa_tied', by their");
    assert_run("merge %/sum=-1 %/merged %/base --dtype bf16", 0, "");
    assert_run("convert " FIXTURES "/llama3_gqa_tied %/bf16 --dtype bf16", 0,
               "");
    assert_run("diff %/merged %/base", 1, "mlp.up_proj.weight: ");
    assert_run("merge %/sum %/lora %/no", 2, "is a native checkpoint");
    assert_run("merge %/merged %/sum %/no", 2, "stands behind all adapters");
    assert_run("merge " LORA "/llama " LORA "/qwen2 %/no", 1, "is beside");
    assert_run("merge " LORA "/gpt2=2 %/no", 1, "was trained as it is");
    assert_run("merge --linear %/peft " LORA "/llama_plus %/no", 0, "");
    assert_run("merge --linear %/sum " LORA "/llama %/no", 0, "");
    assert_run("merge --linear --svd 2 %/sum " LORA "/llama %/no", 2, "(svd)");
    assert_run("merge --svd 0 %/sum %/no", 2,
               "wrong value of --svd, a rank from 1 on is wanted");
    assert_run("merge --svd 3 %/peft=0.5 " LORA "/llama %/svd", 0, "");
    assert_run("inspect %/svd", 0, "module q_proj (2): rank 3, alpha 3");
    assert_run("merge --svd 4 %/peft=0.5 %/whole", 0, "");
    assert_run("merge --svd 8 %/peft=0.25 %/peft=0.25 %/whole2", 0, "");
}

/* What a command reads, a model and adapters beside it. */
static void nothing_is_replaced(void **state)
{
    (void)state;
    assert_run("merge %/peft %/merged %/merged", 2, "onto itself");
    assert_run("merge %/peft %/peft", 2, "onto itself");
    assert_run("merge %/peft %/merged", 2, "holds a model (config.json)");
    assert_run("merge %/peft %/lora", 2, "has checkpoints");
    assert_run("export %/lora %/merged", 2, "holds a model (config.json)");
    assert_run("export --merge %/lora %/peft", 2, "holds adapters");
    assert_run("merge --linear %/peft " LORA "/llama_plus %/x.merge.partial", 0,
               "");
    assert_run("merge %/x.merge.partial " FIXTURES "/llama3_gqa_tied %/x/", 2,
               "onto itself");
    assert_run("verify %/x.merge.partial" BASE, 0, "all fit the matrices of");
    assert_run("diff " LORA "/llama %/peft", 0, "all values are equal");
}

/* The table of an embedding has a row for each id, peft's matrices are turned;
 * where the head is the same matrix there is nothing to merge into. */
static void embeddings_have_some_too(void **state)
{
    (void)state;
    assert_run("verify " LORA "/llama_ends" BASE, 0, "all fit the matrices of");
    assert_run("import " LORA "/llama_ends %/ends" BASE, 0, "");
    assert_run("export %/ends %/ends_same", 0, "");
    assert_run("diff " LORA "/llama_ends %/ends_same", 0,
               "all values are equal");
    assert_run("export --merge %/ends %/no", 1, "cannot be merged");
    assert_run("merge " LORA "/llama_ends=0.5 %/half", 0, "");
    assert_run("merge " LORA "/mixtral=0.5 %/half", 2,
               "has an adapter beside 'fixtures/llama3_gqa_tied'");
}

/* peft saves the table beside the adapter of a head, which the base has. */
static void tables_are_left_to_the_base(void **state)
{
    (void)state;
#define LLAMA2 FIXTURES "/llama2_mha"
    assert_run("verify " LORA "/head --base " LLAMA2, 0,
               "all fit the matrices of");
    assert_run("import " LORA "/head %/head --base " LLAMA2, 0, "");
    assert_run("export %/head %/head_same", 0, "");
    assert_run("diff " LORA "/head %/head_same", 1, "lm_head.base_layer");
    assert_run("merge " LORA "/head=0.5 " LORA "/head=0.5 " LLAMA2 " %/table",
               0, "");
    assert_run("export --merge %/head %/table2", 0, "");
    assert_run("diff %/table %/table2", 0, "all values are equal");
    assert_run("convert " LLAMA2 " %/head16 --dtype bf16", 0, "");
    assert_run("verify " LORA "/head --base %/head16", 1,
               "lm_head.weight, which is beside its adapter, is not the "
               "model's own");
}

static void experts_have_some_too(void **state)
{
    (void)state;
#define MIXTRAL " --base " FIXTURES "/mixtral"
    assert_run("verify " LORA "/mixtral" BASE, 1, "of this name");
    assert_run("import " LORA "/mixtral %/experts" MIXTRAL, 0, "");
    assert_run("export %/experts %/same", 0, "");
    assert_run("diff " LORA "/mixtral %/same", 0, "all values are equal");
    assert_run("merge " LORA "/mixtral=0.25 " LORA "/mixtral=0.75 " FIXTURES
               "/mixtral %/twice",
               0, "");
    assert_run("export --merge %/experts %/once", 0, "");
    assert_run("diff %/once %/twice", 0, "all values are equal");
    assert_run("verify " LORA "/mixtral_older" MIXTRAL, 1,
               "are read by a training alone");
}

/* Magnitudes go there and back and into the model, by themselves alone. */
static void magnitudes_are_of_one_adapter(void **state)
{
    (void)state;
    assert_run("inspect " LORA "/dora", 0, "DoRA of 10 modules");
    assert_run("verify " LORA "/dora" BASE, 0, "all fit the matrices of");
    assert_run("import " LORA "/dora %/rows" BASE, 0, "");
    assert_run("export %/rows %/rows2", 0, "");
    assert_run("diff " LORA "/dora %/rows2", 0, "all values are equal");
    assert_run("merge " LORA "/dora " FIXTURES "/llama3_gqa_tied %/long", 0,
               "");
    assert_run("export --merge %/rows %/long2", 0, "");
    assert_run("diff %/long %/long2", 0, "all values are equal");
    assert_run("diff %/long " FIXTURES "/llama3_gqa_tied", 1, "mlp.up_proj");
    assert_run("merge " LORA "/dora=-1 %/long %/no", 1,
               "magnitudes (use_dora) are not added");
    assert_run("merge " LORA "/dora " LORA "/llama %/no", 1,
               "magnitudes (use_dora) are not added");
}

/* What peft makes of it is another model than base + scale b a. */
static void other_methods_are_refused(void **state)
{
    (void)state;
    static const char *const keys[][3] = {
        {"init_lora_weights", "true", "\"pissa_niter_16\""},
        {"init_lora_weights", "true", "\"olora\""},
        {"init_lora_weights", "true", "\"gaussian\""},
        {"init_lora_weights", "true", "\"eva\""},
        {"layer_replication", "null", "[[0, 2]]"},
        {"use_qalora", "false", "true"},
        {"alora_invocation_tokens", "null", "[1, 2]"},
        {"alora_invocation_tokens", "null", "[]"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(keys); i++) {
        const char *const *k = keys[i];
        bool plain = strstr("\"gaussian\" \"eva\" []", k[2]) != NULL;
        char command[2048];
        snprintf(command, sizeof(command),
                 "rm -rf %s/other && cp -r " LORA "/llama %s/other && "
                 "chmod -R u+w %s/other && sed -i "
                 "'s/\"%s\": %s/\"%s\": %s/' %s/other/adapter_config.json",
                 dir, dir, dir, k[0], k[1], k[0], k[2], dir);
        assert_int_equal(system(command), 0);
        assert_run("verify %/other" BASE, plain ? 0 : 1,
                   plain ? "all fit the matrices of" : k[0]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_files_too),
        cmocka_unit_test(nothing_is_replaced),
        cmocka_unit_test(embeddings_have_some_too),
        cmocka_unit_test(tables_are_left_to_the_base),
        cmocka_unit_test(experts_have_some_too),
        cmocka_unit_test(magnitudes_are_of_one_adapter),
        cmocka_unit_test(other_methods_are_refused),
    };
    if (argc != 2) {
        return 2;
    }
    program = argv[1];
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
