/* SPDX-License-Identifier: Apache-2.0
 *
 * What keys must be together; each alone was checked against the schema. Called
 * by trainer_create.c and parallel.c. Read fields.h before. */
#include <stdio.h>
#include <string.h>

#include "problems.h"
#include "recipe_impl.h"

#define PAIRS "parallel.overlap_moe_expert_parallel_comm"
#define PRODUCTS "parallel.tp_comm_overlap"

typedef struct check {
    const loong_recipe_t *recipe;
    loong_problems_t problems;
} check_t;

static bool is_set(const check_t *c, const char *path)
{
    return loong_recipe_is_set(c->recipe, path);
}

/* Starts a line with the place where the key was set, if it was. */
static void problem(check_t *c, const char *path, const char *fmt, ...)
    LOONG_PRINTF(3, 4);

static void problem(check_t *c, const char *path, const char *fmt, ...)
{
    char text[512];
    va_list args;
    bool set = is_set(c, path);
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    loongi_problems_add(&c->problems, "%s%s%s: %s",
                        set ? loong_recipe_where(c->recipe, path) : "",
                        set ? ": " : "", path, text);
}

static int64_t get(const check_t *c, const char *path)
{
    return loong_recipe_int(c->recipe, path);
}

static void want(check_t *c, const char *path, const char *why)
{
    if (!is_set(c, path)) {
        problem(c, path, "not set, %s", why);
    }
}

/* Items of a list of maps cannot do without this key. */
static void want_in_items(check_t *c, const char *list, const char *key,
                          const char *why)
{
    for (int64_t i = 0; i < loong_recipe_count(c->recipe, list); i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s[%lld].%s", list, (long long)i, key);
        want(c, path, why);
    }
}

static void check_training_length(check_t *c)
{
    static const char *const lengths[] = {
        "train.train_iters", "train.train_samples", "train.train_tokens",
        "train.epochs"};
    const char *first = NULL;
    for (int64_t i = 0; i < LOONG_COUNT_OF(lengths); i++) {
        if (is_set(c, lengths[i]) && first != NULL) {
            problem(c, lengths[i], "set beside %s, one of them wanted", first);
        } else if (is_set(c, lengths[i])) {
            first = lengths[i];
        }
    }
    if (first == NULL) {
        problem(c, lengths[0],
                "not set, every run needs it, train_samples, train_tokens or "
                "epochs");
    }
    int64_t tokens = get(c, "train.train_tokens");
    if (tokens > 0 && tokens < get(c, "data.seq_length")) {
        problem(c, "train.train_tokens",
                "%lld, less than a sample of data.seq_length %lld",
                (long long)tokens, (long long)get(c, "data.seq_length"));
    }
}

static void check_needed(check_t *c)
{
    static const char *const always[] = {"train.global_batch_size",
                                         "optimizer.lr"};
    const char *first = loong_recipe_component(c->recipe, 0);
    bool unknown = first == NULL && (is_set(c, "model.from_hf") ||
                                     is_set(c, "init.from_hf"));
    bool pictures = first != NULL && strcmp(first, "image_encoder") == 0 &&
                    loong_recipe_component(c->recipe, 1) == NULL;
    if (!unknown && !pictures) { /* whose rows are counted */
        want(c, "data.seq_length", "every run needs it");
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(always); i++) {
        want(c, always[i], "every run needs it");
    }
    check_training_length(c);
    want_in_items(c, "data.train", "path", "every data set needs it");
    want_in_items(c, "data.validation", "name", "every data set needs it");
    want_in_items(c, "data.validation", "path", "every data set needs it");
    want_in_items(c, "optimizer.weight_decay_rules", "scope",
                  "every rule needs it");
    want_in_items(c, "optimizer.weight_decay_rules", "factor",
                  "every rule needs it");
    want_in_items(c, "optimizer.groups", "scope", "every group needs it");
    want_in_items(c, "init.by_scope", "scope", "every rule needs it");
    want_in_items(c, "fault", "kind", "every fault needs it");
    want_in_items(c, "fault", "step", "every fault needs it");
}

