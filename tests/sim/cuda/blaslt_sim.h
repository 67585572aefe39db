// SPDX-License-Identifier: Apache-2.0
//
// A product of the simulated cuBLASLt: blaslt.cc refuses what a call may not
// do, blaslt_run.cc computes.
#ifndef CUDASIM_BLASLT_SIM_H
#define CUDASIM_BLASLT_SIM_H

#include "cublasLt.h"
#include "sim.h"

struct cudasim_desc {
    cublasComputeType_t compute;
    bool trans[2];
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
    int32_t bias_type, aux_type; // -1: that of the result
};
struct cudasim_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
    int32_t batch;
    int64_t step;
};

enum {
    BIAS = 4,
    GELU = 32,
    DGELU = 64,
    AUX = 128,
    SUM_A = 256,
    SUM_B = 512,
    POINTS = BIAS | SUM_A | SUM_B // reads the bias, or writes it
};

struct product_t {
    cudasim_desc desc;
    cudasim_layout a_desc, b_desc, c_desc;
    const char *a, *b;
    char *c;
    double alpha, beta;
    int id; // of the algorithm
};

namespace cudasim {

inline size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

cudaError_t multiply_all(const product_t &all);

} // namespace cudasim

#endif
