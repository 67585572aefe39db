// SPDX-License-Identifier: Apache-2.0
//
// Graphs of simulated cuDNN, operation by operation in double. Tensors between
// operations are held whole; those of bf16 are rounded. Of a ragged tensor the
// rows behind a segment are neither read (they are 0) nor written.
#include <cmath>
#include <cstring>

#include "cudnn_sim.h"

namespace cudasim {

namespace {

typedef std::vector<double> array_t;

struct fault_t {};

struct machine_t {
    const dnn_run_t &run;
    std::map<int64_t, array_t> held;

    const dnn_tensor_t &tensor(int64_t uid) const
    {
        return run.graph->tensors.at(uid);
    }
};

int64_t count_of(const dnn_tensor_t &t)
{
    return t.dim[0] * t.dim[1] * t.dim[2] * t.dim[3];
}

size_t size_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 ? 2 : type == CUDNN_DATA_INT64 ? 8 : 4;
}

double round_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (!std::isnan(f)) {
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    }
    memcpy(&f, &bits, 4);
    return f;
}

double read_one(const char *p, cudnnDataType_t type)
{
    uint32_t bits = 0;
    int32_t number = 0;
    int64_t wide = 0;
    float f = 0.0f;
    switch (type) {
    case CUDNN_DATA_BFLOAT16:
        memcpy(reinterpret_cast<char *>(&bits) + 2, p, 2);
        memcpy(&f, &bits, 4);
        return f;
    case CUDNN_DATA_INT32:
        memcpy(&number, p, 4);
        return number;
    case CUDNN_DATA_INT64:
        memcpy(&wide, p, 8);
        return (double)wide;
    default:
        memcpy(&f, p, 4);
        return f;
    }
}

void write_one(char *p, cudnnDataType_t type, double x)
{
    float f = (float)x;
    if (type == CUDNN_DATA_BFLOAT16) {
        f = (float)round_bf16(x);
        memcpy(p, reinterpret_cast<const char *>(&f) + 2, 2);
    } else {
        memcpy(p, &f, 4);
    }
}

// Where the rows are: behind the heads, or last where channels stand before.
int row_axis(const dnn_tensor_t &t)
{
    return t.stride[2] == 1 && t.dim[2] > 1 && t.stride[3] != 1 ? 3 : 2;
}

// Elements from the base to where i of dim[0] begins, and its rows.
struct part_t {
    int64_t begin, rows;
};

part_t part_of(machine_t &m, const dnn_tensor_t &t, int64_t i)
{
    int axis = row_axis(t);
    if (t.ragged == 0) {
        return {i * t.stride[0], t.dim[axis]};
    }
    const dnn_tensor_t &offsets = m.tensor(t.ragged);
    const char *p = m.run.memory.at(t.ragged);
    size_t size = size_of(offsets.type);
    if (offsets.dim[0] != t.dim[0] + 1 ||
        !range_ok(p, size * (size_t)offsets.dim[0])) {
        report("cuDNN: offsets of tensor %lld are not %lld in memory",
               (long long)t.uid, (long long)t.dim[0] + 1);
        throw fault_t();
    }
    int64_t begin = (int64_t)read_one(p + (size_t)i * size, offsets.type);
    int64_t end = (int64_t)read_one(p + (size_t)(i + 1) * size, offsets.type);
    int64_t rows = (end - begin) / t.stride[axis];
    if (rows < 0 || rows > t.dim[axis] ||
        rows * t.stride[axis] != end - begin) {
        report("cuDNN: tensor %lld has elements %lld to %lld, no rows of %lld",
               (long long)t.uid, (long long)begin, (long long)end,
               (long long)t.stride[axis]);
        throw fault_t();
    }
    return {begin, rows};
}

char *at(machine_t &m, const dnn_tensor_t &t, int64_t element)
{
    char *p = m.run.memory.at(t.uid) + element * (int64_t)size_of(t.type);
    if (!range_ok(p, size_of(t.type))) {
        report("cuDNN: tensor %lld, element %lld is outside: %s",
               (long long)t.uid, (long long)element, where((uintptr_t)p));
        throw fault_t();
    }
    return p;
}

