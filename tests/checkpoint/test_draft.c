/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a checkpoint the draft gets right whose tensors were renamed at
 * random: every word of a name is replaced by one that model code uses in its
 * place, or by letters that mean nothing. */
#include <ctype.h>
#include <unistd.h>

#include "draft_schemes.h"
#include "file.h"
#include "hf_config.h"
#include "hf_map_file.h"
#include "loong/checkpoint.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

static const struct {
    const char *word;  /* of the family's name; "a.b" is b below a */
    const char *others;
} words[] = {
    {"self_attn", "attention attn self_attention sa mha attention_block"},
    {"attn", "attention attn self_attention sa mha attention_block"},
    {"mlp", "mlp feed_forward ffn ff feedforward mlp_block"},
    {"block_sparse_moe", "moe sparse_moe ffn experts_block moe_block"},
    {"q_proj", "q wq query to_q query_proj q_lin linear_q q_proj"},
    {"k_proj", "k wk key to_k key_proj k_lin linear_k k_proj"},
    {"v_proj", "v wv value to_v value_proj v_lin linear_v v_proj"},
    {"o_proj", "o wo out_proj dense to_out output out_lin attn_out linear_o"},
    {"gate_proj", "w1 gate fc_gate linear_gate gate_fc wi_0 gate_up_gate"},
    {"up_proj", "w3 up fc_up linear_up up_fc up_dense expand"},
    {"down_proj", "w2 down fc_down linear_down down_fc down_dense shrink"},
    {"w1", "w1 gate fc_gate linear_gate gate_fc"},
    {"w3", "w3 up fc_up linear_up up_fc"},
    {"w2", "w2 down fc_down linear_down down_fc"},
    {"input_layernorm", "ln_1 attention_norm norm1 attn_norm ln_attn "
                        "pre_attention_norm input_norm norm_attn"},
    {"post_attention_layernorm", "ln_2 ffn_norm norm2 mlp_norm ln_mlp "
                                 "pre_mlp_norm post_attn_norm norm_ffn"},
    {"ln_1", "ln_1 attention_norm norm1 attn_norm ln_attn input_norm"},
    {"ln_2", "ln_2 ffn_norm norm2 mlp_norm ln_mlp post_attn_norm"},
    {"embed_tokens", "tok_embeddings wte word_embeddings embed_in "
                     "token_embedding emb embedding"},
    {"wte", "tok_embeddings wte word_embeddings embed_in token_embedding"},
    {"wpe", "position_embeddings pos_emb wpe position_embedding pos_embed"},
    {"norm", "ln_f final_norm final_layernorm norm_out out_norm norm"},
    {"ln_f", "ln_f final_norm final_layernorm norm_out out_norm norm"},
    {"lm_head", "output head embed_out unembed lm_head classifier"},
    {"experts", "experts expert expert_list"},
    {"mlp.gate", "router gate route switch gating"},
    {"block_sparse_moe.gate", "router gate route switch gating"},
    {"shared_expert", "shared_expert shared shared_mlp shared_ffn"},
    {"shared_experts", "shared_expert shared shared_mlp shared_ffn"},
    {"shared_expert_gate", "shared_gate shared_expert_gate shared_sigmoid"},
    {"q_norm", "q_norm query_norm norm_q q_ln q_layernorm"},
    {"k_norm", "k_norm key_norm norm_k k_ln k_layernorm"},
    {"q_a_proj", "q_down wq_a q_compress q_a"},
    {"q_b_proj", "q_up wq_b q_b"},
    {"kv_a_proj_with_mqa", "kv_down wkv_a kv_compress kv_a"},
    {"kv_b_proj", "kv_up wkv_b kv_b"},
    {"q_a_layernorm", "q_norm q_a_norm q_latent_norm"},
    {"kv_a_layernorm", "kv_norm kv_a_norm kv_latent_norm"},
    {"e_score_correction_bias", "score_bias e_score_correction_bias "
                                "correction_bias router_bias"},
    {"c_attn", "qkv qkv_proj c_attn in_proj wqkv_packed"},
    {"attn.c_proj", "out_proj dense c_proj o output"},
    {"mlp.w1", "w3 up fc_up linear_up up_fc up_dense expand"}, /* QWen's */
    {"mlp.w2", "w1 gate fc_gate linear_gate gate_fc wi_0"},
    {"attention", "attention attn self_attention sa mha attention_block"},
    {"feed_forward", "mlp feed_forward ffn ff feedforward mlp_block"},
    {"wqkv", "wqkv query_key_value wqkv_packed"}, /* by key head */
    {"wo", "o wo out_proj dense to_out output out_lin attn_out linear_o"},
    {"attention_norm", "ln_1 attention_norm norm1 attn_norm ln_attn "
                       "pre_attention_norm input_norm norm_attn"},
    {"ffn_norm", "ln_2 ffn_norm norm2 mlp_norm ln_mlp "
                 "pre_mlp_norm post_attn_norm norm_ffn"},
    {"tok_embeddings", "tok_embeddings wte word_embeddings embed_in "
                       "token_embedding emb embedding"},
    {"output", "output head embed_out unembed lm_head classifier"},
    {"moe_statics", "moe_statics router_statics balance gate_stats"},
    {"weight_1", "weight_1 vision_weight weight_image visual_weight"},
    {"mlp.c_fc", "fc1 fc_in up c_fc dense_in expand"},
    {"mlp.c_proj", "fc2 fc_out down c_proj dense_out shrink"},
    {"weight", "weight weight weight kernel"},
    {"bias", "bias"},
};
static const char *const containers[] = {
    "transformer.h.", "model.layers.", "gpt_neox.layers.", "blocks.",
    "decoder.block.", "net.stage_", "backbone.layer"};

