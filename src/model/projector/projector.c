/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a projector; called through loong_family_t. R: rows
 * of a micro-batch. Read projector.h before. */
#include "projector.h"

#include <math.h>
#include <string.h>

#include "field_rows.h"
#include "loong/collective.h"
#include "loong/moe.h"
#include "loong/ops.h"
#include "perceiver.h"

typedef struct merger {
    loong_nn_t nn;
    const loong_projector_config_t *c;
    const loong_model_request_t *request;
} merger_t;

static loong_val_t norm(merger_t *m, const char *name, loong_val_t x,
                        int64_t width)
{
    return loong_nn_norm(&m->nn, name, m->c->normalization, x, width,
                         m->c->norm_eps);
}

/* Two products with GELU between them, or the second alone: of the `width`
 * channels before it a rank of TP takes its own. A feed-forward behind them
 * brings the GELU to itself. */
static loong_val_t products(merger_t *m, loong_val_t x, bool both,
                            int64_t width, int64_t out)
{
    loong_graph_t *g = m->nn.graph;
    loong_nn_slice_t inner = loong_nn_slice(&m->nn, width);
    bool gated = m->c->gated_ffn_hidden_size > 0;
    const loong_nn_column_t first = {.name = "linear_1", .out = inner};
    x = loong_nn_enter(&m->nn, x);
    if (both) {
        x = loong_nn_column_linear(&m->nn, 1, &first, x, true);
        x = gated ? x : loong_gelu(g, x, LOONG_ACT_GELU);
    } else {
        x = loong_slice(g, x, inner.begin, inner.count);
    }
    x = loong_nn_row_linear(&m->nn, "linear_2", x, inner, out, !gated);
    x = loong_nn_leave(&m->nn, x);
    if (!gated) {
        return x;
    }
    x = norm(m, "post_norm", x, out);
    return loong_nn_mlp(&m->nn, loong_gelu(g, x, LOONG_ACT_GELU),
                        LOONG_MLP_SWIGLU, out, m->c->gated_ffn_hidden_size,
                        false);
}

/* [r / n, n width] of rows [r, width]. */
static loong_val_t side_by_side(merger_t *m, loong_val_t x, int64_t n)
{
    loong_shape_t shape = loong_value_shape(m->nn.graph, x);
    return n == 1 ? x
                  : loong_reshape(m->nn.graph, x,
                                  loong_shape_2d(shape.dim[0] / n,
                                                 n * shape.dim[1]));
}

/* [r / m^2, hidden_size] of rows [r, input_size]; of blocks there is one norm
 * where that is said. */
static loong_val_t merge(merger_t *m, loong_val_t x, bool norm_of_blocks)
{
    const loong_projector_config_t *c = m->c;
    int64_t patches = c->merge_size * c->merge_size;
    if (c->norm && !norm_of_blocks) {
        x = norm(m, "norm", x, c->input_size);
    }
    x = side_by_side(m, x, patches);
    if (c->norm && norm_of_blocks) {
        x = norm(m, "norm", x, patches * c->input_size);
    }
    return products(m, x, !c->linear, c->ffn_hidden_size, c->hidden_size);
}

/* An input of `each` values for each row, as the stream has them. */
static loong_val_t row_input(merger_t *m, const char *name, int64_t each)
{
    return loong_nn_stream_rows(
        &m->nn,
        loong_graph_input(m->nn.graph, name, LOONG_I32,
                          loong_shape_1d(m->request->packed_rows * each)));
}

/* Rows of those that all ranks have together. */
static loong_val_t gather_all(merger_t *m, loong_val_t x, loong_val_t which)
{
    if (m->nn.sequence_parallel) {
        x = loong_all_gather(m->nn.graph, x, LOONG_GROUP_TP);
    }
    return loong_gather_rows(m->nn.graph, x, which);
}

