/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter names and shapes of the families, as data. '#' is the layer, '@'
 * the expert. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_family.h"
#include "hf_weights.h"
#include "layer_kinds.h"

typedef enum size {
    NONE, /* a vector's second dimension */
    HIDDEN,
    FFN,
    QUERY,
    KEY,
    HEAD,
    VOCAB,
    POSITION,
    EXPERTS,
    EXPERT_FFN,
    GATE_UP, /* rows of all experts' matrices, one below the other */
    DOWN,
    SHARED_FFN,
    SIZE_COUNT
} size_kind_t;

typedef enum condition {
    ALWAYS,
    IF_QKV_BIAS,
    IF_PROJ_BIAS,
    IF_MLP_BIAS,
    IF_QK_NORM,
    IF_UNTIED,
    IF_DENSE, /* the layer has a feed-forward; else these: */
    IF_EXPERTS,
    IF_SHARED,
    IF_SHARED_GATE,
    CONDITION_COUNT
} condition_t;

typedef struct row {
    const char *name;
    const char *hf_name; /* NULL: the same */
    size_kind_t rows;
    size_kind_t columns;
    condition_t condition;
    bool transposed;
    int part;
    int parts;
    const char *second; /* hf_name and this, for each expert; or NULL */
    bool grouped;       /* parts alternate, one key head after the other */
} row_t;

typedef struct family {
    const char *name;
    const char *prefix;
    const row_t *rows; /* ends with a NULL name */
    bool predicts;     /* files may have layers that predict further tokens */
} family_t;

#define PLAIN(name_, rows_, columns_, condition_)                          \
    {                                                                      \
        name_, NULL, rows_, columns_, condition_, false, 0, 1, NULL, false \
    }
#define NAMED(name_, hf_, rows_, columns_)                            \
    {                                                                 \
        name_, hf_, rows_, columns_, ALWAYS, false, 0, 1, NULL, false \
    }
#define RENAMED(name_, hf_, rows_, columns_, condition_)                  \
    {                                                                     \
        name_, hf_, rows_, columns_, condition_, false, 0, 1, NULL, false \
    }
/* A third of a tensor, one below the other or for each key head in turn. */
#define PART(name_, hf_, rows_, columns_, part_)                          \
    {                                                                     \
        name_, hf_, rows_, columns_, ALWAYS, false, part_, 3, NULL, false \
    }
#define GROUPED(name_, hf_, rows_, columns_, part_, condition_)              \
    {                                                                        \
        name_, hf_, rows_, columns_, condition_, false, part_, 3, NULL, true \
    }
#define TURNED(name_, hf_, rows_, columns_)                          \
    {                                                                \
        name_, hf_, rows_, columns_, ALWAYS, true, 0, 1, NULL, false \
    }
#define ROWS_END                                                 \
    {                                                            \
        NULL, NULL, NONE, NONE, ALWAYS, false, 0, 1, NULL, false \
    }
#define EXPERT(name_, hf_, second_, rows_, columns_)                         \
    {                                                                        \
        name_, hf_, rows_, columns_, IF_EXPERTS, false, 0, 1, second_, false \
    }
/* Of layers without experts. */
#define DENSE_ROWS                                                   \
    PLAIN(MLP "gate_proj.weight", FFN, HIDDEN, IF_DENSE),            \
        PLAIN(MLP "up_proj.weight", FFN, HIDDEN, IF_DENSE),          \
        PLAIN(MLP "down_proj.weight", HIDDEN, FFN, IF_DENSE)
#define ATTN "layers.#.self_attn."
#define MLP "layers.#.mlp."

