/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-ckpt as a program: what it writes, prints and returns. The path of
 * the program is the first argument. */
#include <unistd.h>

#include "checksum.h"
#include "ckpt_program.h"
#include "file.h"
#include "loong/exit_code.h"
#include "native.h"

#define STEP "step_00000000"

static void round_trip_is_equal(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2_tied", "llama_bias_mqa",
                                        "qwen2_window", "qwen3_mqa_untied"};
    for (int i = 0; i < 4; i++) {
        char line[512];
        snprintf(line, sizeof(line), "import " FIXTURES "/%s %%/n%d", names[i],
                 i);
        assert_run(line, 0, "");
        assert_run("export % /n %/hf --max-shard-gb 1", 2, "export needs");
        snprintf(line, sizeof(line),
                 "export %%/n%d %%/%s --max-shard-gb 0.00001", i, names[i]);
        assert_run(line, 0, "");
        assert_run(line, 0, ""); /* of the same model */
        snprintf(line, sizeof(line), "diff " FIXTURES "/%s %%/%s", names[i],
                 names[i]);
        assert_run(line, 0, "all values are equal");
        snprintf(line, sizeof(line), "diff %%/n%d " FIXTURES "/%s", i,
                 names[i]);
        assert_run(line, 0, "all values are equal");
    }
    char path[128];
    snprintf(path, sizeof(path), "%s/gpt2_tied/model.safetensors.index.json",
             dir);
    assert_true(loongi_file_exists(path));
    snprintf(path, sizeof(path), "%s/gpt2_tied/generation_config.json", dir);
    assert_true(loongi_file_exists(path));
}

static void bf16_export_differs(void **state)
{
    (void)state;
    assert_run("import " FIXTURES "/qwen3_gqa_tied %/q", 0, "");
    assert_run("export %/q %/q16 --dtype bf16", 0, "");
    assert_run("inspect %/q16", 0, "bf16");
    assert_run("diff %/q %/q16", 1, "norm.weight: type fp32 and bf16");
    assert_run("export %/q %/qema --ema", 1, "has no averages");
    assert_run("import %/q16 %/q16n", 0, "");
    assert_run("export %/q16n %/q16b --dtype bf16", 0, "");
    assert_run("diff %/q16 %/q16b", 0, "all values are equal");
    assert_run("diff %/q %/q16n", 1, "they differ");
}

