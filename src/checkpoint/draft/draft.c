/* SPDX-License-Identifier: Apache-2.0
 *
 * Proposes how a checkpoint is to be understood: the keys of the model from
 * config.json, whatever its fields are called, the names from the shapes.
 * Called by loong-ckpt draft. Read draft.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "draft.h"
#include "file.h"
#include "hf_config.h"
#include "hf_foreign.h"
#include "json.h"
#include "loong/checkpoint.h"
#include "native.h"

/* What model code calls a size. */
typedef struct synonyms {
    const char *key;
    const char *fields; /* in order of trust */
    const char *fallback; /* NULL: it must be there; "=KEY": that key's */
} synonyms_t;

static const synonyms_t sizes[] = {
    {"hidden_size", "hidden_size n_embd d_model dim model_dim embed_dim "
                    "hidden_dim emb_dim", NULL},
    {"num_layers", "num_hidden_layers num_layers n_layer n_layers "
                   "decoder_layers depth", NULL},
    {"num_attention_heads", "num_attention_heads n_head n_heads num_heads "
                            "attention_heads heads", NULL},
    {"num_query_groups", "num_key_value_heads n_kv_heads num_kv_heads "
                         "num_query_groups n_head_kv multi_query_group_num "
                         "kv_heads", "=num_attention_heads"},
    {"ffn_hidden_size", "intermediate_size ffn_hidden_size n_inner d_ff "
                        "ffn_dim mlp_dim inner_dim feed_forward_size "
                        "hidden_dim", NULL},
    {"vocab_size", "vocab_size n_vocab padded_vocab_size vocabulary_size",
     NULL},
    {"max_position_embeddings", "max_position_embeddings n_positions n_ctx "
                                "max_seq_len max_seq_length seq_length "
                                "max_sequence_length block_size "
                                "context_length", "2048"},
    {"rotary_base", "rope_theta rotary_base rope_base rotary_emb_base",
     "10000"},
    {"layernorm_epsilon", "rms_norm_eps norm_eps layer_norm_epsilon "
                          "layer_norm_eps layernorm_epsilon norm_epsilon eps",
     "1e-5"},
};
static const char head_sizes[] =
    "head_dim kv_channels d_head d_kv attention_head_dim";
enum { USED = LOONG_COUNT_OF(sizes) + 1 };

typedef struct draft {
    loong_context_t *ctx;
    const loong_checkpoint_draft_params_t *params;
    loong_json_t *config;
    loong_safetensors_set_t *set;
    loong_pairs_t *model;
    loong_hf_map_t *map;
    loong_draft_patterns_t patterns;
    loong_draft_match_t match;
    bool known; /* the model type */
    int used_count;
    loong_hf_field_t used[USED + 1]; /* for sizes, when it is not */
    loong_problems_t unused;         /* fields that nothing follows from */
} draft_t;

/* ---- the model's keys ---- */

static bool is_number(const loong_json_t *value)
{
    return value != NULL && (loongi_json_kind(value) == LOONG_JSON_INT ||
                             loongi_json_kind(value) == LOONG_JSON_REAL);
}

/* Of the file, or of an object in it ("rope_parameters"). */
static const loong_json_t *find_name(draft_t *d, const char *name)
{
    const loong_json_t *config = d->config;
    const loong_json_t *value = NULL;
    const loong_json_member_t *m = loongi_json_first(config);
    for (; m != NULL; m = loongi_json_next(config, m)) {
        if (strcmp(loongi_json_member_key(m), name) == 0 &&
            is_number(loongi_json_member_value(m))) {
            d->used[d->used_count++].name = loongi_json_member_key(m);
            return loongi_json_member_value(m);
        }
    }
    m = loongi_json_first(config);
    for (; m != NULL && !is_number(value); m = loongi_json_next(config, m)) {
        value = loongi_json_get(loongi_json_member_value(m), name);
    }
    return is_number(value) ? value : NULL;
}

static const loong_json_t *find_field(draft_t *d, const char *fields)
{
    char name[64];
    const loong_json_t *value = NULL;
    while (*fields != '\0' && value == NULL) {
        size_t length = strcspn(fields, " ");
        snprintf(name, sizeof(name), "%.*s", (int)length, fields);
        value = find_name(d, name);
        fields += length + strspn(fields + length, " ");
    }
    return value;
}

