/* SPDX-License-Identifier: Apache-2.0
 *
 * A model family: how the keys of a component in a recipe become a graph. The
 * built-in ones and a user's own are entered the same way and named by
 * model.foundation.family. A family is built from the layers of nn.h, which
 * know how to be tensor parallel, or straight from ops.
 *
 * Not collective; building is pure.
 */
#ifndef LOONG_FAMILY_H
#define LOONG_FAMILY_H

#include "loong/graph.h"
#include "loong/processor.h"
#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_model_head {
    LOONG_MODEL_LOSS,   /* loss "lm" over labels and loss_weight */
    LOONG_MODEL_LOGITS, /* output "logits" [T, this rank's vocabulary] */
    /* sends LOONG_REFERENCE_PORT wide [T], the log-probabilities of labels */
    LOONG_MODEL_LOGPROB
} loong_model_head_t;

#define LOONG_REFERENCE_PORT "reference_logprob"

/* How context parallel ranks bring queries and keys together, by Megatron's
 * names (parallel.cp_comm_type). */
typedef enum loong_cp_comm {
    LOONG_CP_ALL_GATHER, /* keys and values of all come to each */
    LOONG_CP_A2A,        /* each gets all rows of its share of the heads */
    LOONG_CP_P2P,        /* keys and values go around */
    LOONG_CP_A2A_P2P     /* a2a among neighbours, p2p between these */
} loong_cp_comm_t;

/* How tokens come to the ranks of their experts, by Megatron's names
 * (parallel.moe_token_dispatcher_type). */
typedef enum loong_dispatcher {
    LOONG_DISPATCH_ALL_GATHER, /* all tokens to all ranks */
    LOONG_DISPATCH_ALL_TO_ALL  /* each to the ranks of its experts */
} loong_dispatcher_t;

/* Who chooses the experts of a token (router_replay): the router; it again, and
 * what it chooses is an output; or an input. The port of a layer is
 * LOONG_ROUTING_PORT of its number, i32 [rows of the stream, experts of a
 * token]. */
typedef enum loong_routing {
    LOONG_ROUTING_LIVE,
    LOONG_ROUTING_RECORD,
    LOONG_ROUTING_REPLAY
} loong_routing_t;
#define LOONG_ROUTING_PORT "routing.%d"

/* What a recipe says of some parameters; of several rules that match the last
 * one holds. */
typedef enum loong_rule_kind {
    LOONG_RULE_DECAY,
    LOONG_RULE_GROUP,
    LOONG_RULE_INIT
} loong_rule_kind_t;
typedef struct loong_param_rule {
    const char *scope; /* glob over parameter names and scopes above them */
    loong_rule_kind_t sets;
    double weight_decay; /* factor of the optimizer's */
    int group;           /* of the optimizer */
    loong_init_kind_t init;
    double std; /* 0: as the model has it */
} loong_param_rule_t;

/* A number of some modules; of several that match the last one holds. */
typedef struct loong_adapter_pattern {
    const char *scope;
    double value;
    int item; /* of the recipe's list; several are of one */
} loong_adapter_pattern_t;

/* Adapters of low rank (Hu et al. 2021) of linear layers:
 *
 *     y = x w' + scale (dropout(x) a') b',   scale = alpha / rank
 *
 * with a [rank, in] and b [out, rank], parameters lora_A.weight and
 * lora_B.weight below the layer's. A module is a layer's path, as parameters
 * have it without ".weight"; globs are of paths, whole or their last parts. */
typedef struct loong_adapters {
    int num_targets;
    const char *const *targets; /* globs over modules */
    int num_excluded;
    const char *const *excluded; /* of these */
    /* Layers that are one module of several parts (loong_nn_column_t), with one
     * matrix a. */
    int num_fused;
    const char *const *fused;
    int rank;
    double alpha;
    int num_ranks, num_alphas;
    const loong_adapter_pattern_t *ranks, *alphas;
    double dropout;
    bool rank_stabilized; /* scale = alpha / sqrt(rank), Kalajdzievski 2023 */
    /* DoRA (Liu et al. 2024): rows of w + scale b a over their norms, which are
     * constants in the backward pass, times lora_magnitude_vector [out]. */
    bool magnitudes;
    bool alone;           /* nothing else of the model is trained */
    bool gaussian; /* a starts normal, else uniform as linear layers do */
} loong_adapters_t;

