// SPDX-License-Identifier: Apache-2.0
//
// The kernel shim (xpu_shim.h), for a machine that has the vendor's headers:
// build.sh makes libloong_xpukern.so of this file and of the raw kernels
// (kernels/*/*.xpu). What XDNN's headers are known to have is called by its
// public name; every other op is a raw kernel's, or missing, and libloong says
// so. The prototypes below are those that public callers compile against
// (marks in docs/devices/xpu.md): where an installed header has others, the
// compiler tells here, and nobody at run time. Of an op only what the call is
// known to do is taken: dense operands of one type, nothing added.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "loong/ops.h"
#include "raw_xpu.h"
#include "xpu/runtime.h"
#include "xpu/xdnn.h"
#include "xpu_shim.h"
#ifdef LOONG_SHIM_BKCL
#include "bkcl.h"
#endif

namespace api = baidu::xpu::api;

namespace {

thread_local std::string last_error;

/* ---- contexts ------------------------------------------------------------ */

/* XDNN has one for each stream. */
struct contexts {
    std::mutex lock;
    std::map<void *, api::Context *> of;
};

contexts &all()
{
    static contexts *c = new contexts; /* streams may outlive main */
    return *c;
}

api::Context *context_of(void *stream)
{
    std::lock_guard<std::mutex> hold(all().lock);
    api::Context *&c = all().of[stream];
    if (c == nullptr) {
        c = api::create_context();
        c->set_stream(static_cast<XPUStream>(stream));
    }
    return c;
}

int told(const char *op, int error)
{
    if (error != 0) {
        last_error = std::string("XDNN's ") + op;
    }
    return error;
}

/* ---- ops of XDNN --------------------------------------------------------- */

int64_t count_of(const loong_karg_t &a)
{
    return loong_karg_rows(&a) * loong_karg_cols(&a);
}

template <class T> const T *in(const loong_kernel_call_t *call, int i)
{
    return static_cast<const T *>(call->ptr[i]);
}

template <class T> T *out(const loong_kernel_call_t *call)
{
    return static_cast<T *>(call->ptr[call->query->num_in]);
}

bool is_half(const loong_kernel_call_t *call, int i)
{
    return call->query->arg[i].dtype == LOONG_BF16;
}

bool plain(const loong_kernel_query_t *q, char reason[LOONG_REASON_SIZE])
{
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        loong_dtype_t dtype = q->arg[i].dtype;
        if (dtype != LOONG_F32 && dtype != LOONG_BF16) {
            /* Of libloong this object calls nothing. */
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d is neither fp32 nor bf16, which XDNN is asked "
                     "for",
                     i);
            return false;
        }
        if (!loong_karg_dense(&q->arg[i])) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d has gaps between its rows", i);
            return false;
        }
    }
    if (q->accumulate != 0) {
        snprintf(reason, LOONG_REASON_SIZE, "XDNN adds to no output");
        return false;
    }
    return true;
}

bool one_type(const loong_kernel_query_t *q, char reason[LOONG_REASON_SIZE])
{
    for (int i = 1; i < q->num_in + q->num_out; i++) {
        if (q->arg[i].dtype != q->arg[0].dtype) {
            snprintf(reason, LOONG_REASON_SIZE, "operands of two types");
            return false;
        }
    }
    return plain(q, reason);
}

template <class T> int add_as(const loong_kernel_call_t *call)
{
    int64_t n = count_of(call->query->arg[0]);
    return api::broadcast_add<T>(context_of(call->stream), in<T>(call, 0),
                                 in<T>(call, 1), out<T>(call), {n}, {n});
}

int add(const loong_kernel_call_t *call)
{
    return told("broadcast_add", is_half(call, 0) ? add_as<bfloat16>(call)
                                                  : add_as<float>(call));
}

template <class T> int multiply_as(const loong_kernel_call_t *call)
{
    int64_t n = count_of(call->query->arg[0]);
    return api::broadcast_mul<T>(context_of(call->stream), in<T>(call, 0),
                                 in<T>(call, 1), out<T>(call), {n}, {n});
}

int multiply(const loong_kernel_call_t *call)
{
    return told("broadcast_mul", is_half(call, 0) ? multiply_as<bfloat16>(call)
                                                  : multiply_as<float>(call));
}

template <class T> int scale_as(const loong_kernel_call_t *call)
{
    const loong_scale_attr_t *attr =
        static_cast<const loong_scale_attr_t *>(call->query->attr);
    return api::scale<T>(context_of(call->stream), in<T>(call, 0),
                         out<T>(call), count_of(call->query->arg[0]), true,
                         static_cast<float>(attr->factor),
                         static_cast<float>(attr->shift));
}

int scale(const loong_kernel_call_t *call)
{
    return told("scale", is_half(call, 0) ? scale_as<bfloat16>(call)
                                          : scale_as<float>(call));
}

template <class X, class Y> int cast_as(const loong_kernel_call_t *call)
{
    return api::cast<X, Y>(context_of(call->stream), in<X>(call, 0),
                           out<Y>(call), count_of(call->query->arg[0]));
}

int cast(const loong_kernel_call_t *call)
{
    int error = is_half(call, 0) == is_half(call, 1)
                    ? 1
                    : is_half(call, 0) ? cast_as<bfloat16, float>(call)
                                       : cast_as<float, bfloat16>(call);
    return told("cast", error);
}

/* Types differ. */
bool casts(const loong_kernel_query_t *q, char reason[LOONG_REASON_SIZE])
{
    if (q->arg[0].dtype == q->arg[1].dtype) {
        snprintf(reason, LOONG_REASON_SIZE, "a cast to the same type");
        return false;
    }
    return plain(q, reason);
}

