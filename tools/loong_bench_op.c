/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench op: every kernel of an op on one shape, in turn, for some
 * seconds, and between them a copy of as many bytes. Called by loong_bench.c.
 * Read loong_bench_ops.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong_bench_ops.h"
#include "options.h"

enum { MAX_KERNELS = 16 };

typedef struct options {
    bench_request_t of; /* its op: NULL: all of them */
    const char *device;
    double seconds;
    bool reference;
    bool accumulate;
    bool cpu_time;
    bool json;
} options_t;

static const bench_op_kind_t *find_op(const char *name)
{
    const bench_op_kind_t *kind = NULL;
    for (int i = 0; (kind = bench_op_kind(i)) != NULL; i++) {
        if (strcmp(kind->name, name) == 0) {
            break;
        }
    }
    return kind;
}

static void print_header(const options_t *o)
{
    if (!o->json) {
        printf("%-18s %-26s %-22s %9s %9s %8s %8s %5s %6s\n", "op", "kernel",
               "shape", "best ms", "median", "GFLOP/s", "GB/s", "runs",
               "copy");
    }
}

/* share: of the rate of a copy. */
static void print_result(const options_t *o, const bench_item_t *item,
                         double share, bench_times_t *times)
{
    char shape[96] = "";
    double median = bench_median(times);
    double best = bench_best(times);
    for (int i = 0; i < o->of.num_shape; i++) {
        size_t at = strlen(shape);
        snprintf(shape + at, sizeof(shape) - at, "%s%" PRId64, i > 0 ? "," : "",
                 o->of.shape[i]);
    }
    if (o->json) {
        printf("{\"op\":\"%s\",\"kernel\":\"%s\",\"dtype\":\"%s\","
               "\"device\":\"%s\",\"shape\":[%s],\"threads\":%d,"
               "\"ms_best\":%.6g,\"ms_median\":%.6g,\"gflops\":%.6g,"
               "\"gbytes_per_s\":%.6g,\"runs\":%d,\"copy_share\":%.3g}\n",
               o->of.op, item->kernel->name, loong_dtype_name(o->of.dtype),
               loong_device_name(item->device), shape, o->of.threads, best,
               median, item->cost.flops / median * 1e-6,
               item->cost.bytes / median * 1e-6, times->count, share);
        return;
    }
    printf("%-18s %-26s %-22s %9.3f %9.3f %8.1f %8.1f %5d %5.0f%%\n",
           o->of.op, item->kernel->name, shape, best, median,
           item->cost.flops / median * 1e-6, item->cost.bytes / median * 1e-6,
           times->count, 100.0 * share);
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
    int launches[MAX_KERNELS + 1];
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
                printf("%-18s no kernel for %s\n", o->of.op,
                       loong_device_name(device));
            }
            break;
        }
        if (strstr(k->name, "_ref") != NULL && !o->reference) {
            continue;
        }
        if (k->support != NULL && !k->support(&model->query, reason)) {
            if (!o->json) {
                printf("%-18s %-26s refused: %s\n", o->of.op, k->name, reason);
            }
            continue;
        }
        bench_item_t *item = &items[(*count_p)++];
        *item = *model;
        status = bench_item_prepare(ctx, device, k, item);
    }
    return status;
}

/* A copy that reads and writes as many bytes as the item does, about. */
static loong_status_t prepare_copy(loong_context_t *ctx, const options_t *o,
                                   const bench_item_t *like, bench_item_t *copy)
{
    enum { COLS = 1024 };
    bench_request_t of = o->of;
    double bytes = like->cost.bytes / (2.0 * COLS);
    of.op = "copy";
    of.num_shape = 2;
    of.shape[0] =
        (int64_t)(bytes / (double)loong_dtype_size(of.dtype)) + 1;
    of.shape[1] = COLS;
    loong_status_t status = find_op(of.op)->describe(ctx, &of, copy);
    return status == LOONG_OK
               ? bench_item_prepare(ctx, like->device, NULL, copy)
               : status;
}

/* The rate of an item's bytes over that of the copy's. */
static double share_of(const bench_item_t *item, bench_times_t *times,
                       const bench_item_t *copy, bench_times_t *copies)
{
    return item->cost.bytes / bench_median(times) /
           (copy->cost.bytes / bench_median(copies));
}