static bool is_there(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void inspect_reports(void **state)
{
    (void)state;
    assert_run("import " FIXTURES "/gpt2_untied %/g", 0, "");
    assert_run("verify %/g", 0, "checksums of all files are right");
    assert_run("verify %/g", 0, "all parameters of the model are there");
    assert_run("verify %/g", 0, "0 NaN, 0 infinite");
    assert_run("verify " FIXTURES "/gpt2_untied", 0, "0 NaN, 0 infinite");
    assert_run("inspect %/g", 0, "param foundation.embed_tokens.weight");
    assert_run("inspect %/g/step_00000000", 0, "step 0, saved by 1 rank");
    assert_run("inspect " FIXTURES "/gpt2_untied", 0, "transformer.wte.weight");
    loong_context_t *ctx = test_context();
    char path[128];
    char *bytes = NULL;
    size_t length = 0;
    snprintf(path, sizeof(path), "%s/g/step_00000000/rank_00000.h5", dir);
    assert_ok(ctx, loongi_file_read(ctx, path, &bytes, &length));
    bytes[length - 100] ^= 4;
    assert_ok(ctx, loongi_file_write(ctx, path, bytes, length));
    loongi_free(ctx, bytes);
    test_context_end(&ctx);
    assert_run("verify %/g", 1, "rank_00000.h5: checksum");
    assert_run("export %/g %/ghf", 1, "rank_00000.h5: checksum");
    assert_false(is_there("ghf"));
}

/* gpt2_tied with other bytes in place of the last ones, or of those that are
 * `there`. */
static void make_changed(const char *name, const char *there,
                         const void *bytes, size_t count)
{
    loong_context_t *ctx = test_context();
    char path[128], config[128];
    char *file = NULL;
    size_t length = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_ok(ctx, loongi_dir_make(ctx, path));
    snprintf(config, sizeof(config), "%s/%s/config.json", dir, name);
    assert_ok(ctx, loongi_file_copy(ctx, FIXTURES "/gpt2_tied/config.json",
                                    config));
    assert_ok(ctx, loongi_file_read(ctx,
                                    FIXTURES "/gpt2_tied/model.safetensors",
                                    &file, &length));
    char *at = there != NULL ? strstr(file + 8, there) : file + length - count;
    assert_non_null(at);
    memcpy(at, bytes, count);
    snprintf(path, sizeof(path), "%s/%s/model.safetensors", dir, name);
    assert_ok(ctx, loongi_file_write(ctx, path, file, length));
    loongi_free(ctx, file);
    test_context_end(&ctx);
}

static void verify_counts_odd_numbers(void **state)
{
    (void)state;
    static const uint32_t odd[3] = {0x7fc00000u, 0xff800000u, 0x7f800001u};
    make_changed("odd", NULL, odd, sizeof(odd));
    assert_run("verify %/odd", 1, ": 2 NaN and 1 infinite of");
    assert_run("verify %/odd", 1, "2 NaN, 1 infinite");
    assert_run("import %/odd %/oddn", 0, "");
    assert_run("verify %/oddn", 1, "2 NaN, 1 infinite");
    assert_run("export %/oddn %/oddhf", 1, ": 2 NaN and 1 infinite of");
    assert_false(is_there("oddhf"));
}

/* 4 - 1 is the largest gap, 0.01 - 0.001 the largest part of a number. */
static void diff_tells_how_much(void **state)
{
    (void)state;
    static const float a[3] = {1.0f, 0.001f, -7.0f};
    static const float b[3] = {4.0f, 0.01f, -7.0f};
    make_changed("ones", NULL, a, sizeof(a));
    make_changed("fours", NULL, b, sizeof(b));
    static const char wanted[] = " elements differ, largest difference 3 "
                                 "absolute, 0.9 relative\n";
    assert_run("diff %/ones %/fours", 1, wanted);
    const char *line = strstr(output, wanted);
    while (line > output && line[-1] != '\n') {
        line--;
    }
    assert_non_null(strstr(line, ": 2 of "));
    assert_run("import %/ones %/onesn", 0, "");
    assert_run("diff %/onesn %/fours", 1, wanted);
    assert_run("diff %/onesn %/ones", 0, "all values are equal");
}

/* A tensor of another name: it and the one that lacks are told with the name
 * that is nearest, and nothing is written. */
static void unknown_tensors(void **state)
{
    (void)state;
    static const char name[] = "h.1.ln_2.weight";
    make_changed("renamed", name, "h.1.ln_X.weight", sizeof(name) - 1);
    assert_run("import %/renamed %/renamedn", 1,
               "missing: transformer.h.1.ln_2.weight [24]; nearest: "
               "transformer.h.1.ln_X.weight");
    assert_non_null(
        strstr(output, "unexpected: transformer.h.1.ln_X.weight [24]; "
                       "nearest: transformer.h.1.ln_2.weight"));
    assert_non_null(strstr(output, "loong-ckpt draft "));
    assert_false(is_there("renamedn"));
    assert_run("export %/renamedn %/renamedh", 66, "renamedn");
    assert_false(is_there("renamedh"));
}

static bool file_has(const char *name, const char *wanted)
{
    loong_context_t *ctx = test_context();
    char path[256];
    char *text = NULL;
    size_t length = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    bool found = loongi_file_read(ctx, path, &text, &length) == LOONG_OK &&
                 strstr(text, wanted) != NULL;
    loong_context_clear_error(ctx);
    loongi_free(ctx, text);
    test_context_end(&ctx);
    return found;
}

/* A fixture, or NULL, with other files beside it: pairs of name and text. */
static void make_source(const char *fixture, const char *name,
                        const char *const (*files)[2], int count)
{
    static const char *const kept[] = {"config.json", "model.safetensors"};
    loong_context_t *ctx = test_context();
    char from[512];
    char to[256];
    snprintf(to, sizeof(to), "%s/%s", dir, name);
    assert_ok(ctx, loongi_dir_make(ctx, to));
    for (int i = 0; i < 2 && fixture != NULL; i++) {
        snprintf(from, sizeof(from), FIXTURES "/%s/%s", fixture, kept[i]);
        snprintf(to, sizeof(to), "%s/%s/%s", dir, name, kept[i]);
        assert_ok(ctx, loongi_file_copy(ctx, from, to));
    }
    for (int i = 0; i < count; i++) {
        snprintf(to, sizeof(to), "%s/%s/%s", dir, name, files[i][0]);
        assert_ok(ctx, loongi_file_write(ctx, to, files[i][1],
                                         strlen(files[i][1])));
    }
    test_context_end(&ctx);
}

/* auto_map of the fixture names the first two; the third is theirs to name. */
static void own_code_goes_along(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"configuration_internlm2.py", "# sizes"},
        {"modeling_internlm2.py", "# model"},
        {"helpers.py", "# both"},
        {"notes.txt", "not needed"}};
    make_source("internlm2_dynamic", "own", files, 4);
    assert_run("import %/own %/ownn", 0, "");
    assert_run("convert %/ownn %/own16 --dtype bf16", 0, "");
    assert_run("export %/own16 %/ownhf", 0, "");
    for (int i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof(path), "ownhf/%s", files[i][0]);
        assert_int_equal(file_has(path, files[i][1]), i < 3);
    }
    assert_true(file_has("ownhf/config.json",
                         "\"modeling_internlm2.InternLM2ForCausalLM\""));
    assert_true(file_has("ownhf/config.json", "\"type\": \"dynamic\""));
    assert_false(file_has("ownhf/config.json", "rope_type"));
    assert_run("export %/ownn %/ownas --as llama", 0, "");
    assert_true(file_has("ownas/config.json", "\"model_type\": \"llama\""));
    assert_false(file_has("ownas/config.json", "auto_map"));
    assert_false(file_has("ownas/helpers.py", "both"));
    /* a file that auto_map names is missing: there is no code */
    make_source("internlm2_dynamic", "half", files, 1);
    assert_run("import %/half %/halfn", 0, "");
    assert_run("export %/halfn %/halfhf", 1, "--as llama");
    assert_false(file_has("halfhf/config.json", ""));
    assert_run("export %/halfn %/halfhf --as internlm2", 0, "");
    assert_false(file_has("halfhf/config.json", "auto_map"));
    assert_run("diff %/half %/halfhf", 0, "all values are equal");
}