#define ROTARY_ATTENTION                                                \
    PLAIN("embed_tokens.weight", VOCAB, HIDDEN, ALWAYS),                \
        PLAIN("layers.#.input_layernorm.weight", HIDDEN, NONE, ALWAYS), \
        PLAIN(ATTN "q_proj.weight", QUERY, HIDDEN, ALWAYS),             \
        PLAIN(ATTN "k_proj.weight", KEY, HIDDEN, ALWAYS),               \
        PLAIN(ATTN "v_proj.weight", KEY, HIDDEN, ALWAYS),               \
        PLAIN(ATTN "q_proj.bias", QUERY, NONE, IF_QKV_BIAS),            \
        PLAIN(ATTN "k_proj.bias", KEY, NONE, IF_QKV_BIAS),              \
        PLAIN(ATTN "v_proj.bias", KEY, NONE, IF_QKV_BIAS),              \
        PLAIN(ATTN "q_norm.weight", HEAD, NONE, IF_QK_NORM),            \
        PLAIN(ATTN "k_norm.weight", HEAD, NONE, IF_QK_NORM),            \
        PLAIN(ATTN "o_proj.weight", HIDDEN, QUERY, ALWAYS),             \
        PLAIN(ATTN "o_proj.bias", HIDDEN, NONE, IF_PROJ_BIAS),          \
        PLAIN("layers.#.post_attention_layernorm.weight", HIDDEN, NONE, \
              ALWAYS)
#define ROTARY_END                              \
    PLAIN("norm.weight", HIDDEN, NONE, ALWAYS), \
        PLAIN("lm_head.weight", VOCAB, HIDDEN, IF_UNTIED), ROWS_END

static const row_t rotary_rows[] = {
    ROTARY_ATTENTION,
    PLAIN(MLP "gate_proj.weight", FFN, HIDDEN, ALWAYS),
    PLAIN(MLP "gate_proj.bias", FFN, NONE, IF_MLP_BIAS),
    PLAIN(MLP "up_proj.weight", FFN, HIDDEN, ALWAYS),
    PLAIN(MLP "up_proj.bias", FFN, NONE, IF_MLP_BIAS),
    PLAIN(MLP "down_proj.weight", HIDDEN, FFN, ALWAYS),
    PLAIN(MLP "down_proj.bias", HIDDEN, NONE, IF_MLP_BIAS),
    ROTARY_END};

static const row_t qwen_moe_rows[] = {
    ROTARY_ATTENTION,
    DENSE_ROWS,
    PLAIN(MLP "gate.weight", EXPERTS, HIDDEN, IF_EXPERTS),
    EXPERT(MLP "experts.gate_up_proj", MLP "experts.@.gate_proj.weight",
           MLP "experts.@.up_proj.weight", GATE_UP, HIDDEN),
    EXPERT(MLP "experts.down_proj", MLP "experts.@.down_proj.weight", NULL,
           DOWN, EXPERT_FFN),
    PLAIN(MLP "shared_expert.gate_proj.weight", SHARED_FFN, HIDDEN, IF_SHARED),
    PLAIN(MLP "shared_expert.up_proj.weight", SHARED_FFN, HIDDEN, IF_SHARED),
    PLAIN(MLP "shared_expert.down_proj.weight", HIDDEN, SHARED_FFN, IF_SHARED),
    PLAIN(MLP "shared_expert_gate.weight", NONE, HIDDEN, IF_SHARED_GATE),
    ROTARY_END};

#define SPARSE "layers.#.block_sparse_moe."
static const row_t mixtral_rows[] = {
    ROTARY_ATTENTION,
    RENAMED(MLP "gate.weight", SPARSE "gate.weight", EXPERTS, HIDDEN,
            IF_EXPERTS),
    EXPERT(MLP "experts.gate_up_proj", SPARSE "experts.@.w1.weight",
           SPARSE "experts.@.w3.weight", GATE_UP, HIDDEN),
    EXPERT(MLP "experts.down_proj", SPARSE "experts.@.w2.weight", NULL, DOWN,
           EXPERT_FFN),
    ROTARY_END};