static int run_op(loong_context_t *ctx, const options_t *o,
                  loong_device_t *device, const bench_op_kind_t *kind)
{
    static bench_item_t items[MAX_KERNELS + 1]; /* the last one: the copy */
    bench_times_t times[MAX_KERNELS + 1];
    bench_item_t model;
    int count = 0;
    memset(times, 0, sizeof(times));
    memset(items, 0, sizeof(items));
    if (strstr(o->of.op, "fused") != NULL &&
        !loong_device_has(device, LOONG_FEATURE_FUSED_ATTENTION)) {
        if (!o->json) {
            printf("%-18s no library of it on %s\n", o->of.op,
                   loong_device_name(device));
        }
        return LOONG_EXIT_OK;
    }
    loong_status_t status = kind->describe(ctx, &o->of, &model);
    if (status == LOONG_OK) {
        status = prepare(ctx, o, device, &model, &count, items);
    }
    if (status == LOONG_OK && count > 0) {
        status = prepare_copy(ctx, o, &items[0], &items[count]);
    }
    if (status == LOONG_OK && count > 0) {
        status = measure(ctx, o, count + 1, items, times);
    }
    for (int i = 0; i <= count; i++) {
        if (status == LOONG_OK && i < count) {
            print_result(o, &items[i],
                         share_of(&items[i], &times[i], &items[count],
                                  &times[count]),
                         &times[i]);
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
           "  --device NAME      cpu (default), or what loongrun --doctor "
           "lists\n"
           "  --shape A,B,...    its sizes\n"
           "  --dtype TYPE       bf16 (default), fp32, fp64\n"
           "  --threads N        default: OMP_NUM_THREADS or the processors\n"
           "  --seconds S        per op, default 2\n"
           "  --cpu-time         processor time, for a busy machine; one "
           "thread\n"
           "  --accumulate       add to the outputs where the op can\n"
           "  --reference        reference kernels too (slow)\n"
           "  --json             one JSON object a line\n\n"
           "The last column: GB/s over those of a copy of as many bytes."
           "\n\n%-18s %-18s %s\n",
           "op", "shape", "default");
    const bench_op_kind_t *kind = NULL;
    for (int i = 0; (kind = bench_op_kind(i)) != NULL; i++) {
        printf("%-18s %-18s %s\n", kind->name, kind->shape, kind->usual);
    }
    return LOONG_EXIT_OK;
}

static int run_all(loong_context_t *ctx, options_t *o, loong_device_t *device,
                   const char *shape)
{
    const char *only = o->of.op;
    print_header(o);
    const bench_op_kind_t *kind = NULL;
    for (int i = 0; (kind = bench_op_kind(i)) != NULL; i++) {
        if (only != NULL && strcmp(kind->name, only) != 0) {
            continue;
        }
        o->of.op = kind->name;
        const char *text = shape != NULL ? shape : kind->usual;
        o->of.num_shape = bench_shape("op", text, o->of.shape);
        if (o->of.num_shape == 0) {
            return LOONG_EXIT_USAGE;
        }
        if (o->of.num_shape != kind->num_shape) {
            return bench_usage("op", "--shape '%s': %s takes %s", text,
                               kind->name, kind->shape);
        }
        int code = run_op(ctx, o, device, kind);
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
    while ((c = options_next(argc, argv, table)) != -1) {
        if (c == 'o' && find_op(optarg) != NULL) {
            o->of.op = optarg;
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
            if (!bench_dtype("op", optarg, &o->of.dtype)) {
                return LOONG_EXIT_USAGE;
            }
        } else if (c == 't') {
            o->of.threads = atoi(optarg);
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
            return LOONG_EXIT_USAGE; /* it has been said */
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
    o.of.dtype = LOONG_BF16;
    o.of.threads = bench_threads();
    o.seconds = 2.0;
    int code = parse(argc, argv, &o, &shape);
    if (code != LOONG_EXIT_OK) {
        return code < 0 ? help() : code;
    }
    if (optind < argc) {
        return bench_usage("op", "'%s' is not an option", argv[optind]);
    }
    if (o.of.threads < 1 || !(o.seconds >= 0.0)) {
        return bench_usage("op", "--threads and --seconds must be positive");
    }
    if (o.cpu_time && (o.of.threads != 1 || strcmp(o.device, "cpu") != 0)) {
        return bench_usage("op", "--cpu-time needs --threads 1 and --device "
                                 "cpu: it is the time of one thread");
    }
    if (shape != NULL && o.of.op == NULL) {
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
