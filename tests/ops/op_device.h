/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the kernels under test run. The same tests are built for each kind of
 * device (OP_DEVICE); operands are always host memory here, and travel.
 */
#ifndef LOONG_OP_DEVICE_H
#define LOONG_OP_DEVICE_H

#include "loong/kernel.h"
#include "test.h"

#ifndef OP_LEAST
#define OP_LEAST 1 /* kernels of an op: 2 where the device has one of its own */
#endif

#ifndef OP_DEVICE
#define OP_DEVICE "cpu"
#endif
/* 1: cases as large as in training too; a real device is fast enough. */
#ifndef OP_LARGE
#define OP_LARGE 0
#endif

/* True when the device has a kernel for the op. A CPU has one for each. */
bool op_present(const char *op);

/* kernel->run(call) on the kernel's device: copies operands, frame and
 * workspace there, launches, waits, and copies operands back. Operands that
 * share an address here share one there. */
loong_status_t op_device_run(const loong_kernel_t *kernel,
                             const loong_kernel_call_t *call);

#endif