static const row_t gpt2_rows[] = {
    NAMED("embed_tokens.weight", "wte.weight", VOCAB, HIDDEN),
    NAMED("position_embeddings.weight", "wpe.weight", POSITION, HIDDEN),
    NAMED("layers.#.input_layernorm.weight", "h.#.ln_1.weight", HIDDEN, NONE),
    NAMED("layers.#.input_layernorm.bias", "h.#.ln_1.bias", HIDDEN, NONE),
    {ATTN "q_proj.weight", "h.#.attn.c_attn.weight", QUERY, HIDDEN, ALWAYS,
     true, 0, 3, NULL, false},
    {ATTN "k_proj.weight", "h.#.attn.c_attn.weight", KEY, HIDDEN, ALWAYS, true,
     1, 3, NULL, false},
    {ATTN "v_proj.weight", "h.#.attn.c_attn.weight", KEY, HIDDEN, ALWAYS, true,
     2, 3, NULL, false},
    {ATTN "q_proj.bias", "h.#.attn.c_attn.bias", QUERY, NONE, ALWAYS, false, 0,
     3, NULL, false},
    {ATTN "k_proj.bias", "h.#.attn.c_attn.bias", KEY, NONE, ALWAYS, false, 1, 3,
     NULL, false},
    {ATTN "v_proj.bias", "h.#.attn.c_attn.bias", KEY, NONE, ALWAYS, false, 2, 3,
     NULL, false},
    TURNED(ATTN "o_proj.weight", "h.#.attn.c_proj.weight", HIDDEN, QUERY),
    NAMED(ATTN "o_proj.bias", "h.#.attn.c_proj.bias", HIDDEN, NONE),
    NAMED("layers.#.post_attention_layernorm.weight", "h.#.ln_2.weight", HIDDEN,
          NONE),
    NAMED("layers.#.post_attention_layernorm.bias", "h.#.ln_2.bias", HIDDEN,
          NONE),
    TURNED(MLP "up_proj.weight", "h.#.mlp.c_fc.weight", FFN, HIDDEN),
    NAMED(MLP "up_proj.bias", "h.#.mlp.c_fc.bias", FFN, NONE),
    TURNED(MLP "down_proj.weight", "h.#.mlp.c_proj.weight", HIDDEN, FFN),
    NAMED(MLP "down_proj.bias", "h.#.mlp.c_proj.bias", HIDDEN, NONE),
    NAMED("norm.weight", "ln_f.weight", HIDDEN, NONE),
    NAMED("norm.bias", "ln_f.bias", HIDDEN, NONE),
    PLAIN("lm_head.weight", VOCAB, HIDDEN, IF_UNTIED),
    ROWS_END};

#define QWEN "h.#."
static const row_t qwen_rows[] = {
    NAMED("embed_tokens.weight", "wte.weight", VOCAB, HIDDEN),
    NAMED("layers.#.input_layernorm.weight", QWEN "ln_1.weight", HIDDEN, NONE),
    PART(ATTN "q_proj.weight", QWEN "attn.c_attn.weight", QUERY, HIDDEN, 0),
    PART(ATTN "k_proj.weight", QWEN "attn.c_attn.weight", KEY, HIDDEN, 1),
    PART(ATTN "v_proj.weight", QWEN "attn.c_attn.weight", KEY, HIDDEN, 2),
    PART(ATTN "q_proj.bias", QWEN "attn.c_attn.bias", QUERY, NONE, 0),
    PART(ATTN "k_proj.bias", QWEN "attn.c_attn.bias", KEY, NONE, 1),
    PART(ATTN "v_proj.bias", QWEN "attn.c_attn.bias", KEY, NONE, 2),
    NAMED(ATTN "o_proj.weight", QWEN "attn.c_proj.weight", HIDDEN, QUERY),
    NAMED("layers.#.post_attention_layernorm.weight", QWEN "ln_2.weight",
          HIDDEN, NONE),
    NAMED(MLP "gate_proj.weight", QWEN "mlp.w2.weight", FFN, HIDDEN),
    NAMED(MLP "up_proj.weight", QWEN "mlp.w1.weight", FFN, HIDDEN),
    NAMED(MLP "down_proj.weight", QWEN "mlp.c_proj.weight", HIDDEN, FFN),
    NAMED("norm.weight", "ln_f.weight", HIDDEN, NONE),
    PLAIN("lm_head.weight", VOCAB, HIDDEN, IF_UNTIED),
    ROWS_END};