typedef struct renamer {
    const scheme_t *scheme; /* NULL: word by word */
    uint64_t state;
    int meaningless; /* of a hundred words of modules; leaves a sixth of it */
    bool strict; /* every word must have others */
    const char *prefix;
    char container[64];
    struct {
        char from[64], to[64];
    } known[256]; /* a word is renamed alike everywhere */
    int count;
} renamer_t;

static uint64_t draw(renamer_t *r, uint64_t below)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (r->state >> 11) % below;
}

static void nonsense(renamer_t *r, char to[64])
{
    int n = 3 + (int)draw(r, 5);
    for (int i = 0; i < n; i++) {
        to[i] = (char)('a' + draw(r, 26));
    }
    to[n] = '\0';
}

static void pick(renamer_t *r, const char *others, char to[64])
{
    int64_t count = 1;
    for (const char *c = others; *c != '\0'; c++) {
        count += *c == ' ';
    }
    for (int64_t skip = (int64_t)draw(r, (uint64_t)count); skip > 0; skip--) {
        others = strchr(others, ' ') + 1;
    }
    snprintf(to, 64, "%.*s", (int)strcspn(others, " "), others);
}

static const char *alternatives(const char *above, const char *word)
{
    char both[128];
    const char *found = NULL;
    snprintf(both, sizeof(both), "%s.%s", above, word);
    for (int64_t i = 0; i < LOONG_COUNT_OF(words); i++) {
        if (strcmp(words[i].word, both) == 0) {
            return words[i].others;
        }
        found = strcmp(words[i].word, word) == 0 ? words[i].others : found;
    }
    return found;
}

/* Modules that only hold others say little; leaves say what they are. */
static bool is_module(const char *word)
{
    static const char *const modules[] = {"self_attn", "attn", "mlp",
                                          "block_sparse_moe", "experts"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(modules); i++) {
        if (strcmp(modules[i], word) == 0) {
            return true;
        }
    }
    return false;
}

static const char *rename_word(renamer_t *r, const char *above,
                               const char *word)
{
    char key[64];
    snprintf(key, sizeof(key), "%.30s.%.32s", above, word);
    for (int i = 0; i < r->count; i++) {
        if (strcmp(r->known[i].from, key) == 0) {
            return r->known[i].to;
        }
    }
    assert_true(r->count < 256);
    int i = r->count++;
    snprintf(r->known[i].from, 64, "%s", key);
    const char *others = alternatives(above, word);
    uint64_t share = (uint64_t)(is_module(word) ? 6 : 1) *
                     (uint64_t)r->meaningless;
    if (strcmp(word, "weight") != 0 && strcmp(word, "bias") != 0 &&
        draw(r, 600) < share) {
        nonsense(r, r->known[i].to);
    } else if (others != NULL) {
        pick(r, others, r->known[i].to);
    } else if (r->strict) {
        fail_msg("%s.%s has no other names here", above, word);
    } else {
        snprintf(r->known[i].to, 64, "%s", word);
    }
    return r->known[i].to;
}

