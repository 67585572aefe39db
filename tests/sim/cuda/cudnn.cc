// SPDX-License-Identifier: Apache-2.0
//
// The descriptors of simulated cuDNN: each attribute must be one of its kind of
// descriptor, of the right type and count, and all that are needed must be set.
// The heuristics suggest two engines; the first says that its sums come in any
// order.
#include <cstring>

#include "cudnn_sim.h"

using namespace cudasim;

struct cudnnContext {
    cudnnStream_t stream;
};

static const int64_t WORKSPACE = 1000, ENGINES = 2;

struct attribute_t {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::string bytes;
};

struct descriptor_t {
    cudnnBackendDescriptorType_t kind;
    bool final;
    std::map<int, attribute_t> attributes;
    std::shared_ptr<dnn_graph_t> graph; // of a graph and what is made of it
    int engine;
};

static thread_local std::string last_error;
static std::string refusal; // of every plan

extern "C" void cudasim_cudnn_refuse(const char *why) { refusal = why; }

static cudnnStatus_t bad(cudnnStatus_t status, const std::string &why)
{
    last_error = why;
    return status;
}

extern "C" size_t cudnnGetVersion() { return 91900; }

extern "C" const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
#define NAME(name_, number_)  \
    case CUDNN_##name_:       \
        return "CUDNN_" #name_;
        LOONG_CUDNN_STATUSES(NAME)
#undef NAME
    }
    return "CUDNN_STATUS_UNKNOWN";
}

extern "C" void cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "%s", last_error.c_str());
    last_error.clear();
}

