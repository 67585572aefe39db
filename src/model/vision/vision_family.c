/* SPDX-License-Identifier: Apache-2.0
 *
 * The families of vision transformers: what others must know of one, and on
 * which meshes it can be. Called through loong_family_t; read vision.h
 * before. */
#include <string.h>

#include "loong/op.h"
#include "problems.h"
#include "vision.h"

static void facts(const void *config, loong_model_facts_t *facts)
{
    const loong_vision_config_t *c = config;
    double h = (double)c->hidden_size;
    double pixels = (double)loongi_vision_pixels(c);
    memset(facts, 0, sizeof(*facts));
    facts->hidden_size = c->hidden_size;
    facts->image_size = c->image_size;
    facts->patch_size = c->patch_size;
    facts->temporal_patch_size = c->temporal_patch_size;
    facts->window_size = c->window_size;
    facts->chunk_frames = c->chunk_frames;
    facts->tokens_per_second = c->tokens_per_second;
    facts->positions = loongi_vision_table(c);
    facts->patch_channels_last = c->channels_last;
    for (int64_t i = 0; i < c->num_layers; i++) {
        facts->deep_features += c->deep.of[i];
    }
    facts->merge_size = loongi_vision_merge(c);
    facts->num_classes = c->num_classes;
    facts->class_token = c->class_token;
    facts->sends_class_token = c->class_token && c->select_class_token;
    facts->pool_class_token = c->pooling == LOONG_POOL_CLASS_TOKEN;
    facts->masked_image_modeling = c->masked_image_modeling;
    facts->kv_heads = (int)c->num_attention_heads;
    facts->num_layers = (int)c->num_layers;
    double ffn = (double)c->ffn_hidden_size;
    double width = 4.0 * h + (c->mlp == LOONG_MLP_SWIGLU ? 3.0 : 2.0) * ffn;
    pixels *= c->masked_image_modeling ? 2.0 : 1.0; /* once more at the end */
    facts->flops_per_row = 6.0 * h * pixels;
    for (int64_t i = 0; i < c->num_layers; i++) {
        facts->flops_per_row +=
            6.0 * h * width / (double)loongi_vision_merged(c, i);
    }
    if (facts->merge_size > 1) { /* of a row of four: 4 F by 4 H and by H */
        facts->flops_per_row += 6.0 * h * (4.0 * h + 5.0 * ffn);
    }
}

/* A row sees all of its picture, or of its window. */
static double attention_flops(const void *config, int64_t length)
{
    const loong_vision_config_t *c = config;
    double seen = 0.0;
    for (int64_t i = 0; i < c->num_layers; i++) {
        bool all = c->window_size == 0 || c->full.of[i];
        int64_t merged = loongi_vision_merged(c, i);
        seen += (double)(all ? length
                             : LOONG_MIN(length,
                                         loongi_vision_window_rows(c))) /
                (double)(merged * merged);
    }
    return 12.0 * (double)c->hidden_size * seen;
}

/* Of each tensor parallel rank, which context parallel ones exchange. */
static void want_heads(loong_problems_t *problems,
                       const loong_vision_config_t *c, const loong_mesh_t *mesh)
{
    int cp = mesh->size[LOONG_AXIS_CP];
    loong_mesh_t on = *mesh;
    for (int r = 0; r < mesh->size[LOONG_AXIS_TP]; r++) {
        on.coord[LOONG_AXIS_TP] = r;
        int64_t heads =
            loong_nn_heads(&on, c->num_attention_heads, c->num_attention_heads)
                .q.count;
        if (heads % cp != 0) {
            loongi_problems_add(problems,
                                "context_parallel_size %d: %lld heads of "
                                "tensor parallel rank %d; a divisor of them "
                                "is wanted, as the ranks exchange heads",
                                cp, (long long)heads, r);
            return;
        }
    }
}

