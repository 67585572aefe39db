/* SPDX-License-Identifier: Apache-2.0
 *
 * What reference kernels with products share on top of ref.h: operands as
 * dense arrays of double, and a product of such arrays.
 */
#ifndef LOONG_REF_DENSE_H
#define LOONG_REF_DENSE_H

#include "base.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is taken begins at multiples of this. */
enum { REF_ALIGN = 64 };

/* Bytes for a dense double copy of operand i (0 when absent), rounded up. */
size_t loongi_ref_bytes(const loong_kernel_query_t *query, int i);

/* Sum over all floating operands: enough for every copy of one launch. */
size_t loongi_ref_workspace(const loong_kernel_query_t *query);

/* Takes the next `bytes` from *cursor. */
double *loongi_ref_take(char **cursor, size_t bytes);

/* A copy of input i in memory taken from *cursor; NULL when it is absent. */
double *loongi_ref_load(const loong_kernel_call_t *call, int i, char **cursor);

/* Takes memory for output o (zeroed), NULL when it is absent. */
double *loongi_ref_output(const loong_kernel_call_t *call, int o,
                          char **cursor);

/* Writes (or adds, by the call's accumulate bit) output o; NULL: nothing. */
void loongi_ref_store(const loong_kernel_call_t *call, int o,
                      const double *copy);

/* C [m,n] = A B with a(i,p) at a[i * as + p * ap], b(p,j) at
 * b[p * bp + j * bs], and C dense; sums in ascending p within fixed lanes. */
typedef struct loong_ref_matmul {
    int64_t m, n, k;
    const double *a;
    int64_t as, ap;
    const double *b;
    int64_t bp, bs;
    double *c;
    int threads;
} loong_ref_matmul_t;
void loongi_ref_matmul(const loong_ref_matmul_t *p);

#ifdef __cplusplus
}
#endif

#endif