/* A fixture with another text in its config.json. */
static void make_config(const char *fixture, const char *name, const char *was,
                        const char *becomes)
{
    static const char *const files[][2] = {{"notes.txt", "-"}};
    loong_context_t *ctx = test_context();
    char path[128];
    char *text = NULL;
    size_t length = 0;
    make_source(fixture, name, files, 1);
    snprintf(path, sizeof(path), "%s/%s/config.json", dir, name);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    char *at = strstr(text, was);
    assert_non_null(at);
    loong_text_t other = loongi_text_begin(ctx);
    loongi_text_printf(&other, "%.*s%s%s", (int)(at - text), text, becomes,
                       at + strlen(was));
    assert_ok(ctx, loongi_file_write(ctx, path, loongi_text_get(&other),
                                     other.length));
    loongi_text_free(&other);
    loongi_free(ctx, text);
    test_context_end(&ctx);
}

/* The word that the file had for the same function comes back. */
static void activations_keep_their_word(void **state)
{
    (void)state;
    make_config("gpt2_tied", "tanh", "\"gelu_new\"", "\"gelu_pytorch_tanh\"");
    assert_run("import %/tanh %/tanhn", 0, "");
    assert_run("export %/tanhn %/tanhhf", 0, "");
    assert_true(file_has("tanhhf/config.json",
                         "\"activation_function\": \"gelu_pytorch_tanh\""));
}