static loong_status_t check_mesh(loong_context_t *ctx, const void *config,
                                 const loong_model_request_t *request,
                                 const loong_mesh_t *mesh)
{
    const loong_vision_config_t *c = config;
    int tp = mesh->size[LOONG_AXIS_TP];
    int cp = mesh->size[LOONG_AXIS_CP];
    int64_t rows = loongi_vision_rows(c);
    loong_problems_t problems = loongi_problems_begin(ctx);
    if (c->num_attention_heads < tp || c->ffn_hidden_size < tp) {
        loongi_problems_add(&problems,
                            "tensor_model_parallel_size %d: %lld heads, "
                            "ffn_hidden_size %lld, each rank needs one",
                            tp, (long long)c->num_attention_heads,
                            (long long)c->ffn_hidden_size);
    }
    if (cp > 1 && (c->num_classes > 0 || c->masked_image_modeling)) {
        loongi_problems_add(&problems,
                            "context_parallel_size %d: a vision transformer "
                            "with a loss has whole pictures on each rank",
                            cp);
    } else if (cp > 1) {
        want_heads(&problems, c, mesh);
    }
    if (mesh->size[LOONG_AXIS_EP] * mesh->size[LOONG_AXIS_ETP] > 1) {
        loongi_problems_add(&problems, "expert parallel ranks: the model has "
                                       "no experts");
    }
    if (request->rows * cp < rows) {
        loongi_problems_add(&problems,
                            "%lld rows of a micro-batch, a picture has %lld",
                            (long long)request->rows * cp, (long long)rows);
    }
    if (request->sequence_parallel && request->rows % tp != 0) {
        loongi_problems_add(&problems,
                            "sequence_parallel: %lld rows of a micro-batch "
                            "are no multiple of tensor_model_parallel_size %d",
                            (long long)request->rows, tp);
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "parallel");
}

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    loong_pairs_t *keys = NULL;
    LOONG_TRY(loongi_recipe_fields_read(ctx, recipe, component, &keys));
    loong_status_t status = loongi_vision_configure(ctx, keys, config);
    if (status == LOONG_ERR_CONFIG) {
        loongi_recipe_fields_note(recipe, component, keys);
    }
    loongi_pairs_destroy(&keys);
    return status;
}

#define FAMILY(name_, processor_, videos_, projector_)                         \
    {                                                                          \
        .name = name_, .role = "image_encoder", .image_processor = processor_, \
        .video_processor = videos_, .projector = projector_,                   \
        .config_size = sizeof(loong_vision_config_t), .configure = configure,  \
        .facts = facts, .attention_flops = attention_flops,                    \
        .check_mesh = check_mesh, .build = loongi_vision_build,                \
        .state = loongi_vision_state,                                          \
        .loss_keys = "num_classes or masked_image_modeling"                    \
    }

static const loong_family_t families[] = {
    FAMILY("vit", "ViT", NULL, "mlp_projector"),
    FAMILY("clip_vision_model", "CLIP", NULL, "mlp_projector"),
    FAMILY("siglip_vision_model", "Siglip", "LlavaOnevision", "mlp_projector"),
    FAMILY("qwen2_vl_vision", "Qwen2VL", "Qwen2VL", "patch_merger"),
    FAMILY("qwen2_5_vl_vision", "Qwen2VL", "Qwen2VL", "qwen2_5_vl_merger"),
    FAMILY("qwen3_vl_vision", "Qwen3VL", "Qwen3VL", "qwen3_vl_merger"),
    FAMILY("internvl_vision", "GotOcr2", "InternVL", "internvl_projector"),
    FAMILY("kimi_k25_vision", "Kimi_K25", "Kimi_K25", "kimi_projector"),
    FAMILY("rice_vit", "LlavaOnevision1_5", "Qwen2VL", "patch_merger"),
    FAMILY("siglip2_vision_model", "Siglip2", NULL, "mlp_projector"),
    FAMILY("minicpmv4_6_vision", "MiniCPMV4_6", "MiniCPMV4_6",
           "minicpmv4_6_merger"),
    FAMILY("ernie4_5_vl_vision", "Ernie4_5_VLMoe", "Ernie4_5_VLMoe",
           "ernie4_5_vl_resampler"),
    FAMILY("glm4v_vision", "Glm4v", "Glm4v", "glm4v_merger")};

loong_status_t loongi_register_vision(loong_context_t *ctx)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(families); i++) {
        LOONG_TRY(loong_register_family(ctx, &families[i]));
    }
    return LOONG_OK;
}
