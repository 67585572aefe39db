/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench parity: random layouts of a recipe against one rank, or against
 * others that promise the same bits. Called by loong_bench.c. Read
 * layout_draw.h and layout_job.h before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base.h"
#include "file.h"
#include "layout_draw.h"
#include "layout_job.h"
#include "loong_bench.h"
#include "options.h"
#include "tool_configs.h"

enum { MAX_REFUSALS = 2000, /* in a row */ MAX_MODELS = 64, VALUE = 48 };

/* How close the losses of a layout are, of all steps and of the first ones;
 * whether norm, parameters and moments are as well. Choices of experts are
 * those of one rank (router_replay) where rounding could turn them. */
enum { FIRST = 5 };
typedef struct type {
    const char *name;
    double bound;
    double first;
    bool all;
} type_t;

static const type_t types[] = {
    {"fp64", 1e-9, 1e-9, true},
    {"fp32", 1e-4, 1e-5, false},
    {"bf16", 0x1p-8, 0x1p-8, false}, /* half a unit of its 8 bits */
};
/* --bits: nothing may differ. */
static const type_t bits_types[] = {
    {"fp64", 0.0, 0.0, true}, {"fp32", 0.0, 0.0, true},
    {"bf16", 0.0, 0.0, true}};

/* A short training and nothing beside it. */
static const char *const fixed[] = {
    "++train.train_samples=null",
    "++train.train_tokens=null",
    "++train.epochs=null",
    "++train.max_wall_time=0",
    "++train.on_nan=skip",
    "++optimizer.lr_decay_style=cosine",
    "++optimizer.lr_decay_iters=null",
    "++optimizer.lr_warmup_iters=2",
    "++data.validation=[]",
    "++data.validation_split=0",
    "++eval.sample.prompts=[]",
    "++eval.iters=1",
    "++checkpoint.save_interval=0",
    "++checkpoint.save_interval_seconds=0",
    "++export.hf=null",
    "++log.dir=null",
    "++log.tensors=[]",
    "++log.interval=1000000",
};
enum { FIXED = sizeof(fixed) / sizeof(fixed[0]), OWN = 12, OWN_KEY = 320 };

typedef struct options {
    int layouts;
    int max_ranks;
    int steps;
    uint64_t seed;
    const type_t *type;
    bool bits;
    const char *device; /* of the layouts; NULL: the recipe's */
} options_t;

/* One rank with a variant of the model. */
typedef struct model_run {
    layout_t model;
    double grad_norm;
    double *losses;
    char name[VALUE];
} model_run_t;

typedef struct bench {
    loong_context_t *ctx;
    const options_t *o;
    const char *recipe;
    int num_given;
    char **given; /* overrides of the user */
    char dir[64];
    layout_draws_t draws;
    bool replay; /* the choices of experts of one rank */
    double *losses; /* of one layout, then of the models */
    int64_t refused;
    int num_models;
    model_run_t models[MAX_MODELS];
    double worst[2]; /* of what is bounded: by `bound`, by `first` */
    int beyond;      /* layouts beyond a bound */
    char data[192];  /* tokens that are written, or the recipe's texts */
    bool pictures;   /* which the texts have */
    char source[32]; /* more of data.train: its class */
} bench_t;

/* ---- runs ---------------------------------------------------------------- */

/* One rank alone, with the model of a layout? */
static bool is_alone(const bench_t *b, const char *name, const char *one)
{
    return !b->o->bits && strcmp(name, one) == 0;
}