/* value must be a multiple of unit; the nearest are named. */
static bool want_multiple(check_t *c, const char *path, int64_t value,
                          int64_t unit, const char *what)
{
    if (value % unit == 0) {
        return true;
    }
    int64_t below = value / unit * unit;
    if (below > 0) {
        problem(c, path, "%lld is no multiple of %lld (%s), nearest: %lld, "
                         "%lld",
                (long long)value, (long long)unit, what, (long long)below,
                (long long)(below + unit));
    } else {
        problem(c, path, "%lld is no multiple of %lld (%s), nearest: %lld",
                (long long)value, (long long)unit, what, (long long)unit);
    }
    return false;
}

/* [start, increment, samples] */
static void check_rampup(check_t *c, int64_t unit, const char *what)
{
    const char *const path = "train.rampup_batch_size";
    int64_t full = get(c, "train.global_batch_size");
    int64_t values[3];
    bool multiples = true;
    if (!is_set(c, path)) {
        return;
    }
    if (loong_recipe_count(c->recipe, path) != 3) {
        problem(c, path, "found %lld numbers, [start, increment, samples] "
                         "wanted",
                (long long)loong_recipe_count(c->recipe, path));
        return;
    }
    for (int i = 0; i < 3; i++) {
        char item[64];
        snprintf(item, sizeof(item), "%s[%d]", path, i);
        values[i] = get(c, item);
        if (i < 2 && values[i] < 1) {
            problem(c, item, "found %lld, 1 or more wanted",
                    (long long)values[i]);
            return;
        }
        if (i < 2 && !want_multiple(c, item, values[i], unit, what)) {
            multiples = false;
        }
    }
    if (!multiples) {
        return; /* the rest would only follow from it */
    }
    if (full > 0 && values[0] > full) {
        problem(c, path, "starts at %lld, above train.global_batch_size %lld",
                (long long)values[0], (long long)full);
    } else if (full > 0 && (full - values[0]) % values[1] != 0) {
        problem(c, path, "steps of %lld from %lld do not meet "
                         "train.global_batch_size %lld",
                (long long)values[1], (long long)values[0], (long long)full);
    }
}

static loong_status_t check_batch(check_t *c, int world_size)
{
    char what[128];
    int ranks = 0;
    const int32_t *on = NULL;
    int64_t model = get(c, "parallel.tensor_model_parallel_size") *
                    get(c, "parallel.pipeline_model_parallel_size") *
                    get(c, "parallel.context_parallel_size");
    LOONG_TRY(loong_recipe_ranks(c->recipe, NULL, world_size, &on, &ranks));
    if (ranks % model != 0) {
        return LOONG_OK; /* the mesh tells it */
    }
    bool shares = is_set(c, "parallel.data_parallel_shares") ||
                  is_set(c, "parallel.data_parallel_speeds");
    int64_t replicas = shares ? 1 : ranks / model; /* of equal shares */
    int64_t micro = get(c, "train.micro_batch_size");
    snprintf(what, sizeof(what),
             "train.micro_batch_size %lld x %lld data-parallel ranks",
             (long long)micro, (long long)replicas);
    (void)want_multiple(c, "train.global_batch_size",
                        get(c, "train.global_batch_size"), micro * replicas,
                        what);
    check_rampup(c, micro * replicas, what);
    return LOONG_OK;
}

/* [a2a, p2p] */
static void check_context(check_t *c)
{
    static const char sizes[] = "parallel.hierarchical_context_parallel_sizes";
    int64_t ranks = get(c, "parallel.context_parallel_size");
    bool both = strcmp(loong_recipe_text(c->recipe, "parallel.cp_comm_type"),
                       "a2a+p2p") == 0;
    if (!both && is_set(c, sizes)) {
        problem(c, sizes, "belongs to parallel.cp_comm_type a2a+p2p alone");
        return;
    }
    if (!both || (ranks == 1 && !is_set(c, sizes))) {
        return;
    }
    if (loong_recipe_count(c->recipe, sizes) != 2) {
        problem(c, sizes, "found %lld numbers, parallel.cp_comm_type a2a+p2p "
                          "wants [a2a, p2p]",
                (long long)loong_recipe_count(c->recipe, sizes));
        return;
    }
    int64_t a2a = get(c, "parallel.hierarchical_context_parallel_sizes[0]");
    int64_t p2p = get(c, "parallel.hierarchical_context_parallel_sizes[1]");
    if (a2a * p2p != ranks) {
        problem(c, sizes, "%lld x %lld is not parallel.context_parallel_size "
                          "%lld",
                (long long)a2a, (long long)p2p, (long long)ranks);
    }
}