/* wqkv: for each key head its query heads, itself, its values. */
#define INTERN "layers.#.attention."
static const row_t internlm2_rows[] = {
    NAMED("embed_tokens.weight", "tok_embeddings.weight", VOCAB, HIDDEN),
    NAMED("layers.#.input_layernorm.weight", "layers.#.attention_norm.weight",
          HIDDEN, NONE),
    GROUPED(ATTN "q_proj.weight", INTERN "wqkv.weight", QUERY, HIDDEN, 0,
            ALWAYS),
    GROUPED(ATTN "k_proj.weight", INTERN "wqkv.weight", KEY, HIDDEN, 1, ALWAYS),
    GROUPED(ATTN "v_proj.weight", INTERN "wqkv.weight", KEY, HIDDEN, 2, ALWAYS),
    GROUPED(ATTN "q_proj.bias", INTERN "wqkv.bias", QUERY, NONE, 0,
            IF_QKV_BIAS),
    GROUPED(ATTN "k_proj.bias", INTERN "wqkv.bias", KEY, NONE, 1, IF_QKV_BIAS),
    GROUPED(ATTN "v_proj.bias", INTERN "wqkv.bias", KEY, NONE, 2, IF_QKV_BIAS),
    NAMED(ATTN "o_proj.weight", INTERN "wo.weight", HIDDEN, QUERY),
    RENAMED(ATTN "o_proj.bias", INTERN "wo.bias", HIDDEN, NONE, IF_PROJ_BIAS),
    NAMED("layers.#.post_attention_layernorm.weight",
          "layers.#.ffn_norm.weight", HIDDEN, NONE),
    NAMED(MLP "gate_proj.weight", "layers.#.feed_forward.w1.weight", FFN,
          HIDDEN),
    NAMED(MLP "up_proj.weight", "layers.#.feed_forward.w3.weight", FFN, HIDDEN),
    NAMED(MLP "down_proj.weight", "layers.#.feed_forward.w2.weight", HIDDEN,
          FFN),
    PLAIN("norm.weight", HIDDEN, NONE, ALWAYS),
    RENAMED("lm_head.weight", "output.weight", VOCAB, HIDDEN, IF_UNTIED),
    ROWS_END};

static const family_t families[] = {
    {"gpt2", "transformer.", gpt2_rows, false},
    {"llama", "model.", rotary_rows, false},
    {"qwen", "transformer.", qwen_rows, false},
    {"internlm2", "model.", internlm2_rows, false},
    {"mimo", "model.", rotary_rows, true},
    {"ernie4_5", "model.", rotary_rows, false},
    {"qwen2", "model.", rotary_rows, false},
    {"qwen3", "model.", rotary_rows, false},
    {"qwen2_moe", "model.", qwen_moe_rows, false},
    {"qwen3_moe", "model.", qwen_moe_rows, false},
    {"mixtral", "model.", mixtral_rows, false},
};

struct loong_hf_map {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const family_t *family;
    int64_t sizes[SIZE_COUNT];
    bool conditions[CONDITION_COUNT];
    loong_layer_kinds_t kinds; /* with experts */
    int64_t layers;
    int64_t groups; /* key heads */
    int64_t pieces;
    int64_t count;
    int64_t capacity;
    loong_hf_param_t *params;
    const loong_hf_param_t **by_name;
};