/* What a run into `name` sets, beside what is fixed; the number of keys. */
static int own_keys(const bench_t *b, const layout_t *layout,
                    const char *name, const char *one,
                    char own[OWN + LAYOUT_AXES][OWN_KEY])
{
    bool alone = is_alone(b, name, one);
    layout_role_t least = alone ? LAYOUT_MODEL : LAYOUT_RANKS;
    int n = 0;
    snprintf(own[n++], OWN_KEY, "++train.train_iters=%d", b->o->steps);
    snprintf(own[n++], OWN_KEY, "++precision.params_dtype=%s",
             b->o->type->name);
    snprintf(own[n++], OWN_KEY, "++data.train=[{path: %s%s}]", b->data,
             b->source);
    if (!b->pictures) {
        snprintf(own[n++], OWN_KEY, "++data.tokenizer=null");
    }
    snprintf(own[n++], OWN_KEY, "++checkpoint.save=%s/%s", b->dir, name);
    if (!alone) {
        snprintf(own[n++], OWN_KEY,
                 "++data.validation=[{name: held, path: %s%s}]", b->data,
                 b->source);
    }
    if (b->replay) {
        snprintf(own[n++], OWN_KEY, "++router_replay.%s_file=%s/%s.npy",
                 alone ? "record" : "replay", b->dir, one);
    }
    if (!alone && b->o->device != NULL) {
        snprintf(own[n++], OWN_KEY, "++device=%s", b->o->device);
    }
    for (int i = 0; i < b->draws.axes; i++) {
        if (layout_role(&b->draws, i) >= least) {
            snprintf(own[n++], OWN_KEY, "++%s=%s", layout_key(i),
                     layout->value[i]);
        }
    }
    return n;
}

/* Trains until the end or train.exit_interval, into the directory `name`: one
 * rank when it is that of `one`, else the layout. */
static loong_status_t train_part(bench_t *b, const layout_t *layout,
                                 const char *name, const char *one,
                                 layout_job_t *job)
{
    char configs[PATH_MAX];
    char own[OWN + LAYOUT_AXES][OWN_KEY];
    const char **all = NULL;
    int n = 0;
    int room = 1 + b->num_given + FIXED + OWN + LAYOUT_AXES;
    LOONG_TRY(loongi_calloc(b->ctx, (size_t)room, sizeof(*all), "overrides",
                            &all));
    for (int i = 0; i < b->num_given; i++) {
        if (!layout_pin(&b->draws, b->given[i])) {
            all[n++] = b->given[i];
        }
    }
    for (int i = 0; i < FIXED; i++) {
        all[n++] = fixed[i];
    }
    int num_own = own_keys(b, layout, name, one, own);
    for (int i = 0; i < num_own; i++) {
        all[n++] = own[i];
    }
    all[n++] =
        job->step > 0 ? "++checkpoint.load=auto" : "++checkpoint.load=null";
    job->params.config_dir = tool_configs(configs);
    job->params.num_overrides = n;
    job->params.overrides = all;
    job->path = b->recipe;
    job->ranks = is_alone(b, name, one) ? 1 : layout->ranks;
    loong_status_t status = layout_job_run(b->ctx, job);
    loongi_free(b->ctx, all);
    return status;
}

/* Goes on where it stopped, in the layout `then`. */
static loong_status_t train(bench_t *b, const layout_t *layout,
                            const layout_t *then, const char *name,
                            const char *one, layout_job_t *job)
{
    LOONG_TRY(train_part(b, layout, name, one, job));
    while (!job->plan_only && job->step < b->o->steps) {
        int64_t step = job->step;
        LOONG_TRY(train_part(b, then, name, one, job));
        LOONG_CHECK(b->ctx, job->step > step, LOONG_ERR_INTERNAL,
                    "a resume stays at step %lld", (long long)step);
    }
    return LOONG_OK;
}

/* What a layout is compared with: one rank with its model, each variant trained
 * once, or with --bits the layout itself. */