/* The learned row where lines end, as [1,hidden_size]. */
static loong_val_t end_lines(merger_t *m, loong_val_t x)
{
    loong_graph_t *g = m->nn.graph;
    int64_t hidden = m->c->hidden_size;
    loong_val_t ends = row_input(m, "is_line_end", 1);
    loong_graph_push(g, "newline");
    loong_val_t row = loong_nn_matrix(&m->nn, "weight", 1, hidden,
                                      1.0 / sqrt((double)hidden));
    loong_graph_pop(g);
    return loong_select_rows(g, x, loong_embedding_slice(g, ends, row, 1, 2),
                             ends);
}

/* [packed_rows,hidden_size], each the sum of four rows times their weights. */
static loong_val_t pack(merger_t *m, loong_val_t x)
{
    enum { TAPS = 4 };
    loong_graph_t *g = m->nn.graph;
    loong_val_t taps = row_input(m, "pack_taps", TAPS);
    loong_val_t weights = loong_nn_stream_rows(
        &m->nn,
        loong_graph_input(g, "pack_weights", loong_graph_precision(g).wide,
                          loong_shape_2d(m->request->packed_rows, TAPS)));
    int64_t own = loong_value_shape(g, weights).dim[0];
    loong_val_t order = loong_graph_input(g, "tap_order", LOONG_I32,
                                          loong_shape_1d(own * TAPS));
    const loong_expert_rows_t sums = {
        LOONG_NONE, order, loong_reshape(g, order, loong_shape_2d(own, TAPS)),
        1.0};
    x = loong_unpermute(g, gather_all(m, x, taps), &sums, weights);
    return end_lines(m, x);
}

/* Two products and a norm behind them, of the width of a block. */
static loong_val_t compress(merger_t *m, const char *name, loong_val_t x)
{
    const loong_projector_config_t *c = m->c;
    int64_t width = c->merge_size * c->merge_size * c->input_size;
    loong_graph_push(m->nn.graph, "%s", name);
    x = products(m, x, true, c->ffn_hidden_size, width);
    x = norm(m, "norm", x, width);
    loong_graph_pop(m->nn.graph);
    return x;
}

/* Blocks of patches, then the same block of several frames (a picture is all
 * of them), become one row. */
static loong_val_t resample(merger_t *m, loong_val_t x)
{
    const loong_projector_config_t *c = m->c;
    int64_t patches = c->merge_size * c->merge_size;
    loong_val_t frames = row_input(m, "frame_rows", c->merge_frames);
    x = compress(m, "spatial", side_by_side(m, x, patches));
    x = side_by_side(m, gather_all(m, x, frames), c->merge_frames);
    x = compress(m, "temporal", x);
    x = products(m, x, false, patches * c->input_size, c->hidden_size);
    return loong_nn_norm(&m->nn, "norm", LOONG_NORM_RMS, x, c->hidden_size,
                         c->output_norm_eps);
}

loong_status_t loongi_projector_build(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    const loong_projector_config_t *c = config;
    merger_t m = {loong_nn_begin(graph, request, c->init_std), c, request};
    int parts = 1 + c->num_deep_features;
    const char *port = loong_projected_ports[request->encoder];
    loong_val_t sent[1 + LOONG_MAX_DEEP_FEATURES];
    loong_val_t x = loong_nn_receive(&m.nn, "features", request->rows,
                                     parts * c->input_size);
    if (c->num_latents > 0) {
        loong_graph_send(graph, "projected",
                         loongi_perceiver(&m.nn, c, request, x));
        return loong_graph_status(graph);
    }
    if (parts == 1) {
        x = c->merge_frames > 0 ? resample(&m, x)
                                : merge(&m, x, c->norm_of_blocks);
        x = c->packed_tiles > 0 ? pack(&m, x) : x;
        loong_graph_send(graph, port, x);
        return loong_graph_status(graph);
    }
    for (int k = 0; k < parts; k++) {
        loong_val_t own =
            loong_slice(graph, x, k * c->input_size, c->input_size);
        if (k > 0) {
            loong_graph_push(graph, "deepstack");
            loong_graph_push(graph, "%d", k - 1);
        }
        sent[k] = merge(&m, own, c->norm_of_blocks || k > 0);
        if (k > 0) {
            loong_graph_pop(graph);
            loong_graph_pop(graph);
        }
    }
    loong_graph_send(graph, port, loong_concat(graph, parts, sent));
    return loong_graph_status(graph);
}

