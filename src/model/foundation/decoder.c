/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the graph of a decoder's stage from its configuration, and registers
 * its families. Called through loong_family_t by src/component/stage.c. Read
 * loong/family.h, loong/nn.h and decoder.h before. */
#include "decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "decoder_config.h"

/* Dropout sites: a stream number for each, the same in every layout. */
enum { SITE_EMBEDDING, SITE_ATTENTION, SITE_AFTER_ATTENTION, SITE_AFTER_MLP,
       SITES };

typedef struct decoder {
    loong_nn_t nn;
    loong_graph_t *g;
    const loong_decoder_config_t *c;
    const loong_model_request_t *request;
    loong_nn_sequence_t sequence;
    loong_nn_slice_t vocab; /* rows of the two tables, padding included */
    loong_val_t stream_key; /* token_key of the rows of the stream */
    loong_val_t token_types; /* of the rows of the stream; LOONG_NONE: none */
    /* Rows of each encoder's pictures; of the first stage. */
    loong_val_t received[LOONG_MAX_ENCODERS];
    loong_val_t router_loss; /* of the layers so far; LOONG_NONE: none */
    loong_nn_router_pool_t pool; /* of layers that are balanced together */
    loong_val_t pooled[LOONG_MAX_LAYERS];
} decoder_t;

static uint64_t stream_of(int layer, int site)
{
    return (uint64_t)(layer + 1) * SITES + (uint64_t)site;
}

static loong_val_t dropout(decoder_t *d, loong_val_t x, double p, int layer,
                           int site)
{
    bool drops = d->request->train && p > 0.0;
    return drops ? loong_dropout(d->g, x, d->stream_key, p,
                                 stream_of(layer, site))
                 : x;
}

static bool needs_key(const decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    const loong_adapters_t *adapters = d->request->rules.adapters;
    return (adapters != NULL && adapters->dropout > 0.0) ||
           c->attention_dropout > 0.0 || c->hidden_dropout > 0.0 ||
           c->embedding_dropout > 0.0;
}

static double embedding_std(const loong_decoder_config_t *c)
{
    return c->embedding_init_std > 0.0 ? c->embedding_init_std : c->init_std;
}

static int64_t window_of(const loong_decoder_config_t *c, int layer)
{
    return layer >= c->max_window_layers ? c->window_size : 0;
}

static bool has_experts(const loong_decoder_config_t *c, int layer)
{
    return c->num_experts > 0 && c->kinds.of[layer] != 0;
}

/* Tokens of images have experts of their own. */
static void token_types(decoder_t *d)
{
    const loong_model_request_t *r = d->request;
    bool some = false;
    for (int i = 0; i < r->num_layers; i++) {
        some = some || has_experts(d->c, r->first_layer + i);
    }
    d->token_types = LOONG_NONE;
    if (some && d->c->vision_ffn > 0) {
        loong_val_t types = loong_graph_input(d->g, "token_types", LOONG_I32,
                                              loong_shape_1d(r->rows));
        d->token_types = loong_nn_stream_rows(&d->nn, types);
    }
}

/* What every stage reads besides the stream. */
static void sequence(decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    loong_shape_t tokens = loong_shape_1d(d->request->rows);
    d->sequence.cu_seqlens =
        loong_graph_input(d->g, "cu_seqlens", LOONG_I32,
                          loong_shape_1d(d->request->max_segments + 1));
    d->sequence.rope_table = LOONG_NONE;
    d->sequence.token_key = LOONG_NONE;
    d->sequence.key_ends =
        c->bidirectional_prefix
            ? loong_graph_input(d->g, "key_ends", LOONG_I32, tokens)
            : LOONG_NONE;
    if (d->request->train && needs_key(d)) {
        d->sequence.token_key =
            loong_graph_input(d->g, "token_key", LOONG_I64, tokens);
        d->nn.token_key = d->sequence.token_key;
        d->stream_key = loong_nn_stream_rows(&d->nn, d->sequence.token_key);
    }
    if (!c->learned_positions) {
        loong_rope_table_attr_t rope = c->rope;
        rope.axes = d->request->features ? c->mrope_axes : 0;
        bool axes = rope.axes > 0;
        loong_val_t positions = loong_graph_input(
            d->g, axes ? "axis_positions" : "positions", LOONG_I32,
            axes ? loong_shape_2d(rope.axes, d->request->rows) : tokens);
        loong_graph_push(d->g, "rope");
        rope.length = (double)d->request->seq_length;
        d->sequence.rope_table = loong_rope_table(d->g, positions, &rope);
        loong_graph_pop(d->g);
    }
}

