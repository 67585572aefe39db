/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of the vendor's header that the kernel shim uses, so that its source is
 * compiled in every build. Values as in the public header (A). */
#ifndef XPUSIM_VENDOR_RUNTIME_H
#define XPUSIM_VENDOR_RUNTIME_H

typedef void *XPUStream;
enum XPUMemcpyKind {
    XPU_DEVICE_TO_HOST = 0,
    XPU_HOST_TO_DEVICE = 1,
    XPU_DEVICE_TO_DEVICE = 2
};
enum XPUMemoryKind { XPU_MEM_MAIN = 0, XPU_MEM_L3 = 1 };

#endif