/* What the engine would refuse, with the field that says it. */
static void impossible_models(void **state)
{
    (void)state;
    static const struct {
        const char *fixture;
        const char *was;
        const char *becomes;
        const char *problem;
        const char *origin;
    } cases[] = {
        {"deepseek_v3_groups", "tok\": 3", "tok\": 9",
         "moe_router_topk: found 9, 1 to num_experts 8 wanted",
         "moe_router_topk is from %/bad/config.json: num_experts_per_tok"},
        {"deepseek_v3_groups", "n_group\": 4", "n_group\": 3",
         "moe_router_num_groups: 3 does not divide num_experts 8",
         "num_experts is from %/bad/config.json: n_routed_experts"},
        {"llama_yarn", "factor\": 2.0", "factor\": 0.0",
         "rope_scaling.factor: found 0.0, a number",
         "rope_scaling.factor is from %/bad/config.json: "
         "rope_parameters.factor"},
        {"llama_yarn", "10000.0", "0.5",
         "rotary_base: found 0.5, a number from 1",
         "rotary_base is from %/bad/config.json: rope_parameters.rope_theta"},
        {"llama_yarn", "10000.0", "1e20", "found 1e+20, a number from 1 to 1e",
         "%/bad/config.json: rope_parameters.rope_theta"},
        {"llama_yarn", "value_heads\": 2", "value_heads\": 3",
         "num_query_groups: 3 does not divide num_attention_heads 2",
         "num_query_groups is from %/bad/config.json: num_key_value_heads"},
        {"llama_yarn", "layers\": 2", "layers\": 4294967300",
         "num_layers: found 4294967300, a whole number",
         "num_layers is from %/bad/config.json: num_hidden_layers"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        char origin[256];
        const char *at = strchr(cases[i].origin, '%');
        snprintf(origin, sizeof(origin), "%.*s%s%s",
                 (int)(at - cases[i].origin), cases[i].origin, dir, at + 1);
        make_config(cases[i].fixture, "bad", cases[i].was, cases[i].becomes);
        assert_run("import %/bad %/badn", 1, cases[i].problem);
        assert_non_null(strstr(output, origin));
        assert_run("verify %/bad", 1, origin);
        assert_false(is_there("badn"));
    }
}

static void tokenizers_keep_their_code(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"tokenizer_config.json",
         "{\"auto_map\": {\"AutoTokenizer\": [\"tokenization_a.A\", null]}}"},
        {"tokenization_a.py", "# words"},
        {"qwen.tiktoken", "AA== 0"}};
    make_source("qwen2_gqa", "words", files, 3);
    assert_run("import %/words %/wordsn", 0, "");
    assert_run("export %/wordsn %/wordshf", 0, "");
    assert_true(file_has("wordshf/tokenization_a.py", "# words"));
    assert_true(file_has("wordshf/qwen.tiktoken", "AA=="));
    assert_false(file_has("wordshf/config.json", "auto_map"));
}

/* checkpoint.json without what stands from one text up to another; its last
 * member, the checksum, is right again. */
static void forget(const char *name, const char *from, const char *to)
{
    static const char mark[] = ",\n\"checksum\":\"";
    loong_context_t *ctx = test_context();
    char path[256];
    char *text = NULL;
    size_t length = 0;
    snprintf(path, sizeof(path), "%s/%s/" STEP "/checkpoint.json", dir, name);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    char *begin = strstr(text, from);
    assert_non_null(begin);
    char *rest = strstr(begin, to);
    memmove(begin, rest, strlen(rest) + 1);
    char *end = strstr(text, mark);
    snprintf(end + sizeof(mark) - 1, 20, "%016llx\"}\n",
             (unsigned long long)loongi_checksum(text, (size_t)(end - text)));
    assert_ok(ctx, loongi_file_write(ctx, path, text, strlen(text)));
    loongi_free(ctx, text);
    test_context_end(&ctx);
}

static void kept_files_are_compared(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"tokenizer_config.json", "{\"model_max_length\": 99}"},
        {"generation_config.json", "{}"}};
    static const char *const changed[][2] = {{"tokenizer_config.json", ""},
                                             {"vocab.json", ""}};
    char gone[256];
    static const char *const commands[] = {
        "verify %/kept", "export %/kept %/kepthf",
        "convert %/kept %/kept16 --dtype bf16"};
    make_source("qwen2_gqa", "keeps", files, 2);
    assert_run("import %/keeps %/kept", 0, "");
    make_source(NULL, "kept/" STEP "/hf", changed, 2);
    snprintf(gone, sizeof(gone), "%s/kept/" STEP "/hf/%s", dir, files[1][0]);
    assert_int_equal(unlink(gone), 0);
    for (int i = 0; i < 3; i++) {
        assert_run(commands[i], 1, "hf/tokenizer_config.json: checksum");
        assert_non_null(strstr(output, "hf/generation_config.json is missing"));
        assert_non_null(strstr(output, "hf/vocab.json: checkpoint.json does"));
        assert_false(is_there("kepthf") || is_there("kept16"));
    }
    assert_run("export %/kept %/kepthf --tokenizer %/keeps", 0, "");
    forget("kept", ",\n\"hf\":[", ",\n\"tensors\"");
    assert_run("verify %/kept", 0, "those in hf/ have none: an earlier");
}