/* What the scheme calls a tensor of a layer, or of none. */
static void rename_by_scheme(const scheme_t *scheme, const char *name,
                             char to[512])
{
    size_t used = 0;
    to[0] = '\0';
    if (strncmp(name, "layers.", 7) == 0) {
        int n = (int)strcspn(name + 7, ".");
        used = (size_t)snprintf(to, 512, "%s%.*s.", scheme->container, n,
                                name + 7);
        name += 7 + n + 1;
    }
    for (int i = 0; scheme->names[i][0] != NULL; i++) {
        size_t n = strlen(scheme->names[i][0]);
        if (strncmp(scheme->names[i][0], name, n) == 0) {
            snprintf(to + used, 512 - used, "%s%s", scheme->names[i][1],
                     name + n);
            return;
        }
    }
    fail_msg("%s has no name for %s", scheme->name, name);
}

/* The family's name, word by word. */
static void rename_tensor(renamer_t *r, const char *name, char to[512])
{
    char above[64] = "", word[64];
    size_t used = 0;
    size_t skip = strlen(r->prefix);
    name += strncmp(name, r->prefix, skip) == 0 ? skip : 0;
    if (r->scheme != NULL) {
        rename_by_scheme(r->scheme, name, to);
        return;
    }
    to[0] = '\0';
    if (strncmp(name, "layers.", 7) == 0 || strncmp(name, "h.", 2) == 0) {
        name = strchr(name, '.') + 1;
        used = (size_t)snprintf(to, 512, "%s%.*s.", r->container,
                                (int)strcspn(name, "."), name);
        name = strchr(name, '.') + 1;
    }
    while (*name != '\0') {
        size_t n = strcspn(name, ".");
        snprintf(word, sizeof(word), "%.*s", (int)n, name);
        bool number = isdigit((unsigned char)word[0]) != 0;
        used += (size_t)snprintf(to + used, 512 - used, "%s%s",
                                 number ? word : rename_word(r, above, word),
                                 name[n] != '\0' ? "." : "");
        if (!number) {
            snprintf(above, sizeof(above), "%s", word);
        }
        name += n + (name[n] != '\0');
    }
}

static void start(renamer_t *r, const char *prefix, uint64_t seed,
                  int meaningless)
{
    memset(r, 0, sizeof(*r));
    r->state = 88172645463325252u + 7919 * (seed + 1);
    r->meaningless = meaningless;
    r->prefix = prefix;
    for (int i = 0; i < 20; i++) {
        (void)draw(r, 2);
    }
    if ((int)draw(r, 100) < meaningless) {
        nonsense(r, r->container);
        strcat(r->container, ".");
    } else {
        strcpy(r->container,
               containers[draw(r, LOONG_COUNT_OF(containers))]);
    }
}

static loong_status_t copy_rows(void *user, int64_t index, int64_t row,
                                int64_t rows, void *buffer,
                                const void **data_p)
{
    const loong_safetensor_t *t = ((const loong_safetensor_t **)user)[index];
    size_t n = (size_t)loongi_safetensors_row(t->ndim, t->shape) *
               loong_dtype_size(t->dtype);
    (void)data_p;
    memcpy(buffer, (const char *)t->data + (size_t)row * n, (size_t)rows * n);
    return LOONG_OK;
}

static void write_renamed(loong_context_t *ctx, const char *from,
                          const char *to, renamer_t *r)
{
    static const loong_safetensor_t *tensors[4096];
    loong_safetensors_set_t *set = NULL;
    loong_safetensors_set_writer_t *out = NULL;
    loong_safetensors_set_params_t params = {to, 1 << 30, ""};
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t source = {copy_rows, tensors, &meter};
    char path[600], other[600];
    assert_ok(ctx, loongi_safetensors_set_open(ctx, from, &set));
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &params, &out));
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        char name[512];
        int64_t handle = 0;
        rename_tensor(r, t->name, name);
        assert_ok(ctx, loongi_safetensors_set_declare(out, name, t->dtype,
                                                      t->ndim, t->shape,
                                                      &handle));
        tensors[handle] = t;
    }
    assert_ok(ctx, loongi_safetensors_set_fill(out, &source));
    assert_ok(ctx, loongi_safetensors_set_commit(out));
    loongi_safetensors_set_destroy(&out);
    loongi_safetensors_set_close(&set);
    snprintf(path, sizeof(path), "%s/config.json", from);
    snprintf(other, sizeof(other), "%s/config.json", to);
    assert_ok(ctx, loongi_file_copy(ctx, path, other));
}