/* ---- the keys ---------------------------------------------------------- */

#define LOONG_FIELD_PREFIX "model.image_projector."
#define LOONG_FIELD_STRUCT loong_projector_config_t

static const int norms[] = {LOONG_NORM_LAYER, LOONG_NORM_RMS};

static const loong_recipe_field_t fields[] = {
    {TEXT("family", SAME,
          "mlp_projector: LLaVA's, two products; linear_projector: "
          "PaliGemma's, one; patch_merger, "
          "qwen2_5_vl_merger, qwen3_vl_merger: Qwen2-VL's and its "
          "successors', a norm, blocks of patches, two products; "
          "internvl_projector: InternVL's, the norm behind the blocks; "
          "kimi_projector: patch_merger with an epsilon of its own; "
          "anyres_projector: LLaVA-OneVision's, mlp_projector with "
          "packed_tiles; minicpmv4_6_merger: MiniCPM-V 4.6's, the norm behind "
          "the blocks, products as wide as these; perceiver_resampler: "
          "Idefics2's, num_latents learned rows that look at a picture; "
          "ernie4_5_vl_resampler: ERNIE 4.5 VL's, with merge_frames; "

          "glm4v_merger: GLM-4.1V's, a convolution of a block, a product, a "
          "gated feed-forward"),
     .needed = true},
    {INT64("input_size", input_size, 1, 1e6, SAME,
           "width of what it reads; the encoder's hidden_size when not given"),
     .needed = true},
    {INT64("hidden_size", hidden_size, 1, 1e6, SAME,
           "width of what it makes; the foundation's when not given"),
     .needed = true},
    {INT64("ffn_hidden_size", ffn_hidden_size, 1, 1e7, SAME,
           "width between the products; when not given that of a block, with "
           "merge_size 1 and of internvl_projector and glm4v_merger "
           "hidden_size, of perceiver_resampler, in front of its layers, four "
           "times that")},
    {INT64("gated_ffn_hidden_size", gated_ffn_hidden_size, 0, 1e7, SAME,
           "width of a gated feed-forward behind the products, in front of "
           "which a norm and GELU stand; then there is no GELU between them "
           "and no bias in the second; 0: none")},
    {BOOL("linear", linear, SAME,
          "one product, linear_2, without ffn_hidden_size")},
    {INT64("merge_size", merge_size, 1, 64, SAME,
           "so many by so many patches become one row; 1 of mlp_projector "
           "and linear_projector, else 2, when not given")},
    {BOOL("pre_layernorm", norm, SAME,
          "a norm in front; false of mlp_projector, linear_projector and "
          "glm4v_merger, else true, when not given")},
    {CHOICE("normalization", normalization, "LayerNorm RMSNorm", norms, SAME,
            "kind of norms")},
    {BOOL("norm_of_blocks", norm_of_blocks, SAME,
          "that norm is over the patches of a block together; those of deep "
          "features are")},
    {INT64("packed_tiles", packed_tiles, 0, 1024, SAME,
           "the rows of a picture's tiles are laid out as one picture again, "
           "without its margins and resampled to about so many tiles where it "
           "has more, with a learned row behind each line (anyres_max_9 of "
           "LLaVA-OneVision); 9 of anyres_projector, else 0, when not given")},
    {INT64("num_latents", num_latents, 0, 1e5, SAME,
           "each picture, tile or moment of a video takes so many rows of a "
           "text: learned ones, which layers of attention let look at it; 64 "
           "of perceiver_resampler, else 0, when not given")},
    {INT64("num_layers", num_layers, 1, 1000, SAME,
           "of these layers; 3 when not given")},
    {INT64("num_attention_heads", num_attention_heads, 1, 1e5, SAME,
           "of these layers; 16 when not given")},
    {INT64("num_query_groups", num_query_groups, 1, 1e5, SAME,
           "key and value heads of these layers; 4 when not given")},
    {INT64("kv_channels", kv_channels, 1, 1e5, SAME,
           "channels of a head of these layers; 96 when not given")},
    {INT64("merge_frames", merge_frames, 0, 4, SAME,
           "blocks of merge_size by merge_size patches go through two "
           "products and a norm, those of so many frames of a video (a "
           "picture stands for all) through two more, then through one and "
           "an RMSNorm; 2 of ernie4_5_vl_resampler, else 0, when not given")},
    {REAL("output_layernorm_epsilon", output_norm_eps, 0, 1, SAME,
          "of that last norm; 1e-5 when not given")},
    {INT("num_deep_features", num_deep_features, 0, LOONG_MAX_DEEP_FEATURES,
         SAME,
         "mergers of deep features; as many as the encoder sends and the "
         "foundation reads when not given")},
    {REAL("layernorm_epsilon", norm_eps, 0, 1, SAME,
          "added to the variance; 1e-6 when not given")},
    {REAL("init_method_std", init_std, 0, 10, FREE,
          "standard deviation of matrices at the start; 0.02 when not given")},
};

