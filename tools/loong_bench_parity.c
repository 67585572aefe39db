/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench parity: random layouts of a recipe against one rank, in f64. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "file.h"
#include "layout_job.h"
#include "loong_bench.h"
#include "rng.h"
#include "tool_configs.h"

/* What a layout is drawn from; a new axis is a line here. */
typedef enum axis_role {
    RANKS,  /* the number of ranks is a multiple of it */
    LAYOUT, /* any value with any other, unless a rule refuses it */
    MODEL   /* changes what is computed: one rank gets the same value */
} axis_role_t;

typedef struct axis {
    const char *label;
    const char *key;
    axis_role_t role;
    const char *values; /* NULL: all choices of the schema */
} axis_t;

static const axis_t axes[] = {
    {"tp", "parallel.tensor_model_parallel_size", RANKS, "1 2 3 4"},
    {"pp", "parallel.pipeline_model_parallel_size", RANKS, "1 2 3 4"},
    {"cp", "parallel.context_parallel_size", RANKS, "1 2 3 4"},
    {"cp_comm", "parallel.cp_comm_type", LAYOUT, NULL},
    {"a2a,p2p", "parallel.hierarchical_context_parallel_sizes", LAYOUT,
     "null null [2,2] [1,3] [2,1]"},
    {"ep", "parallel.expert_model_parallel_size", LAYOUT, "1 1 2 4"},
    {"etp", "parallel.expert_tensor_parallel_size", LAYOUT, "1 1 2"},
    {"dispatch", "parallel.moe_token_dispatcher_type", LAYOUT, NULL},
    {"chunk", "parallel.num_layers_per_virtual_pipeline_stage", LAYOUT,
     "0 0 1 2"},
    {"sp", "parallel.sequence_parallel", LAYOUT, "false true"},
    {"products", "parallel.tp_comm_overlap", LAYOUT, "false false true"},
    {"schedule", "schedule", LAYOUT, NULL},
    {"pairs", "parallel.overlap_moe_expert_parallel_comm", LAYOUT,
     "false true"},
    {"lane", "comm.overlap_work", LAYOUT, "0 256KiB"},
    {"sharding", "parallel.data_parallel_sharding", LAYOUT, NULL},
    {"bucket", "parallel.bucket_bytes", LAYOUT, "4096 32MiB"},
    {"micro", "train.micro_batch_size", LAYOUT, "1 2 3 4"},
    {"recompute", "recompute.granularity", LAYOUT, "none full"},
    {"untied", "model.foundation.untie_embeddings_and_output_weights", MODEL,
     "false true"},
    {"packed", "data.reset_attention_mask", MODEL, "false true"},
};
enum {
    AXES = sizeof(axes) / sizeof(axes[0]),
    VALUE = 48,
    LINE = 2048,
    MAX_REFUSALS = 500, /* in a row */
    MAX_MODELS = 64
};

static const double bound = 1e-9;

/* A short training and nothing beside it. */
static const char *const fixed[] = {
    "++precision.params_dtype=fp64",
    "++train.train_samples=null",
    "++train.train_tokens=null",
    "++train.rampup_batch_size=null",
    "++train.exit_interval=0",
    "++train.max_wall_time=0",
    "++optimizer.lr_decay_style=cosine",
    "++optimizer.lr_decay_iters=null",
    "++optimizer.lr_warmup_iters=2",
    "++data.tokenizer=null",
    "++data.validation=[]",
    "++data.validation_split=0",
    "++eval.sample.prompts=[]",
    "++checkpoint.load=null",
    "++checkpoint.save_interval=0",
    "++checkpoint.save_interval_seconds=0",
    "++export.hf=null",
    "++log.dir=null",
    "++log.tensors=[]",
    "++log.interval=1000000",
};
enum { FIXED = sizeof(fixed) / sizeof(fixed[0]), OWN = 3 };

typedef struct options {
    int layouts;
    int max_ranks;
    int steps;
    uint64_t seed;
} options_t;

typedef struct layout {
    int ranks;
    char value[AXES][VALUE];
} layout_t;

/* One rank with a variant of the model. */
typedef struct model_run {
    layout_t model;
    double loss;
    double grad_norm;
    char name[VALUE];
} model_run_t;

typedef struct bench {
    loong_context_t *ctx;
    const options_t *o;
    const char *recipe;
    int num_given;
    char **given; /* overrides of the user */
    char dir[64];
    uint64_t draws;
    int64_t refused;
    int num_models;
    model_run_t models[MAX_MODELS];
    double worst;
    int beyond; /* layouts beyond the bound */
} bench_t;