static loong_status_t set_size(draft_t *d, const synonyms_t *s)
{
    const loong_json_t *value = find_field(d, s->fields);
    if (value == NULL) {
        LOONG_CHECK(d->ctx, s->fallback != NULL, LOONG_ERR_UNSUPPORTED,
                    "%s/config.json has none of the fields %s, one of which "
                    "must give %s", d->params->dir, s->fields, s->key);
        return loongi_pairs_set(d->model, s->key,
                                s->fallback[0] == '='
                                    ? loongi_pairs_get(d->model,
                                                       s->fallback + 1)
                                    : s->fallback);
    }
    return loongi_json_kind(value) == LOONG_JSON_INT
               ? loongi_pairs_set_int(d->model, s->key, loongi_json_int(value))
               : loongi_pairs_set_real(d->model, s->key,
                                       loongi_json_real(value));
}

static loong_status_t set_head_size(draft_t *d)
{
    const loong_json_t *value = find_field(d, head_sizes);
    int64_t hidden = 0;
    int64_t heads = 0;
    loongi_pairs_int(d->model, "hidden_size", &hidden);
    loongi_pairs_int(d->model, "num_attention_heads", &heads);
    LOONG_CHECK(d->ctx, value != NULL || (heads > 0 && hidden % heads == 0),
                LOONG_ERR_UNSUPPORTED,
                "%s/config.json: %" PRId64 " heads do not divide %" PRId64,
                d->params->dir, heads, hidden);
    return loongi_pairs_set_int(d->model, "kv_channels",
                                value != NULL ? loongi_json_int(value)
                                              : hidden / heads);
}

/* Sizes, and what known types call so; the rest is a LLaMA's, until the
 * tensors say otherwise. */
static loong_status_t guess_model(draft_t *d)
{
    LOONG_TRY(loongi_pairs_create(d->ctx, &d->model));
    LOONG_TRY(loongi_pairs_set(d->model, "family", "llama"));
    for (int64_t i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        LOONG_TRY(set_size(d, &sizes[i]));
    }
    LOONG_TRY(set_head_size(d));
    LOONG_TRY(
        loongi_pairs_set(d->model, "position_embedding_type", "rope"));
    LOONG_TRY(loongi_pairs_set(d->model, "normalization", "RMSNorm"));
    LOONG_TRY(loongi_pairs_set(d->model, "activation", "swiglu"));
    return loongi_hf_config_guess(d->ctx, d->config, d->used, d->model,
                                  &d->unused);
}

static loong_status_t read_model(draft_t *d)
{
    if (loongi_hf_config_read(d->ctx, d->params->dir, &d->model) == LOONG_OK) {
        d->known = true;
        return LOONG_OK;
    }
    const loong_json_t *type = loongi_json_get(d->config, "model_type");
    if (loongi_hf_type_find(d->ctx, loongi_json_string(type)) != NULL) {
        return LOONG_FAIL(d->ctx, LOONG_ERR_UNSUPPORTED,
                          "the type is known, so that nothing is guessed: "
                          "what is named above stands in the way");
    }
    loongi_log(d->ctx, LOONG_LOG_WARN,
               "the model type is not known; what its fields share with a "
               "LLaMA's is taken as there: %s", loong_context_error(d->ctx));
    loong_context_clear_error(d->ctx);
    return guess_model(d);
}

/* ---- names ---- */

static loong_status_t try_match(draft_t *d)
{
    loong_hf_map_t *map = NULL;
    loong_draft_match_t match = {0};
    LOONG_TRY(loongi_hf_map_create(d->ctx, d->model, &map));
    loong_status_t status =
        loongi_draft_choose(d->ctx, map, &d->patterns, &match);
    if (status != LOONG_OK) {
        loongi_hf_map_destroy(&map);
        return status;
    }
    if (d->map == NULL || loongi_draft_is_better(&match, &d->match)) {
        loong_draft_match_t before = d->match;
        loong_hf_map_t *map_before = d->map;
        d->match = match;
        d->map = map;
        match = before;
        map = map_before;
    }
    loongi_draft_match_free(&match);
    loongi_hf_map_destroy(&map);
    return LOONG_OK;
}