static void checkpoints_are_no_place(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "export %/full %/full/step_00000000/hf",
        "export %/full %/fulllink/hf/none",
        "convert " FIXTURES "/gpt2_tied %/fulllink/x/y --dtype bf16",
        "import " FIXTURES "/gpt2_tied %/full/" STEP "/none",
        "draft " FIXTURES "/gpt2_tied %/full/" STEP};
    char link[256];
    assert_run("import " FIXTURES "/gpt2_tied %/full", 0, "");
    snprintf(link, sizeof(link), "%s/fulllink", dir);
    assert_int_equal(symlink("full/" STEP, link), 0);
    for (int64_t i = 0; i < LOONG_COUNT_OF(commands); i++) {
        assert_run(commands[i], 2, "lies in the checkpoint");
    }
}

static void wrong_pieces_are_corrupt(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_checkpoint_t *ck = NULL;
    char path[256];
    assert_run("import " FIXTURES "/gpt2_tied %/cut", 0, "");
    forget("cut", "7,24]", ",24]"); /* of [97,24] */
    assert_run("verify %/cut", 1, "lies outside of the tensor");
    snprintf(path, sizeof(path), "%s/cut", dir);
    loong_status_t status = loongi_checkpoint_open(ctx, path, &ck);
    assert_int_equal(loong_exit_code_from_status(status), LOONG_EXIT_FAILED);
    test_context_end(&ctx);
}

/* An import finds a broken file; an export that does leaves nothing. */
static void failures_leave_nothing(void **state)
{
    (void)state;
    static const char *const broken[][2] = {{"generation_config.json", "{"}};
    static const char *const whole[][2] = {{"generation_config.json", "{}"}};
    static const char *const list[][2] = {{"generation_config.json", "[]"}};
    make_source("gpt2_tied", "broken", broken, 1);
    assert_run("import %/broken %/brokenn", 1,
               "broken/generation_config.json: column");
    assert_false(is_there("brokenn"));
    make_source("gpt2_tied", "older", whole, 1);
    assert_run("import %/older %/oldern", 0, "");
    forget("oldern", ",\n\"hf\":[", ",\n\"tensors\"");
    make_source(NULL, "oldern/" STEP "/hf", list, 1);
    assert_run("export %/oldern %/olderhf", 1,
               "hf/generation_config.json: an object is wanted");
    assert_false(is_there("olderhf"));
}

static void other_types_must_fit(void **state)
{
    (void)state;
    assert_run("import " FIXTURES "/llama3_gqa_tied %/l", 0, "");
    assert_run("export %/l %/x --as qwen3", 1,
               "qk_layernorm = false: model type qwen3 has true");
    assert_run("export %/l %/x --as lama", 2, "the nearest is llama");
    assert_run("export %/l %/x --as mistral", 2, "of family llama");
    assert_run("export %/l %/x --as llama --map %/m.yaml", 2,
               "is of no model type");
    assert_false(file_has("asked/config.json", ""));
    assert_run("export %/l %/x --as internlm2", 0, "");
    assert_true(file_has("x/config.json", "\"bias\": false"));
    assert_run("import %/x %/xn", 0, "");
    assert_run("export %/xn %/x --as llama", 2,
               "holds another model (internlm2 with ");
    assert_run("export %/xn %/y --as llama", 0, "");
    assert_run("diff " FIXTURES "/llama3_gqa_tied %/y", 0, "are equal");
}

/* Shards whose index was left behind. */
static void shards_without_index(void **state)
{
    (void)state;
    static const char *const files[][2] = {{"notes.txt", "-"}};
    char from[256], to[256];
    make_source("gpt2_tied", "shards", files, 1);
    snprintf(from, sizeof(from), "%s/shards/model.safetensors", dir);
    snprintf(to, sizeof(to), "%s/shards/model-1.safetensors", dir);
    assert_int_equal(rename(from, to), 0);
    assert_run("import %/shards %/shardsn", 66,
               "has 1 file of tensors (model-1.safetensors), but not "
               "model.safetensors.index.json");
    unlink(to);
    assert_run("import %/shards %/shardsn", 66, "pytorch_model.bin");
}