extern "C" cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        return bad(CUDNN_STATUS_NOT_INITIALIZED, "no device");
    }
    *handle = new cudnnContext{nullptr};
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetStream(cudnnHandle_t handle,
                                        cudnnStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

// ---- attributes -------------------------------------------------------------

// Kinds by what their names share.
struct rule_t {
    int kind; // a descriptor
    int name;
    int type;
    int64_t most; // elements
    bool needed;
};

#define A(name_) CUDNN_ATTR_##name_
#define T(name_) CUDNN_TYPE_##name_
#define K(name_) CUDNN_BACKEND_##name_##_DESCRIPTOR
static const rule_t rules[] = {
    {K(TENSOR), A(TENSOR_DATA_TYPE), T(DATA_TYPE), 1, true},
    {K(TENSOR), A(TENSOR_DIMENSIONS), T(INT64), 8, true},
    {K(TENSOR), A(TENSOR_STRIDES), T(INT64), 8, true},
    {K(TENSOR), A(TENSOR_UNIQUE_ID), T(INT64), 1, true},
    {K(TENSOR), A(TENSOR_BYTE_ALIGNMENT), T(INT64), 1, true},
    {K(TENSOR), A(TENSOR_IS_VIRTUAL), T(BOOLEAN), 1, false},
    {K(TENSOR), A(TENSOR_IS_BY_VALUE), T(BOOLEAN), 1, false},
    {K(TENSOR), A(TENSOR_RAGGED_OFFSET_DESC), T(BACKEND_DESCRIPTOR), 1, false},
    {K(POINTWISE), A(POINTWISE_MODE), T(POINTWISE_MODE), 1, true},
    {K(POINTWISE), A(POINTWISE_MATH_PREC), T(DATA_TYPE), 1, true},
    {K(POINTWISE), A(POINTWISE_AXIS), T(INT64), 1, false},
    {K(MATMUL), A(MATMUL_COMP_TYPE), T(DATA_TYPE), 1, true},
    {K(REDUCTION), A(REDUCTION_OPERATOR), T(REDUCTION_OPERATOR_TYPE), 1, true},
    {K(REDUCTION), A(REDUCTION_COMP_TYPE), T(DATA_TYPE), 1, true},
    {K(REDUCTION), A(REDUCTION_IS_DETERMINISTIC), T(BOOLEAN), 1, false},
#define OPERAND(kind_, name_, needed_)                                        \
    {K(OPERATION_##kind_), A(OPERATION_##kind_##_##name_),                    \
     T(BACKEND_DESCRIPTOR), 1, needed_}
    OPERAND(POINTWISE, PW_DESCRIPTOR, true),
    OPERAND(POINTWISE, XDESC, true),
    OPERAND(POINTWISE, BDESC, false),
    OPERAND(POINTWISE, TDESC, false),
    OPERAND(POINTWISE, YDESC, true),
    OPERAND(MATMUL, DESC, true),
    OPERAND(MATMUL, ADESC, true),
    OPERAND(MATMUL, BDESC, true),
    OPERAND(MATMUL, CDESC, true),
    OPERAND(MATMUL, GEMM_M_OVERRIDE_DESC, false),
    OPERAND(MATMUL, GEMM_N_OVERRIDE_DESC, false),
    OPERAND(MATMUL, GEMM_K_OVERRIDE_DESC, false),
    OPERAND(REDUCTION, DESC, true),
    OPERAND(REDUCTION, XDESC, true),
    OPERAND(REDUCTION, YDESC, true),
    OPERAND(RESHAPE, XDESC, true),
    OPERAND(RESHAPE, YDESC, true),
    {K(OPERATIONGRAPH), A(OPERATIONGRAPH_OPS), T(BACKEND_DESCRIPTOR), 256,
     true},
    {K(OPERATIONGRAPH), A(OPERATIONGRAPH_HANDLE), T(HANDLE), 1, true},
    {K(ENGINEHEUR), A(ENGINEHEUR_OPERATION_GRAPH), T(BACKEND_DESCRIPTOR), 1,
     true},
    {K(ENGINEHEUR), A(ENGINEHEUR_MODE), T(HEUR_MODE), 1, true},
    {K(EXECUTION_PLAN), A(EXECUTION_PLAN_HANDLE), T(HANDLE), 1, true},
    {K(EXECUTION_PLAN), A(EXECUTION_PLAN_ENGINE_CONFIG), T(BACKEND_DESCRIPTOR),
     1, true},
    {K(VARIANT_PACK), A(VARIANT_PACK_UNIQUE_IDS), T(INT64), 256, true},
    {K(VARIANT_PACK), A(VARIANT_PACK_DATA_POINTERS), T(VOID_PTR), 256, true},
    {K(VARIANT_PACK), A(VARIANT_PACK_WORKSPACE), T(VOID_PTR), 1, true},
};

static size_t size_of(int type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

static descriptor_t *of(cudnnBackendDescriptor_t d)
{
    return static_cast<descriptor_t *>(d);
}

extern "C" cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                             cudnnBackendDescriptor_t *descriptor)
{
    *descriptor = new descriptor_t{type, false, {}, nullptr, 0};
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    delete of(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t
cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count,
                         const void *elements)
{
    descriptor_t *d = of(descriptor);
    for (const rule_t &r : rules) {
        if (r.kind != (int)d->kind || r.name != (int)name) {
            continue;
        }
        if (d->final || r.type != (int)type || count < 1 || count > r.most) {
            return bad(CUDNN_STATUS_BAD_PARAM,
                       "attribute " + std::to_string(name) +
                           ": its type, its count, or too late");
        }
        d->attributes[name] = {
            type, count,
            std::string(static_cast<const char *>(elements),
                        (size_t)count * size_of(type))};
        return CUDNN_STATUS_SUCCESS;
    }
    return bad(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(name) +
                                           " is none of descriptor " +
                                           std::to_string(d->kind));
}

template <class Value>
static std::vector<Value> values(const descriptor_t *d, int name)
{
    std::vector<Value> v;
    auto found = d->attributes.find(name);
    if (found != d->attributes.end()) {
        v.resize((size_t)found->second.count);
        memcpy(v.data(), found->second.bytes.data(),
               v.size() * sizeof(Value));
    }
    return v;
}

template <class Value>
static Value value_of(const descriptor_t *d, int name, Value otherwise)
{
    std::vector<Value> v = values<Value>(d, name);
    return v.empty() ? otherwise : v[0];
}

static const descriptor_t *part(const descriptor_t *d, int name)
{
    return value_of<const descriptor_t *>(d, name, nullptr);
}

// ---- graphs -----------------------------------------------------------------

static dnn_tensor_t tensor_of(const descriptor_t *d)
{
    dnn_tensor_t t = {};
    std::vector<int64_t> dim = values<int64_t>(d, A(TENSOR_DIMENSIONS));
    std::vector<int64_t> stride = values<int64_t>(d, A(TENSOR_STRIDES));
    t.uid = value_of<int64_t>(d, A(TENSOR_UNIQUE_ID), 0);
    t.type = value_of(d, A(TENSOR_DATA_TYPE), CUDNN_DATA_FLOAT);
    t.is_virtual = value_of<char>(d, A(TENSOR_IS_VIRTUAL), 0) != 0;
    t.by_value = value_of<char>(d, A(TENSOR_IS_BY_VALUE), 0) != 0;
    for (size_t i = 0; i < 4; i++) {
        t.dim[i] = i < dim.size() ? dim[i] : 1;
        t.stride[i] = i < stride.size() ? stride[i] : 1;
    }
    const descriptor_t *ragged = part(d, A(TENSOR_RAGGED_OFFSET_DESC));
    t.ragged = ragged != nullptr ? tensor_of(ragged).uid : 0;
    return t;
}

static bool tensor_ok(const descriptor_t *d)
{
    dnn_tensor_t t = tensor_of(d);
    bool ok = t.uid != 0 && d->attributes.at(A(TENSOR_DIMENSIONS)).count == 4 &&
              d->attributes.at(A(TENSOR_STRIDES)).count == 4;
    for (int i = 0; i < 4; i++) {
        ok = ok && t.dim[i] > 0 && t.stride[i] > 0;
    }
    return ok && !(t.is_virtual && t.by_value);
}

// Gives the uid; 0: there is none.
static int64_t enter_tensor(dnn_graph_t *g, const descriptor_t *d)
{
    if (d == nullptr) {
        return 0;
    }
    dnn_tensor_t t = tensor_of(d);
    enter_tensor(g, part(d, A(TENSOR_RAGGED_OFFSET_DESC)));
    g->tensors[t.uid] = t;
    return t.uid;
}

static bool product_fits(const dnn_graph_t *g, const dnn_operation_t &op)
{
    const dnn_tensor_t &a = g->tensors.at(op.x);
    const dnn_tensor_t &b = g->tensors.at(op.b);
    const dnn_tensor_t &c = g->tensors.at(op.y);
    return a.dim[0] == b.dim[0] && a.dim[0] == c.dim[0] &&
           a.dim[1] == c.dim[1] && a.dim[1] % b.dim[1] == 0 &&
           a.dim[2] == c.dim[2] && a.dim[3] == b.dim[2] &&
           b.dim[3] == c.dim[3];
}

static dnn_operation_t operation_of(dnn_graph_t *g, const descriptor_t *d)
{
    dnn_operation_t op = {};
    op.kind = d->kind;
    auto uid = [&](int name) { return enter_tensor(g, part(d, name)); };
    if (d->kind == K(OPERATION_MATMUL)) {
        op.x = uid(A(OPERATION_MATMUL_ADESC));
        op.b = uid(A(OPERATION_MATMUL_BDESC));
        op.y = uid(A(OPERATION_MATMUL_CDESC));
        op.sizes[0] = uid(A(OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC));
        op.sizes[1] = uid(A(OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC));
        op.sizes[2] = uid(A(OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC));
    } else if (d->kind == K(OPERATION_REDUCTION)) {
        const descriptor_t *how = part(d, A(OPERATION_REDUCTION_DESC));
        op.mode = value_of<int>(how, A(REDUCTION_OPERATOR), 0);
        op.x = uid(A(OPERATION_REDUCTION_XDESC));
        op.y = uid(A(OPERATION_REDUCTION_YDESC));
    } else if (d->kind == K(OPERATION_RESHAPE)) {
        op.x = uid(A(OPERATION_RESHAPE_XDESC));
        op.y = uid(A(OPERATION_RESHAPE_YDESC));
    } else {
        const descriptor_t *how = part(d, A(OPERATION_POINTWISE_PW_DESCRIPTOR));
        op.mode = value_of<int>(how, A(POINTWISE_MODE), -1);
        op.axis = (int)value_of<int64_t>(how, A(POINTWISE_AXIS), -1);
        op.x = uid(A(OPERATION_POINTWISE_XDESC));
        op.b = uid(A(OPERATION_POINTWISE_BDESC));
        op.t = uid(A(OPERATION_POINTWISE_TDESC));
        op.y = uid(A(OPERATION_POINTWISE_YDESC));
    }
    return op;
}

// Every tensor is made once at most, products of the right shapes; ragged ones
// want the lengths of segments in two of three sizes.
static cudnnStatus_t finish_graph(descriptor_t *d)
{
    d->graph = std::make_shared<dnn_graph_t>();
    std::set<int64_t> made;
    for (const descriptor_t *o :
         values<const descriptor_t *>(d, A(OPERATIONGRAPH_OPS))) {
        dnn_operation_t op = operation_of(d->graph.get(), o);
        bool product = op.kind == K(OPERATION_MATMUL);
        if (!o->final || !made.insert(op.y).second ||
            (product && !product_fits(d->graph.get(), op))) {
            return bad(CUDNN_STATUS_BAD_PARAM,
                       "operation " +
                           std::to_string(d->graph->operations.size()) +
                           " does not fit the graph");
        }
        d->graph->operations.push_back(op);
    }
    bool ragged = false;
    for (const auto &t : d->graph->tensors) {
        ragged = ragged || t.second.ragged > 0;
    }
    for (const dnn_operation_t &op : d->graph->operations) {
        int sizes = (op.sizes[0] > 0) + (op.sizes[1] > 0) + (op.sizes[2] > 0);
        if (op.kind == K(OPERATION_MATMUL) && sizes != (ragged ? 2 : 0)) {
            return bad(CUDNN_STATUS_NOT_SUPPORTED,
                       "lengths of segments for some products alone");
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finish_plan(descriptor_t *d)
{
    const descriptor_t *config = part(d, A(EXECUTION_PLAN_ENGINE_CONFIG));
    if (!refusal.empty()) {
        return bad(CUDNN_STATUS_NOT_SUPPORTED, refusal);
    }
    d->graph = config->graph;
    return d->graph != nullptr
               ? CUDNN_STATUS_SUCCESS
               : bad(CUDNN_STATUS_BAD_PARAM, "a configuration of nothing");
}

extern "C" cudnnStatus_t
cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    descriptor_t *d = of(descriptor);
    for (const rule_t &r : rules) {
        auto found = d->attributes.find(r.name);
        bool set = found != d->attributes.end();
        if (r.kind != (int)d->kind) {
            continue;
        }
        if (r.needed && !set) {
            return bad(CUDNN_STATUS_BAD_PARAM,
                       "attribute " + std::to_string(r.name) + " is not set");
        }
        bool refers = set && r.type == T(BACKEND_DESCRIPTOR);
        const descriptor_t *other = refers ? part(d, r.name) : nullptr;
        if (other != nullptr && !other->final) {
            return bad(CUDNN_STATUS_BAD_PARAM,
                       "attribute " + std::to_string(r.name) +
                           " is not finalized");
        }
    }
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (d->kind == K(TENSOR) && !tensor_ok(d)) {
        status = bad(CUDNN_STATUS_BAD_PARAM, "sizes of a tensor");
    } else if (d->kind == K(OPERATIONGRAPH)) {
        status = finish_graph(d);
    } else if (d->kind == K(EXECUTION_PLAN)) {
        status = finish_plan(d);
    }
    d->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

// ---- engines ----------------------------------------------------------------

static cudnnStatus_t suggest(const descriptor_t *d, int64_t wanted,
                             int64_t *count, void *elements)
{
    cudnnBackendDescriptor_t *config =
        static_cast<cudnnBackendDescriptor_t *>(elements);
    const descriptor_t *graph = part(d, A(ENGINEHEUR_OPERATION_GRAPH));
    *count = wanted > 0 && wanted < ENGINES ? wanted : ENGINES;
    for (int64_t i = 0; i < wanted && i < *count; i++) {
        of(config[i])->graph = graph->graph;
        of(config[i])->engine = (int)i;
        of(config[i])->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t
cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t, int64_t wanted,
                         int64_t *count, void *elements)
{
    descriptor_t *d = of(descriptor);
    const cudnnBackendNumericalNote_t note =
        CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    const int64_t bytes = WORKSPACE;
    if (!d->final) {
        return bad(CUDNN_STATUS_NOT_INITIALIZED, "not finalized");
    }
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return suggest(d, wanted, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        descriptor_t *engine =
            of(*static_cast<cudnnBackendDescriptor_t *>(elements));
        engine->engine = d->engine;
        engine->final = true;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = d->engine == 0;
        memcpy(elements, &note, d->engine == 0 ? sizeof(note) : 0);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *count = 1;
        memcpy(elements, &bytes, sizeof(bytes));
        return CUDNN_STATUS_SUCCESS;
    default:
        return bad(CUDNN_STATUS_BAD_PARAM, "no such attribute to read");
    }
}

// ---- running ----------------------------------------------------------------

// Every tensor in memory has its address, and begins where it is said to.
static bool bind(dnn_run_t *run, const descriptor_t *pack)
{
    std::vector<int64_t> uid =
        values<int64_t>(pack, A(VARIANT_PACK_UNIQUE_IDS));
    std::vector<char *> pointer =
        values<char *>(pack, A(VARIANT_PACK_DATA_POINTERS));
    if (uid.size() != pointer.size()) {
        return false;
    }
    for (size_t i = 0; i < uid.size(); i++) {
        auto found = run->graph->tensors.find(uid[i]);
        float value = 0.0f;
        if (found == run->graph->tensors.end() || pointer[i] == nullptr) {
            return false;
        }
        if (found->second.by_value) {
            memcpy(&value, pointer[i], sizeof(value));
            run->value[uid[i]] = value;
        } else if (!is_device(pointer[i]) || (uintptr_t)pointer[i] % 16 != 0) {
            return false;
        } else {
            run->memory[uid[i]] = pointer[i];
        }
    }
    for (const auto &t : run->graph->tensors) {
        if (!t.second.is_virtual && run->memory.count(t.first) == 0 &&
            run->value.count(t.first) == 0) {
            return false;
        }
    }
    return true;
}

extern "C" cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                             cudnnBackendDescriptor_t plan,
                                             cudnnBackendDescriptor_t pack)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    dnn_run_t run = {of(plan)->graph, {}, {}, nullptr, (size_t)WORKSPACE};
    if (enter("cudnnBackendExecute") != cudaSuccess) {
        return bad(CUDNN_STATUS_EXECUTION_FAILED, "a planted failure");
    }
    run.workspace = value_of<char *>(of(pack), A(VARIANT_PACK_WORKSPACE),
                                     nullptr);
    if (!of(plan)->final || !of(pack)->final || !bind(&run, of(pack)) ||
        !is_device(run.workspace) ||
        !range_ok(run.workspace, run.workspace_size)) {
        report("cudnnBackendExecute: a tensor without its address, or the "
               "workspace");
        return bad(CUDNN_STATUS_BAD_PARAM, "addresses");
    }
    cudaStream_t stream = reinterpret_cast<cudaStream_t>(handle->stream);
    enqueue(stream_of(stream), [=] { return run_graph(run); });
    return CUDNN_STATUS_SUCCESS;
}