static const char *const flags[] = {
    "add_qkv_bias", "add_attn_proj_bias", "add_bias_linear", "qk_layernorm",
    "untie_embeddings_and_output_weights"};

static loong_status_t set_flags(draft_t *d, unsigned bits)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(flags); i++) {
        LOONG_TRY(loongi_pairs_set_bool(d->model, flags[i],
                                        (bits >> i & 1) != 0));
    }
    return LOONG_OK;
}

/* What config.json does not say follows from what fits the tensors best. */
static loong_status_t choose_names(draft_t *d)
{
    int64_t experts = 0;
    bool two = loongi_pairs_get(d->model, "moe_vision_ffn_hidden_size") != NULL;
    loongi_pairs_int(d->model, "num_experts", &experts);
    LOONG_TRY(loongi_draft_patterns(d->ctx, d->set, experts, two ? 2 : 1,
                                    &d->patterns));
    if (d->known) {
        return try_match(d);
    }
    unsigned best = 0;
    for (unsigned bits = 0; bits < 1u << LOONG_COUNT_OF(flags); bits++) {
        const loong_hf_map_t *before = d->map;
        LOONG_TRY(set_flags(d, bits));
        LOONG_TRY(try_match(d));
        best = d->map != before ? bits : best;
    }
    return set_flags(d, best);
}

/* ---- what is written ---- */

static void print_choice(const draft_t *d, const loong_draft_choice_t *c,
                         loong_text_t *text)
{
    const loong_draft_pattern_t *p = &d->patterns.items[c->pattern];
    char shape[LOONG_SHAPE_TEXT];
    bool plain = c->count == 1 && !c->transposed && !c->as_row;
    loongi_text_printf(text, "  ");
    loongi_hf_yaml_name(text, p->text);
    loongi_text_printf(text, ":");
    if (plain) {
        loongi_text_printf(text, " ");
        loongi_hf_yaml_name(text, c->holds[0]);
    }
    loongi_text_printf(text, " # %s%s",
                       loongi_shape_text(p->ndim, p->shape, shape),
                       c->sure ? "" : ", a guess");
    if (c->lacks > 0) {
        loongi_text_printf(text, "; %" PRId64 " more are needed", c->lacks);
    }
    loongi_text_printf(text, "\n");
    if (plain) {
        return;
    }
    loongi_text_printf(text, "    holds: [");
    for (int i = 0; i < c->count; i++) {
        loongi_text_printf(text, "%s", i > 0 ? ", " : "");
        loongi_hf_yaml_name(text, c->holds[i]);
    }
    loongi_text_printf(text, "]\n%s%s%s",
                       c->transposed ? "    transposed: true\n" : "",
                       c->by_key_head ? "    by_key_head: true\n" : "",
                       c->as_row ? "    as_row: true\n" : "");
}

static bool is_chosen(const draft_t *d, int64_t pattern)
{
    for (int64_t i = 0; i < d->match.count; i++) {
        if (d->match.choices[i].pattern == pattern) {
            return true;
        }
    }
    return false;
}

static void print_map(const draft_t *d, loong_text_t *text)
{
    char shape[LOONG_SHAPE_TEXT];
    loongi_text_printf(text,
                       "# Proposed from names and shapes: tensors of %s and\n"
                       "# the parameters of family %s in them. A guess is "
                       "what another\n# choice would have sounded as good "
                       "for.\ntensors:\n", d->params->dir,
                       loongi_pairs_get(d->model, "family"));
    for (int64_t i = 0; i < d->match.count; i++) {
        print_choice(d, &d->match.choices[i], text);
    }
    bool begun = false;
    for (int64_t i = 0; i < d->patterns.count; i++) {
        const loong_draft_pattern_t *p = &d->patterns.items[i];
        /* an import leaves out tensors of other parts by itself */
        if (!is_chosen(d, i) && !loongi_hf_map_is_extra(d->map, p->text)) {
            loongi_text_printf(text, "%s#  - ",
                               begun ? ""
                                     : "# Of no use that is known, and so an "
                                       "import refuses them; what the\n"
                                       "# model computes without may be left "
                                       "out:\n# ignore:\n");
            begun = true;
            loongi_hf_yaml_name(text, p->text);
            loongi_text_printf(text, " # %s\n",
                               loongi_shape_text(LOONG_MIN(p->ndim, 3),
                                                 p->shape, shape));
        }
    }
}

