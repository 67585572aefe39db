/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench floor: the matrix products of one training step of a decoder, in
 * the order of the step, each layer with its own weights and gradients:
 * forward, gradient of the input, gradient of the weight added in the wide
 * type. The loss head goes in chunks of tokens. With adapters beside all linear
 * layers these have no gradients of weights, adapters have all three products,
 * and in front of the first layer nothing wants a gradient. A step can hardly
 * be faster than this. Called by loong_bench.c and loong_bench_step.c. Read
 * loong_bench.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong_bench.h"
#include "options.h"

/* Behind the layers' own products those of adapters: by a of what one input
 * goes into, by b of each. */
enum { LAYER_KINDS = 4, HEAD = LAYER_KINDS, KINDS = 14, PHASES = 3 };

static const char *const kind_name[KINDS] = {
    "qkv",      "attention output", "mlp up",   "mlp down", "loss head",
    "a of qkv", "a of output",      "a of up",  "a of down",
    "b of q",   "b of k and v",     "b of output", "b of up", "b of down"};
static const char *const phase_name[PHASES] = {"forward", "dX", "dW"};

/* What `floor` was asked for. */
typedef struct options {
    bench_model_t model;
    int steps;
    double seconds;
    bool json;
    bool cpu_time;
} options_t;

/* The products of one kind: one launch each, used with the weights and
 * gradients of every layer. */
typedef struct kind {
    int64_t rows, out, in; /* y [rows, out] = x [rows, in] w' */
    int64_t copies;        /* in all layers, or 1; 0: there are none */
    bool fixed;            /* no gradient of the weight */
    bool wide;             /* y in the wide type, as logits are */
    int64_t chunks;        /* launches per step and copy */
    loong_device_t *device;
    bench_item_t item[PHASES];
    void **weight;
    void **grad;
    bench_times_t times[PHASES];
} kind_t;

static void sizes(const bench_model_t *m, kind_t *kinds)
{
    int64_t q = m->heads * m->head_dim;
    int64_t kv = m->kv_heads * m->head_dim;
    int64_t ups = m->gated ? 2 : 1;
    int64_t r = m->rank;
    int64_t out[KINDS] = {q + 2 * kv, m->hidden, ups * m->ffn, m->hidden,
                          m->vocab,   3 * r,     r,            ups * r,
                          r,          q,         kv,           m->hidden,
                          m->ffn,     m->hidden};
    int64_t in[KINDS] = {m->hidden, q,         m->hidden, m->ffn, m->hidden,
                         m->hidden, q,         m->hidden, m->ffn, r,
                         r,         r,         r,         r};
    int64_t each[KINDS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, ups, 1};
    for (int k = 0; k < KINDS; k++) {
        bool head = k == HEAD;
        kinds[k].out = out[k];
        kinds[k].in = in[k];
        kinds[k].copies = head              ? 1
                          : k > HEAD && r == 0 ? 0
                                               : each[k] * m->layers;
        kinds[k].fixed = r > 0 && k <= HEAD;
        kinds[k].wide = head;
        kinds[k].chunks = head ? (m->tokens + m->chunk - 1) / m->chunk : 1;
        kinds[k].rows = m->tokens / kinds[k].chunks;
    }
}

static loong_tensor_type_t mat(loong_dtype_t dtype, int64_t rows, int64_t cols)
{
    loong_tensor_type_t t = {dtype, loong_shape_2d(rows, cols)};
    return t;
}

/* The launch of one phase, on the first layer's weight and gradient. */
static loong_status_t describe(loong_context_t *ctx, const bench_model_t *m,
                               const kind_t *k, int phase, bench_item_t *item)
{
    loong_linear_attr_t attr = {phase == 1, LOONG_ACT_NONE};
    loong_tensor_type_t x = mat(m->dtype, k->rows, k->in);
    loong_tensor_type_t y = mat(m->dtype, k->rows, k->out);
    loong_tensor_type_t w = mat(m->dtype, k->out, k->in);
    loong_tensor_type_t in[PHASES][2] = {{x, w}, {y, w}, {y, x}};
    const char *op = phase == 2 ? "linear_dw" : "linear";
    bench_spec_t spec = {op, &attr, 2, in[phase], m->threads};
    loong_status_t status = bench_item_describe(ctx, &spec, item);
    if (status != LOONG_OK) {
        return status;
    }
    if (phase == 2) {
        item->query.accumulate = item->accumulate = 1u;
        item->ptr[2] = k->grad[0];
    } else {
        item->ptr[1] = k->weight[0];
    }
    if (phase == 0 && k->wide) {
        item->query.arg[2].dtype = bench_wide(m->dtype); /* logits */
    }
    return bench_item_prepare(ctx, k->device, NULL, item);
}