/* The table of the embedding, which a tied head shares. */
static loong_val_t embedding_table(decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    loong_graph_push(d->g, "embed_tokens");
    loong_val_t w = loong_nn_table(&d->nn, "weight", d->vocab, c->hidden_size,
                                   embedding_std(c));
    loong_graph_pop(d->g);
    return w;
}

static loong_val_t embed(decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    loong_shape_t tokens = loong_shape_1d(d->request->rows);
    loong_val_t ids = loong_graph_input(d->g, "tokens", LOONG_I32, tokens);
    loong_val_t table = embedding_table(d);
    loong_graph_push(d->g, "embed_tokens");
    loong_val_t x = loong_nn_embedding(&d->nn, ids, table, d->vocab);
    loong_graph_pop(d->g);
    if (c->scale_embeddings) {
        x = loong_scale(d->g, x, sqrt((double)c->hidden_size));
    }
    if (c->learned_positions) {
        loong_val_t positions =
            loong_graph_input(d->g, "positions", LOONG_I32, tokens);
        loong_graph_push(d->g, "position_embeddings");
        loong_val_t wpe =
            loong_nn_matrix(&d->nn, "weight", c->max_position_embeddings,
                            c->hidden_size, embedding_std(c));
        loong_val_t rows = loong_nn_stream_rows(&d->nn, positions);
        x = loong_add(d->g, x, loong_embedding(d->g, rows, wpe));
        loong_graph_pop(d->g);
    }
    x = loong_nn_select_features(&d->nn, x, c->hidden_size, d->request,
                                 d->received);
    return dropout(d, x, c->embedding_dropout, -1, SITE_EMBEDDING);
}

static void set_experts(const decoder_t *d, loong_nn_moe_t *moe)
{
    const loong_decoder_config_t *c = d->c;
    bool sets = c->vision_ffn > 0;
    const loong_nn_expert_set_t text = {sets ? "text_moe" : "",
                                        c->moe_ffn_hidden_size};
    const loong_nn_expert_set_t vision = {"vision_moe", c->vision_ffn};
    moe->num_sets = sets ? 2 : 1;
    moe->set[0] = text;
    moe->set[1] = vision;
    moe->types = d->token_types;
}

static loong_val_t mixture(decoder_t *d, loong_val_t x, int index)
{
    const loong_decoder_config_t *c = d->c;
    loong_nn_moe_t moe;
    memset(&moe, 0, sizeof(moe));
    moe.hidden = c->hidden_size;
    moe.experts = c->num_experts;
    set_experts(d, &moe);
    moe.router = c->router;
    moe.routing = d->request->routing;
    moe.layer = index;
    moe.capacity_factor = c->capacity_factor;
    moe.drop_by_position = c->drop_by_position;
    moe.bias = c->expert_bias;
    moe.bias_rate = c->bias_update_rate;
    moe.shared_ffn = c->shared_expert_ffn;
    moe.shared_gate = c->shared_expert_gate;
    moe.metrics = d->request->train;
    if (d->request->train) {
        bool pooled = c->balance == LOONG_BALANCE_POOLED;
        bool each = c->balance == LOONG_BALANCE_SEQUENCE;
        moe.aux_loss = pooled ? 0.0 : c->aux_loss_coeff;
        moe.pool = pooled && c->aux_loss_coeff > 0.0 ? &d->pool : NULL;
        moe.z_loss = c->router_z_loss_coeff;
        moe.sequence = each ? d->request->max_seqlen : 0;
    }
    return loong_nn_moe(&d->nn, x, &moe, &d->router_loss);
}

static loong_val_t feed_forward(decoder_t *d, loong_val_t x, int index)
{
    const loong_decoder_config_t *c = d->c;
    return has_experts(c, index)
               ? mixture(d, x, index)
               : loong_nn_mlp(&d->nn, x, c->mlp, c->hidden_size,
                              c->ffn_hidden_size, c->mlp_bias);
}