static void ignore_line(void *user, const char *line)
{
    (void)user;
    (void)line;
}

typedef struct share {
    int64_t right;
    int64_t silent; /* wrong, and the map does not say that it is a guess */
    int64_t all;
} share_t;

/* The line of the map for a tensor says that it is a guess, or of no use that
 * is known, or that some of its kind lack. */
static bool is_told(const char *map, const char *name)
{
    for (const char *at = map; at != NULL && *at != '\0';
         at = strchr(at, '\n'), at += at != NULL) {
        char line[1024], key[512];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        bool unused = strncmp(line, "#  - ", 5) == 0;
        const char *from = line + (unused ? 5 : 2);
        if (!unused && (strncmp(line, "  ", 2) != 0 || line[2] == ' ')) {
            continue;
        }
        from += *from == '"';
        snprintf(key, sizeof(key), "%.*s", (int)strcspn(from, "\": "), from);
        if (loongi_hf_pattern_matches(key, name)) {
            return unused || strstr(line, ", a guess") != NULL ||
                   strstr(line, "more are needed") != NULL;
        }
    }
    return false;
}

/* Every tensor of every parameter: is it the one that was renamed so, and
 * does it lie so? */
static void count_right(loong_context_t *ctx, const loong_pairs_t *model,
                        const char *map_path, renamer_t *r, share_t *share)
{
    loong_hf_map_t *truth = NULL;
    loong_hf_map_t *draft = NULL;
    char *text = NULL;
    size_t bytes = 0;
    assert_ok(ctx, loongi_file_read(ctx, map_path, &text, &bytes));
    assert_ok(ctx, loongi_hf_map_create(ctx, model, &truth));
    bool read = loongi_hf_map_load(ctx, model, map_path, &draft) == LOONG_OK;
    loong_context_clear_error(ctx);
    for (int64_t i = 0; i < loongi_hf_map_count(truth); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(truth, i);
        const loong_hf_param_t *q =
            read ? loongi_hf_map_find(draft, p->name) : NULL;
        for (int64_t k = 0; k < p->pieces; k++) {
            char full[512], name[512];
            snprintf(full, sizeof(full), "%s%s",
                     p->prefixed ? loongi_hf_map_prefix(truth) : "",
                     loongi_hf_piece_name(p, k));
            rename_tensor(r, full, name);
            bool right = q != NULL && q->pieces == p->pieces &&
                         strcmp(loongi_hf_piece_name(q, k), name) == 0 &&
                         q->transposed == p->transposed &&
                         q->offset == p->offset && q->stride == p->stride;
            share->all++;
            share->right += right;
            share->silent += !right && !is_told(text, name);
        }
    }
    loongi_free(ctx, text);
    loongi_hf_map_destroy(&draft);
    loongi_hf_map_destroy(&truth);
}

/* Words of other parts, as what sees images, may stay. */
static void rename_model(renamer_t *r, const loong_hf_map_t *map)
{
    r->strict = true;
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        for (int64_t k = 0; k < p->pieces; k++) {
            char to[512];
            rename_tensor(r, loongi_hf_piece_name(p, k), to);
        }
    }
    r->strict = false;
}

/* With the names of a scheme, or such as are drawn. */
static void try_one(const char *family, const scheme_t *scheme, uint64_t seed,
                    int meaningless, share_t *share)
{
    loong_context_t *ctx = test_context();
    loong_pairs_t *model = NULL;
    loong_hf_map_t *map = NULL;
    renamer_t r;
    char from[512], to[256], out[256], path[512];
    snprintf(from, sizeof(from), FIXTURES "/%s", family);
    snprintf(to, sizeof(to), "%s/renamed", dir);
    snprintf(out, sizeof(out), "%s/out", dir);
    snprintf(path, sizeof(path), "%s/map.yaml", out);
    assert_ok(ctx, loongi_hf_config_read(ctx, from, &model));
    assert_ok(ctx, loongi_hf_map_create(ctx, model, &map));
    start(&r, loongi_hf_map_prefix(map), seed, meaningless);
    r.scheme = scheme;
    rename_model(&r, map);
    write_renamed(ctx, from, to, &r);
    loong_checkpoint_draft_params_t params = {to, out, ignore_line, NULL, NULL};
    assert_ok(ctx, loong_checkpoint_draft(ctx, &params));
    count_right(ctx, model, path, &r, share);
    loongi_hf_map_destroy(&map);
    loongi_pairs_destroy(&model);
    assert_ok(ctx, loongi_dir_remove(ctx, to));
    test_context_end(&ctx);
}