const loong_recipe_table_t loongi_projector_fields = {
    LOONG_FIELD_PREFIX, fields, LOONG_COUNT_OF(fields)};

/* ---- the family --------------------------------------------------------- */

static void facts(const void *config, loong_model_facts_t *facts)
{
    const loong_projector_config_t *c = config;
    double merge = (double)(c->merge_size * c->merge_size);
    facts->hidden_size = c->hidden_size;
    facts->merge_size = c->merge_size;
    facts->packed_tiles = c->packed_tiles;
    facts->latents = c->num_latents;
    facts->merge_frames = c->merge_frames;
    facts->kv_heads = c->num_latents > 0 ? (int)c->num_query_groups : 0;
    facts->deep_features = c->num_deep_features;
    double inner = (double)c->ffn_hidden_size;
    if (c->num_latents > 0) { /* of a row that it reads */
        double kv = (double)(c->num_query_groups * c->kv_channels);
        facts->flops_per_row =
            6.0 * (inner *
                       (2.0 * (double)c->input_size + (double)c->hidden_size) +
                   2.0 * (double)(c->num_layers * c->hidden_size) * kv);
        return;
    }
    if (c->merge_frames > 0) { /* of pictures, which take more */
        double width = merge * (double)c->input_size;
        facts->flops_per_row =
            6.0 / merge *
            (inner * width * (3.0 + (double)c->merge_frames) +
             width * (double)c->hidden_size);
        return;
    }
    facts->flops_per_row = 6.0 * (1.0 + c->num_deep_features) * inner *
                           ((c->linear ? 0.0 : (double)c->input_size) +
                            (double)c->hidden_size / merge);
    facts->flops_per_row += 18.0 * (1.0 + c->num_deep_features) *
                            (double)c->gated_ffn_hidden_size *
                            (double)c->hidden_size / merge;
}

static loong_status_t check_mesh(loong_context_t *ctx, const void *config,
                                 const loong_model_request_t *request,
                                 const loong_mesh_t *mesh)
{
    const loong_projector_config_t *c = config;
    (void)request;
    int64_t least = c->ffn_hidden_size;
    if (c->gated_ffn_hidden_size > 0) {
        least = LOONG_MIN(least, c->gated_ffn_hidden_size);
    }
    LOONG_CHECK(ctx, least >= mesh->size[LOONG_AXIS_TP], LOONG_ERR_CONFIG,
                "tensor_model_parallel_size %d: %lld channels between "
                "products, each rank needs one",
                mesh->size[LOONG_AXIS_TP], (long long)least);
    LOONG_CHECK(ctx,
                c->num_latents == 0 ||
                    c->num_attention_heads % mesh->size[LOONG_AXIS_TP] == 0,
                LOONG_ERR_CONFIG,
                "tensor_model_parallel_size %d: a divisor of the %lld heads is "
                "wanted",
                mesh->size[LOONG_AXIS_TP], (long long)c->num_attention_heads);
    return LOONG_OK;
}