/* Dynamic scaling is there for longer sequences than the model knew. */
static void check_length(check_t *c)
{
    static const char longest[] = "model.foundation.max_position_embeddings";
    static const char scaling[] = "model.foundation.rope_scaling.type";
    const char *type = loong_recipe_text(c->recipe, scaling);
    bool dynamic = type != NULL && strcmp(type, "dynamic") == 0;
    int64_t length = get(c, "data.seq_length");
    bool longer = is_set(c, longest) && length > get(c, longest);
    if (longer && !dynamic) {
        problem(c, "data.seq_length", "%lld is above %s %lld",
                (long long)length, longest, (long long)get(c, longest));
    } else if (longer &&
               loong_recipe_bool(c->recipe, "data.reset_position_ids")) {
        problem(c, "data.reset_position_ids",
                "true, and data.seq_length %lld is above %s %lld: %s dynamic "
                "turns all positions by the length of a sample, not by that "
                "of each document",
                (long long)length, longest, (long long)get(c, longest),
                scaling);
    }
    int64_t ranks = get(c, "parallel.context_parallel_size");
    if (is_set(c, "data.seq_length") && ranks > 1) {
        (void)want_multiple(c, "data.seq_length", length, 2 * ranks,
                            "2 x parallel.context_parallel_size");
    }
}

static void check_schedule(check_t *c)
{
    int64_t steps = get(c, "train.train_iters");
    int64_t warmup = get(c, "optimizer.lr_warmup_iters");
    int64_t end = is_set(c, "optimizer.lr_decay_iters")
                      ? get(c, "optimizer.lr_decay_iters")
                      : steps;
    int64_t tail = get(c, "optimizer.lr_wsd_decay_iters");
    const char *style = loong_recipe_text(c->recipe,
                                          "optimizer.lr_decay_style");
    if (is_set(c, "optimizer.lr") &&
        loong_recipe_real(c->recipe, "optimizer.min_lr") >
            loong_recipe_real(c->recipe, "optimizer.lr")) {
        problem(c, "optimizer.min_lr", "%g is above optimizer.lr %g",
                loong_recipe_real(c->recipe, "optimizer.min_lr"),
                loong_recipe_real(c->recipe, "optimizer.lr"));
    }
    if (warmup > 0 &&
        loong_recipe_real(c->recipe, "optimizer.lr_warmup_fraction") > 0.0) {
        problem(c, "optimizer.lr_warmup_fraction",
                "beside optimizer.lr_warmup_iters %lld: one of them is the "
                "warm-up",
                (long long)warmup);
    }
    if (end > 0 && warmup > end) {
        problem(c, "optimizer.lr_warmup_iters",
                "%lld is above the end of the decay, step %lld",
                (long long)warmup, (long long)end);
    }
    if (end == 0) {
        return; /* the length is given in samples or tokens */
    }
    if (strcmp(style, "WSD") == 0 && (tail < 1 || tail > end - warmup)) {
        problem(c, "optimizer.lr_wsd_decay_iters",
                "found %lld, WSD wants 1 to %lld (from the warm-up to the "
                "end)",
                (long long)tail, (long long)(end - warmup));
    }
}