static void print_value(loong_text_t *text, const char *key,
                        const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-";
    loongi_text_printf(text, "%s: ", key);
    if (value[0] == '\0' || value[strspn(value, plain)] != '\0') {
        loongi_text_json_string(text, value);
    } else {
        loongi_text_printf(text, "%s", value);
    }
    loongi_text_printf(text, "\n");
}

/* "rope_scaling.type" is type in a map of its own; all of a map together. */
static void print_keys(const loong_pairs_t *model, loong_text_t *text)
{
    for (int64_t i = 0; i < model->count; i++) {
        const loong_pair_t *pair = &model->items[i];
        size_t map = strcspn(pair->key, ".") + 1;
        bool begun = false;
        if (pair->key[map - 1] == '\0') {
            print_value(text, pair->key, pair->value);
            continue;
        }
        for (int64_t k = 0; k < model->count; k++) {
            const loong_pair_t *other = &model->items[k];
            if (strncmp(pair->key, other->key, map) != 0) {
                continue;
            }
            if (k < i) {
                break; /* printed with the first */
            }
            if (!begun) {
                loongi_text_printf(text, "%.*s:\n", (int)map - 1, pair->key);
            }
            loongi_text_printf(text, "  ");
            print_value(text, other->key + map, other->value);
            begun = true;
        }
    }
}

static void print_unused(const draft_t *d, const char *before,
                         loong_text_t *text)
{
    const char *line = loongi_text_get(&d->unused.text);
    if (d->unused.count > 0) {
        loongi_text_printf(text, "%s%" PRId64 " field%s of %s/config.json "
                           "not used:\n", before, d->unused.count,
                           d->unused.count > 1 ? "s" : "", d->params->dir);
    }
    for (; *line != '\0'; line += strcspn(line, "\n") + 1) {
        loongi_text_printf(text, "%s  %.*s\n", before,
                           (int)strcspn(line, "\n"), line);
    }
    if (d->unused.shown < d->unused.count) {
        loongi_text_printf(text, "%s  and %" PRId64 " more\n", before,
                           d->unused.count - d->unused.shown);
    }
}

static void print_model(const draft_t *d, loong_text_t *text)
{
    loongi_text_printf(text, "# Keys of model.foundation, from %s/config.json%s"
                       "\n", d->params->dir,
                       d->known ? "" : ", whose model type is not known:\n"
                                       "# compare them with the model's code");
    print_unused(d, "# ", text);
    print_keys(d->model, text);
}

static void print_recipe(const draft_t *d, loong_text_t *text)
{
    int64_t positions = 2048;
    loongi_pairs_int(d->model, "max_position_embeddings", &positions);
    loongi_text_printf(
        text,
        "# After loong-ckpt import DIR native --model model.yaml --map "
        "map.yaml\nversion: 1\ndefaults:\n"
        "  - model.yaml@model.foundation\n"
        "checkpoint: {load: native, no_load_optim: true, save: checkpoints}\n"
        "data: {seq_length: %" PRId64 "} # and train: [{path: PREFIX}]\n"
        "train: {micro_batch_size: 1, global_batch_size: 8, "
        "train_iters: 100}\n"
        "optimizer: {lr: 1e-5}\n",
        LOONG_MIN(positions, 2048));
}

static void say_lines(const draft_t *d, const loong_text_t *text)
{
    char *line = text->data;
    for (char *end = strchr(line, '\n'); end != NULL;
         end = strchr(line, '\n')) {
        *end = '\0';
        d->params->line(d->params->user, line);
        line = end + 1;
    }
}