static void fill_weight(const kind_t *k, loong_dtype_t dtype, void *weight)
{
    int64_t n = k->out * k->in;
    for (int64_t i = 0; i < n; i++) {
        float value = (float)((double)(i * 2654435761u % 2048) / 1024.0 - 1.0);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (dtype == LOONG_BF16) {
            ((uint16_t *)weight)[i] = (uint16_t)(bits >> 16);
        } else if (dtype == LOONG_F32) {
            ((float *)weight)[i] = value;
        } else {
            ((double *)weight)[i] = (double)value;
        }
    }
}

static size_t weight_bytes(const kind_t *k, loong_dtype_t dtype)
{
    return (size_t)(k->out * k->in) * loong_dtype_size(dtype);
}

static int phases_of(const kind_t *k)
{
    return k->fixed ? PHASES - 1 : PHASES;
}

static loong_status_t prepare_kind(loong_context_t *ctx,
                                   const bench_model_t *m, kind_t *k)
{
    loong_status_t status = LOONG_OK;
    if (k->copies == 0) {
        return LOONG_OK;
    }
    k->weight = calloc((size_t)k->copies, sizeof(void *));
    k->grad = calloc((size_t)k->copies, sizeof(void *));
    for (int64_t c = 0; status == LOONG_OK && c < k->copies; c++) {
        status = loong_device_alloc(k->device, weight_bytes(k, m->dtype),
                                    "weight", &k->weight[c]);
        if (status == LOONG_OK) {
            fill_weight(k, m->dtype, k->weight[c]);
        }
        if (status == LOONG_OK && !k->fixed) {
            status = loong_device_alloc(
                k->device, weight_bytes(k, bench_wide(m->dtype)), "gradient",
                &k->grad[c]);
        }
    }
    for (int phase = 0; status == LOONG_OK && phase < phases_of(k); phase++) {
        status = describe(ctx, m, k, phase, &k->item[phase]);
    }
    return status;
}

static loong_status_t prepare(loong_context_t *ctx, const bench_model_t *m,
                              kind_t *kinds)
{
    loong_device_t *device = NULL;
    loong_status_t status = loong_device_create(ctx, "cpu", 0, &device);
    for (int i = 0; status == LOONG_OK && i < KINDS; i++) {
        kinds[i].device = device;
        status = prepare_kind(ctx, m, &kinds[i]);
    }
    return status;
}

static void end(loong_context_t *ctx, const bench_model_t *m, kind_t *kinds)
{
    loong_device_t *device = kinds[0].device;
    for (int i = 0; i < KINDS; i++) {
        kind_t *k = &kinds[i];
        for (int phase = 0; phase < PHASES; phase++) {
            bench_item_end(ctx, &k->item[phase]);
            free(k->times[phase].ms);
        }
        for (int64_t c = 0; k->weight != NULL && c < k->copies; c++) {
            loong_device_free(device, k->weight[c], weight_bytes(k, m->dtype));
            if (!k->fixed) {
                loong_device_free(device, k->grad[c],
                                  weight_bytes(k, bench_wide(m->dtype)));
            }
        }
        free(k->weight);
        free(k->grad);
    }
    loong_device_destroy(&device);
}

static loong_status_t launch(loong_context_t *ctx, kind_t *k, int phase,
                             int64_t copy, double *ms)
{
    bench_item_t *item = &k->item[phase];
    double begin = bench_now();
    if (phase == 2) {
        item->ptr[2] = k->grad[copy];
    } else {
        item->ptr[1] = k->weight[copy];
    }
    loong_status_t status = bench_item_run(ctx, item);
    *ms += 1e3 * (bench_now() - begin);
    return status;
}