static void errors_have_codes(void **state)
{
    (void)state;
    assert_run("", 2, "no command");
    assert_run("frobnicate", 2, "unknown command: frobnicate");
    assert_run("inspect", 2, "inspect needs PATH");
    assert_run("export a b --dtype int8", 2, "wrong value of --dtype: int8");
    assert_run("export a b --dtype", 2, "no value behind: --dtype");
    assert_run("export a b --bos -3", 2, "wrong value of --bos: -3");
    assert_run("export a b --max-shard-gb 0", 2, "of --max-shard-gb: 0");
    assert_run("export a b --color", 2, "unknown option: --color");
    assert_run("export --help", 0, "");
    assert_run("diff a b --quiet", 2, "diff has no option: --quiet");
    assert_run("draft a b --dtype bf16", 2, "draft has no option: --dtype");
    assert_run("convert a b", 2, "convert needs --dtype");
    assert_run("convert a b --map x", 2, "convert has no option: --map");
    assert_run("verify", 2, "verify needs PATH");
    assert_run("verify %/none", 66, "none' is not a directory");
    assert_run("import " FIXTURES "/gpt2_tied/config.json %/x", 66,
               "config.json' is not a directory");
    assert_run("map %/none", 66, "none' is not a directory");
    assert_run("map " FIXTURES "/gpt2_tied", 0, "transposed: true");
    assert_run("map " FIXTURES "/gpt2_tied --map %/none.yaml", 66,
               "none.yaml' does not exist");
    assert_run("map " FIXTURES "/gpt2_tied --model %/none.yaml", 66,
               "none.yaml' does not exist");
    assert_run("convert " FIXTURES "/gpt2_tied " FIXTURES
               "/gpt2_tied --dtype bf16", 2, "onto itself");
    assert_run("--help", 0, "usage: loong-ckpt");
    assert_run("inspect %/none", 66, "none' is not a directory");
    assert_run("import %/none %/x", 66, "none' is not a directory");
    assert_run("export %/none %/x", 66, "none");
    assert_run("export " FIXTURES "/gpt2_tied %/x", 66,
               "loong-ckpt import makes one of it");
    assert_run("import " FIXTURES "/gpt2_tied %/given", 0, "");
    assert_run("export %/given %/asked --tokenizer %/none", 66,
               "has no file of a tokenizer");
    assert_run("import %/given %/x", 2, "is a native checkpoint");
    assert_run("export %/given %/given", 2, "is a native checkpoint");
    assert_run("export %/given %/x --bos 9999", 2, "the vocabulary has 0 to");
    assert_run("verify " FIXTURES, 66, "neither a checkpoint");
    assert_false(file_has("asked/config.json", ""));
    assert_run("import " FIXTURES "/gpt2_tied /proc/none", 73, "/proc/none");
    assert_run("diff " FIXTURES "/gpt2_tied %/none", 66, "none");
    assert_run("diff " FIXTURES "/gpt2_tied " FIXTURES "/gpt2_untied", 1,
               "model activation: gelu_tanh and gelu");
    assert_run("import " FIXTURES "/llama3_gqa_tied %/other", 0, "");
    assert_run("diff %/given %/other", 1, "model family: gpt2 and llama");
    assert_non_null(strstr(output, "norm.weight: shape [24] and [32]"));
    assert_non_null(strstr(output, "position_embeddings.weight: only in /"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_is_equal),
        cmocka_unit_test(bf16_export_differs),
        cmocka_unit_test(inspect_reports),
        cmocka_unit_test(verify_counts_odd_numbers),
        cmocka_unit_test(diff_tells_how_much),
        cmocka_unit_test(unknown_tensors),
        cmocka_unit_test(own_code_goes_along),
        cmocka_unit_test(activations_keep_their_word),
        cmocka_unit_test(impossible_models),
        cmocka_unit_test(tokenizers_keep_their_code),
        cmocka_unit_test(kept_files_are_compared),
        cmocka_unit_test(checkpoints_are_no_place),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(wrong_pieces_are_corrupt),
        cmocka_unit_test(other_types_must_fit),
        cmocka_unit_test(shards_without_index),
        cmocka_unit_test(errors_have_codes),
    };
    if (argc != 2) {
        return 2;
    }
    program = argv[1];
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