static loong_val_t latent_attention(decoder_t *d, loong_val_t x, int index)
{
    const loong_decoder_config_t *c = d->c;
    loong_nn_latent_t latent;
    memset(&latent, 0, sizeof(latent));
    latent.heads = c->num_attention_heads;
    latent.hidden = c->hidden_size;
    latent.q_rank = c->q_lora_rank;
    latent.kv_rank = c->kv_lora_rank;
    latent.nope = c->qk_head_dim;
    latent.rope = c->qk_pos_emb_head_dim;
    latent.v_head_dim = c->v_head_dim;
    latent.max_seqlen = d->request->max_seqlen;
    latent.scale = c->softmax_scale;
    latent.dropout = d->request->train ? c->attention_dropout : 0.0;
    latent.stream = stream_of(index, SITE_ATTENTION);
    latent.interleaved = c->rope_interleaved;
    latent.short_bias = c->qkv_bias;
    latent.output_bias = c->attention_output_bias;
    bool less = loong_nn_latent_absorbs(c->kv_lora_rank, c->qk_head_dim,
                                        c->v_head_dim);
    latent.absorb = c->mla_absorb == LOONG_ABSORB_YES ||
                    (c->mla_absorb == LOONG_ABSORB_AUTO && less);
    return loong_nn_latent_attention(&d->nn, x, &latent, &d->sequence);
}

static loong_val_t head_attention(decoder_t *d, loong_val_t x, int index)
{
    const loong_decoder_config_t *c = d->c;
    loong_nn_attention_t attention;
    memset(&attention, 0, sizeof(attention));
    attention.heads = c->num_attention_heads;
    attention.kv_heads = c->num_query_groups;
    attention.head_dim = c->kv_channels;
    attention.hidden = c->hidden_size;
    attention.qkv_bias = c->qkv_bias;
    attention.output_bias = c->attention_output_bias;
    attention.qk_norm = c->qk_norm;
    attention.qk_norm_whole = c->qk_norm_whole;
    attention.norm_eps = c->norm_eps;
    attention.window = window_of(c, index);
    attention.max_seqlen = d->request->max_seqlen;
    attention.scale = c->softmax_scale;
    attention.dropout = d->request->train ? c->attention_dropout : 0.0;
    attention.stream = stream_of(index, SITE_ATTENTION);
    attention.interleaved = c->rope_interleaved;
    return loong_nn_attention(&d->nn, x, &attention, &d->sequence);
}

static loong_val_t norm(decoder_t *d, const char *name, loong_val_t x)
{
    return loong_nn_norm(&d->nn, name, d->c->normalization, x,
                         d->c->hidden_size, d->c->norm_eps);
}

/* The stream and what a part of a layer has made of it. */
static loong_val_t add_to_stream(decoder_t *d, loong_val_t x, loong_val_t h,
                                 const char *name, int index, int site)
{
    const loong_decoder_config_t *c = d->c;
    h = c->sandwich_norm ? norm(d, name, h) : h;
    return loong_add(d->g, dropout(d, h, c->hidden_dropout, index, site), x);
}

static loong_val_t layer(decoder_t *d, loong_val_t x, int index)
{
    loong_graph_push(d->g, "layers");
    loong_graph_push(d->g, "%d", index);
    loong_val_t h = norm(d, "input_layernorm", x);
    h = d->c->kv_lora_rank > 0 ? latent_attention(d, h, index)
                               : head_attention(d, h, index);
    x = add_to_stream(d, x, h, "post_self_attn_layernorm", index,
                      SITE_AFTER_ATTENTION);
    h = feed_forward(d, norm(d, "post_attention_layernorm", x), index);
    x = add_to_stream(d, x, h, "post_mlp_layernorm", index, SITE_AFTER_MLP);
    loong_graph_pop(d->g);
    loong_graph_pop(d->g);
    return x;
}

/* The output matrix: the embedding itself when tied. */
static loong_val_t head_matrix(decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    if (c->tied) {
        return embedding_table(d);
    }
    loong_graph_push(d->g, "lm_head");
    loong_val_t w = loong_nn_table(&d->nn, "weight", d->vocab, c->hidden_size,
                                   c->init_std);
    loong_graph_pop(d->g);
    return w;
}

static void begin(decoder_t *d, loong_graph_t *graph,
                  const loong_decoder_config_t *c,
                  const loong_model_request_t *request)
{
    memset(d, 0, sizeof(*d));
    d->g = graph;
    d->c = c;
    d->request = request;
    d->nn = loong_nn_begin(graph, request, c->init_std);
    if (c->scaled_output_init) {
        d->nn.output_init_std /= sqrt(2.0 * c->num_layers);
    }
    for (int i = 0; i < LOONG_MAX_ENCODERS; i++) {
        d->received[i] = LOONG_NONE;
    }
    d->router_loss = LOONG_NONE;
    d->pool.counts = LOONG_NONE;
    d->pool.logits = d->pooled;
    d->vocab = loong_nn_vocabulary(&d->nn, c->vocab_size, c->padded_vocab_size);
    sequence(d);
    token_types(d);
}