static const struct {
    const char *family;
    loong_pair_t pair;
} family_defaults[] = {
    {"linear_projector", {"linear", "true"}},
    {"anyres_projector", {"packed_tiles", "9"}},
    {"perceiver_resampler", {"num_latents", "64"}},
    {"perceiver_resampler", {"normalization", "RMSNorm"}},
    {"ernie4_5_vl_resampler", {"merge_size", "2"}},
    {"ernie4_5_vl_resampler", {"merge_frames", "2"}},
    {"patch_merger", {"merge_size", "2"}},
    {"patch_merger", {"pre_layernorm", "true"}},
    {"qwen2_5_vl_merger", {"merge_size", "2"}},
    {"qwen2_5_vl_merger", {"pre_layernorm", "true"}},
    {"qwen2_5_vl_merger", {"normalization", "RMSNorm"}},
    {"qwen3_vl_merger", {"merge_size", "2"}},
    {"qwen3_vl_merger", {"pre_layernorm", "true"}},
    {"kimi_projector", {"merge_size", "2"}},
    {"kimi_projector", {"pre_layernorm", "true"}},
    {"kimi_projector", {"layernorm_epsilon", "1e-5"}},
    {"minicpmv4_6_merger", {"merge_size", "2"}},
    {"minicpmv4_6_merger", {"pre_layernorm", "true"}},
    {"minicpmv4_6_merger", {"norm_of_blocks", "true"}},
    {"internvl_projector", {"merge_size", "2"}},
    {"internvl_projector", {"pre_layernorm", "true"}},
    {"internvl_projector", {"norm_of_blocks", "true"}},
    {"internvl_projector", {"layernorm_epsilon", "1e-5"}},
    {"glm4v_merger", {"merge_size", "2"}},
    {"glm4v_merger", {"gated_ffn_hidden_size", "13696"}},
    {"glm4v_merger", {"layernorm_epsilon", "1e-5"}},
};

/* Rows of patches go no further. */
static void check_latents(loong_problems_t *problems,
                          const loong_projector_config_t *c)
{
    if (c->num_latents == 0) {
        return;
    }
    if (c->merge_size > 1 || c->packed_tiles > 0 || c->num_deep_features > 0 ||
        c->linear || c->norm) {
        loongi_problems_add(problems,
                            "num_latents %lld goes without linear, merge_size, "
                            "pre_layernorm, packed_tiles and deep features",
                            (long long)c->num_latents);
    }
    if (c->num_attention_heads % c->num_query_groups != 0) {
        loongi_problems_add(problems,
                            "num_attention_heads %lld is no multiple of "
                            "num_query_groups %lld",
                            (long long)c->num_attention_heads,
                            (long long)c->num_query_groups);
    }
}

static void check_frames(loong_problems_t *problems,
                         const loong_projector_config_t *c)
{
    if (c->merge_frames > 0 &&
        (c->norm || c->linear || c->packed_tiles > 0 || c->num_latents > 0 ||
         c->num_deep_features > 0)) {
        loongi_problems_add(problems,
                            "merge_frames %lld goes without pre_layernorm, "
                            "linear, packed_tiles, num_latents and deep "
                            "features",
                            (long long)c->merge_frames);
    }
}

