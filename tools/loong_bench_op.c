/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench op: every kernel of an op on one shape, in turn, for some
 * seconds. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/moe.h"
#include "loong/rope.h"
#include "loong_bench.h"

enum { MAX_KERNELS = 16 };

typedef struct options {
    const char *op;
    const char *device;
    loong_dtype_t dtype;
    int64_t shape[BENCH_SHAPE];
    int num_shape;
    int threads;
    double seconds;
    bool reference;
    bool accumulate;
    bool cpu_time;
    bool json;
} options_t;

static loong_tensor_type_t mat(loong_dtype_t dtype, int64_t rows, int64_t cols)
{
    loong_tensor_type_t t = {dtype, loong_shape_2d(rows, cols)};
    return t;
}

static loong_tensor_type_t vec(loong_dtype_t dtype, int64_t size)
{
    loong_tensor_type_t t = {dtype, loong_shape_1d(size)};
    return t;
}

static loong_status_t describe_linear(loong_context_t *ctx, const options_t *o,
                                      bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[2]),
                                 mat(o->dtype, s[1], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* The gradient of x: a linear that takes w transposed. */
static loong_status_t describe_linear_dx(loong_context_t *ctx,
                                         const options_t *o, bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_attr_t attr = {true, LOONG_ACT_NONE};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[1]),
                                 mat(o->dtype, s[1], s[2])};
    bench_spec_t spec = {"linear", &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_linear_dw(loong_context_t *ctx,
                                         const options_t *o, bench_item_t *item)
{
    const int64_t *s = o->shape;
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[1]),
                                 mat(o->dtype, s[0], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_attention(loong_context_t *ctx,
                                         const options_t *o, bench_item_t *item)
{
    const int64_t *s = o->shape; /* B, T, heads, kv heads, q and k, v */
    bool grad = strstr(o->op, "_grad") != NULL;
    loong_attention_attr_t attr;
    memset(&attr, 0, sizeof(attr));
    attr.backend = strstr(o->op, "fused") != NULL ? LOONG_ATTENTION_FUSED
                                                  : LOONG_ATTENTION_LOCAL;
    attr.heads = (int)s[2];
    attr.kv_heads = (int)s[3];
    attr.head_dim = (int)s[4];
    attr.v_head_dim = (int)s[5];
    attr.causal = true;
    attr.max_seqlen = s[1];
    attr.scale = 1.0 / sqrt((double)s[4]);
    loong_tensor_type_t q = mat(o->dtype, s[0] * s[1], s[2] * s[4]);
    loong_tensor_type_t k = mat(o->dtype, s[0] * s[1], s[3] * s[4]);
    loong_tensor_type_t v = mat(o->dtype, s[0] * s[1], s[3] * s[5]);
    loong_tensor_type_t out = mat(o->dtype, s[0] * s[1], s[2] * s[5]);
    loong_tensor_type_t lse = mat(bench_wide(o->dtype), s[0] * s[1], s[2]);
    loong_tensor_type_t cu = vec(LOONG_I32, s[0] + 1);
    loong_tensor_type_t forward[4] = {q, k, v, cu};
    loong_tensor_type_t backward[7] = {out, q, k, v, out, lse, cu};
    bench_spec_t spec = {grad ? "attention_grad" : "attention", &attr,
                         grad ? 7 : 4, grad ? backward : forward, o->threads};
    loong_status_t status = bench_item_describe(ctx, &spec, item);
    item->cu_operand = grad ? 6 : 3;
    item->segment = s[1];
    return status;
}

static loong_status_t describe_loss(loong_context_t *ctx, const options_t *o,
                                    bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, vocab, hidden */
    loong_cross_entropy_attr_t attr = {.vocab = s[1]};
    loong_tensor_type_t in[4] = {
        mat(o->dtype, s[0], s[2]), mat(o->dtype, s[1], s[2]),
        vec(LOONG_I32, s[0]), vec(bench_wide(o->dtype), s[0])};
    bench_spec_t spec = {o->op, &attr, 4, in, o->threads};
    loong_status_t status = bench_item_describe(ctx, &spec, item);
    item->ids = s[1];
    return status;
}

/* Experts with equal numbers of rows. */
static loong_status_t describe_grouped(loong_context_t *ctx,
                                       const options_t *o, bench_item_t *item)
{
    const int64_t *s = o->shape; /* experts, rows of each, N, K */
    bool dw = strcmp(o->op, "grouped_linear_dw") == 0;
    bool dx = strcmp(o->op, "grouped_linear_dx") == 0;
    loong_grouped_linear_attr_t attr = {dx, 1.0};
    loong_tensor_type_t x = mat(o->dtype, s[0] * s[1], s[3]);
    loong_tensor_type_t y = mat(o->dtype, s[0] * s[1], s[2]);
    loong_tensor_type_t w = {o->dtype, {3, -1, {s[0], s[2], s[3], 0}}};
    loong_tensor_type_t offsets = vec(LOONG_I32, s[0] + 1);
    loong_tensor_type_t forward[3] = {x, w, offsets};
    loong_tensor_type_t grad_x[3] = {y, w, offsets};
    loong_tensor_type_t grad_w[3] = {y, x, offsets};
    bench_spec_t spec = {dx ? "grouped_linear" : o->op, &attr, 3,
                         dx ? grad_x : dw ? grad_w : forward, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_permute(loong_context_t *ctx,
                                       const options_t *o, bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, experts of a token, H */
    bool back = strcmp(o->op, "unpermute") == 0;
    loong_tensor_type_t in[4] = {
        mat(o->dtype, back ? s[0] * s[1] : s[0], s[2]),
        vec(LOONG_I32, s[0] * s[1]), mat(LOONG_I32, s[0], s[1]),
        mat(bench_wide(o->dtype), s[0], s[1])};
    bench_spec_t spec = {o->op, NULL, back ? 4 : 3, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* Ops of one or two tensors [T,H]. */
static loong_status_t describe_pointwise(loong_context_t *ctx,
                                         const options_t *o, bench_item_t *item)
{
    loong_gelu_attr_t attr = {true};
    loong_tensor_type_t x = mat(o->dtype, o->shape[0], o->shape[1]);
    loong_tensor_type_t in[2] = {x, x};
    const loong_op_t *op = loong_find_op(ctx, o->op);
    if (strcmp(o->op, "swiglu_grad") == 0) {
        in[0] = mat(o->dtype, o->shape[0], o->shape[1] / 2);
    }
    bench_spec_t spec = {o->op, &attr, op->min_in, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* To the wide type. */
static loong_status_t describe_cast(loong_context_t *ctx, const options_t *o,
                                    bench_item_t *item)
{
    loong_cast_attr_t attr = {bench_wide(o->dtype)};
    loong_tensor_type_t in[1] = {mat(o->dtype, o->shape[0], o->shape[1])};
    bench_spec_t spec = {o->op, &attr, 1, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_rope(loong_context_t *ctx, const options_t *o,
                                    bench_item_t *item)
{
    const int64_t *s = o->shape; /* T, heads, head_dim */
    loong_rope_attr_t attr = {(int)s[2], false, false, 0};
    loong_tensor_type_t in[2] = {mat(o->dtype, s[0], s[1] * s[2]),
                                 mat(bench_wide(o->dtype), s[0], s[2])};
    bench_spec_t spec = {o->op, &attr, 2, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

static loong_status_t describe_norm(loong_context_t *ctx, const options_t *o,
                                    bench_item_t *item)
{
    loong_norm_attr_t attr = {1e-6};
    loong_dtype_t wide = bench_wide(o->dtype);
    loong_tensor_type_t x = mat(o->dtype, o->shape[0], o->shape[1]);
    loong_tensor_type_t w = vec(wide, o->shape[1]);
    loong_tensor_type_t one = mat(wide, o->shape[0], 1);
    loong_tensor_type_t plain[3] = {x, w, w};
    loong_tensor_type_t add[4] = {x, x, w, w};
    loong_tensor_type_t rms_grad[4] = {x, x, w, one};
    loong_tensor_type_t layer_grad[5] = {x, x, w, one, one};
    bool layer = strstr(o->op, "layer") != NULL;
    const loong_tensor_type_t *in = plain;
    int count = layer ? 3 : 2;
    if (strncmp(o->op, "add_", 4) == 0) {
        in = add;
        count++;
    } else if (strstr(o->op, "_grad") != NULL) {
        in = layer ? layer_grad : rms_grad;
        count = layer ? 5 : 4;
    }
    bench_spec_t spec = {o->op, &attr, count, in, o->threads};
    return bench_item_describe(ctx, &spec, item);
}

/* A step of update programs, with moments as the name says: no shape rule. */
static loong_status_t describe_adamw(loong_context_t *ctx, const options_t *o,
                                     bench_item_t *item)
{
    int64_t n = o->shape[0];
    static loong_adamw_piece_t whole;
    bool bf16 = strcmp(o->op, "adamw") != 0;
    loong_adamw_attr_t attr = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
        .num_pieces = strcmp(o->op, "adamw_stochastic") == 0,
        .pieces = &whole};
    loong_dtype_t wide = bench_wide(o->dtype);
    loong_dtype_t moment = bf16 ? LOONG_BF16 : wide;
    const loong_dtype_t dtypes[] = {wide, o->dtype, LOONG_U16, moment, moment};
    (void)ctx;
    whole.run = whole.stride = n;
    memset(item, 0, sizeof(*item));
    memcpy(item->attr, &attr, sizeof(attr));
    item->cu_operand = -1;
    item->frame.grad_scale = 1.0;
    item->frame.lr[0] = 1e-3;
    item->query.op = "adamw";
    item->query.num_in = 1;
    item->query.num_out = 4;
    item->query.threads = o->threads;
    for (int i = 0; i < 5; i++) {
        int rank = i != 2 || o->dtype == LOONG_BF16;
        item->query.arg[i] =
            (loong_karg_t){dtypes[i], rank, -1, {n, 0, 0, 0}, n};
    }
    return LOONG_OK;
}

static const struct {
    const char *name;
    const char *shape;
    int num_shape;
    const char *usual; /* shape when none is given */
    loong_status_t (*describe)(loong_context_t *, const options_t *,
                               bench_item_t *);
} ops[] = {
    {"linear", "T,N,K", 3, "2048,2816,512", describe_linear},
    {"linear_dx", "T,N,K", 3, "2048,2816,512", describe_linear_dx},
    {"linear_dw", "T,N,K", 3, "2048,2816,512", describe_linear_dw},
    {"grouped_linear", "E,rows,N,K", 4, "32,64,1536,512", describe_grouped},
    {"grouped_linear_dx", "E,rows,N,K", 4, "32,64,1536,512",
     describe_grouped},
    {"grouped_linear_dw", "E,rows,N,K", 4, "32,64,1536,512",
     describe_grouped},
    {"permute", "T,k,H", 3, "1024,8,512", describe_permute},
    {"unpermute", "T,k,H", 3, "1024,8,512", describe_permute},
    {"attention", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"attention_grad", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"attention_fused", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"attention_fused_grad", "B,T,heads,kv,d,v", 6, "4,512,8,4,64,64",
     describe_attention},
    {"cross_entropy", "T,V,H", 3, "2048,32000,512", describe_loss},
    {"swiglu", "T,2F", 2, "2048,2816", describe_pointwise},
    {"swiglu_grad", "T,2F", 2, "2048,2816", describe_pointwise},
    {"gelu", "T,H", 2, "1024,3072", describe_pointwise},
    {"gelu_grad", "T,H", 2, "1024,3072", describe_pointwise},
    {"add", "T,H", 2, "2048,512", describe_pointwise},
    {"copy", "T,H", 2, "2048,512", describe_pointwise},
    {"cast", "T,H", 2, "2048,512", describe_cast},
    {"rope", "T,heads,d", 3, "2048,8,64", describe_rope},
    {"sum_rows", "T,H", 2, "1024,3072", describe_pointwise},
    {"rmsnorm", "T,H", 2, "2048,512", describe_norm},
    {"add_rmsnorm", "T,H", 2, "2048,512", describe_norm},
    {"rmsnorm_grad", "T,H", 2, "2048,512", describe_norm},
    {"layernorm", "T,H", 2, "1024,768", describe_norm},
    {"add_layernorm", "T,H", 2, "1024,768", describe_norm},
    {"layernorm_grad", "T,H", 2, "1024,768", describe_norm},
    {"adamw", "N", 1, "67108864", describe_adamw},
    {"adamw_bf16", "N", 1, "67108864", describe_adamw},
    {"adamw_stochastic", "N", 1, "67108864", describe_adamw},
};
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

static int find_op(const char *name)
{
    for (int i = 0; i < OPS; i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static void print_header(const options_t *o)
{
    if (!o->json) {
        printf("%-16s %-26s %-22s %9s %9s %8s %8s %5s\n", "op", "kernel",
               "shape", "best ms", "median", "GFLOP/s", "GB/s", "runs");
    }
}

static void print_result(const options_t *o, const bench_item_t *item,
                         bench_times_t *times)
{
    char shape[96] = "";
    double median = bench_median(times);
    double best = bench_best(times);
    for (int i = 0; i < o->num_shape; i++) {
        size_t at = strlen(shape);
        snprintf(shape + at, sizeof(shape) - at, "%s%" PRId64, i > 0 ? "," : "",
                 o->shape[i]);
    }
    if (o->json) {
        printf("{\"op\":\"%s\",\"kernel\":\"%s\",\"dtype\":\"%s\","
               "\"device\":\"%s\",\"shape\":[%s],\"threads\":%d,"
               "\"ms_best\":%.6g,\"ms_median\":%.6g,\"gflops\":%.6g,"
               "\"gbytes_per_s\":%.6g,\"runs\":%d}\n",
               o->op, item->kernel->name, loong_dtype_name(o->dtype),
               loong_device_name(item->device), shape, o->threads, best,
               median, item->cost.flops / median * 1e-6,
               item->cost.bytes / median * 1e-6, times->count);
        return;
    }
    printf("%-16s %-26s %-22s %9.3f %9.3f %8.1f %8.1f %5d\n", o->op,
           item->kernel->name, shape, best, median,
           item->cost.flops / median * 1e-6, item->cost.bytes / median * 1e-6,
           times->count);
}

/* `launches` of an item, until the device has done them; *ms_p: each. */
static loong_status_t timed(loong_context_t *ctx, const options_t *o,
                            const bench_item_t *item, int launches,
                            double *ms_p)
{
    double (*now)(void) = o->cpu_time ? bench_cpu_now : bench_now;
    double begin = now();
    loong_status_t status = LOONG_OK;
    for (int i = 0; status == LOONG_OK && i < launches; i++) {
        status = bench_item_run(ctx, item);
    }
    if (status == LOONG_OK) {
        status = loong_device_synchronize(item->device, "an op");
    }
    *ms_p = 1e3 * (now() - begin) / launches;
    return status;
}

/* Rounds over all items until the time is over; at least three rounds. Where
 * launches do not wait for the device, so many at a time that waiting does not
 * count. */
static loong_status_t measure(loong_context_t *ctx, const options_t *o,
                              int count, const bench_item_t *items,
                              bench_times_t *times)
{
    int launches[MAX_KERNELS];
    double ms = 0.0;
    for (int i = 0; i < count; i++) {
        for (int warm = 0; warm < 2; warm++) {
            loong_status_t status = timed(ctx, o, &items[i], 1, &ms);
            if (status != LOONG_OK) {
                return status;
            }
        }
        bool waits = items[i].device_frame == NULL;
        launches[i] = waits || ms > 10.0 ? 1 : (int)(10.0 / ms) + 1;
    }
    double end = bench_now() + o->seconds;
    for (int round = 0; round < 3 || bench_now() < end; round++) {
        for (int i = 0; i < count; i++) {
            loong_status_t status = timed(ctx, o, &items[i], launches[i], &ms);
            if (status != LOONG_OK) {
                return status;
            }
            bench_times_add(&times[i], ms);
        }
    }
    return LOONG_OK;
}

/* The kernels of the device that take the query, ready to run. */
static loong_status_t prepare(loong_context_t *ctx, const options_t *o,
                              loong_device_t *device, bench_item_t *model,
                              int *count_p, bench_item_t *items)
{
    loong_status_t status = LOONG_OK;
    model->query.attr = model->attr;
    model->query.accumulate = model->accumulate = o->accumulate ? ~0u : 0u;
    for (int i = 0; status == LOONG_OK && *count_p < MAX_KERNELS; i++) {
        char reason[LOONG_REASON_SIZE] = "";
        const loong_kernel_t *k = loong_find_kernel(
            ctx, model->query.op, loong_device_name(device), i);
        if (k == NULL) {
            if (i == 0 && !o->json) {
                printf("%-16s no kernel for %s\n", o->op,
                       loong_device_name(device));
            }
            break;
        }
        if (strstr(k->name, "_ref") != NULL && !o->reference) {
            continue;
        }
        if (k->support != NULL && !k->support(&model->query, reason)) {
            if (!o->json) {
                printf("%-16s %-26s refused: %s\n", o->op, k->name, reason);
            }
            continue;
        }
        bench_item_t *item = &items[(*count_p)++];
        *item = *model;
        status = bench_item_prepare(ctx, device, k, item);
    }
    return status;
}

static int run_op(loong_context_t *ctx, const options_t *o,
                  loong_device_t *device, int index)
{
    static bench_item_t items[MAX_KERNELS];
    bench_times_t times[MAX_KERNELS];
    bench_item_t model;
    int count = 0;
    memset(times, 0, sizeof(times));
    if (strstr(o->op, "fused") != NULL &&
        !loong_device_has_fused_attention(device)) {
        if (!o->json) {
            printf("%-16s no cuDNN on %s\n", o->op, loong_device_name(device));
        }
        return LOONG_EXIT_OK;
    }
    loong_status_t status = ops[index].describe(ctx, o, &model);
    if (status == LOONG_OK) {
        status = prepare(ctx, o, device, &model, &count, items);
    }
    if (status == LOONG_OK) {
        status = measure(ctx, o, count, items, times);
    }
    for (int i = 0; i < count; i++) {
        if (status == LOONG_OK) {
            print_result(o, &items[i], &times[i]);
        }
        bench_item_end(ctx, &items[i]);
        free(times[i].ms);
    }
    return status == LOONG_OK ? LOONG_EXIT_OK : bench_fail(ctx, status);
}

static int help(void)
{
    printf("usage: loong-bench op [OPTION]...\n\n"
           "Times every kernel of an op (all ops when none is named), in turn,"
           "\nuntil the time is over.\n\n"
           "  --op NAME          one of the ops below\n"
           "  --device NAME      cpu (default), cuda\n"
           "  --shape A,B,...    its sizes\n"
           "  --dtype TYPE       bf16 (default), fp32, fp64\n"
           "  --threads N        default: OMP_NUM_THREADS or the processors\n"
           "  --seconds S        per op, default 2\n"
           "  --cpu-time         processor time, for a busy machine; one "
           "thread\n"
           "  --accumulate       add to the outputs where the op can\n"
           "  --reference        reference kernels too (slow)\n"
           "  --json             one JSON object a line\n\n"
           "%-16s %-18s %s\n",
           "op", "shape", "default");
    for (int i = 0; i < OPS; i++) {
        printf("%-16s %-18s %s\n", ops[i].name, ops[i].shape, ops[i].usual);
    }
    return LOONG_EXIT_OK;
}

static int run_all(loong_context_t *ctx, options_t *o, loong_device_t *device,
                   const char *shape)
{
    const char *only = o->op;
    print_header(o);
    for (int i = 0; i < OPS; i++) {
        if (only != NULL && strcmp(ops[i].name, only) != 0) {
            continue;
        }
        o->op = ops[i].name;
        const char *text = shape != NULL ? shape : ops[i].usual;
        o->num_shape = bench_shape("op", text, o->shape);
        if (o->num_shape == 0) {
            return LOONG_EXIT_USAGE;
        }
        if (o->num_shape != ops[i].num_shape) {
            return bench_usage("op", "--shape '%s': %s takes %s", text,
                               ops[i].name, ops[i].shape);
        }
        int code = run_op(ctx, o, device, i);
        if (code != LOONG_EXIT_OK) {
            return code;
        }
    }
    return LOONG_EXIT_OK;
}

/* LOONG_EXIT_OK, or -1 after --help was asked for. */
static int parse(int argc, char **argv, options_t *o, const char **shape_p)
{
    static const struct option table[] = {
        {"op", required_argument, NULL, 'o'},
        {"device", required_argument, NULL, 'D'},
        {"shape", required_argument, NULL, 's'},
        {"dtype", required_argument, NULL, 'd'},
        {"threads", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 'S'},
        {"accumulate", no_argument, NULL, 'a'},
        {"cpu-time", no_argument, NULL, 'c'},
        {"reference", no_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'o' && find_op(optarg) >= 0) {
            o->op = optarg;
        } else if (c == 'o') {
            return bench_usage("op",
                               "--op '%s' is none of the ops that "
                               "--help lists",
                               optarg);
        } else if (c == 'D') {
            o->device = optarg;
        } else if (c == 's') {
            *shape_p = optarg;
        } else if (c == 'd') {
            if (!bench_dtype("op", optarg, &o->dtype)) {
                return LOONG_EXIT_USAGE;
            }
        } else if (c == 't') {
            o->threads = atoi(optarg);
        } else if (c == 'S') {
            o->seconds = atof(optarg);
        } else if (c == 'a') {
            o->accumulate = true;
        } else if (c == 'c') {
            o->cpu_time = true;
        } else if (c == 'r') {
            o->reference = true;
        } else if (c == 'j') {
            o->json = true;
        } else if (c == 'h') {
            return -1;
        } else {
            return bench_usage("op", "unknown option");
        }
    }
    return LOONG_EXIT_OK;
}

int bench_op(loong_context_t *ctx, int argc, char **argv)
{
    options_t o;
    const char *shape = NULL;
    memset(&o, 0, sizeof(o));
    o.device = "cpu";
    o.dtype = LOONG_BF16;
    o.threads = bench_threads();
    o.seconds = 2.0;
    int code = parse(argc, argv, &o, &shape);
    if (code != LOONG_EXIT_OK) {
        return code < 0 ? help() : code;
    }
    if (optind < argc) {
        return bench_usage("op", "'%s' is not an option", argv[optind]);
    }
    if (o.threads < 1 || !(o.seconds >= 0.0)) {
        return bench_usage("op", "--threads and --seconds must be positive");
    }
    if (o.cpu_time && (o.threads != 1 || strcmp(o.device, "cpu") != 0)) {
        return bench_usage("op", "--cpu-time needs --threads 1 and --device "
                                 "cpu: it is the time of one thread");
    }
    if (shape != NULL && o.op == NULL) {
        return bench_usage("op", "--shape needs --op");
    }
    loong_device_t *device = NULL;
    loong_status_t status = loong_device_create(ctx, o.device, 0, &device);
    if (status != LOONG_OK) {
        return bench_fail(ctx, status);
    }
    code = run_all(ctx, &o, device, shape);
    loong_device_destroy(&device);
    return code;
}