// Calls visit(number, address) for each element that is in memory.
template <class Visit>
void each_element(machine_t &m, const dnn_tensor_t &t, Visit visit)
{
    int axis = row_axis(t);
    int64_t n = 0;
    for (int64_t i = 0; i < t.dim[0]; i++) {
        part_t part = part_of(m, t, i);
        for (int64_t h = 0; h < t.dim[1]; h++) {
            for (int64_t r = 0; r < t.dim[2]; r++) {
                for (int64_t c = 0; c < t.dim[3]; c++, n++) {
                    if ((axis == 2 ? r : c) < part.rows) {
                        visit(n, at(m, t,
                                    part.begin + h * t.stride[1] +
                                        r * t.stride[2] + c * t.stride[3]));
                    }
                }
            }
        }
    }
}

const array_t &load(machine_t &m, int64_t uid)
{
    const dnn_tensor_t &t = m.tensor(uid);
    auto found = m.held.find(uid);
    if (found != m.held.end()) {
        return found->second;
    }
    if (t.is_virtual) {
        report("cuDNN: tensor %lld is read before it is made", (long long)uid);
        throw fault_t();
    }
    array_t &a = m.held[uid];
    if (t.by_value) {
        a.assign(1, m.run.value.at(uid));
        return a;
    }
    a.assign((size_t)count_of(t), 0.0);
    each_element(m, t, [&](int64_t n, char *p) {
        a[(size_t)n] = read_one(p, t.type);
    });
    return a;
}

void store(machine_t &m, int64_t uid, array_t a)
{
    const dnn_tensor_t &t = m.tensor(uid);
    if (t.type == CUDNN_DATA_BFLOAT16) {
        for (double &x : a) {
            x = round_bf16(x);
        }
    }
    if (!t.is_virtual) {
        each_element(m, t, [&](int64_t n, char *p) {
            write_one(p, t.type, a[(size_t)n]);
        });
    }
    m.held[uid] = a;
}

// The element of `t` for one of `of`: dimensions of 1, and heads in groups.
int64_t element_for(const dnn_tensor_t &t, const dnn_tensor_t &of,
                    const int64_t at[4])
{
    int64_t n = 0;
    for (int d = 0; d < 4; d++) {
        n = n * t.dim[d] + at[d] * t.dim[d] / of.dim[d];
    }
    return n;
}

template <class Visit> void each_place(const dnn_tensor_t &t, Visit visit)
{
    int64_t at[4];
    for (at[0] = 0; at[0] < t.dim[0]; at[0]++) {
        for (at[1] = 0; at[1] < t.dim[1]; at[1]++) {
            for (at[2] = 0; at[2] < t.dim[2]; at[2]++) {
                for (at[3] = 0; at[3] < t.dim[3]; at[3]++) {
                    visit(at);
                }
            }
        }
    }
}

double apply(int mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_CMP_GT:
        return x > b;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_CMP_LT:
        return x < b;
    case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0.0 && b != 0.0;
    default: // CUDNN_POINTWISE_BINARY_SELECT
        return t != 0.0 ? x : b;
    }
}

void pointwise(machine_t &m, const dnn_operation_t &op)
{
    const dnn_tensor_t &y = m.tensor(op.y);
    array_t result((size_t)count_of(y));
    size_t n = 0;
    if (op.mode == CUDNN_POINTWISE_GEN_INDEX) {
        each_place(y, [&](const int64_t at[4]) {
            result[n++] = (double)at[op.axis];
        });
        store(m, op.y, result);
        return;
    }
    const int64_t uid[3] = {op.x, op.b, op.t};
    const array_t *a[3] = {nullptr, nullptr, nullptr};
    for (int i = 0; i < 3; i++) {
        a[i] = uid[i] > 0 ? &load(m, uid[i]) : nullptr;
    }
    each_place(y, [&](const int64_t at[4]) {
        double v[3] = {0.0, 0.0, 0.0};
        for (int i = 0; i < 3; i++) {
            if (a[i] != nullptr) {
                v[i] = (*a[i])[(size_t)element_for(m.tensor(uid[i]), y, at)];
            }
        }
        result[n++] = apply(op.mode, v[0], v[1], v[2]);
    });
    store(m, op.y, result);
}