/* A source without a share would never be drawn. */
static void check_sources(check_t *c)
{
    int64_t n = loong_recipe_count(c->recipe, "data.train");
    int64_t given = 0;
    char path[64];
    for (int64_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "data.train[%lld].weight", (long long)i);
        given += is_set(c, path);
    }
    for (int64_t i = 0; i < n && given > 0; i++) {
        snprintf(path, sizeof(path), "data.train[%lld].weight", (long long)i);
        if (!is_set(c, path)) {
            problem(c, path, "not set, but %lld of %lld sources have a "
                             "weight: give it to all or to none",
                    (long long)given, (long long)n);
        } else if (loong_recipe_real(c->recipe, path) == 0.0) {
            problem(c, path, "0 takes nothing from this source: remove the "
                             "source, or all weights to draw by size");
        }
    }
}

/* What goes on beside computation. */
static void check_overlap(check_t *c)
{
    static const char *const keys[] = {PAIRS, PRODUCTS};
    for (int i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (loong_recipe_bool(c->recipe, keys[i]) &&
            !loong_recipe_bool(c->recipe, "comm.overlap")) {
            problem(c, keys[i], "has no effect with comm.overlap false: "
                                "nothing goes on beside computation");
        }
    }
    if (loong_recipe_bool(c->recipe, PRODUCTS) &&
        !loong_recipe_bool(c->recipe, "parallel.sequence_parallel")) {
        problem(c, PRODUCTS, "has no effect without parallel.sequence_"
                             "parallel: its rows are what comes and goes");
    }
}

static bool has_text(const check_t *c, const char *key, const char *text)
{
    return strcmp(loong_recipe_text(c->recipe, key), text) == 0;
}

/* Types of numbers. */
static void check_types(check_t *c)
{
    if (loong_recipe_bool(c->recipe, "parallel.grad_reduce_in_bf16") &&
        has_text(c, "precision.params_dtype", "fp64")) {
        problem(c, "parallel.grad_reduce_in_bf16",
                "gradients of precision.params_dtype fp64 are not sent in "
                "bf16");
    }
    if (loong_recipe_bool(c->recipe, "precision.tf32") &&
        !has_text(c, "precision.params_dtype", "fp32")) {
        problem(c, "precision.tf32",
                "needs precision.params_dtype fp32: it is how products of "
                "fp32 are made");
    }
}

static void check_averages(check_t *c)
{
    static const char *const averaged[] = {"optimizer.ema.update_after_step",
                                           "optimizer.ema.use_ema_warmup",
                                           "eval.ema", "export.ema"};
    double decay = loong_recipe_real(c->recipe, "optimizer.ema.decay");
    for (int64_t i = 0; i < LOONG_COUNT_OF(averaged) && decay == 0.0; i++) {
        if (is_set(c, averaged[i])) {
            problem(c, averaged[i],
                    "has no effect without optimizer.ema.decay");
        }
    }
    if (loong_recipe_bool(c->recipe, "export.ema") && !is_set(c, "export.hf")) {
        problem(c, "export.ema", "has no effect without export.hf");
    }
}

/* Of the whole model, or of a component with keys of its own; what it takes of
 * the whole may be without effect there. */
static void check_recompute(check_t *c, const char *role)
{
    const char *keys[] = {"recompute.granularity", "recompute.scopes"};
    bool own = role == NULL;
    for (int i = 0; i < 2 && role != NULL; i++) {
        const char *path = loong_recipe_own_path(c->recipe, role, keys[i]);
        own = own || strcmp(path, keys[i]) != 0;
        keys[i] = path;
    }
    const char *grain = loong_recipe_text(c->recipe, keys[0]);
    bool selective = strcmp(grain, "selective") == 0;
    bool scopes = loong_recipe_count(c->recipe, keys[1]) > 0;
    bool idle = scopes && (role == NULL || strncmp(keys[1], "model.", 6) == 0);
    if (own && selective && !scopes) {
        problem(c, keys[1], "empty, %s selective needs it", keys[0]);
    } else if (own && !selective && idle) {
        problem(c, keys[1], "set, but %s is not selective", keys[0]);
    }
}