typedef struct loong_param_rules {
    int num_freeze;
    const char *const *freeze; /* globs over parameter names */
    /* What is trained, where that is said; the rest is fixed. */
    bool restricted;
    int num_trainable;
    const char *const *trainable; /* globs over parameter names */
    int num_rules;
    const loong_param_rule_t *rules;
    const loong_adapters_t *adapters; /* NULL: none */
    loong_quant_t quant; /* how fixed matrices of linear layers are stored */
} loong_param_rules_t;

/* The micro-batch a graph is built for, and what is wanted of it. The mesh is
 * the graph's. */
/* Of each encoder that a component reads by way of a projector: the port at
 * which its rows arrive, and the input that says of a row whether it does. */
extern const char *const loong_projected_ports[LOONG_MAX_ENCODERS];
extern const char *const loong_feature_inputs[LOONG_MAX_ENCODERS];

typedef struct loong_model_request {
    /* T: micro_batch_size * seq_length / ranks of CP, this rank's part */
    int64_t rows;
    int64_t seq_length;   /* of a sample, 2 x ranks of CP divide it */
    loong_cp_comm_t cp_comm;
    loong_dispatcher_t dispatcher;
    /* Rows of experts that are laid out for a layer on a rank, times an even
     * share; where there are more they run in rounds. 0: all there can be. */
    double capacity_plan;
    loong_routing_t routing;
    int64_t max_seqlen;   /* longest segment */
    int64_t max_segments; /* entries of cu_seqlens less one */
    double z_loss;
    /* Above 0: beside "lm" a loss "kl" with this weight, the estimate of
     * KL(model
     * || reference) of the labels whose loss_weight is above 0, by the
     * log-probabilities that arrive at LOONG_REFERENCE_PORT. */
    double kl_loss;
    /* These are of the model itself without its adapters, by a forward of its
     * own in the same graph; nothing arrives. */
    bool kl_to_base;
    bool train;             /* dropout; a gradient follows */
    /* Rows that arrive at so many ports, "projected" of the first and
     * "projected_videos" of the second encoder [rows of the stream, hidden],
     * stand in place of embedded tokens where is_feature, is_video i32 [T] is
     * not 0. */
    int features;
    int encoder; /* of a projector: the number of what it reads */
    /* So many like them stand behind each: an encoder has "features" [rows of
     * the stream, (1 + n) hidden], a projector "projected" likewise; part k + 1
     * is added to the stream behind layer k. */
    int deep_features;
    /* That a projector sends which packs or resamples them, else 0. */
    int64_t packed_rows;
    bool sequence_parallel; /* over TP; T is a multiple of its ranks */
    loong_model_head_t head;
    loong_param_rules_t rules;
    /* The part of the model: layers first_layer .. first_layer + num_layers
     * - 1, the embedding in front of them and the head behind. What is missing
     * comes from and goes to other pipeline stages (loong_nn_stage_input). */
    int first_layer;
    int num_layers;
    bool begins;
    bool ends;
} loong_model_request_t;

/* Rows of the encoders that a request reads in place of those of the stream x
 * [rows of T, hidden], and deep feature k of all of them added to x. received:
 * [LOONG_MAX_ENCODERS], LOONG_NONE or what arrived in this graph already. */
struct loong_nn;
LOONG_API loong_val_t loong_nn_select_features(
    struct loong_nn *nn, loong_val_t x, int64_t hidden,
    const loong_model_request_t *request, loong_val_t *received);
LOONG_API loong_val_t loong_nn_add_features(
    struct loong_nn *nn, loong_val_t x, int64_t hidden, int k,
    const loong_model_request_t *request, const loong_val_t *received);

enum { LOONG_MAX_DEEP_FEATURES = 7 };