loong_status_t loongi_projector_configure(loong_context_t *ctx,
                                          const loong_pairs_t *pairs,
                                          loong_projector_config_t *c)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    const char *family = loongi_pairs_get(pairs, "family");
    *c = (loong_projector_config_t){.init_std = 0.02,
                                    .norm_eps = 1e-6,
                                    .output_norm_eps = 1e-5,
                                    .normalization = LOONG_NORM_LAYER,
                                    .merge_size = 1,
                                    .num_layers = 3,
                                    .num_attention_heads = 16,
                                    .num_query_groups = 4,
                                    .kv_channels = 96};
    for (int64_t i = 0; i < LOONG_COUNT_OF(family_defaults); i++) {
        if (family != NULL && strcmp(family_defaults[i].family, family) == 0) {
            loongi_recipe_field_set(&problems, &loongi_projector_fields,
                                    "a projector", &family_defaults[i].pair, c);
        }
    }
    for (int64_t i = 0; i < pairs->count; i++) {
        loongi_recipe_field_set(&problems, &loongi_projector_fields,
                                "a projector", &pairs->items[i], c);
    }
    if (c->input_size == 0 || c->hidden_size == 0) {
        loongi_problems_add(&problems,
                            "input_size and hidden_size: both must be given");
    }
    if (c->packed_tiles > 0 &&
        (c->merge_size > 1 || c->num_deep_features > 0)) {
        loongi_problems_add(&problems,
                            "packed_tiles %lld: found merge_size %lld and "
                            "num_deep_features %d, 1 and 0 go with it",
                            (long long)c->packed_tiles,
                            (long long)c->merge_size, c->num_deep_features);
    }
    check_latents(&problems, c);
    check_frames(&problems, c);
    if (c->linear) {
        int64_t width = c->merge_size * c->merge_size * c->input_size;
        if (c->ffn_hidden_size != 0 && c->ffn_hidden_size != width) {
            loongi_problems_add(&problems,
                                "ffn_hidden_size: has no effect with linear");
        }
        c->ffn_hidden_size = width;
    }
    if (c->ffn_hidden_size == 0) {
        bool narrow = c->merge_size == 1 || c->gated_ffn_hidden_size > 0 ||
                      (family != NULL &&
                       strcmp(family, "internvl_projector") == 0);
        c->ffn_hidden_size =
            c->num_latents > 0 ? LOONG_PERCEIVER_WIDTH * c->hidden_size
            : narrow ? c->hidden_size
                   : c->merge_size * c->merge_size * c->input_size;
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "the projector");
}

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    loong_pairs_t *keys = NULL;
    LOONG_TRY(loongi_recipe_fields_read(ctx, recipe, component, &keys));
    loong_status_t status = loongi_projector_configure(ctx, keys, config);
    if (status == LOONG_ERR_CONFIG) {
        loongi_recipe_fields_note(recipe, component, keys);
    }
    loongi_pairs_destroy(&keys);
    return status;
}

static loong_status_t state(const void *config, loong_model_state_fn add,
                            void *user)
{
    return loongi_recipe_fields_each(&loongi_projector_fields, config, add,
                                     user);
}

#define FAMILY(name_)                                                     \
    {                                                                     \
        .name = name_, .role = "image_projector",                         \
        .config_size = sizeof(loong_projector_config_t),                  \
        .configure = configure, .facts = facts, .check_mesh = check_mesh, \
        .build = loongi_projector_build, .state = state                   \
    }

static const loong_family_t families[] = {
    FAMILY("mlp_projector"),     FAMILY("patch_merger"),
    FAMILY("qwen2_5_vl_merger"), FAMILY("qwen3_vl_merger"),
    FAMILY("kimi_projector"),    FAMILY("internvl_projector"),
    FAMILY("linear_projector"),  FAMILY("anyres_projector"),
    FAMILY("minicpmv4_6_merger"), FAMILY("perceiver_resampler"),
    FAMILY("ernie4_5_vl_resampler"),
    FAMILY("glm4v_merger")};

loong_status_t loongi_register_projector(loong_context_t *ctx)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(families); i++) {
        LOONG_TRY(loong_register_family(ctx, &families[i]));
    }
    return LOONG_OK;
}