/* What is multiplied with embeddings, of which nothing wants a gradient beside
 * adapters. */
static bool is_first(const kind_t *kinds, int k)
{
    return kinds[0].fixed && (k == 0 || k == HEAD + 1);
}

/* Of all copies of a kind in layer l. */
static loong_status_t launch_layer(loong_context_t *ctx, kind_t *kinds, int k,
                                   int phase, int64_t l,
                                   double ms[KINDS][PHASES])
{
    loong_status_t status = LOONG_OK;
    int64_t each = kinds[k].copies / kinds[0].copies;
    for (int64_t c = 0; c < each && status == LOONG_OK; c++) {
        status = launch(ctx, &kinds[k], phase, l * each + c, &ms[k][phase]);
    }
    return status;
}

/* All products once, in the order of a step; ms[kind][phase] receives times.
 */
static loong_status_t step(loong_context_t *ctx, kind_t *kinds,
                           double ms[KINDS][PHASES])
{
    loong_status_t status = LOONG_OK;
    kind_t *head = &kinds[HEAD];
    int64_t layers = kinds[0].copies;
    memset(ms, 0, sizeof(double) * KINDS * PHASES);
    for (int64_t l = 0; l < layers; l++) {
        for (int k = 0; k < KINDS && status == LOONG_OK; k++) {
            status = k == HEAD ? LOONG_OK
                               : launch_layer(ctx, kinds, k, 0, l, ms);
        }
    }
    for (int64_t c = 0; c < head->chunks; c++) {
        for (int p = 0; p < phases_of(head) && status == LOONG_OK; p++) {
            status = launch(ctx, head, p, 0, &ms[HEAD][p]);
        }
    }
    for (int64_t l = layers - 1; l >= 0; l--) {
        for (int k = KINDS - 1; k >= 0 && status == LOONG_OK; k--) {
            if (k != HEAD && !kinds[k].fixed) {
                status = launch_layer(ctx, kinds, k, 2, l, ms);
            }
            if (k != HEAD && status == LOONG_OK &&
                !(l == 0 && is_first(kinds, k))) {
                status = launch_layer(ctx, kinds, k, 1, l, ms);
            }
        }
    }
    return status;
}

static double flops(const kind_t *kinds, int k, int phase)
{
    const kind_t *of = &kinds[k];
    int64_t copies = of->copies - (phase == 1 && is_first(kinds, k) ? 1 : 0);
    return 2.0 * (double)of->rows * (double)of->out * (double)of->in *
           (double)copies * (double)of->chunks;
}

static void print(const options_t *o, kind_t *kinds, bench_times_t *steps)
{
    const bench_model_t *m = &o->model;
    double total = 0.0;
    double median = bench_median(steps);
    double best = bench_best(steps);
    for (int k = 0; k < KINDS; k++) {
        for (int p = 0; p < phases_of(&kinds[k]); p++) {
            total += flops(kinds, k, p);
        }
    }
    if (o->json) {
        printf("{\"bench\":\"floor\",\"dtype\":\"%s\",\"threads\":%d,"
               "\"tokens\":%lld,\"gflop\":%.6g,\"ms_best\":%.6g,"
               "\"ms_median\":%.6g,\"gflops\":%.6g,\"runs\":%d",
               loong_dtype_name(m->dtype), m->threads, (long long)m->tokens,
               total * 1e-9, best, median, total / median * 1e-6, steps->count);
    } else {
        printf("%-18s %-8s %-26s %9s %9s %8s\n", "product", "phase", "kernel",
               "best ms", "median", "GFLOP/s");
    }
    for (int k = 0; k < KINDS; k++) {
        for (int p = 0; p < phases_of(&kinds[k]) && kinds[k].copies > 0; p++) {
            bench_times_t *t = &kinds[k].times[p];
            double mid = bench_median(t);
            if (o->json) {
                printf(",\"%s %s\":%.6g", kind_name[k], phase_name[p], mid);
            } else {
                printf("%-18s %-8s %-26s %9.2f %9.2f %8.1f\n", kind_name[k],
                       phase_name[p], kinds[k].item[p].kernel->name,
                       bench_best(t), mid, flops(kinds, k, p) / mid * 1e-6);
            }
        }
    }
    if (o->json) {
        printf("}\n");
    } else {
        printf("%-18s %-8s %-26s %9.2f %9.2f %8.1f   (%d steps)\n", "step", "",
               "", best, median, total / median * 1e-6, steps->count);
    }
}

