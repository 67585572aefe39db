/* SPDX-License-Identifier: Apache-2.0
 *
 * Which algorithm multiplies: the library's first suggestion, or of several the
 * one that was fastest on this device when it was first asked for, as a file
 * remembers it. Called by cublaslt_cuda.c. Read cublaslt_impl.h and
 * algorithms.h before. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "algorithms.h"
#include "cublaslt_impl.h"
#include "fill.h"

enum { SUGGESTIONS = 8, RUNS = 10, KEY_SIZE = 512 };

typedef struct choice {
    loong_context_t *ctx;
    loong_cublaslt_t *s;
    int class;
    int count;
    cublasLtMatmulHeuristicResult_t result[SUGGESTIONS];
} choice_t;

/* ---- suggestions --------------------------------------------------------- */

/* Of an operand's rows: what its class has, else that of its elements. */
static size_t alignment_of(int class, loong_dtype_t dtype)
{
    return class == 0 ? LOONG_CUBLASLT_WIDE : loong_dtype_size(dtype);
}

static loong_status_t wish_for(const choice_t *c,
                               cublasLtMatmulPreference_t wish)
{
    static const cublasLtMatmulPreferenceAttributes_t place[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const loong_cublaslt_library_t *l = c->s->lib;
    const loong_cublaslt_params_t *p = &c->s->params;
    uint64_t room = LOONG_CUBLASLT_WORKSPACE;
    LOONG_LT_TRY(c->ctx, l,
                 MatmulPreferenceSetAttribute(
                     wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                     sizeof(room)));
    for (int i = 0; i < LOONG_COUNT_OF(place); i++) {
        uint32_t bytes =
            (uint32_t)alignment_of(c->class, i < 2 ? p->in : p->out);
        LOONG_LT_TRY(c->ctx, l,
                     MatmulPreferenceSetAttribute(wish, place[i], &bytes,
                                                  sizeof(bytes)));
    }
    return LOONG_OK;
}

/* The library looks at how these addresses are aligned. */
static loong_status_t point_anywhere(const choice_t *c)
{
    const void *address =
        (const void *)(uintptr_t)alignment_of(c->class, c->s->params.out);
    return loongi_cublaslt_point(c->ctx, c->s, address, address);
}

/* The results that the library itself says are valid stand first. */
static void keep_valid(choice_t *c)
{
    int count = 0;
    for (int i = 0; i < c->count; i++) {
        if (c->result[i].state == CUBLAS_STATUS_SUCCESS) {
            c->result[count++] = c->result[i];
        } else {
            c->s->refusal = c->result[i].state;
        }
    }
    c->count = count;
}

/* None is no error where the library refuses these operands: others may have
 * some. Whatever else it says is one. */
static loong_status_t suggest(choice_t *c)
{
    loong_cublaslt_t *s = c->s;
    const loong_cublaslt_library_t *l = s->lib;
    cublasLtMatmulPreference_t wish = NULL;
    cublasStatus_t said = CUBLAS_STATUS_SUCCESS;
    LOONG_TRY(point_anywhere(c));
    LOONG_LT_TRY(c->ctx, l, MatmulPreferenceCreate(&wish));
    loong_status_t status = wish_for(c, wish);
    if (status == LOONG_OK) {
        said = l->MatmulAlgoGetHeuristic(
            s->handle, s->desc, s->layout[0], s->layout[1], s->layout[2],
            s->layout[2], wish, SUGGESTIONS, c->result, &c->count);
    }
    l->MatmulPreferenceDestroy(wish);
    LOONG_TRY(status);
    if (said == CUBLAS_STATUS_SUCCESS) {
        keep_valid(c);
        return LOONG_OK;
    }
    c->count = 0;
    s->refusal = said;
    return said == CUBLAS_STATUS_NOT_SUPPORTED ||
                   said == CUBLAS_STATUS_INVALID_VALUE
               ? LOONG_OK
               : loongi_cublaslt_failed(c->ctx, l, "MatmulAlgoGetHeuristic",
                                        said);
}

/* ---- measuring ----------------------------------------------------------- */

typedef struct bench {
    loong_context_t *ctx;
    loong_cublaslt_t *s;
    void *operand[6]; /* a, b, c, bias, aux, workspace */
    cudaStream_t stream;
    cudaEvent_t event[2];
} bench_t;

static size_t matrix_bytes(const loong_cublaslt_params_t *p, int i)
{
    const int64_t ld[3] = {p->lda, p->ldb, p->ldc};
    const int64_t cols[3] = {p->trans_a ? p->m : p->k,
                             p->trans_b ? p->k : p->n, p->n};
    int64_t elements =
        ld[i] * cols[i] + LOONG_MAX(p->batch - 1, 0) * p->step[i];
    return (size_t)elements * loong_dtype_size(i < 2 ? p->in : p->out);
}

static size_t operand_bytes(const loong_cublaslt_params_t *p, int i)
{
    size_t out = loong_dtype_size(p->out);
    return i < 3    ? matrix_bytes(p, i)
           : i == 3 ? (size_t)LOONG_MAX(p->m, p->n) * out
           : i == 4 ? (size_t)(p->ld_aux * p->n) * out
                    : LOONG_CUBLASLT_WORKSPACE;
}

static void close_bench(bench_t *b)
{
    for (int i = 0; i < LOONG_COUNT_OF(b->operand); i++) {
        if (b->operand[i] != NULL) {
            cudaFree(b->operand[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (b->event[i] != NULL) {
            cudaEventDestroy(b->event[i]);
        }
    }
    if (b->stream != NULL) {
        cudaStreamDestroy(b->stream);
    }
}

static cudaError_t fill(const bench_t *b, char *operand, size_t bytes,
                        loong_dtype_t dtype)
{
    char values[LOONG_FILL_BYTES];
    size_t done = LOONG_MIN(bytes,
                            LOONG_FILL_COUNT * loong_dtype_size(dtype));
    loongi_fill_normal(dtype, values);
    cudaError_t error = cudaMemcpyAsync(operand, values, done,
                                        cudaMemcpyHostToDevice, b->stream);
    while (done < bytes && error == cudaSuccess) {
        size_t n = LOONG_MIN(bytes - done, done);
        error = cudaMemcpyAsync(operand + done, operand, n,
                                cudaMemcpyDeviceToDevice, b->stream);
        done += n;
    }
    return error;
}

static cudaError_t open_bench(bench_t *b)
{
    cudaError_t error = cudaStreamCreateWithFlags(&b->stream,
                                                  cudaStreamNonBlocking);
    for (int i = 0; i < 2 && error == cudaSuccess; i++) {
        error = cudaEventCreateWithFlags(&b->event[i], cudaEventDefault);
    }
    for (int i = 0; i < LOONG_COUNT_OF(b->operand); i++) {
        size_t bytes = operand_bytes(&b->s->params, i);
        if (bytes > 0 && error == cudaSuccess) {
            error = cudaMalloc(&b->operand[i], bytes);
        }
        if (bytes > 0 && error == cudaSuccess) {
            error = fill(b, b->operand[i], bytes,
                         i < 2 ? b->s->params.in : b->s->params.out);
        }
    }
    return error;
}

static loong_status_t cuda_ok(loong_context_t *ctx, cudaError_t error)
{
    LOONG_CHECK(ctx, error == cudaSuccess, LOONG_ERR_DEVICE,
                "measuring products of cuBLASLt: %s",
                cudaGetErrorString(error));
    return LOONG_OK;
}

/* *runs_p: false where the library finds out only now that it does not. */
static loong_status_t multiply(const bench_t *b,
                               const cublasLtMatmulAlgo_t *algo, bool *runs_p)
{
    const loong_cublaslt_t *s = b->s;
    const float one = 1.0f;
    const float none = 0.0f;
    cublasStatus_t status = s->lib->Matmul(
        s->handle, s->desc, &one, b->operand[0], s->layout[0], b->operand[1],
        s->layout[1], &none, b->operand[2], s->layout[2], b->operand[2],
        s->layout[2], algo, b->operand[5], LOONG_CUBLASLT_WORKSPACE,
        b->stream);
    *runs_p = status == CUBLAS_STATUS_SUCCESS;
    LOONG_CHECK(b->ctx, *runs_p || status == CUBLAS_STATUS_NOT_SUPPORTED ||
                            status == CUBLAS_STATUS_INVALID_VALUE,
                LOONG_ERR_DEVICE, "measuring products of cuBLASLt: %s",
                s->lib->GetStatusString(status));
    return LOONG_OK;
}

/* Milliseconds of the fastest run but the first; below 0: it does not run. */
static loong_status_t time_runs(const bench_t *b,
                                const cublasLtMatmulAlgo_t *algo,
                                float *best_p)
{
    float best = -1.0f;
    bool runs = true;
    for (int run = 0; run <= RUNS && runs; run++) {
        float ms = 0.0f;
        LOONG_TRY(cuda_ok(b->ctx, cudaEventRecord(b->event[0], b->stream)));
        LOONG_TRY(multiply(b, algo, &runs));
        LOONG_TRY(cuda_ok(b->ctx, cudaEventRecord(b->event[1], b->stream)));
        LOONG_TRY(cuda_ok(b->ctx, cudaEventSynchronize(b->event[1])));
        LOONG_TRY(cuda_ok(
            b->ctx, cudaEventElapsedTime(&ms, b->event[0], b->event[1])));
        best = run == 1 || (run > 1 && ms < best) ? ms : best;
    }
    *best_p = runs ? best : -1.0f;
    return LOONG_OK;
}

static loong_status_t find_fastest(const choice_t *c, const bench_t *b,
                                   int *best_p)
{
    const loong_cublaslt_params_t *p = &c->s->params;
    float times[SUGGESTIONS];
    int best = -1;
    for (int i = 0; i < c->count; i++) {
        LOONG_TRY(time_runs(b, &c->result[i].algo, &times[i]));
        if (times[i] >= 0.0f && (best < 0 || times[i] < times[best])) {
            best = i;
        }
    }
    LOONG_CHECK(c->ctx, best >= 0, LOONG_ERR_DEVICE,
                "cuBLASLt suggests %d algorithms for m %lld, n %lld, k %lld, "
                "and none of them runs", c->count, (long long)p->m,
                (long long)p->n, (long long)p->k);
    loongi_log(c->ctx, LOONG_LOG_DEBUG,
               "cuBLASLt: m %lld, n %lld, k %lld: algorithm %d of %d in %.3f "
               "ms, the first in %.3f ms", (long long)p->m, (long long)p->n,
               (long long)p->k, best + 1, c->count, (double)times[best],
               (double)times[0]);
    *best_p = best;
    return LOONG_OK;
}

static loong_status_t measure_in(const choice_t *c, bench_t *b, int *best_p)
{
    const loong_cublaslt_params_t *p = &c->s->params;
    cudaError_t error = open_bench(b);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* told here */
        loongi_log(c->ctx, LOONG_LOG_WARN,
                   "cuBLASLt: no memory to measure m %lld, n %lld, k %lld: "
                   "the library's first algorithm is taken",
                   (long long)p->m, (long long)p->n, (long long)p->k);
        *best_p = 0;
        return LOONG_OK;
    }
    LOONG_TRY(cuda_ok(c->ctx, error));
    LOONG_TRY(loongi_cublaslt_point(c->ctx, c->s, b->operand[3],
                                    b->operand[4]));
    return find_fastest(c, b, best_p);
}

static loong_status_t measure(const choice_t *c, int *best_p)
{
    bench_t b = {c->ctx, c->s, {NULL}, NULL, {NULL, NULL}};
    loong_status_t status = measure_in(c, &b, best_p);
    close_bench(&b);
    return status;
}

/* ---- remembering --------------------------------------------------------- */

/* All that an algorithm depends on. */
static loong_status_t make_key(const choice_t *c, char key[KEY_SIZE])
{
    const loong_cublaslt_params_t *p = &c->s->params;
    struct cudaDeviceProp prop;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaGetDeviceProperties(&prop, device);
    }
    LOONG_CHECK(c->ctx, error == cudaSuccess, LOONG_ERR_DEVICE,
                "cuBLASLt: which device it is: %s", cudaGetErrorString(error));
    snprintf(key, KEY_SIZE,
             "%s %d.%d, cuBLASLt %zu, %s%s to %s, m %lld n %lld k %lld, %s%s, "
             "strides %lld %lld %lld %lld, batch %lld %lld %lld %lld, "
             "epilogue %d, aligned to %zu, workspace %zu",
             prop.name, prop.major, prop.minor, c->s->lib->GetVersion(),
             c->s->params.policy.tf32 && p->in == LOONG_F32 ? "tf32 of " : "",
             loong_dtype_name(p->in), loong_dtype_name(p->out), (long long)p->m,
             (long long)p->n, (long long)p->k, p->trans_a ? "T" : "N",
             p->trans_b ? "T" : "N", (long long)p->lda, (long long)p->ldb,
             (long long)p->ldc, (long long)p->ld_aux, (long long)p->batch,
             (long long)p->step[0], (long long)p->step[1],
             (long long)p->step[2], (int)p->epilogue,
             alignment_of(c->class, p->in), (size_t)LOONG_CUBLASLT_WORKSPACE);
    return LOONG_OK;
}

/* Whether it multiplies what the layouts have, in the room there is. */
static bool runs(const loong_cublaslt_t *s, const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t result;
    memset(&result, 0, sizeof(result));
    return s->lib->MatmulAlgoCheck(s->handle, s->desc, s->layout[0],
                                   s->layout[1], s->layout[2], s->layout[2],
                                   algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= LOONG_CUBLASLT_WORKSPACE;
}

/* The one that the file has, if it still runs. */
static loong_status_t recall(choice_t *c, const char *key, bool *found_p)
{
    loong_cublaslt_t *s = c->s;
    loong_algorithm_t kept;
    cublasLtMatmulAlgo_t algo;
    bool found = false;
    LOONG_TRY(loongi_algorithms_find(c->ctx, s->params.policy.algorithms, key,
                                     &kept, &found));
    memcpy(&algo, &kept, sizeof(algo));
    if (found) {
        found = runs(s, &algo);
        if (!found) {
            loongi_log(c->ctx, LOONG_LOG_WARN,
                       "%s: cuBLASLt refuses the algorithm for '%s': it is "
                       "measured again",
                       s->params.policy.algorithms, key);
        }
    }
    if (found) {
        s->size[0].algo[c->class] = algo;
    }
    *found_p = found;
    return LOONG_OK;
}

/* One process at a time measures; the others find what it wrote. */
static loong_status_t measure_and_keep(choice_t *c, const char *key)
{
    const char *path = c->s->params.policy.algorithms;
    loong_algorithm_t kept;
    bool found = false;
    int lock = -1;
    int best = 0;
    LOONG_TRY(loongi_algorithms_lock(c->ctx, path, &lock));
    loong_status_t status = recall(c, key, &found);
    if (status == LOONG_OK && !found) {
        status = measure(c, &best);
        if (status == LOONG_OK) {
            memcpy(&kept, &c->result[best].algo, sizeof(kept));
            status = loongi_algorithms_put(c->ctx, path, key, &kept);
        }
        c->s->size[0].algo[c->class] = c->result[best].algo;
    }
    loongi_algorithms_unlock(lock);
    return status;
}

static loong_status_t choose(loong_context_t *ctx, loong_cublaslt_t *s,
                             int class)
{
    choice_t c;
    char key[KEY_SIZE];
    bool found = false;
    memset(&c, 0, sizeof(c));
    c.ctx = ctx;
    c.s = s;
    c.class = class;
    LOONG_TRY(suggest(&c));
    s->size[0].found[class] = c.count > 0;
    if (c.count == 0) {
        return LOONG_OK;
    }
    s->size[0].algo[class] = c.result[0].algo;
    if (s->params.policy.algorithms == NULL ||
        class != loongi_cublaslt_class(&s->params, 0)) {
        return LOONG_OK; /* few operands lie otherwise than their strides */
    }
    LOONG_TRY(make_key(&c, key));
    LOONG_TRY(recall(&c, key, &found));
    return found || s->params.policy.fixed ? LOONG_OK
                                           : measure_and_keep(&c, key);
}

loong_status_t loongi_cublaslt_none(loong_context_t *ctx,
                                    const loong_cublaslt_t *product)
{
    const loong_cublaslt_params_t *p = &product->params;
    return LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED,
                      "cuBLASLt has no product of %s to %s for m %lld, n %lld, "
                      "k %lld, strides %lld, %lld, %lld: %s",
                      loong_dtype_name(p->in), loong_dtype_name(p->out),
                      (long long)p->m, (long long)product->n,
                      (long long)product->k, (long long)p->lda,
                      (long long)p->ldb, (long long)p->ldc,
                      product->lib->GetStatusString(product->refusal));
}

loong_status_t loongi_cublaslt_choose(loong_context_t *ctx,
                                      loong_cublaslt_t *product)
{
    loong_cublaslt_size_t *size = &product->size[0];
    for (int class = 0; class < LOONG_CUBLASLT_CLASSES; class++) {
        LOONG_TRY(choose(ctx, product, class));
    }
    size->n = product->n;
    size->k = product->k;
    return size->found[0] || size->found[1] ||
                   product->params.epilogue != LOONG_EPILOGUE_NONE
               ? LOONG_OK
               : loongi_cublaslt_none(ctx, product);
}

loong_status_t loongi_cublaslt_refit(loong_context_t *ctx,
                                     loong_cublaslt_t *product,
                                     loong_cublaslt_size_t *size)
{
    const loong_cublaslt_size_t *largest = &product->size[0];
    for (int class = 0; class < LOONG_CUBLASLT_CLASSES; class++) {
        choice_t c;
        memset(&c, 0, sizeof(c));
        c.ctx = ctx;
        c.s = product;
        c.class = class;
        LOONG_TRY(point_anywhere(&c));
        bool same = largest->found[class] &&
                    runs(product, &largest->algo[class]);
        if (!same) {
            LOONG_TRY(suggest(&c));
        }
        size->found[class] = same || c.count > 0;
        size->algo[class] = same ? largest->algo[class] : c.result[0].algo;
    }
    size->n = product->n;
    size->k = product->k;
    return LOONG_OK;
}