/* ---- drawing ------------------------------------------------------------- */

static int draw(bench_t *b, int axis, int count)
{
    double u = loongi_rng_uniform(b->o->seed, b->draws, (uint64_t)axis);
    return (int)(u * count);
}

/* Word `index` of a list, -1: none; the number of words. */
static int word(const char *list, int index, char text[VALUE])
{
    int count = 0;
    while (*list != '\0') {
        size_t n = strcspn(list, " ");
        if (count++ == index) {
            snprintf(text, VALUE, "%.*s", (int)n, list);
        }
        list += n + (list[n] == ' ');
    }
    return count;
}

static const char *values_of(const axis_t *axis)
{
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        const loong_recipe_key_t *key = loong_recipe_key(i);
        if (axis->values == NULL && strcmp(key->path, axis->key) == 0) {
            return key->choices;
        }
    }
    return axis->values;
}

/* The ranks that are left to the data-parallel size are drawn as well. */
static void draw_layout(bench_t *b, layout_t *layout)
{
    int unit = 1;
    do {
        b->draws++;
        unit = 1;
        for (int i = 0; i < AXES; i++) {
            char *value = layout->value[i];
            const char *values = values_of(&axes[i]);
            word(values, draw(b, i, word(values, -1, value)), value);
            unit *= axes[i].role == RANKS ? atoi(value) : 1;
        }
    } while (unit > b->o->max_ranks);
    layout->ranks = unit * (1 + draw(b, AXES, b->o->max_ranks / unit));
}

/* ---- runs ---------------------------------------------------------------- */

/* The values of a layout as words that can be pasted behind a recipe. */
static void describe(const layout_t *layout, bool keys, char text[LINE])
{
    int n = 0;
    for (int i = 0; i < AXES; i++) {
        n += snprintf(text + n, (size_t)(LINE - n), "%s%s=%s",
                      i > 0 ? " " : "", keys ? axes[i].key : axes[i].label,
                      layout->value[i]);
        n = LOONG_MIN(n, LINE - 1);
    }
}

/* Trains on so many ranks, into the directory `name`, with the values of a
 * layout whose axes have at least this role. */
static loong_status_t train(bench_t *b, const layout_t *layout,
                            axis_role_t least, const char *name,
                            layout_job_t *job)
{
    char configs[PATH_MAX];
    char own[OWN + AXES][256];
    const char **all = NULL;
    int n = 0;
    int room = b->num_given + FIXED + OWN + AXES;
    LOONG_TRY(loongi_calloc(b->ctx, (size_t)room, sizeof(*all), "overrides",
                            &all));
    for (int i = 0; i < b->num_given; i++) {
        all[n++] = b->given[i];
    }
    for (int i = 0; i < FIXED; i++) {
        all[n++] = fixed[i];
    }
    snprintf(own[0], sizeof(own[0]), "++train.train_iters=%d", b->o->steps);
    snprintf(own[1], sizeof(own[1]), "++data.train=[{path: %s/data}]", b->dir);
    snprintf(own[2], sizeof(own[2]), "++checkpoint.save=%s/%s", b->dir, name);
    for (int i = 0; i < OWN; i++) {
        all[n++] = own[i];
    }
    for (int i = 0; i < AXES; i++) {
        if (axes[i].role >= least) {
            snprintf(own[OWN + i], sizeof(own[0]), "++%s=%s", axes[i].key,
                     layout->value[i]);
            all[n++] = own[OWN + i];
        }
    }
    memset(job, 0, sizeof(*job));
    job->params.config_dir = tool_configs(configs);
    job->params.num_overrides = n;
    job->params.overrides = all;
    job->path = b->recipe;
    job->ranks = least == MODEL ? 1 : layout->ranks;
    loong_status_t status = layout_job_run(b->ctx, job);
    loongi_free(b->ctx, all);
    return status;
}

static bool same_model(const layout_t *a, const layout_t *b)
{
    bool same = true;
    for (int i = 0; i < AXES; i++) {
        same = same && (axes[i].role != MODEL ||
                        strcmp(a->value[i], b->value[i]) == 0);
    }
    return same;
}

