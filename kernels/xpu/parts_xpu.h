/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel of XPUs that is made of others: it launches them on some rows of its
 * operands, or on its workspace. */
#ifndef LOONG_PARTS_XPU_H
#define LOONG_PARTS_XPU_H

#include <string.h>

#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix, and where it is. */
typedef struct loong_xpu_mat {
    loong_karg_t arg;
    void *ptr;
} loong_xpu_mat_t;

static inline loong_xpu_mat_t loongi_xpu_mat_none(void)
{
    loong_xpu_mat_t none;
    memset(&none, 0, sizeof(none));
    return none;
}

static inline loong_xpu_mat_t loongi_xpu_mat(loong_dtype_t dtype, int64_t rows,
                                             int64_t cols, int64_t ld,
                                             void *ptr)
{
    loong_xpu_mat_t m = loongi_xpu_mat_none();
    m.arg.dtype = dtype;
    m.arg.rank = 2;
    m.arg.dim[0] = rows;
    m.arg.dim[1] = cols;
    m.arg.ld = ld;
    m.ptr = ptr;
    return m;
}

/* Rows [first, first + rows) of an operand, as a matrix unless it is a
 * vector. */
loong_xpu_mat_t loongi_xpu_rows(const loong_kernel_call_t *call, int operand,
                                int64_t first, int64_t rows);

typedef struct loong_xpu_part {
    const loong_kernel_t *kernel;
    void *state;
    const char *op; /* NULL: the kernel's */
    const void *attr;
    int num_in, num_out;
} loong_xpu_part_t;

/* On the stream of the call, without workspace; `add` to output 0. */
LOONG_NODISCARD loong_status_t
loongi_xpu_launch(const loong_kernel_call_t *call, const loong_xpu_part_t *part,
                  const loong_xpu_mat_t *operands, bool add);

/* It becomes zero. */
LOONG_NODISCARD loong_status_t loongi_xpu_clear(const loong_kernel_call_t *call,
                                                const loong_xpu_mat_t *m);

/* State of what the shim has by this name. */
LOONG_NODISCARD loong_status_t loongi_xpu_prepare_raw(loong_context_t *ctx,
                                                      const char *op,
                                                      void **state_p);

/* Where the rows of each expert begin, of operand 0, as this operand tells;
 * complete on return. */
LOONG_NODISCARD loong_status_t loongi_xpu_read_offsets(
    const loong_kernel_call_t *call, int operand, int32_t *offset);

/* One of loongi_xpu_products, by its op. */
const loong_kernel_t *loongi_xpu_product(const char *op);

/* Elements of what a launch keeps between its parts, at most, 2^28 unless
 * LOONG_XPU_PART says otherwise, for tests. */
int64_t loongi_xpu_part_elements(void);

#ifdef __cplusplus
}
#endif

#endif