static loong_status_t one_rank(bench_t *b, const layout_t *layout,
                               const model_run_t **one_p)
{
    layout_job_t job;
    memset(&job, 0, sizeof(job));
    for (int i = 0; i < b->num_models && !b->o->bits; i++) {
        if (layout_same_model(&b->draws, &b->models[i].model, layout)) {
            *one_p = &b->models[i];
            return LOONG_OK;
        }
    }
    LOONG_CHECK(b->ctx, b->num_models < MAX_MODELS, LOONG_ERR_INTERNAL,
                "more than %d variants of the model", MAX_MODELS);
    model_run_t *one = &b->models[b->num_models];
    one->model = *layout;
    one->losses = b->losses + (int64_t)(1 + b->num_models) * b->o->steps;
    snprintf(one->name, sizeof(one->name), "one%d", b->num_models);
    job.losses = one->losses;
    LOONG_TRY(train(b, layout, layout, one->name, one->name, &job));
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

/* Of a layout: losses of the first steps, of all, norm, parameters, moments. */
enum { EARLY, LOSS, NORM, PARAM, MOMENT, ERRORS };

static void tell(bench_t *b, int index, const layout_t layout[2],
                 const model_run_t *one, const double error[ERRORS],
                 const layout_difference_t *d)
{

    const type_t *type = b->o->type;
    char text[LAYOUT_LINE];
    double most = error[LOSS];
    for (int i = NORM; i < ERRORS && type->all; i++) {
        most = larger(error[i], most);
    }
    layout_describe(layout, false, text);
    printf("%4d  %5d  %8.1e  %8.1e  %8.1e  %10.1e  %8.1e  %s\n", index + 1,
           layout->ranks, error[EARLY], error[LOSS], error[NORM], error[PARAM],
           error[MOMENT], text);
    if (memcmp(&layout[0], &layout[1], sizeof(*layout)) != 0) {
        layout_describe(&layout[1], false, text);
        printf("      resumed on %d: %s\n", layout[1].ranks, text);
    }
    if (!(most <= type->bound && error[EARLY] <= type->first)) {
        layout_describe(layout, true, text);
        printf("      BEYOND %g: %d ranks with %s\n      farthest: %s; %s\n",
               type->bound, layout->ranks, text, d->worst[0], d->worst[1]);
        layout_describe(&one->model, true, text);
        printf("      against: %d rank%s with %s\n",
               b->o->bits ? one->model.ranks : 1, b->o->bits ? "s" : "", text);
        b->beyond++;
    }
    fflush(stdout);
    b->worst[0] = larger(most, b->worst[0]);
    b->worst[1] = larger(error[EARLY], b->worst[1]);
    layout_count(&b->draws, &layout[0]);
}

/* Draws until a layout is one that the rules allow; with `from` one that gives
 * the bits of that, or without --bits of its model. */
static loong_status_t draw_any(bench_t *b, const layout_t *from,
                               layout_t *layout)
{
    for (int tries = 0; tries < MAX_REFUSALS; tries++) {
        layout_job_t job;
        memset(&job, 0, sizeof(job));
        job.plan_only = true;
        do {
            from != NULL && b->o->bits
                ? layout_draw_equal(&b->draws, from, layout)
                : layout_draw(&b->draws, from, layout);
        } while (layout->ranks == 1 && !b->o->bits);
        loong_status_t status = train(b, layout, NULL, "layout", "", &job);
        if (status != LOONG_ERR_CONFIG && status != LOONG_ERR_UNSUPPORTED) {
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

/* A layout, that in which it is resumed, and what it is compared with, trained
 * both. */
static loong_status_t train_any(bench_t *b, layout_t layout[2],
                                layout_job_t *job, const model_run_t **one_p)
{
    LOONG_TRY(draw_any(b, NULL, &layout[0]));
    LOONG_TRY(one_rank(b, &layout[0], one_p));
    if (b->o->bits) {
        LOONG_TRY(draw_any(b, &(*one_p)->model, &layout[0]));
    }
    layout[1] = layout[0];
    if (!b->o->bits && layout_stops(&layout[0])) {
        LOONG_TRY(draw_any(b, &layout[0], &layout[1]));
    }
    memset(job, 0, sizeof(*job));
    job->losses = b->losses;
    return train(b, &layout[0], &layout[1], "layout", (*one_p)->name, job);
}

static loong_status_t compare(bench_t *b, const model_run_t *one,
                              const layout_job_t *job, double error[ERRORS],
                              layout_difference_t *d)
{
    char dirs[2][160];
    snprintf(dirs[0], sizeof(dirs[0]), "%s/layout", b->dir);
    snprintf(dirs[1], sizeof(dirs[1]), "%s/%s", b->dir, one->name);
    LOONG_TRY(layout_job_compare(b->ctx, dirs[0], dirs[1], d));
    error[EARLY] = error[LOSS] = 0.0;
    for (int i = 0; i < b->o->steps; i++) {
        double apart = relative(job->losses[i], one->losses[i]);
        error[EARLY] = i < FIRST ? larger(apart, error[EARLY]) : error[EARLY];
        error[LOSS] = larger(apart, error[LOSS]);
    }
    /* The norm of a last step that both skip is no number. */
    bool skipped = b->o->steps == 2 && layout_skips(&one->model) &&
                   isnan(job->grad_norm) && isnan(one->grad_norm);
    error[NORM] = skipped ? 0.0 : relative(job->grad_norm, one->grad_norm);
    error[PARAM] = d->param;
    error[MOMENT] = d->moment;
    return loongi_dir_remove(b->ctx, dirs[0]);
}

static loong_status_t run_layout(bench_t *b, int index)
{
    layout_t layout[2];
    layout_job_t job;
    layout_difference_t d;
    const model_run_t *one = NULL;
    double error[ERRORS];
    char text[LAYOUT_LINE];
    loong_status_t status = train_any(b, layout, &job, &one);
    if (status == LOONG_OK) {
        status = compare(b, one, &job, error, &d);
    }
    if (status == LOONG_OK) {
        tell(b, index, layout, one, error, &d);
        return LOONG_OK;
    }
    layout_describe(&layout[0], true, text);
    loongi_error_note(b->ctx, "layout %d: %d ranks with %s", index + 1,
                      layout[0].ranks, text);
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

/* The recipe's texts where these have pictures; else what is written. */
static void name_data(bench_t *b, const loong_recipe_t *r)
{
    const char *source = loong_recipe_text(r, "data.train[0].source");
    snprintf(b->data, sizeof(b->data), "%s/data", b->dir);
    if (b->pictures) {
        snprintf(b->data, sizeof(b->data), "%s",
                 loong_recipe_text(r, "data.train[0].path"));
    } else {
        source = loong_recipe_is_set(r, "data.packing") ? "documents" : NULL;
    }
    if (source != NULL) {
        snprintf(b->source, sizeof(b->source), ", source: %s", source);
    }
}

/* Documents of about a sample each, and enough of them for a few steps. */
static loong_status_t make_data(bench_t *b)
{
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
    int64_t layers = loong_recipe_int(r, "model.foundation.num_layers");
    bool experts = loong_recipe_is_set(r, "model.foundation.num_experts");
    b->replay = experts && strcmp(b->o->type->name, "fp64") != 0 &&
                !b->o->bits;
    b->draws = layout_draws(b->o->seed, b->o->max_ranks, layers, batch);
    layout_pin_for(&b->draws, r);
    b->pictures = loong_recipe_component(r, 1) != NULL;
    name_data(b, r);
    if (!b->o->type->all) { /* moments of bf16 tip over by less */
        layout_pin(&b->draws, "optimizer.exp_avg_dtype=null");
    }
    b->draws.bits = b->o->bits;
    if (b->o->bits) { /* tied ends add up in another order when cut */
        layout_pin(&b->draws, "model.foundation."
                              "untie_embeddings_and_output_weights=true");
    }
    loong_recipe_destroy(&r);
    LOONG_CHECK(b->ctx, vocab > 1 && length > 0 && batch > 0,
                LOONG_ERR_CONFIG,
                "%s: model.foundation.vocab_size (2 or more), data.seq_length "
                "and train.global_batch_size must be set", b->recipe);
    LOONG_CHECK(b->ctx, length * batch <= 1 << 24, LOONG_ERR_CONFIG,
                "%s: a step of %lld x %lld tokens; parity is for small ones, "
                "up to %d", b->recipe, (long long)batch, (long long)length,
                1 << 24);
    if (b->pictures) {
        return LOONG_OK;
    }
    bool rows = b->source[0] != '\0'; /* of several documents */
    layout_data_t data = {.prefix = b->data,
                          .vocab_size = vocab,
                          .documents = (int)(4 * batch + 1),
                          .length = rows ? 3 : (int)(length - length / 4),
                          .cycle = rows ? (int)length : 0,
                          .masked = true,
                          .seed = (uint32_t)b->o->seed};
    return layout_data_write(b->ctx, &data);
}

static loong_status_t run_all(bench_t *b)
{
    const type_t *type = b->o->type;
    LOONG_TRY(make_data(b));
    LOONG_TRY(loongi_calloc(b->ctx,
                            (size_t)b->o->steps * (1 + MAX_MODELS),
                            sizeof(*b->losses), "losses", &b->losses));
    for (int i = 0; i < b->num_given; i++) {
        (void)layout_pin(&b->draws, b->given[i]);
    }
    printf("%s: %d random layouts up to %d ranks; %d steps in %s against %s%s; "
           "once more: --seed %llu\n", b->recipe, b->o->layouts,
           b->o->max_ranks, b->o->steps, type->name,
           b->o->bits ? "the bits of another layout" : "one rank",
           b->replay ? ", with its choices of experts" : "",
           (unsigned long long)b->o->seed);
    printf("%4s  %5s  %8s  %8s  %8s  %10s  %8s  %s\n", "#", "ranks",
           "5 losses", "losses", "norm", "parameters", "moments", "layout");
    for (int i = 0; i < b->o->layouts; i++) {
        LOONG_TRY(run_layout(b, i));
    }
    layout_print_covered(&b->draws);
    printf("largest relative difference of the first %d losses %.1e, %g "
           "allowed; of %s %.1e, %g allowed; %d of %d beyond; %lld draws were "
           "no possible layout\n", FIRST, b->worst[1], type->first,
           type->all ? "everything" : "all losses", b->worst[0], type->bound,
           b->beyond, b->o->layouts, (long long)b->refused);
    return LOONG_OK;
}

static int help(void)
{
    printf("usage: loong-bench parity [OPTION]... RECIPE [a.b=c]...\n\n"
           "Trains the recipe in random layouts, on ranks that are threads, "
           "on tokens of its own,\nand compares the loss of every step, "
           "gradient norm, parameters and moments with one\nrank. What is "
           "given behind the recipe is not drawn. In fp32 and bf16 layouts "
           "take\nthe experts that one rank chose. Exit code 1 when a "
           "relative difference is beyond:\nfp64 %g; losses of fp32 %g, of "
           "the first %d steps %g; of bf16 %g. With --bits two layouts\n"
           "that promise the same bits are compared, and nothing may "
           "differ.\n\n"
           "  --layouts N   10\n"
           "  --steps N     20\n"
           "  --ranks MAX   16\n"
           "  --seed S      of the draws and data; a new one each time\n"
           "  --bits\n"
           "  --dtype TYPE  fp64; with --bits bf16\n"
           "  --device NAME of the layouts; one rank has that of the recipe\n",
           types[0].bound, types[1].bound, FIRST,
           types[1].first, types[2].bound);
    return LOONG_EXIT_OK;
}

/* NULL when there is none of that name. */
static const type_t *find_type(const char *name, bool bits)
{
    name = name != NULL ? name : bits ? "bf16" : "fp64";
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            return bits ? &bits_types[i] : &types[i];
        }
    }
    return NULL;
}

static bool parse(int argc, char **argv, options_t *o, bool *help_p)
{
    static const struct option table[] = {
        {"layouts", required_argument, NULL, 'l'},
        {"steps", required_argument, NULL, 's'},
        {"ranks", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, 'x'},
        {"dtype", required_argument, NULL, 'd'},
        {"bits", no_argument, NULL, 'b'},
        {"device", required_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    const char *dtype = NULL;
    int c;
    while ((c = options_next(argc, argv, table)) != -1) {
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
        case 'd':
            dtype = optarg;
            break;
        case 'b':
            o->bits = true;
            break;
        case 'v':
            o->device = optarg;
            break;
        case 'h':
            *help_p = true;
            return true;
        default: /* it has been said */
            return false;
        }
    }
    o->type = find_type(dtype, o->bits);
    return true;
}

int bench_parity(loong_context_t *ctx, int argc, char **argv)
{
    options_t o = {.layouts = 10, .max_ranks = 16, .steps = 20,
                   .seed = (uint64_t)time(NULL) % 1000000007};
    bench_t *b = NULL;
    bool wants_help = false;
    if (!parse(argc, argv, &o, &wants_help)) {
        return LOONG_EXIT_USAGE;
    }
    if (wants_help) {
        return help();
    }
    if (optind == argc || o.layouts < 1 || o.steps < 1 || o.max_ranks < 2 ||
        o.type == NULL) {
        return bench_usage("parity",
                           optind == argc   ? "no recipe given"
                           : o.type == NULL ? "--dtype is fp64, fp32 or bf16"
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
    loongi_free(ctx, b->losses);
    loongi_free(ctx, b);
    return code != LOONG_EXIT_OK || removed == LOONG_OK
               ? code
               : bench_fail(ctx, removed);
}