static void check_components(check_t *c)
{
#define OWN "model.image_encoder.parallel."
    static const char *const only[] = {
        "join", OWN "pipeline_model_parallel_size", OWN "sequence_parallel",
        "features", "model.image_encoder.train.micro_batch_size",
        OWN "tensor_model_parallel_size", OWN "context_parallel_size",
        OWN "num_layers_per_virtual_pipeline_stage"};
    static const char layer[] = "model.image_encoder.feature_layer";
    int64_t count = 0;
    check_recompute(c, NULL);
    for (; loong_recipe_component(c->recipe, count) != NULL; count++) {
        check_recompute(c, loong_recipe_component(c->recipe, count));
    }
    for (int64_t i = 0; count == 1 && i < LOONG_COUNT_OF(only); i++) {
        if (is_set(c, only[i])) {
            problem(c, only[i], "has no effect on a model of one component");
        }
    }
    if (is_set(c, layer) && get(c, layer) == 0) {
        problem(c, layer, "found 0; the first layer is 1, the last one -1");
    }
}

static void check_settings(check_t *c)
{
    const char *load = loong_recipe_text(c->recipe, "checkpoint.load");
    if (loong_recipe_bool(c->recipe, "parallel.sequence_parallel") &&
        get(c, "parallel.tensor_model_parallel_size") == 1) {
        problem(c, "parallel.sequence_parallel",
                "has no effect with parallel.tensor_model_parallel_size 1: "
                "it is these ranks that cut the tokens");
    }
    check_averages(c);
    if (is_set(c, "export.as") && !is_set(c, "export.hf")) {
        problem(c, "export.as", "has no effect without export.hf");
    }
    if (is_set(c, "checkpoint.save")) {
        return;
    }
    static const char *const savers[] = {
        "checkpoint.save_interval", "checkpoint.save_interval_seconds",
        "train.exit_interval", "train.max_wall_time"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(savers); i++) {
        if (loong_recipe_real(c->recipe, savers[i]) > 0.0) {
            problem(c, savers[i], "needs checkpoint.save, which is not set");
        }
    }
    if (is_set(c, "export.hf")) {
        problem(c, "export.hf", "goes through a checkpoint, needs "
                                "checkpoint.save, which is not set");
    }
    if (load != NULL && strcmp(load, "auto") == 0) {
        problem(c, "checkpoint.load", "auto needs checkpoint.save, which is "
                                      "not set");
    }
}

/* Ids of parts of images: for models that treat them otherwise. */
static void check_vision_ids(check_t *c)
{
    static const char key[] = "data.vision_token_ids";
    static const char model[] = "model.foundation.moe_vision_ffn_hidden_size";
    enum { MOST = 16 }; /* LOONG_MAX_VISION_IDS of the loader */
    int64_t count = loong_recipe_count(c->recipe, key);
    int64_t vocab = get(c, "model.foundation.vocab_size");
    bool known = is_set(c, "model.foundation.family") ||
                 (loong_recipe_init_key(c->recipe, NULL) == NULL &&
                  !is_set(c, "model.from_hf"));
    if (count > 0 && known && !is_set(c, model)) {
        problem(c, key, "has no effect without %s", model);
    }
    if (count > MOST) {
        problem(c, key, "%lld ids, up to %d allowed", (long long)count, MOST);
    }
    for (int64_t i = 0; i < count && vocab > 0; i++) {
        char item[64];
        snprintf(item, sizeof(item), "%s[%lld]", key, (long long)i);
        if (get(c, item) >= vocab) {
            problem(c, item, "%lld, the vocabulary has 0 to %lld",
                    (long long)get(c, item), (long long)vocab - 1);
        }
    }
}

/* A phase that goes on has something to go on from. */
static void check_phase(check_t *c)
{
    static const char key[] = "training_phase";
    if (strcmp(loong_recipe_text(c->recipe, key), "midtrain") == 0 &&
        loong_recipe_text(c->recipe, "checkpoint.load") == NULL &&
        loong_recipe_init_key(c->recipe, NULL) == NULL) {
        problem(c, key, "midtrain goes on from trained weights: init.from_hf "
                        "or a directory in checkpoint.load must be set");
    }
}

