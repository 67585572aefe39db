/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel shim calls of XDNN, as its public callers do (A: copy, scale,
 * broadcast_add; B: cast); xdnn.cc defines them for simulated devices. */
#ifndef XPUSIM_VENDOR_XDNN_H
#define XPUSIM_VENDOR_XDNN_H

#include <cstdint>
#include <vector>

#include "xpu/runtime.h"

struct bfloat16 {
    uint16_t bits;
};

namespace baidu {
namespace xpu {
namespace api {

struct Context {
    XPUStream stream = nullptr;
    int set_stream(XPUStream stream, bool take = false);
};
Context *create_context();
void destroy_context(Context *ctx);

template <typename T>
int copy(Context *ctx, const T *x, T *y, int64_t length);
template <typename X, typename Y>
int cast(Context *ctx, const X *x, Y *y, int64_t length);
template <typename T>
int scale(Context *ctx, const T *x, T *y, int64_t length, bool bias_behind,
          float factor, float bias);
template <typename T>
int broadcast_add(Context *ctx, const T *x, const T *y, T *z,
                  const std::vector<int64_t> &xshape,
                  const std::vector<int64_t> &yshape);
template <typename T>
int broadcast_mul(Context *ctx, const T *x, const T *y, T *z,
                  const std::vector<int64_t> &xshape,
                  const std::vector<int64_t> &yshape);

} // namespace api
} // namespace xpu
} // namespace baidu

#endif