void reduce(machine_t &m, const dnn_operation_t &op)
{
    const dnn_tensor_t &x = m.tensor(op.x);
    const dnn_tensor_t &y = m.tensor(op.y);
    const array_t &a = load(m, op.x);
    bool sum = op.mode == CUDNN_REDUCE_TENSOR_ADD;
    array_t result((size_t)count_of(y), sum ? 0.0 : -INFINITY);
    size_t n = 0;
    each_place(x, [&](const int64_t at[4]) {
        double &to = result[(size_t)element_for(y, x, at)];
        double v = a[n++];
        to = sum ? to + v : fmax(to, v);
    });
    store(m, op.y, result);
}

// The last two dimensions change places, or not.
void reshape(machine_t &m, const dnn_operation_t &op)
{
    const dnn_tensor_t &x = m.tensor(op.x);
    const dnn_tensor_t &y = m.tensor(op.y);
    const array_t &a = load(m, op.x);
    bool turned = y.dim[2] == x.dim[3] && y.stride[2] == x.stride[3] &&
                  y.dim[3] == x.dim[2] && y.stride[3] == x.stride[2];
    bool same = memcmp(y.dim, x.dim, sizeof(x.dim)) == 0 &&
                memcmp(y.stride, x.stride, sizeof(x.stride)) == 0;
    if (!turned && !same) {
        report("cuDNN: tensor %lld is no other view of %lld",
               (long long)op.y, (long long)op.x);
        throw fault_t();
    }
    array_t result((size_t)count_of(y));
    size_t n = 0;
    each_place(y, [&](const int64_t at[4]) {
        int64_t from[4] = {at[0], at[1], turned ? at[3] : at[2],
                           turned ? at[2] : at[3]};
        result[n++] = a[(size_t)element_for(x, x, from)];
    });
    store(m, op.y, result);
}

void multiply(machine_t &m, const dnn_operation_t &op)
{
    const dnn_tensor_t &a = m.tensor(op.x);
    const dnn_tensor_t &b = m.tensor(op.b);
    const dnn_tensor_t &c = m.tensor(op.y);
    const array_t &left = load(m, op.x);
    const array_t &right = load(m, op.b);
    int64_t k = a.dim[3];
    array_t result((size_t)count_of(c));
    size_t n = 0;
    each_place(c, [&](const int64_t at[4]) {
        int64_t head = at[1] * b.dim[1] / a.dim[1];
        size_t row = (size_t)(((at[0] * a.dim[1] + at[1]) * a.dim[2] + at[2]) *
                              k);
        size_t column =
            (size_t)((at[0] * b.dim[1] + head) * k * b.dim[3] + at[3]);
        double sum = 0.0;
        for (int64_t i = 0; i < k; i++) {
            sum += left[row + (size_t)i] *
                   right[column + (size_t)(i * b.dim[3])];
        }
        result[n++] = sum;
    });
    store(m, op.y, result);
}

// Lengths that products are told are those of the segments in memory.
void check_sizes(machine_t &m, const dnn_operation_t &op)
{
    const int64_t sides[3] = {op.x, op.b, op.y};
    for (int64_t uid : op.sizes) {
        if (uid == 0) {
            continue;
        }
        const array_t &lengths = load(m, uid);
        for (int64_t side : sides) {
            const dnn_tensor_t &t = m.tensor(side);
            for (int64_t i = 0; t.ragged > 0 && i < t.dim[0]; i++) {
                if (part_of(m, t, i).rows != (int64_t)lengths[(size_t)i]) {
                    report("cuDNN: tensor %lld has %lld rows of segment %lld, "
                           "its length is %g", (long long)side,
                           (long long)part_of(m, t, i).rows, (long long)i,
                           lengths[(size_t)i]);
                    throw fault_t();
                }
            }
        }
    }
}

void run_operation(machine_t &m, const dnn_operation_t &op)
{
    switch (op.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        check_sizes(m, op);
        return multiply(m, op);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduce(m, op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return reshape(m, op);
    default:
        return pointwise(m, op);
    }
}

} // namespace

cudaError_t run_graph(const dnn_run_t &run)
{
    machine_t m = {run, {}};
    memset(run.workspace, 0xff, run.workspace_size); // it is the plan's
    try {
        for (const dnn_operation_t &op : run.graph->operations) {
            run_operation(m, op);
        }
    } catch (const fault_t &) {
        return cudaErrorIllegalAddress;
    }
    return cudaSuccess;
}

} // namespace cudasim
