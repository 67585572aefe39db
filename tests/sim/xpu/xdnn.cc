// SPDX-License-Identifier: Apache-2.0
//
// What the real kernel shim (backends/xpu/shim/xpukern.cc) finds of the vendor
// on a simulated device: XDNN's functions, on the stream of their context and
// on the bytes of the device, and the host model of clusters for the raw
// kernels. With them that source is executed, not compiled alone.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "clustersim.h"
#include "xpu/xdnn.h"
#include "xpusim.h"

namespace {

/* A function of elements: of x alone, or of x and y. */
struct launch {
    const char *name;
    int64_t length;
    const void *in[2];
    size_t size[3]; /* of an element of each, and of out */
    void *out;
    int device;
    std::function<void(const void *, const void *, void *, int64_t)> run;
};

int check(const launch &l)
{
    for (int i = 0; i < 2; i++) {
        int error = l.in[i] == nullptr
                        ? 0
                        : xpusim_check(l.name, l.in[i],
                                       (size_t)l.length * l.size[i], l.device);
        if (error != 0) {
            return error;
        }
    }
    return xpusim_check(l.name, l.out, (size_t)l.length * l.size[2], l.device);
}

int run(void *data)
{
    std::unique_ptr<launch> l((launch *)data);
    if (int error = check(*l)) {
        return error;
    }
    const void *y = l->in[1] != nullptr ? xpusim_host(l->in[1]) : nullptr;
    l->run(xpusim_host(l->in[0]), y, xpusim_host(l->out), l->length);
    return 0;
}

int start(baidu::xpu::api::Context *ctx, const launch &of)
{
    std::unique_ptr<launch> l(new launch(of));
    l->device = xpusim_device(ctx->stream);
    return xpusim_launch(ctx->stream, of.name, run, l.release());
}

float widen(float x)
{
    return x;
}
float widen(bfloat16 x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
template <class T> T narrow(float x);
template <> float narrow(float x)
{
    return x;
}
template <> bfloat16 narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (std::isnan(x)) {
        return {(uint16_t)(bits >> 16 | 0x40u)};
    }
    return {(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <class X> struct inputs {
    const X *x, *other;
};

template <class X, class Y, class F>
int map(baidu::xpu::api::Context *ctx, const char *name, inputs<X> in, Y *y,
        int64_t length, F f)
{
    return start(ctx, {name,
                       length,
                       {in.x, in.other},
                       {sizeof(X), sizeof(X), sizeof(Y)},
                       y,
                       0,
                       [f](const void *a, const void *b, void *out, int64_t n) {
                           for (int64_t i = 0; i < n; i++) {
                               float u = widen(((const X *)a)[i]);
                               float v =
                                   b != nullptr ? widen(((const X *)b)[i]) : 0;
                               ((Y *)out)[i] = narrow<Y>(f(u, v));
                           }
                       }});
}

} // namespace

namespace baidu {
namespace xpu {
namespace api {

int Context::set_stream(XPUStream of, bool)
{
    stream = of;
    return 0;
}

Context *create_context()
{
    return new Context;
}

void destroy_context(Context *ctx)
{
    delete ctx;
}

template <> int copy(Context *ctx, const int8_t *x, int8_t *y, int64_t length)
{
    return start(ctx, {"copy",
                       length,
                       {x, nullptr},
                       {1, 1, 1},
                       y,
                       0,
                       [](const void *a, const void *, void *out, int64_t n) {
                           memmove(out, a, (size_t)n);
                       }});
}

template <typename X, typename Y>
int cast(Context *ctx, const X *x, Y *y, int64_t length)
{
    return map(ctx, "cast", inputs<X>{x, nullptr}, y, length,
               [](float u, float) { return u; });
}
template int cast(Context *, const float *, bfloat16 *, int64_t);
template int cast(Context *, const bfloat16 *, float *, int64_t);

template <typename T>
int scale(Context *ctx, const T *x, T *y, int64_t length, bool behind,
          float factor, float bias)
{
    return map(ctx, "scale", inputs<T>{x, nullptr}, y, length,
               [=](float u, float) {
                   return behind ? u * factor + bias : (u + bias) * factor;
               });
}
template int scale(Context *, const float *, float *, int64_t, bool, float,
                   float);
template int scale(Context *, const bfloat16 *, bfloat16 *, int64_t, bool,
                   float, float);

template <typename T>
int broadcast_add(Context *ctx, const T *x, const T *y, T *z,
                  const std::vector<int64_t> &shape,
                  const std::vector<int64_t> &)
{
    return map(ctx, "broadcast_add", inputs<T>{x, y}, z, shape[0],
               [](float u, float v) { return u + v; });
}
template int broadcast_add(Context *, const float *, const float *, float *,
                           const std::vector<int64_t> &,
                           const std::vector<int64_t> &);
template int broadcast_add(Context *, const bfloat16 *, const bfloat16 *,
                           bfloat16 *, const std::vector<int64_t> &,
                           const std::vector<int64_t> &);

template <typename T>
int broadcast_mul(Context *ctx, const T *x, const T *y, T *z,
                  const std::vector<int64_t> &shape,
                  const std::vector<int64_t> &)
{
    return map(ctx, "broadcast_mul", inputs<T>{x, y}, z, shape[0],
               [](float u, float v) { return u * v; });
}
template int broadcast_mul(Context *, const float *, const float *, float *,
                           const std::vector<int64_t> &,
                           const std::vector<int64_t> &);
template int broadcast_mul(Context *, const bfloat16 *, const bfloat16 *,
                           bfloat16 *, const std::vector<int64_t> &,
                           const std::vector<int64_t> &);

} // namespace api
} // namespace xpu
} // namespace baidu

/* ---- the host model of clusters ------------------------------------------ */

static thread_local int running = -1; /* the device of the launch */

void *clustersim_device_memory(const void *device, size_t bytes, char *text,
                               size_t size)
{
    snprintf(text, size, "not memory of device %d", running);
    return xpusim_check("a raw kernel", device, bytes, running) == 0
               ? xpusim_host(device)
               : nullptr;
}

namespace {

struct raw_launch {
    int (*run)(void *arg);
    void *arg;
    int device;
};

int run_raw(void *data)
{
    std::unique_ptr<raw_launch> l((raw_launch *)data);
    running = l->device;
    int error = l->run(l->arg);
    if (error != 0) {
        xpusim_found("%s", clustersim_report());
    }
    return error;
}

} // namespace

int clustersim_stream_run(void *stream, int (*run)(void *arg), void *arg)
{
    std::unique_ptr<raw_launch> l(
        new raw_launch{run, arg, xpusim_device(stream)});
    return xpusim_launch(stream, "raw kernel", run_raw, l.release());
}
