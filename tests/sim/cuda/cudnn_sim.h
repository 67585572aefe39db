/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left of the descriptors of simulated cuDNN when a graph is final:
 * cudnn.cc takes them, cudnn_run.cc computes what they say. */
#ifndef CUDASIM_CUDNN_SIM_H
#define CUDASIM_CUDNN_SIM_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_abi.h"
#include "sim.h"

namespace cudasim {

struct dnn_tensor_t {
    int64_t uid;
    cudnnDataType_t type;
    int64_t dim[4], stride[4];
    bool is_virtual, by_value;
    int64_t ragged; // uid, 0: none
};

struct dnn_operation_t {
    cudnnBackendDescriptorType_t kind;
    int mode; // of a pointwise operation, of a sum
    int axis;
    int64_t x, b, t, y;  // uids; of a product a, b, -, c
    int64_t sizes[3]; // m, n, k
};

struct dnn_graph_t {
    std::map<int64_t, dnn_tensor_t> tensors;
    std::vector<dnn_operation_t> operations;
};

struct dnn_run_t {
    std::shared_ptr<const dnn_graph_t> graph;
    std::map<int64_t, char *> memory;
    std::map<int64_t, double> value;
    char *workspace;
    size_t workspace_size;
};

cudaError_t run_graph(const dnn_run_t &run);

} // namespace cudasim

#endif
