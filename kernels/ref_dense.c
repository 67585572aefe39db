/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands of a reference kernel as dense arrays of double, and their products.
 * Called by references that multiply (linear, attention, the loss, experts).
 * Read ref.h before. */
#include "ref_dense.h"

#include <string.h>

#include "port.h"
#include "ref.h"

size_t loongi_ref_bytes(const loong_kernel_query_t *query, int i)
{
    const loong_karg_t *arg = &query->arg[i];
    int64_t count = loong_karg_rows(arg) * loong_karg_cols(arg);
    return arg->rank == 0 ? 0
                          : (size_t)loongi_round_up(
                                count * (int64_t)sizeof(double), REF_ALIGN);
}

size_t loongi_ref_workspace(const loong_kernel_query_t *query)
{
    size_t size = 0;
    for (int i = 0; i < query->num_in + query->num_out; i++) {
        if (loongi_dtype_is_float(query->arg[i].dtype)) {
            size += loongi_ref_bytes(query, i);
        }
    }
    return size;
}

double *loongi_ref_take(char **cursor, size_t bytes)
{
    double *memory = (double *)(void *)*cursor;
    *cursor += loongi_round_up((int64_t)bytes, REF_ALIGN);
    return memory;
}

double *loongi_ref_load(const loong_kernel_call_t *call, int i, char **cursor)
{
    if (i >= call->query->num_in || call->ptr[i] == NULL) {
        return NULL;
    }
    ref_mat_t m = ref_arg(call, i);
    double *copy = loongi_ref_take(cursor, loongi_ref_bytes(call->query, i));
    for (int64_t r = 0; r < m.rows; r++) {
        for (int64_t c = 0; c < m.cols; c++) {
            copy[r * m.cols + c] = ref_at(&m, r, c);
        }
    }
    return copy;
}

double *loongi_ref_output(const loong_kernel_call_t *call, int o, char **cursor)
{
    int i = call->query->num_in + o;
    size_t bytes = loongi_ref_bytes(call->query, i);
    if (call->query->arg[i].rank == 0) {
        return NULL;
    }
    double *memory = loongi_ref_take(cursor, bytes);
    memset(memory, 0, bytes);
    return memory;
}

void loongi_ref_store(const loong_kernel_call_t *call, int o,
                      const double *copy)
{
    ref_mat_t m;
    if (copy == NULL) {
        return;
    }
    m = ref_out(call, o);
    for (int64_t r = 0; r < m.rows; r++) {
        for (int64_t c = 0; c < m.cols; c++) {
            ref_add(call, o, &m, r, c, copy[r * m.cols + c]);
        }
    }
}

enum { LANES = 8, BLOCK_M = 4, BLOCK_K = 512 };

/* Rows of A against one column of B, both contiguous in p. */
static LOONG_CLONES void dot_rows(const loong_ref_matmul_t *m, int64_t i,
                                  int rows, const double *column, int64_t from,
                                  int64_t count)
{
    for (int r = 0; r < rows; r++) {
        const double *a = m->a + (i + r) * m->as + from;
        double lane[LANES] = {0.0};
        double sum = 0.0;
        int64_t p = 0;
        for (; p + LANES <= count; p += LANES) {
            for (int l = 0; l < LANES; l++) {
                lane[l] += a[p + l] * column[p + l];
            }
        }
        for (; p < count; p++) {
            lane[p % LANES] += a[p] * column[p];
        }
        for (int l = 0; l < LANES; l++) {
            sum += lane[l];
        }
        m->c[(i + r) * m->n] += sum;
    }
}

/* c row += a * b row, over j. */
static LOONG_CLONES void add_scaled(double *c, double a, const double *b,
                                    int64_t count)
{
    for (int64_t j = 0; j < count; j++) {
        c[j] += a * b[j];
    }
}

static void rows_by_dot(const loong_ref_matmul_t *m, int64_t i, int rows)
{
    for (int64_t p = 0; p < m->k; p += BLOCK_K) {
        int64_t count = LOONG_MIN(m->k - p, (int64_t)BLOCK_K);
        for (int64_t j = 0; j < m->n; j++) {
            loong_ref_matmul_t column = *m;
            column.c = m->c + j;
            dot_rows(&column, i, rows, m->b + j * m->bs + p, p, count);
        }
    }
}

static void rows_by_axpy(const loong_ref_matmul_t *m, int64_t i, int rows)
{
    for (int64_t p = 0; p < m->k; p++) {
        for (int r = 0; r < rows; r++) {
            add_scaled(m->c + (i + r) * m->n, m->a[(i + r) * m->as + p * m->ap],
                       m->b + p * m->bp, m->n);
        }
    }
}

void loongi_ref_matmul(const loong_ref_matmul_t *p)
{
    memset(p->c, 0, sizeof(double) * (size_t)(p->m * p->n));
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t i = 0; i < p->m; i += BLOCK_M) {
        int rows = (int)LOONG_MIN(p->m - i, (int64_t)BLOCK_M);
        if (p->bs == 1) {
            rows_by_axpy(p, i, rows);
        } else {
            rows_by_dot(p, i, rows);
        }
    }
}