static loong_status_t read_size(loong_hf_map_t *map, const loong_pairs_t *model,
                                const char *key, int64_t *size_p)
{
    int64_t size = 0;
    const char *text = loongi_pairs_get(model, key);
    LOONG_CHECK(map->ctx,
                loongi_pairs_int(model, key, &size) && size > 0 &&
                    size <= INT32_MAX,
                LOONG_ERR_ARG, "%s = %s: a positive 32-bit integer is needed",
                key, text != NULL ? text : "(missing)");
    *size_p = size;
    return LOONG_OK;
}

static loong_status_t read_experts(loong_hf_map_t *map,
                                   const loong_pairs_t *model)
{
    static const char shared[] = "moe_shared_expert_intermediate_size";
    int64_t *s = map->sizes;
    LOONG_TRY(read_size(map, model, "num_experts", &s[EXPERTS]));
    LOONG_TRY(read_size(map, model, "moe_ffn_hidden_size", &s[EXPERT_FFN]));
    const char *kinds = loongi_pairs_get(model, "moe_layer_freq");
    char problem[128];
    LOONG_CHECK(map->ctx,
                map->layers <= LOONG_MAX_LAYERS &&
                    loongi_layer_kinds_parse(kinds, map->layers, &map->kinds,
                                             problem),
                LOONG_ERR_ARG, "moe_layer_freq = %s: %s", kinds, problem);
    s[GATE_UP] = 2 * s[EXPERTS] * s[EXPERT_FFN];
    s[DOWN] = s[EXPERTS] * s[HIDDEN];
    if (loongi_pairs_get(model, shared) != NULL) {
        LOONG_TRY(read_size(map, model, shared, &s[SHARED_FFN]));
        map->conditions[IF_SHARED] = true;
        map->conditions[IF_SHARED_GATE] =
            loongi_pairs_true(model, "moe_shared_expert_gate");
    }
    return LOONG_OK;
}

static loong_status_t read_sizes(loong_hf_map_t *map,
                                 const loong_pairs_t *model)
{
    int64_t heads = 0;
    int64_t groups = 0;
    int64_t *s = map->sizes;
    LOONG_TRY(read_size(map, model, "num_layers", &map->layers));
    LOONG_TRY(read_size(map, model, "hidden_size", &s[HIDDEN]));
    LOONG_TRY(read_size(map, model, "ffn_hidden_size", &s[FFN]));
    LOONG_TRY(read_size(map, model, "vocab_size", &s[VOCAB]));
    LOONG_TRY(read_size(map, model, "max_position_embeddings", &s[POSITION]));
    LOONG_TRY(read_size(map, model, "kv_channels", &s[HEAD]));
    LOONG_TRY(read_size(map, model, "num_attention_heads", &heads));
    LOONG_TRY(read_size(map, model, "num_query_groups", &groups));
    s[NONE] = 1;
    map->groups = groups;
    s[QUERY] = heads * s[HEAD];
    s[KEY] = groups * s[HEAD];
    map->conditions[ALWAYS] = map->conditions[IF_DENSE] = true;
    map->conditions[IF_EXPERTS] = true;
    map->conditions[IF_MLP_BIAS] = loongi_pairs_true(model, "add_bias_linear");
    map->conditions[IF_QKV_BIAS] = loongi_pairs_true(model, "add_qkv_bias");
    map->conditions[IF_PROJ_BIAS] =
        loongi_pairs_true(model, "add_attn_proj_bias");
    map->conditions[IF_QK_NORM] = loongi_pairs_true(model, "qk_layernorm");
    map->conditions[IF_UNTIED] =
        loongi_pairs_true(model, "untie_embeddings_and_output_weights");
    return loongi_pairs_get(model, "num_experts") != NULL
               ? read_experts(map, model)
               : LOONG_OK;
}

/* Copies a pattern with '#' replaced by the layer. */
static loong_status_t expand(loong_hf_map_t *map, const char *pattern,
                             int64_t layer, const char **name_p)
{
    const char *mark = strchr(pattern, '#');
    char *name = NULL;
    if (mark == NULL) {
        *name_p = pattern;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_printf(map->arena, &name, "%.*s%" PRId64 "%s",
                                  (int)(mark - pattern), pattern, layer,
                                  mark + 1));
    *name_p = name;
    return LOONG_OK;
}

