// SPDX-License-Identifier: Apache-2.0
//
// The kernel shim of simulated devices: every op by the library's own kernels
// of the processor, on the thread of the stream and on the bytes of the
// device. It sees what hardware would not forgive: an operand of the host's,
// or of another device, or one that ends too soon.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bkcl_sim.h"
#include "loong/context.h"
#include "loong/register.h"
#include "xpu_shim.h"
#include "xpusim.h"

namespace {

thread_local std::string last_error;
thread_local bool opens = false; /* a context, which asks what there is */

struct context {
    loong_context_t *ctx = nullptr;
    context()
    {
        loong_context_params_t params = {};
        opens = true;
        if (loong_context_create(&params, &ctx) != LOONG_OK ||
            loong_register_builtin(ctx) != LOONG_OK) {
            abort();
        }
        opens = false;
    }
    ~context()
    {
        loong_context_destroy(&ctx);
    }
};

/* What is prepared belongs to it; who launches has one of the others. */
struct shared {
    std::mutex lock;
    context c;
};

shared &all()
{
    static shared *s = new shared;
    return *s;
}

/* One that nobody has, for one launch. */
class lent {
    static std::vector<std::unique_ptr<context>> &idle()
    {
        static auto *list = new std::vector<std::unique_ptr<context>>;
        return *list;
    }
    std::unique_ptr<context> c;

public:
    lent()
    {
        std::lock_guard<std::mutex> hold(all().lock);
        if (idle().empty()) {
            c.reset(new context);
        } else {
            c = std::move(idle().back());
            idle().pop_back();
        }
    }
    ~lent()
    {
        loong_context_clear_error(c->ctx);
        std::lock_guard<std::mutex> hold(all().lock);
        idle().push_back(std::move(c));
    }
    loong_context_t *ctx()
    {
        return c->ctx;
    }
};

struct prepared {
    loong_kernel_query_t query;
    std::vector<char> attr;
    const loong_kernel_t *kernel = nullptr;
    void *state = nullptr;
    ~prepared()
    {
        std::lock_guard<std::mutex> hold(all().lock);
        if (kernel != nullptr && kernel->destroy != nullptr) {
            kernel->destroy(all().c.ctx, state);
        }
    }
};
using prepared_ref = std::shared_ptr<prepared>;

struct launch {
    prepared_ref of;
    loong_kernel_query_t query;
    loong_kernel_call_t call;
    void *ptr[LOONG_MAX_OPERANDS];
    int device;
};

int fail(int code, const std::string &why)
{
    last_error = why;
    return xpusim_error(code);
}

const loong_kernel_t *find(const loong_kernel_query_t *q, char *reason)
{
    const loong_kernel_t *k = nullptr;
    for (int i = 0;
         (k = loong_find_kernel(all().c.ctx, q->op, "cpu", i)) != nullptr;
         i++) {
        if (k->support == nullptr || k->support(q, reason)) {
            reason[0] = '\0';
            return k;
        }
    }
    return nullptr;
}

size_t reach(const loong_karg_t *a)
{
    int64_t rows = loong_karg_rows(a);
    int64_t cols = loong_karg_cols(a);
    int64_t ld = a->rank > 1 ? a->ld : cols;
    return rows > 0 ? (size_t)((rows - 1) * ld + cols) *
                          loong_dtype_size(a->dtype)
                    : 0;
}

/* ---- the table ----------------------------------------------------------- */

const char *describe()
{
    return "simulator: ops by the processor's kernels";
}

const char *tell_error()
{
    return last_error.c_str();
}

int enumerator(const char *name, int64_t *value)
{
    xpusim_values_t v = xpusim_values();
    bool wrong = xpusim_plant("wrong_enumerator");
    struct {
        const char *name;
        int value;
    } const list[] = {{"XPU_DEVICE_TO_HOST", v.device_to_host},
                      {"XPU_HOST_TO_DEVICE", v.host_to_device},
                      {"XPU_DEVICE_TO_DEVICE", v.device_to_device},
                      {"XPU_MEM_MAIN", v.memory_main},
#define BKCL_ENTRY(name_, number_) {"BKCL_" #name_, number_},
                      BKCLSIM_NAMES(BKCL_ENTRY)
#undef BKCL_ENTRY
                      {"sizeof BKCLUniqueId", BKCLSIM_ID_BYTES}};
    for (const auto &e : list) {
        if (strcmp(e.name, name) == 0) {
            *value = e.value + wrong;
            return 0;
        }
    }
    return 1;
}

struct move {
    loong_device_rows_t rows; /* src NULL: filled with `byte` */
    int byte;
    int device;
};

int check_rows(const move *m)
{
    const loong_device_rows_t &r = m->rows;
    size_t last = r.rows - 1;
    int error = xpusim_check("copy", r.dst, last * r.dst_apart + r.bytes,
                             m->device);
    if (error == 0 && r.src != nullptr) {
        error = xpusim_check("copy", r.src, last * r.src_apart + r.bytes,
                             m->device);
    }
    return error;
}

int run_move(void *data)
{
    std::unique_ptr<move> m((move *)data);
    const loong_device_rows_t &r = m->rows;
    if (int error = check_rows(m.get())) {
        return error;
    }
    char *dst = (char *)xpusim_host(r.dst);
    const char *src = (const char *)xpusim_host(r.src);
    for (size_t i = 0; i < r.rows; i++) {
        if (src != nullptr) {
            memmove(dst + i * r.dst_apart, src + i * r.src_apart, r.bytes);
        } else {
            memset(dst + i * r.dst_apart, m->byte, r.bytes);
        }
    }
    return 0;
}

int put(const move &of, void *stream)
{
    std::unique_ptr<move> m(new move(of));
    m->device = xpusim_device(stream);
    if (m->rows.rows == 0 || m->rows.bytes == 0) {
        return 0;
    }
    if (xpusim_plant("host_pointer")) {
        m->rows.dst = &last_error;
    }
    if (xpusim_plant("beyond_end")) {
        m->rows.dst = (char *)m->rows.dst + 4096;
    }
    m->rows.bytes -= xpusim_plant("short_fill");
    if (int error = check_rows(m.get())) {
        return fail(error, "not memory of the device");
    }
    return xpusim_launch(stream, "copy", run_move, m.release());
}

int copy(const loong_device_rows_t *rows, void *stream)
{
    return put({*rows, 0, 0}, stream);
}

int fill(void *dst, int byte, size_t bytes, void *stream)
{
    return put({{dst, bytes, nullptr, 0, bytes, 1}, byte, 0}, stream);
}

void forget(void *stream)
{
    if (xpusim_current() != xpusim_device(stream)) {
        xpusim_found("shim: forget of a stream of device %d, current is %d",
                     xpusim_device(stream), xpusim_current());
    }
}

bool lacks(const char *op)
{
    const char *text = getenv("SIM_XPU_LACKS");
    std::string list = std::string(",") + (text != nullptr ? text : "") + ",";
    return list.find(std::string(",") + op + ",") != std::string::npos;
}

int has(const char *op)
{
    return !opens && !lacks(op) &&
           loong_find_kernel(all().c.ctx, op, "cpu", 0) != nullptr;
}

int support(const loong_kernel_query_t *query, char reason[LOONG_REASON_SIZE])
{
    std::lock_guard<std::mutex> hold(all().lock);
    return find(query, reason) != nullptr;
}

size_t workspace(const loong_kernel_query_t *query)
{
    char reason[LOONG_REASON_SIZE];
    loong_kernel_query_t q = *query;
    std::lock_guard<std::mutex> hold(all().lock);
    q.threads = 1;
    const loong_kernel_t *k = find(&q, reason);
    return k != nullptr && k->workspace != nullptr ? k->workspace(&q) : 0;
}

int prepare(const loong_kernel_query_t *query, void **state_p)
{
    char reason[LOONG_REASON_SIZE] = "";
    prepared_ref p = std::make_shared<prepared>();
    const loong_op_t *op = loong_find_op(all().c.ctx, query->op);
    const char *attr = (const char *)query->attr;
    p->query = *query;
    p->query.threads = 1;
    p->attr.assign(attr, attr + (op != nullptr && attr != nullptr
                                     ? op->attr_size
                                     : 0));
    p->query.attr = attr != nullptr ? p->attr.data() : nullptr;
    std::unique_lock<std::mutex> hold(all().lock);
    const loong_kernel_t *k = find(&p->query, reason);
    if (k == nullptr) {
        hold.unlock();
        return fail(XPUSIM_NOSUPPORT, reason);
    }
    if (k->prepare != nullptr &&
        k->prepare(all().c.ctx, &p->query, &p->state) != LOONG_OK) {
        hold.unlock();
        return fail(XPUSIM_NOSUPPORT, loong_context_error(all().c.ctx));
    }
    p->kernel = k;
    *state_p = new prepared_ref(p);
    return 0;
}

void destroy(void *state)
{
    delete (prepared_ref *)state;
}

/* ---- launches ------------------------------------------------------------ */

int check(const launch *l)
{
    const loong_kernel_query_t *q = &l->query;
    int error = 0;
    for (int i = 0; i < q->num_in + q->num_out && error == 0; i++) {
        if (l->ptr[i] != nullptr) {
            error = xpusim_check(q->op, l->ptr[i], reach(&q->arg[i]),
                                 l->device);
        }
    }
    if (error == 0) {
        error = xpusim_check(q->op, l->call.device_frame,
                             sizeof(loong_frame_t), l->device);
    }
    return error != 0 ? error
                      : xpusim_check(q->op, l->call.error,
                                     sizeof(loong_device_error_t), l->device);
}

/* A kernel tells what it finds wrong in data; the first finding stays. */
void note(const launch *l, const char *text)
{
    static std::mutex lock;
    static std::vector<std::unique_ptr<std::string>> *told =
        new std::vector<std::unique_ptr<std::string>>;
    loong_device_error_t *e =
        (loong_device_error_t *)xpusim_host(l->call.error);
    std::lock_guard<std::mutex> hold(lock);
    if (e->kind == LOONG_DEVICE_ERROR_NONE) {
        told->emplace_back(new std::string(text));
        e->op = told->back()->c_str();
        e->kind = LOONG_XPU_ERROR_TEXT;
    }
}

int run(void *data)
{
    std::unique_ptr<launch> l((launch *)data);
    if (int error = check(l.get())) {
        return error;
    }
    void *host[LOONG_MAX_OPERANDS];
    loong_kernel_call_t call = l->call;
    int count = l->query.num_in + l->query.num_out;
    for (int i = 0; i < count; i++) {
        host[i] = xpusim_host(l->ptr[i]);
    }
    loong_frame_t frame =
        *(const loong_frame_t *)xpusim_host(l->call.device_frame);
    lent context;
    call.ctx = context.ctx();
    call.query = &l->query;
    call.state = l->of->state;
    call.frame = &frame;
    call.ptr = host;
    call.workspace = xpusim_host(l->call.workspace);
    call.stream = nullptr;
    call.device = nullptr;
    call.device_frame = nullptr;
    call.error = nullptr;
    loong_status_t status = l->of->kernel->run(&call);
    if (status == LOONG_ERR_ARG) {
        std::string text = loong_context_error(call.ctx);
        note(l.get(), text.substr(0, text.find('\n')).c_str());
    } else if (status != LOONG_OK) {
        xpusim_found("%s: %s", l->query.op, loong_context_error(call.ctx));
    }
    return status == LOONG_OK || status == LOONG_ERR_ARG
               ? 0
               : xpusim_error(XPUSIM_KERNEL);
}

int start(const loong_kernel_call_t *call)
{
    std::unique_ptr<launch> l(new launch);
    l->of = *(prepared_ref *)call->state;
    l->query = *call->query;
    l->query.attr = l->of->query.attr;
    l->query.threads = 1;
    l->call = *call;
    l->device = xpusim_device(call->stream);
    int count = call->query->num_in + call->query->num_out;
    for (int i = 0; i < count; i++) {
        l->ptr[i] = call->ptr[i];
    }
    if (count > 0 && xpusim_plant("host_operand")) {
        l->ptr[0] = &last_error;
    }
    if (count > 0 && l->ptr[0] != nullptr && xpusim_plant("operand_ends")) {
        l->ptr[0] = (char *)l->ptr[0] + 4096;
    }
    if (int error = check(l.get())) {
        return fail(error, "operands are not memory of the device");
    }
    return xpusim_launch(call->stream, call->query->op, run, l.release());
}

uint32_t alignment()
{
    const char *text = getenv("SIM_XPU_ALIGN");
    return text != nullptr && atoi(text) > 0 ? (uint32_t)atoi(text) : 1;
}

} // namespace

extern "C" XPUSIM_API const loong_xpu_shim_t *loong_xpu_shim(void)
{
    static const loong_xpu_shim_t table = {LOONG_XPU_SHIM_ABI,
                                           sizeof(loong_kernel_query_t),
                                           sizeof(loong_kernel_call_t),
                                           sizeof(loong_frame_t),
                                           alignment(),
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
                                           start};
    return &table;
}