static loong_val_t stack(decoder_t *d)
{
    const loong_model_request_t *r = d->request;
    int64_t width = d->c->hidden_size;
    loong_val_t x =
        r->begins ? embed(d) : loong_nn_stage_input(&d->nn, r->rows, width);
    for (int i = 0; i < r->num_layers; i++) {
        int index = r->first_layer + i;
        x = layer(d, x, index);
        if (index < r->deep_features) {
            x = loong_nn_add_features(&d->nn, x, d->c->hidden_size, index + 1,
                                      r, d->received);
        }
    }
    return x;
}

/* The model without adapters and dropout, over the same parameters: the stage's
 * part of it, at whose end are log-probabilities of the labels. */
static void reference(decoder_t *d)
{
    decoder_t base;
    loong_model_request_t request = *d->request;
    request.rules.adapters = NULL;
    request.train = false;
    if (request.routing == LOONG_ROUTING_RECORD) {
        request.routing = LOONG_ROUTING_LIVE;
    }
    begin(&base, d->g, d->c, &request);
    base.nn.stream = "hidden.reference";
    memcpy(base.received, d->received, sizeof(base.received));
    loong_val_t x = stack(&base);
    if (request.ends) {
        loong_val_t table = head_matrix(&base);
        x = loong_nn_enter(&base.nn, norm(&base, "norm", x));
        loong_graph_push(d->g, "lm_head");
        d->nn.reference =
            loong_nn_label_logprob(&base.nn, x, table, base.vocab);
        loong_graph_pop(d->g);
    } else {
        loong_nn_stage_output(&base.nn, x);
    }
    loong_graph_still_boundary(d->g, base.nn.stream);
}

static bool has_reference(const decoder_t *d)
{
    return d->request->kl_loss > 0.0 && d->request->kl_to_base &&
           d->request->head == LOONG_MODEL_LOSS;
}

static void end(decoder_t *d, loong_val_t x)
{
    x = norm(d, "norm", x);
    if (has_reference(d)) {
        reference(d);
    }
    loong_nn_language_head(&d->nn, x, head_matrix(d), d->vocab, d->request);
}

loong_status_t loongi_decoder_build(loong_graph_t *graph, const void *config,
                                    const loong_model_request_t *request)
{
    const loong_decoder_config_t *c = config;
    decoder_t d;
    if (request->deep_features > request->first_layer && !request->begins) {
        loong_graph_fail(graph, LOONG_ERR_UNSUPPORTED,
                         "num_deep_features: %d layers read deep features, "
                         "which reach the first stage, layer %d is in another "
                         "one; fewer stages, or a "
                         "pipeline_model_parallel_layout with these layers in "
                         "the first one, are there",
                         request->deep_features, request->first_layer);
        return loong_graph_status(graph);
    }
    begin(&d, graph, c, request);
    loong_val_t x = stack(&d);
    if (request->ends) {
        end(&d, x);
    } else {
        loong_nn_stage_output(&d.nn, x);
        if (has_reference(&d)) {
            reference(&d);
        }
    }
    if (d.pool.layers > 0) {
        loong_nn_pooled_loss(&d.nn, &d.pool, c->aux_loss_coeff,
                             &d.router_loss);
    }
    if (d.router_loss != LOONG_NONE) {
        const loong_loss_params_t loss = {
            .name = "router",
            .normaliser = "tokens",
            .weight = 1.0,
            .coupling = LOONG_LOSS_OF_MICRO_BATCH};
        loong_loss(graph, d.router_loss, &loss);
    }
    return loong_graph_status(graph);
}

/* ---- the family --------------------------------------------------------- */

static int expert_sets(const loong_decoder_config_t *c)
{
    return c->vision_ffn > 0 ? 2 : 1;
}

/* Of the matrices that a token of a text meets in the experts of a layer. */
static double met_parameters(const loong_decoder_config_t *c)
{
    double h = (double)c->hidden_size;
    double width = (double)c->router.topk * (double)c->moe_ffn_hidden_size +
                   (double)c->shared_expert_ffn;
    return h * c->num_experts * expert_sets(c) + 3.0 * h * width +
           (c->shared_expert_gate ? h : 0.0);
}

/* Of the matrices of a layer. */
static double attention_parameters(const loong_decoder_config_t *c)
{
    double h = (double)c->hidden_size;
    double heads = (double)c->num_attention_heads;
    double q = heads * c->kv_channels;
    double kv = (double)c->num_query_groups * c->kv_channels;
    if (c->kv_lora_rank == 0) {
        return h * (2.0 * q + 2.0 * kv);
    }
    double rank = (double)c->q_lora_rank;
    double queries = rank > 0.0 ? rank * (h + q) : h * q;
    double keys = (double)c->kv_lora_rank *
                  (h + heads * (c->qk_head_dim + c->v_head_dim));
    return queries + keys + h * c->qk_pos_emb_head_dim +
           h * heads * c->v_head_dim;
}