static loong_status_t measure(loong_context_t *ctx, kind_t *kinds,
                              const options_t *o, bench_times_t *times)
{
    double (*now)(void) = o->cpu_time ? bench_cpu_now : bench_now;
    double ms[KINDS][PHASES];
    double stop = bench_now() + o->seconds;
    for (int i = 0; i <= o->steps || bench_now() < stop; i++) {
        double begin = now();
        loong_status_t status = step(ctx, kinds, ms);
        if (status != LOONG_OK) {
            return status;
        }
        if (i == 0) {
            continue; /* warm up */
        }
        bench_times_add(times, 1e3 * (now() - begin));
        for (int k = 0; k < KINDS; k++) {
            for (int p = 0; p < PHASES; p++) {
                bench_times_add(&kinds[k].times[p], ms[k][p]);
            }
        }
    }
    return LOONG_OK;
}

loong_status_t bench_floor_times(loong_context_t *ctx,
                                 const bench_model_t *model, int steps,
                                 double seconds, bench_times_t *times)
{
    kind_t kinds[KINDS];
    options_t o = {.steps = steps, .seconds = seconds};
    memset(kinds, 0, sizeof(kinds));
    sizes(model, kinds);
    loong_status_t status = prepare(ctx, model, kinds);
    if (status == LOONG_OK) {
        status = measure(ctx, kinds, &o, times);
    }
    end(ctx, model, kinds);
    return status;
}

static int run(loong_context_t *ctx, const options_t *o)
{
    kind_t kinds[KINDS];
    bench_times_t steps = {NULL, 0, 0};
    memset(kinds, 0, sizeof(kinds));
    sizes(&o->model, kinds);
    loong_status_t status = prepare(ctx, &o->model, kinds);
    if (status == LOONG_OK) {
        status = measure(ctx, kinds, o, &steps);
    }
    if (status == LOONG_OK) {
        print(o, kinds, &steps);
    }
    end(ctx, &o->model, kinds);
    free(steps.ms);
    return status == LOONG_OK ? LOONG_EXIT_OK : bench_fail(ctx, status);
}

static int help(void)
{
    printf("usage: loong-bench floor [OPTION]... [RECIPE [a.b=c]...]\n\n"
           "Times the matrix products of one micro-batch of training: of a "
           "recipe, or of\nthe sizes given (defaults: the Llama shape).\n\n"
           "  --layers N       8\n"
           "  --hidden N       512\n"
           "  --heads N        8\n"
           "  --kv-heads N     4\n"
           "  --head-dim N     hidden / heads\n"
           "  --ffn N          1408\n"
           "  --vocab N        32000\n"
           "  --tokens N       2048, of a micro-batch\n"
           "  --chunk N        512, tokens of the loss head at a time\n"
           "  --act ACT        swiglu (gate and up in one product) or gelu\n"
           "  --dtype TYPE     bf16, fp32\n"
           "  --threads N      OMP_NUM_THREADS or the processors\n"
           "  --steps N        at least so many, 9\n"
           "  --seconds S      and at least so long, 10\n"
           "  --rank N         of adapters beside all linear layers, 0\n"
           "  --cpu-time       processor time, for a busy machine; one thread\n"
           "  --json           one line of JSON, with ms_median\n");
    return LOONG_EXIT_OK;
}

/* Options that are whole numbers, by their letter. */
static int64_t *number_of(bench_model_t *m, int letter)
{
    int64_t *const numbers[] = {&m->layers,   &m->hidden,   &m->heads,
                                &m->kv_heads, &m->head_dim, &m->ffn,
                                &m->vocab,    &m->tokens,   &m->chunk,
                                &m->rank};
    static const char letters[] = "lHnkDfvTcr";
    const char *at = strchr(letters, letter);
    return at != NULL && letter != 0 ? numbers[at - letters] : NULL;
}