const loong_raw_kernel_t xdnn[] = {
    {"add", one_type, nullptr, add},
    {"multiply", one_type, nullptr, multiply},
    {"scale", one_type, nullptr, scale},
    {"cast", casts, nullptr, cast},
};

/* ---- the table ----------------------------------------------------------- */

#define LOONG_RAW_POINTER(op_) &loong_raw_##op_,
const loong_raw_kernel_t *const raw[] = {LOONG_RAW_KERNELS(LOONG_RAW_POINTER)};
#undef LOONG_RAW_POINTER

/* The first that takes the query, or, without one, that has the name. */
const loong_raw_kernel_t *find(const char *op, const loong_kernel_query_t *q,
                               char reason[LOONG_REASON_SIZE])
{
    for (const loong_raw_kernel_t &k : xdnn) {
        if (strcmp(k.op, op) == 0 && (q == nullptr || k.support(q, reason))) {
            return &k;
        }
    }
    for (const loong_raw_kernel_t *k : raw) {
        if (strcmp(k->op, op) == 0 && (q == nullptr || k->support(q, reason))) {
            return k;
        }
    }
    return nullptr;
}

const char *describe()
{
    return "XDNN's copy, cast, scale, add and multiply, and raw kernels; "
#ifdef LOONG_SHIM_BKCL
           "with bkcl.h; "
#endif
           "compiled " __DATE__;
}

const char *tell_error()
{
    return last_error.c_str();
}

/* Whatever the installed headers have. */
int enumerator(const char *name, int64_t *value_p)
{
#define LOONG_NAME(name_) {#name_, static_cast<int64_t>(name_)}
    static const struct {
        const char *name;
        int64_t value;
    } list[] = {
        LOONG_NAME(XPU_DEVICE_TO_HOST),
        LOONG_NAME(XPU_HOST_TO_DEVICE),
        LOONG_NAME(XPU_DEVICE_TO_DEVICE),
        LOONG_NAME(XPU_MEM_MAIN),
#ifdef LOONG_SHIM_BKCL
        LOONG_NAME(BKCL_UINT8),
        LOONG_NAME(BKCL_INT32),
        LOONG_NAME(BKCL_INT64),
        LOONG_NAME(BKCL_FLOAT16),
        LOONG_NAME(BKCL_BFLOAT16),
        LOONG_NAME(BKCL_FLOAT),
        LOONG_NAME(BKCL_FLOAT64),
        LOONG_NAME(BKCL_ADD),
        LOONG_NAME(BKCL_PRODUCT),
        LOONG_NAME(BKCL_MAX),
        LOONG_NAME(BKCL_MIN),
        {"sizeof BKCLUniqueId", static_cast<int64_t>(sizeof(BKCLUniqueId))},
#endif
    };
#undef LOONG_NAME
    for (const auto &e : list) {
        if (strcmp(e.name, name) == 0) {
            *value_p = e.value;
            return 0;
        }
    }
    return 1;
}

/* A row at a time where rows are apart. */
int copy(const loong_device_rows_t *r, void *stream)
{
    bool dense = r->dst_apart == r->bytes && r->src_apart == r->bytes;
    size_t rows = dense ? 1 : r->rows;
    size_t bytes = dense ? r->rows * r->bytes : r->bytes;
    int error = 0;
    for (size_t i = 0; i < rows && error == 0; i++) {
        error = api::copy<int8_t>(
            context_of(stream),
            static_cast<const int8_t *>(r->src) + i * r->src_apart,
            static_cast<int8_t *>(r->dst) + i * r->dst_apart,
            static_cast<int64_t>(bytes));
    }
    return told("copy", error);
}

int fill(void *dst, int byte, size_t bytes, void *stream)
{
    last_error = "fill";
    return loong_raw_fill(dst, byte, bytes, stream);
}

void forget(void *stream)
{
    std::lock_guard<std::mutex> hold(all().lock);
    auto it = all().of.find(stream);
    if (it != all().of.end()) {
        api::destroy_context(it->second);
        all().of.erase(it);
    }
}

int has(const char *op)
{
    return find(op, nullptr, nullptr) != nullptr;
}

int support(const loong_kernel_query_t *query, char reason[LOONG_REASON_SIZE])
{
    return find(query->op, query, reason) != nullptr;
}

size_t workspace(const loong_kernel_query_t *query)
{
    char reason[LOONG_REASON_SIZE];
    const loong_raw_kernel_t *k = find(query->op, query, reason);
    return k != nullptr && k->workspace != nullptr ? k->workspace(query) : 0;
}

int prepare(const loong_kernel_query_t *query, void **state_p)
{
    char reason[LOONG_REASON_SIZE] = "";
    const loong_raw_kernel_t *k = find(query->op, query, reason);
    if (k == nullptr) {
        last_error = reason;
        return 1;
    }
    *state_p = const_cast<loong_raw_kernel_t *>(k);
    return 0;
}

void destroy(void *)
{
}

int launch(const loong_kernel_call_t *call)
{
    last_error = call->query->op;
    return static_cast<const loong_raw_kernel_t *>(call->state)->launch(call);
}

} // namespace

extern "C" __attribute__((visibility("default"))) const loong_xpu_shim_t *
loong_xpu_shim(void)
{
    static const loong_xpu_shim_t table = {LOONG_XPU_SHIM_ABI,
                                           sizeof(loong_kernel_query_t),
                                           sizeof(loong_kernel_call_t),
                                           sizeof(loong_frame_t),
                                           1,
                                           describe,
                                           tell_error,
                                           enumerator,
                                           copy,
                                           fill,
                                           forget,
                                           has,
                                           support,
                                           workspace,
                                           prepare,
                                           destroy,
                                           launch};
    return &table;
}