/* What a trainer asks of a configured model. */
typedef struct loong_model_facts {
    int64_t vocab_size; /* ids and labels lie below */
    int kv_heads;       /* key / value heads; 0: there are none */
    int num_layers;     /* between which a pipeline may cut; 0: nowhere */
    int num_experts;    /* of a layer; 0: there are none */
    int router_topk;    /* experts of a token */
    /* Of one token, forward and backward: the matrix products without
     * attention scores, 6 x their parameters. */
    double flops_per_row;
    /* Parameters that a token does not meet: experts it is not sent to. */
    int64_t idle_parameters;
    /* Of a model that reads patches of pictures (loong/image.h), whose rows are
     * its tokens; patch_size 0: it reads token ids. image_size 0: pictures keep
     * sizes of their own. */
    int64_t image_size, patch_size, num_classes;
    int64_t temporal_patch_size; /* frames of a patch; 0: 1 */
    int64_t window_size; /* pixels of a side of a window; 0: none */
    int64_t chunk_frames; /* of a video that see each other; 0: 1 */
    int64_t tokens_per_second; /* of a video's axis of time; 0: moments */
    loong_position_table_t positions; /* of one that is resampled */
    bool patch_channels_last; /* as loong_patch_cut_t has it */
    /* Rows of other layers that an encoder sends, a projector has mergers for
     * and a foundation reads behind its first ones. */
    int deep_features;
    /* Of an encoder or a projector: m x m of the rows that it reads become one
     * row of those that it makes; 0: 1 */
    int64_t merge_size;
    /* Likewise: it packs rows of tiles (loong_picture_packing_t), into lines of
     * so many tiles; 0: it does not. */
    int64_t packed_tiles;
    int64_t latents; /* likewise: rows that it makes of each picture or tile,
                        whatever there are; 0: it does not */
    int64_t merge_frames; /* of a video that become one row; 0: each has its
                             own */
    bool class_token, pool_class_token;
    bool masked_image_modeling; /* reads masks of the patches */
    bool sends_class_token; /* it is among the rows that others read */
    int64_t hidden_size;    /* of the stream, or of what it makes */
} loong_model_facts_t;

/* Receives one key that a checkpoint states, relative to the component. */
typedef loong_status_t (*loong_model_state_fn)(void *user, const char *key,
                                               const char *value);

typedef struct loong_family {
    const char *name;
    /* Of its components in recipes and checkpoints, "foundation" when NULL;
     * image_encoder is another one. */
    const char *role;
    /* Of its samples; its configuration is the family's. NULL: the built-in one
     * of tokens, or of pictures. */
    const loong_processor_t *processor;
    /* Of one that reads pictures: transformers' class of image processors. */
    const char *image_processor;
    /* Likewise that of videos (loong/video.h); NULL: it reads none. */
    const char *video_processor;
    /* Likewise: the family of projectors that goes with it by default. */
    const char *projector;
    size_t config_size;
    /* Fills config (config_size bytes, zero) from the keys below `component`
     * ("model.foundation"); all problems in one message. Keys of the family's
     * own are declared when the recipe is parsed (loong_recipe_params_t). */
    loong_status_t (*configure)(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config);
    /* Fills facts, which are zero. */
    void (*facts)(const void *config, loong_model_facts_t *facts);
    /* Operations of attention scores and what is summed by them, forward and
     * backward, of a token on the mean over a text of so many; NULL: 0. */
    double (*attention_flops)(const void *config, int64_t length);
    /* Whether the model can be laid out on a mesh, its first chunk as the
     * request says; every broken rule in one message. NULL: on any that has no
     * tensor or context parallel ranks. */
    loong_status_t (*check_mesh)(loong_context_t *ctx, const void *config,
                                 const loong_model_request_t *request,
                                 const loong_mesh_t *mesh);
    /* Builds the graph. Inputs that the loader fills when they are there:
     * tokens, positions i32 [T], cu_seqlens i32 [max_segments + 1], token_key
     * i64 [T] (for dropout), labels i32 [T] and loss_weight wide [T]; of
     * context parallel ranks all_token_keys i64 [T x ranks of CP_A2A], those of
     * the neighbours' tokens together, and places i32 [T x ranks], where the
     * tokens of such neighbours stand among those of all, neighbours after
     * neighbours. cu_seqlens is of the tokens of all ranks. */
    loong_status_t (*build)(loong_graph_t *graph, const void *config,
                            const loong_model_request_t *request);
    /* Keys that the configuration left to defaults and a reader of a
     * checkpoint must be told. NULL: none. */
    loong_status_t (*state)(const void *config, loong_model_state_fn add,
                            void *user);
    /* Of one that has no loss by default, for messages: the keys that give it
     * one. NULL: none. */
    const char *loss_keys;
} loong_family_t;

/* Enters a family (borrowed; it must outlive the context). A second one of the
 * same name is LOONG_ERR_ARG. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_family(loong_context_t *ctx, const loong_family_t *family);

/* NULL when there is none of that name; by index for listing. */
LOONG_API const loong_family_t *loong_find_family(const loong_context_t *ctx,
                                                  const char *name);
LOONG_API const loong_family_t *loong_family_at(const loong_context_t *ctx,
                                                int64_t index);

#ifdef __cplusplus
}
#endif

#endif