static loong_status_t put(const draft_t *d, const char *name,
                          const loong_text_t *text)
{
    const loong_checkpoint_draft_params_t *p = d->params;
    LOONG_TRY(text->status);
    if (p->out_dir != NULL) {
        loong_text_t path = loongi_text_begin(d->ctx);
        loongi_text_printf(&path, "%s/%s", p->out_dir, name);
        loong_status_t status = path.status;
        if (status == LOONG_OK) {
            status =
                loongi_file_write(d->ctx, path.data, text->data, text->length);
        }
        loongi_text_free(&path);
        return status;
    }
    p->line(p->user, name);
    say_lines(d, text);
    return LOONG_OK;
}

static loong_status_t write_drafts(const draft_t *d)
{
    loong_text_t texts[3];
    static const char *const names[] = {"model.yaml", "map.yaml",
                                        "recipe.yaml"};
    loong_status_t status = d->params->out_dir != NULL
                                ? loongi_dir_make(d->ctx, d->params->out_dir)
                                : LOONG_OK;
    for (int i = 0; i < 3; i++) {
        texts[i] = loongi_text_begin(d->ctx);
    }
    print_model(d, &texts[0]);
    print_map(d, &texts[1]);
    print_recipe(d, &texts[2]);
    for (int i = 0; i < 3; i++) {
        status = status == LOONG_OK ? put(d, names[i], &texts[i]) : status;
        loongi_text_free(&texts[i]);
    }
    return status;
}

/* Not found is said, one by one. */
static loong_status_t tell(const draft_t *d)
{
    char line[256];
    loong_text_t unused = loongi_text_begin(d->ctx);
    int64_t guesses = 0;
    int64_t lacks = 0;
    for (int64_t i = 0; i < d->match.count; i++) {
        guesses += !d->match.choices[i].sure;
        lacks += d->match.choices[i].lacks;
    }
    snprintf(line, sizeof(line),
             "%" PRId64 " kinds of tensors: %" PRId64 " have a parameter (%"
             PRId64 " are guesses), %" PRId64 " have none; %" PRId64
             " kinds of parameters have no tensor, and %" PRId64
             " tensors are not there in some layers", d->patterns.count,
             d->match.count, guesses, d->match.unused, d->match.uncovered,
             lacks);
    if (d->params->out_dir != NULL) { /* else it stands in model.yaml above */
        print_unused(d, "", &unused);
    }
    loong_status_t status = unused.status;
    if (status == LOONG_OK && unused.length > 0) {
        say_lines(d, &unused);
    }
    loongi_text_free(&unused);
    d->params->line(d->params->user, line);
    if (d->params->whole_p != NULL) {
        *d->params->whole_p = d->match.uncovered == 0 && lacks == 0;
    }
    return status;
}

static loong_status_t run(draft_t *d)
{
    char path[4096];
    LOONG_TRY(loongi_checkpoint_check_model(d->ctx, d->params->dir));
    if (d->params->out_dir != NULL) {
        LOONG_TRY(
            loongi_checkpoint_check_outside(d->ctx, d->params->out_dir));
    }
    snprintf(path, sizeof(path), "%s/config.json", d->params->dir);
    LOONG_TRY(loongi_json_load(d->ctx, path, &d->config));
    LOONG_TRY(loongi_hf_check_foreign(d->ctx, path, d->config));
    LOONG_TRY(loongi_safetensors_set_open(d->ctx, d->params->dir, &d->set));
    LOONG_TRY(read_model(d));
    LOONG_TRY(choose_names(d));
    LOONG_TRY(write_drafts(d));
    return tell(d);
}

loong_status_t
loong_checkpoint_draft(loong_context_t *ctx,
                       const loong_checkpoint_draft_params_t *params)
{
    draft_t d = {0};
    d.ctx = ctx;
    d.params = params;
    d.unused = loongi_problems_begin(ctx);
    loong_status_t status = run(&d);
    loongi_text_free(&d.unused.text);
    loongi_draft_match_free(&d.match);
    loongi_free(ctx, d.patterns.items);
    loongi_hf_map_destroy(&d.map);
    loongi_pairs_destroy(&d.model);
    loongi_safetensors_set_close(&d.set);
    loongi_json_destroy(&d.config);
    return status;
}