/* The tensors of an expert follow one another. */
static loong_status_t name_pieces(loong_hf_map_t *map, const row_t *row,
                                  int64_t layer, loong_hf_param_t *param)
{
    const char **names = NULL;
    int each = row->second != NULL ? 2 : 1;
    param->pieces = each * map->sizes[EXPERTS];
    LOONG_TRY(loongi_arena_alloc(
        map->arena, (size_t)param->pieces * sizeof(*names), &names));
    for (int64_t i = 0; i < param->pieces; i++) {
        const char *pattern = NULL;
        char *name = NULL;
        LOONG_TRY(expand(map, i % each > 0 ? row->second : row->hf_name, layer,
                         &pattern));
        const char *mark = strchr(pattern, '@');
        LOONG_TRY(loongi_arena_printf(map->arena, &name, "%.*s%" PRId64 "%s",
                                      (int)(mark - pattern), pattern, i / each,
                                      mark + 1));
        names[i] = name;
    }
    param->piece_names = names;
    return LOONG_OK;
}

static const char head_name[] = "lm_head.weight";

/* Where the rows of a part lie between those of the others. */
static void place_runs(const loong_hf_map_t *map, const row_t *row,
                       loong_hf_param_t *param)
{
    const row_t *first = row - row->part;
    int64_t runs = row->grouped ? map->groups : param->pieces;
    for (int i = 0; i < row->parts; i++) {
        int64_t run = map->sizes[first[i].rows] / runs;
        param->offset += i < row->part ? run : 0;
        param->stride += run;
    }
    param->run = map->sizes[row->rows] / runs;
}

static loong_status_t add(loong_hf_map_t *map, const row_t *row, int64_t layer)
{
    loong_hf_param_t param = {0};
    LOONG_TRY(expand(map, row->name, layer, &param.name));
    LOONG_TRY(expand(map, row->hf_name != NULL ? row->hf_name : row->name,
                     layer, &param.hf_name));
    param.ndim = row->columns == NONE ? 1 : 2;
    param.shape[0] = map->sizes[row->rows];
    param.shape[1] = map->sizes[row->columns];
    param.prefixed = strcmp(row->name, head_name) != 0;
    param.transposed = row->transposed;
    param.part = row->part;
    param.parts = row->parts;
    param.pieces = 1;
    param.first_piece = map->pieces;
    if (strchr(param.hf_name, '@') != NULL) {
        LOONG_TRY(name_pieces(map, row, layer, &param));
    }
    place_runs(map, row, &param);
    map->pieces += param.pieces;
    LOONG_TRY(loongi_grow(map->ctx, &map->params, &map->capacity,
                          map->count + 1, sizeof(param), "parameter map"));
    map->params[map->count++] = param;
    return LOONG_OK;
}

/* What follows from the layer (-1: from none), and what from the model. */
static bool holds(const loong_hf_map_t *map, condition_t condition,
                  int64_t layer)
{
    bool mixture = layer >= 0 && map->sizes[EXPERTS] > 0 &&
                   map->kinds.experts[layer] != 0;
    return map->conditions[condition] &&
           (condition != IF_DENSE || !mixture) &&
           (condition < IF_EXPERTS || mixture);
}

/* Rows with '#' stand together: they are repeated as one block per layer. */
static loong_status_t expand_rows(loong_hf_map_t *map)
{
    const row_t *row = map->family->rows;
    while (row->name != NULL) {
        const row_t *begin = row;
        bool layered = strchr(row->name, '#') != NULL;
        while (row->name != NULL &&
               (strchr(row->name, '#') != NULL) == layered) {
            row++;
        }
        for (int64_t layer = 0; layer < (layered ? map->layers : 1); layer++) {
            for (const row_t *r = begin; r < row; r++) {
                if (holds(map, r->condition, layered ? layer : -1)) {
                    LOONG_TRY(add(map, r, layer));
                }
            }
        }
    }
    return LOONG_OK;
}