static double flops_per_row(const loong_decoder_config_t *config)
{
    double h = (double)config->hidden_size;
    bool gated = config->mlp == LOONG_MLP_SWIGLU ||
                 config->mlp == LOONG_MLP_GEGLU_TANH;
    double dense = (gated ? 3.0 : 2.0) * h *
                   (double)config->ffn_hidden_size;
    double mlp = 0.0;
    for (int i = 0; i < config->num_layers; i++) {
        mlp += has_experts(config, i) ? met_parameters(config) : dense;
    }
    double head = h * (double)config->vocab_size;
    return 6.0 *
           (config->num_layers * attention_parameters(config) + mlp + head);
}

/* A query sees itself and what stands before it, or the last of that. Two
 * products forward, and the gradients of both operands of each. */
double loongi_decoder_attention_flops(const void *config, int64_t length)
{
    const loong_decoder_config_t *c = config;
    double n = (double)length;
    double values = (double)(c->kv_lora_rank > 0 ? c->v_head_dim
                                                 : c->kv_channels);
    double keys = 0.0; /* of a query, in all layers */
    for (int i = 0; i < c->num_layers; i++) {
        double w = (double)window_of(c, i);
        keys += w == 0.0 || w >= n ? (n + 1.0) / 2.0
                                   : w - w * (w - 1.0) / (2.0 * n);
    }
    return 6.0 * (double)c->num_attention_heads *
           ((double)c->kv_channels + values) * keys;
}

void loongi_decoder_facts(const void *config, loong_model_facts_t *facts)
{
    const loong_decoder_config_t *c = config;
    memset(facts, 0, sizeof(*facts));
    facts->vocab_size = c->vocab_size;
    facts->hidden_size = c->hidden_size;
    facts->kv_heads = c->num_query_groups;
    facts->deep_features = c->num_deep_features;
    facts->num_layers = c->num_layers;
    facts->num_experts = c->num_experts * expert_sets(c);
    facts->router_topk = c->num_experts > 0 ? c->router.topk : 0;
    facts->flops_per_row = flops_per_row(c);
    int64_t idle = (c->num_experts - c->router.topk) * c->moe_ffn_hidden_size +
                   c->num_experts * c->vision_ffn;
    for (int i = 0; i < c->num_layers; i++) {
        facts->idle_parameters +=
            has_experts(c, i) ? 3 * c->hidden_size * idle : 0;
    }
}

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    loong_pairs_t *keys = NULL;
    LOONG_TRY(loongi_recipe_fields_read(ctx, recipe, component, &keys));
    loong_status_t status = loongi_decoder_configure(ctx, keys, config);
    if (status == LOONG_ERR_CONFIG) {
        loongi_recipe_fields_note(recipe, component, keys);
    }
    loongi_pairs_destroy(&keys);
    return status;
}

#define FAMILY(name_)                                                         \
    {                                                                         \
        .name = name_, .config_size = sizeof(loong_decoder_config_t),         \
        .configure = configure, .facts = loongi_decoder_facts,                \
        .attention_flops = loongi_decoder_attention_flops,                    \
        .check_mesh = loongi_decoder_check_mesh,                              \
        .build = loongi_decoder_build, .state = loongi_decoder_state          \
    }

/* One decoder; the names say what it is to Hugging Face. */
static const loong_family_t families[] = {
    FAMILY("gpt2"),         FAMILY("llama"),           FAMILY("phi3"),
    FAMILY("qwen"),         FAMILY("qwen2"),           FAMILY("qwen3"),
    FAMILY("internlm2"),    FAMILY("mimo"),            FAMILY("ernie4_5"),
    FAMILY("gemma"),        FAMILY("glm"),             FAMILY("glm4"),
    FAMILY("mixtral"),      FAMILY("qwen2_moe"),       FAMILY("qwen3_moe"),
    FAMILY("ernie4_5_moe"), FAMILY("ernie4_5_vl_moe"), FAMILY("minimax_m2"),
    FAMILY("deepseek_v2"),  FAMILY("deepseek_v3"),     FAMILY("kimi_k2")};

loong_status_t loongi_register_decoders(loong_context_t *ctx)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(families); i++) {
        LOONG_TRY(loong_register_family(ctx, &families[i]));
    }
    return LOONG_OK;
}
