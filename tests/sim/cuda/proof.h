/* SPDX-License-Identifier: Apache-2.0
 *
 * Three kernels as real ones are written, each with the mistakes that are made
 * in such kernels: the simulated device has to find them. */
#ifndef CUDASIM_PROOF_H
#define CUDASIM_PROOF_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum proof_bug {
    PROOF_RIGHT,
    PROOF_NO_BARRIER, /* between writing and reading a shared array */
    PROOF_GRID,       /* one block too many */
    PROOF_NO_WAIT,    /* a stream that does not wait for another */
    PROOF_STRIDE,     /* the stride of the source for the destination */
    PROOF_TAIL,       /* elements after the last whole vector */
    PROOF_BUGS
} proof_bug_t;

typedef struct proof_shape {
    int rows, cols;
} proof_shape_t;

/* y[r][c] = x[r][c] w[c] / sqrt(mean of x[r]^2 + 1e-5). */
void proof_rmsnorm(proof_bug_t bug, const float *x, const float *w, float *y,
                   proof_shape_t shape, cudaStream_t stream);
/* *sum += sum of x[n]: shuffles, then one atomic of each block. */
void proof_sum(proof_bug_t bug, const float *x, int n, float *sum,
               cudaStream_t stream);
/* y [cols][rows] bf16 of x [rows][cols], by tiles. */
void proof_transpose(proof_bug_t bug, const float *x, unsigned short *y,
                     proof_shape_t shape, cudaStream_t stream);

/* y = f(x), n times, of what a GPU computes with an error. POWER takes 1 / x of
 * powers of two for exact: x / x. */
typedef enum proof_function {
    PROOF_EX2,
    PROOF_RCP,
    PROOF_RSQRT,
    PROOF_EXP,
    PROOF_LOG,
    PROOF_TANH,
    PROOF_ERFC,
    PROOF_FUNCTIONS,
    PROOF_POWER = PROOF_FUNCTIONS
} proof_function_t;
void proof_function(proof_function_t function, const float *x, float *y, int n,
                    cudaStream_t stream);

/* Kernels that do one wrong thing each. */
typedef enum proof_wrong {
    WRONG_READ,       /* one element after the end */
    WRONG_WRITE,      /* one element before the beginning */
    WRONG_FREED,      /* reads what was freed */
    WRONG_ALIGNMENT,  /* 16 bytes at a multiple of 4 */
    WRONG_HOST,       /* reads an array of the host */
    WRONG_SHARED,     /* one element after a shared array */
    WRONG_DIVERGED,   /* two barriers for one block */
    WRONG_STUCK,      /* half a warp waits for the other half */
    WRONG_LANE,       /* a lane that has ended is named in the mask */
    WRONG_PLACES,     /* halves of a warp shuffle at two lines, each with all */
    WRONG_MASKS,      /* half a warp names itself, the other half all */
    WRONG_OWN,        /* lanes that their mask does not name */
    WRONG_SOURCE,     /* a value of a lane that the mask does not name */
    WRONG_PRODUCT,    /* a product of tensor cores without one of the lanes */
    WRONG_COUNT
} proof_wrong_t;
void proof_wrong(proof_wrong_t wrong, float *x, int n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