static int by_name(const void *a, const void *b)
{
    const loong_hf_param_t *const *x = a;
    const loong_hf_param_t *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static loong_status_t build(loong_hf_map_t *map, const loong_pairs_t *model)
{
    const char *family = loongi_pairs_get(model, "family");
    for (int64_t i = 0; family && i < LOONG_COUNT_OF(families); i++) {
        if (strcmp(families[i].name, family) == 0) {
            map->family = &families[i];
        }
    }
    LOONG_CHECK(map->ctx, map->family != NULL, LOONG_ERR_UNSUPPORTED,
                "family '%s' has no Hugging Face names (%s have)",
                family != NULL ? family : "(missing)", loongi_hf_type_list());
    LOONG_TRY(loongi_arena_create(map->ctx, "parameter map", &map->arena));
    LOONG_TRY(read_sizes(map, model));
    LOONG_TRY(expand_rows(map));
    LOONG_TRY(loongi_arena_alloc(
        map->arena, (size_t)map->count * sizeof(*map->by_name), &map->by_name));
    for (int64_t i = 0; i < map->count; i++) {
        map->by_name[i] = &map->params[i];
    }
    qsort(map->by_name, (size_t)map->count, sizeof(*map->by_name), by_name);
    return LOONG_OK;
}

loong_status_t loongi_hf_map_create(loong_context_t *ctx,
                                    const loong_pairs_t *model,
                                    loong_hf_map_t **map_p)
{
    loong_hf_map_t *map = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*map), "parameter map", &map));
    map->ctx = ctx;
    loong_status_t status = build(map, model);
    if (status != LOONG_OK) {
        loongi_hf_map_destroy(&map);
        return status;
    }
    *map_p = map;
    return LOONG_OK;
}

void loongi_hf_map_destroy(loong_hf_map_t **map)
{
    if (*map == NULL) {
        return;
    }
    loongi_free((*map)->ctx, (*map)->params);
    loongi_arena_destroy(&(*map)->arena);
    loongi_free((*map)->ctx, *map);
    *map = NULL;
}

int64_t loongi_hf_map_count(const loong_hf_map_t *map)
{
    return map->count;
}

int64_t loongi_hf_map_pieces(const loong_hf_map_t *map)
{
    return map->pieces;
}

const loong_hf_param_t *loongi_hf_map_get(const loong_hf_map_t *map,
                                          int64_t index)
{
    return &map->params[index];
}

const loong_hf_param_t *loongi_hf_map_find(const loong_hf_map_t *map,
                                           const char *name)
{
    loong_hf_param_t key = {0};
    const loong_hf_param_t *key_ptr = &key;
    key.name = name;
    const loong_hf_param_t *const *found =
        bsearch(&key_ptr, map->by_name, (size_t)map->count,
                sizeof(*map->by_name), by_name);
    return found != NULL ? *found : NULL;
}

const char *loongi_hf_map_prefix(const loong_hf_map_t *map)
{
    return map->family->prefix;
}

const char *loongi_hf_map_head(const loong_hf_map_t *map)
{
    const row_t *row = map->family->rows;
    while (strcmp(row->name, head_name) != 0) {
        row++;
    }
    return row->hf_name != NULL ? row->hf_name : row->name;
}

bool loongi_hf_map_predicts(const loong_hf_map_t *map, const char *name)
{
    static const char layers[] = "model.layers.";
    if (!map->family->predicts) {
        return false;
    }
    if (strncmp(name, "model.mtp_", 10) == 0) {
        return true;
    }
    return strncmp(name, layers, sizeof(layers) - 1) == 0 &&
           strtoll(name + sizeof(layers) - 1, NULL, 10) >= map->layers;
}