static void check_router_replay(check_t *c)
{
    static const char replay[] = "router_replay.replay_file";
    static const char forced[] =
        "model.foundation.moe_router_force_load_balancing";
    if (is_set(c, replay) && is_set(c, "router_replay.record_file")) {
        problem(c, replay, "beside router_replay.record_file: what is replayed "
                           "is recorded already");
    }
    if (is_set(c, replay) && is_set(c, forced) &&
        loong_recipe_bool(c->recipe, forced)) {
        problem(c, replay, "beside moe_router_force_load_balancing: both put "
                           "experts in place of the router's choice");
    }
}

/* A fault that cannot happen would make its test pass. */
static void check_fault(check_t *c, int64_t i, int world_size)
{
    char list[32];
    char rank[64];
    char step[64];
    char seconds[64];
    char kind_path[64];
    snprintf(list, sizeof(list), "fault[%lld]", (long long)i);
    snprintf(kind_path, sizeof(kind_path), "%s.kind", list);
    snprintf(rank, sizeof(rank), "%s.rank", list);
    snprintf(step, sizeof(step), "%s.step", list);
    snprintf(seconds, sizeof(seconds), "%s.seconds", list);
    const char *kind = loong_recipe_text(c->recipe, kind_path);
    bool damage = kind != NULL && strcmp(kind, "corrupt_checkpoint") == 0;
    int64_t steps = get(c, "train.train_iters");
    if (get(c, rank) >= world_size) {
        problem(c, rank, "%lld, there are ranks 0 to %d",
                (long long)get(c, rank), world_size - 1);
    }
    if (steps > 0 && is_set(c, step) && get(c, step) >= steps + damage) {
        problem(c, step, "%lld, train.train_iters %lld ends before it",
                (long long)get(c, step), (long long)steps);
    }
    if (is_set(c, seconds) && kind != NULL && strcmp(kind, "slow") != 0) {
        problem(c, seconds, "has no effect on %s, only on slow", kind);
    }
    if (damage && !is_set(c, "checkpoint.save")) {
        problem(c, kind_path, "%s needs checkpoint.save, which is not set",
                kind);
    }
}

static void check_resume(check_t *c)
{
    int64_t n = loong_recipe_count(c->recipe, "resume.override");
    (void)loong_recipe_int(c->recipe, "version"); /* there is one so far */
    for (int64_t i = 0; i < n; i++) {
        char path[64];
        snprintf(path, sizeof(path), "resume.override[%lld]", (long long)i);
        const char *name = loong_recipe_text(c->recipe, path);
        if (loongi_recipe_exists(c->recipe, name)) {
            continue;
        }
        const loong_recipe_key_t *near =
            loongi_recipe_nearest(c->recipe, name);
        problem(c, path, "%s is no key of a recipe%s%s%s", name,
                near != NULL ? "; did you mean " : "",
                near != NULL ? near->path : "", near != NULL ? "?" : "");
    }
}

loong_status_t loong_recipe_check(const loong_recipe_t *recipe, int world_size)
{
    check_t c = {recipe, loongi_problems_begin(recipe->ctx)};
    LOONG_CHECK(recipe->ctx, world_size > 0, LOONG_ERR_ARG,
                "found %d ranks, 1 or more wanted", world_size);
    loongi_recipe_judge_schema(recipe, &c.problems);
    check_needed(&c);
    loong_status_t status = check_batch(&c, world_size);
    check_context(&c);
    check_length(&c);
    check_schedule(&c);
    check_sources(&c);
    check_types(&c);
    loongi_optimizer_keys_check(recipe, &c.problems);
    loongi_finetune_keys_check(recipe, &c.problems);
    check_components(&c);
    loongi_recipe_check_ranks(recipe, world_size, &c.problems);
    check_settings(&c);
    check_router_replay(&c);
    check_vision_ids(&c);
    check_phase(&c);
    check_overlap(&c);
    for (int64_t i = 0; i < loong_recipe_count(recipe, "fault"); i++) {
        check_fault(&c, i, world_size);
    }
    check_resume(&c);
    loong_status_t told =
        loongi_problems_end(&c.problems, LOONG_ERR_CONFIG, "the recipe");
    return told != LOONG_OK ? told : status;
}