static const char *const families[] = {
    "llama3_gqa_tied", "qwen1_mha", "qwen2_gqa", "qwen3_gqa_tied",
    "internlm2_gqa", "mimo_gqa", "ernie4_5_bias", "gpt2_untied",
    "mixtral", "qwen2_moe", "qwen3_moe", "ernie4_5_moe", "ernie4_5_vl_moe",
    "minimax_m2", "deepseek_v2_lite", "deepseek_v3_groups", "kimi_k2"};

/* Of all families, and the least share of one. */
static share_t measure(int seeds, int meaningless, double *least_p)
{
    share_t all = {0, 0, 0};
    double least = 1;
    for (int64_t f = 0; f < LOONG_COUNT_OF(families); f++) {
        share_t share = {0, 0, 0};
        for (int seed = 0; seed < seeds; seed++) {
            try_one(families[f], NULL, (uint64_t)(seed * 100 + f),
                    meaningless, &share);
        }
        double right = (double)share.right / (double)share.all;
        printf("%-20s %5.1f %% of %lld tensors, %lld wrong without a mark\n",
               families[f], 100 * right, (long long)share.all,
               (long long)share.silent);
        all.right += share.right;
        all.silent += share.silent;
        all.all += share.all;
        least = LOONG_MIN(least, right);
    }
    printf("%-20s %5.1f %%, %lld of %lld wrong ones without a mark\n", "all",
           100.0 * (double)all.right / (double)all.all, (long long)all.silent,
           (long long)(all.all - all.right));
    *least_p = least;
    return all;
}

static void own_names_are_found(void **state)
{
    (void)state;
    for (int64_t f = 0; f < LOONG_COUNT_OF(families); f++) {
        loong_context_t *ctx = test_context();
        char from[512], out[256], path[512];
        snprintf(from, sizeof(from), FIXTURES "/%s", families[f]);
        snprintf(out, sizeof(out), "%s/own", dir);
        snprintf(path, sizeof(path), "%s/map.yaml", out);
        loong_checkpoint_draft_params_t params = {from, out, ignore_line,
                                                  NULL, NULL};
        loong_hf_open_params_t open = {.dir = from, .map = path};
        loong_hf_t *hf = NULL;
        assert_ok(ctx, loong_checkpoint_draft(ctx, &params));
        assert_ok(ctx, loongi_hf_open_as(ctx, &open, &hf));
        loongi_hf_close(&hf);
        test_context_end(&ctx);
    }
}

/* Names that were not chosen here. */
static void published_names_are_found(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(schemes); i++) {
        share_t share = {0, 0, 0};
        try_one(schemes[i].family, &schemes[i], 0, 0, &share);
        if (share.right < share.all) {
            fail_msg("%s, %s: %lld of %lld tensors", schemes[i].name,
                     schemes[i].family, (long long)share.right,
                     (long long)share.all);
        }
    }
}

/* A fifth of the modules, and a thirtieth of the leaves, mean nothing. What is
 * wrong then is marked. */
static void renamed_tensors_are_found(void **state)
{
    (void)state;
    double least = 0.0;
    share_t all = measure(12, 20, &least);
    assert_true(least >= 0.95);
    assert_true(all.right < all.all);
    assert_int_equal(all.silent, 0);
}

enum { ALL_MEANINGLESS = 600 };

/* Where no word means anything, the shapes alone choose: only that they guess
 * is asked. One in a thousand words of random letters may be a word. */
static bool passes(int seeds, int meaningless)
{
    double least = 0.0;
    share_t all = measure(seeds, meaningless, &least);
    return (least >= 0.95 || meaningless >= ALL_MEANINGLESS) &&
           1000 * all.silent <= all.all - all.right;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_names_are_found),
        cmocka_unit_test(published_names_are_found),
        cmocka_unit_test(renamed_tensors_are_found),
    };
    if (argc == 3) { /* SEEDS and words of a hundred that mean nothing */
        make_dir(NULL);
        bool passed = passes(atoi(argv[1]), atoi(argv[2]));
        return remove_dir(NULL) != 0 || !passed;
    }
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