static int parse(int argc, char **argv, options_t *o)
{
    static const struct option table[] = {
        {"layers", required_argument, NULL, 'l'},
        {"hidden", required_argument, NULL, 'H'},
        {"heads", required_argument, NULL, 'n'},
        {"kv-heads", required_argument, NULL, 'k'},
        {"head-dim", required_argument, NULL, 'D'},
        {"ffn", required_argument, NULL, 'f'},
        {"vocab", required_argument, NULL, 'v'},
        {"tokens", required_argument, NULL, 'T'},
        {"chunk", required_argument, NULL, 'c'},
        {"rank", required_argument, NULL, 'r'},
        {"act", required_argument, NULL, 'a'},
        {"dtype", required_argument, NULL, 'd'},
        {"threads", required_argument, NULL, 't'},
        {"steps", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 'S'},
        {"json", no_argument, NULL, 'j'},
        {"cpu-time", no_argument, NULL, 'C'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    bench_model_t *m = &o->model;
    int c;
    while ((c = options_next(argc, argv, table)) != -1) {
        int64_t *number = number_of(m, c);
        if (number != NULL) {
            char *rest = NULL;
            *number = strtoll(optarg, &rest, 10);
            if (*rest != '\0' || *number < 1) {
                return bench_usage("floor",
                                   "'%s' is not a whole number of at "
                                   "least 1",
                                   optarg);
            }
        } else if (c == 'a' && (strcmp(optarg, "swiglu") == 0 ||
                                strcmp(optarg, "gelu") == 0)) {
            m->gated = optarg[0] == 's';
        } else if (c == 'd' && bench_dtype("floor", optarg, &m->dtype)) {
            continue;
        } else if (c == 't') {
            m->threads = atoi(optarg);
        } else if (c == 's') {
            o->steps = atoi(optarg);
        } else if (c == 'S') {
            o->seconds = atof(optarg);
        } else if (c == 'j') {
            o->json = true;
        } else if (c == 'C') {
            o->cpu_time = true;
        } else if (c == 'h') {
            return -1;
        } else if (c == '?') { /* it has been said */
            return LOONG_EXIT_USAGE;
        } else {
            return bench_usage("floor", "'%s' is not allowed", optarg);
        }
    }
    return LOONG_EXIT_OK;
}

static void llama_shape(bench_model_t *m)
{
    memset(m, 0, sizeof(*m));
    m->layers = 8;
    m->hidden = 512;
    m->heads = 8;
    m->kv_heads = 4;
    m->ffn = 1408;
    m->vocab = 32000;
    m->tokens = 2048;
    m->chunk = 512;
    m->gated = true;
    m->dtype = LOONG_BF16;
    m->threads = bench_threads();
}

int bench_floor(loong_context_t *ctx, int argc, char **argv)
{
    options_t o;
    bench_model_t *m = &o.model;
    memset(&o, 0, sizeof(o));
    llama_shape(m);
    o.steps = 9;
    o.seconds = 10.0;
    int code = parse(argc, argv, &o);
    if (code != LOONG_EXIT_OK) {
        return code < 0 ? help() : code;
    }
    if (optind < argc) {
        loong_recipe_t *recipe = NULL;
        int64_t micro_batches = 0;
        loong_status_t status = bench_recipe(
            ctx, argv[optind], argc - optind - 1,
            (const char *const *)argv + optind + 1, &recipe);
        if (status != LOONG_OK) {
            return bench_fail(ctx, status);
        }
        int threads = m->threads;
        *m = bench_model_of(ctx, recipe, &micro_batches);
        m->threads = threads;
        loong_recipe_destroy(&recipe);
        if (m->experts) {
            return bench_usage("floor", "'%s' has experts, whose products are "
                                        "not counted here: only models "
                                        "without",
                               argv[optind]);
        }
    }
    if (m->threads < 1 || o.steps < 1 || m->heads % m->kv_heads != 0) {
        return bench_usage("floor", "--threads and --steps must be positive, "
                                    "--heads a multiple of --kv-heads");
    }
    if (o.cpu_time && m->threads != 1) {
        return bench_usage("floor", "--cpu-time needs --threads 1");
    }
    if (m->head_dim == 0) {
        m->head_dim = m->hidden / m->heads;
    }
    return run(ctx, &o);
}