/* One rank with the model of a layout; each variant is trained once. */
static loong_status_t one_rank(bench_t *b, const layout_t *layout,
                               const model_run_t **one_p)
{
    layout_job_t job;
    for (int i = 0; i < b->num_models; i++) {
        if (same_model(&b->models[i].model, layout)) {
            *one_p = &b->models[i];
            return LOONG_OK;
        }
    }
    LOONG_CHECK(b->ctx, b->num_models < MAX_MODELS, LOONG_ERR_INTERNAL,
                "more than %d variants of the model", MAX_MODELS);
    model_run_t *one = &b->models[b->num_models];
    one->model = *layout;
    snprintf(one->name, sizeof(one->name), "one%d", b->num_models);
    LOONG_TRY(train(b, layout, MODEL, one->name, &job));
    one->loss = job.loss;
    one->grad_norm = job.grad_norm;
    b->num_models++;
    *one_p = one;
    return LOONG_OK;
}

static double relative(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

/* The larger one; a NaN is larger than all. */
static double larger(double a, double b)
{
    return a >= b || isnan(a) ? a : b;
}

static void tell(bench_t *b, int index, const layout_t *layout,
                 const double error[4], const layout_difference_t *d)
{
    char text[LINE];
    double most = 0.0;
    for (int i = 0; i < 4; i++) {
        most = larger(error[i], most);
    }
    describe(layout, false, text);
    printf("%4d  %5d  %8.1e  %8.1e  %10.1e  %8.1e  %s\n", index + 1,
           layout->ranks, error[0], error[1], error[2], error[3], text);
    if (!(most <= bound)) {
        describe(layout, true, text);
        printf("      BEYOND %g: %d ranks with %s\n      farthest: %s; %s\n",
               bound, layout->ranks, text, d->worst[0], d->worst[1]);
        b->beyond++;
    }
    fflush(stdout);
    b->worst = larger(most, b->worst);
}

/* Draws until a layout is one that the rules allow, and trains in it. */
static loong_status_t train_any(bench_t *b, layout_t *layout,
                                layout_job_t *job)
{
    for (int tries = 0; tries < MAX_REFUSALS; tries++) {
        do {
            draw_layout(b, layout);
        } while (layout->ranks == 1);
        loong_status_t status = train(b, layout, RANKS, "layout", job);
        if (!job->refused || (status != LOONG_ERR_CONFIG &&
                              status != LOONG_ERR_UNSUPPORTED)) {
            return status;
        }
        b->refused++;
        if (tries + 1 < MAX_REFUSALS) {
            loong_context_clear_error(b->ctx);
        }
    }
    loongi_error_note(b->ctx, "%d random layouts up to %d ranks in a row were "
                      "refused, the last one like this", MAX_REFUSALS,
                      b->o->max_ranks);
    return LOONG_ERR_CONFIG;
}

static loong_status_t run_layout(bench_t *b, int index)
{
    layout_t layout;
    layout_job_t job;
    layout_difference_t d;
    const model_run_t *one = NULL;
    char dirs[2][160];
    char text[LINE];
    snprintf(dirs[0], sizeof(dirs[0]), "%s/layout", b->dir);
    loong_status_t status = train_any(b, &layout, &job);
    if (status == LOONG_OK) {
        status = one_rank(b, &layout, &one);
    }
    if (status == LOONG_OK) {
        snprintf(dirs[1], sizeof(dirs[1]), "%s/%s", b->dir, one->name);
        status = layout_job_compare(b->ctx, dirs[0], dirs[1], &d);
    }
    if (status == LOONG_OK) {
        double error[4] = {relative(job.loss, one->loss),
                           relative(job.grad_norm, one->grad_norm), d.param,
                           d.moment};
        tell(b, index, &layout, error, &d);
        return loongi_dir_remove(b->ctx, dirs[0]);
    }
    describe(&layout, true, text);
    loongi_error_note(b->ctx, "layout %d: %d ranks with %s", index + 1,
                      layout.ranks, text);
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

/* Documents of about a sample each, and enough of them for a few steps. */
static loong_status_t make_data(bench_t *b)
{
    char prefix[96];
    char configs[PATH_MAX];
    loong_recipe_t *r = NULL;
    loong_recipe_params_t params;
    memset(&params, 0, sizeof(params));
    params.config_dir = tool_configs(configs);
    params.num_overrides = b->num_given;
    params.overrides = (const char *const *)b->given;
    LOONG_TRY(loong_recipe_load(b->ctx, b->recipe, &params, &r));
    int64_t vocab = loong_recipe_int(r, "model.foundation.vocab_size");
    int64_t length = loong_recipe_int(r, "data.seq_length");
    int64_t batch = loong_recipe_int(r, "train.global_batch_size");
    loong_recipe_destroy(&r);
    LOONG_CHECK(b->ctx, vocab > 1 && length > 0 && batch > 0,
                LOONG_ERR_CONFIG,
                "%s: model.foundation.vocab_size (2 or more), data.seq_length "
                "and train.global_batch_size must be set", b->recipe);
    LOONG_CHECK(b->ctx, length * batch <= 1 << 24, LOONG_ERR_CONFIG,
                "%s: a step of %lld x %lld tokens; parity is for small ones, "
                "up to %d", b->recipe, (long long)batch, (long long)length,
                1 << 24);
    snprintf(prefix, sizeof(prefix), "%s/data", b->dir);
    layout_data_t data = {prefix, vocab, (int)(4 * batch + 1),
                          (int)(length - length / 4)};
    return layout_data_write(b->ctx, &data);
}

static loong_status_t run_all(bench_t *b)
{
    const model_run_t *one = NULL;
    layout_t any;
    LOONG_TRY(make_data(b));
    draw_layout(b, &any);
    LOONG_TRY(one_rank(b, &any, &one)); /* a wrong recipe is told at once */
    printf("%s: %d random layouts up to %d ranks, seed %llu; %d steps in f64 "
           "against one rank\n", b->recipe, b->o->layouts, b->o->max_ranks,
           (unsigned long long)b->o->seed, b->o->steps);
    printf("%4s  %5s  %8s  %8s  %10s  %8s  %s\n", "#", "ranks", "loss", "norm",
           "parameters", "moments", "layout");
    for (int i = 0; i < b->o->layouts; i++) {
        LOONG_TRY(run_layout(b, i));
    }
    printf("largest relative difference %.1e, %g allowed; %d of %d beyond; "
           "%lld draws were no possible layout\n", b->worst, bound, b->beyond,
           b->o->layouts, (long long)b->refused);
    return LOONG_OK;
}

static int help(void)
{
    printf("usage: loong-bench parity [OPTION]... RECIPE [a.b=c]...\n\n"
           "Trains the recipe in random layouts, on ranks that are threads, "
           "in f64 on tokens of\nits own, and compares loss, gradient norm, "
           "parameters and moments with one rank.\nExit code 1 when a "
           "relative difference is beyond %g.\n\n"
           "  --layouts N  10\n"
           "  --steps N    20\n"
           "  --ranks MAX  16\n"
           "  --seed S     1\n", bound);
    return LOONG_EXIT_OK;
}

static bool parse(int argc, char **argv, options_t *o, bool *help_p)
{
    static const struct option table[] = {
        {"layouts", required_argument, NULL, 'l'},
        {"steps", required_argument, NULL, 's'},
        {"ranks", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, 'x'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case 'l':
            o->layouts = atoi(optarg);
            break;
        case 's':
            o->steps = atoi(optarg);
            break;
        case 'r':
            o->max_ranks = atoi(optarg);
            break;
        case 'x':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 'h':
            *help_p = true;
            return true;
        default:
            return false;
        }
    }
    return true;
}

int bench_parity(loong_context_t *ctx, int argc, char **argv)
{
    options_t o = {10, 16, 20, 1};
    bench_t *b = NULL;
    bool wants_help = false;
    if (!parse(argc, argv, &o, &wants_help)) {
        return bench_usage("parity", "unknown option");
    }
    if (wants_help) {
        return help();
    }
    if (optind == argc || o.layouts < 1 || o.steps < 1 || o.max_ranks < 2) {
        return bench_usage("parity",
                           optind == argc ? "no recipe given"
                                          : "--layouts and --steps must be 1 "
                                            "or more, --ranks 2 or more");
    }
    loong_status_t status = loongi_alloc(ctx, sizeof(*b), "parity", &b);
    if (status != LOONG_OK) {
        return bench_fail(ctx, status);
    }
    const char *tmp = getenv("TMPDIR");
    b->ctx = ctx;
    b->o = &o;
    b->recipe = argv[optind];
    b->num_given = argc - optind - 1;
    b->given = argv + optind + 1;
    snprintf(b->dir, sizeof(b->dir), "%s/loong-parity-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    status = mkdtemp(b->dir) != NULL
                 ? run_all(b)
                 : LOONG_FAIL(ctx, LOONG_ERR_IO,
                              "the directory %s cannot be made", b->dir);
    int code = status == LOONG_OK ? (b->beyond > 0 ? LOONG_EXIT_FAILED
                                                   : LOONG_EXIT_OK)
                                  : bench_fail(ctx, status);
    loong_status_t removed = loongi_dir_remove(ctx, b->dir);
    loongi_free(ctx, b);
    return code != LOONG_EXIT_OK || removed == LOONG_OK
               ? code
               : bench_fail(ctx, removed);
}
