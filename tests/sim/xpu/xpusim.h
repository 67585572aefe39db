/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulator of Kunlun's user-space libraries: shared objects of the vendor's
 * names (libxpurt.so.2, libxpuml.so.1, libxpu_blas.so, and the kernel shim),
 * which a program finds by LOONG_XPU_PATH and nothing else. Declared here is
 * what libxpurt.so.2 exports beside the vendor's symbols: for the other
 * objects, which are linked with it, and for tests, which find it by
 * xpusim_control.h. All settings are variables of the environment:
 *
 *   SIM_XPU_COUNT      devices, 1 to 8 (2)
 *   SIM_XPU_MEMORY     bytes of each that can be had (1 GiB), of 96 GiB told
 *   SIM_XPU_MODEL      300
 *   SIM_XPU_SEED       of orders and delays (1)
 *   SIM_XPU_PACE       share of work that begins before somebody waits for it
 *                      (0.3); 0: none, 1: all
 *   SIM_XPU_LAG        microseconds that a stream rests at most, now and then
 *                      (0)
 *   SIM_XPU_SLOW       microseconds more that an asynchronous copy takes (0)
 *   SIM_XPU_NEG_ERR    1: errors are negative (0)
 *   SIM_XPU_ODD        1: enumerators are not those of the public header; the
 *                      shim tells them (0)
 *   SIM_XPU_MAX_ASYNC  bytes of an asynchronous copy; longer ones fail with
 *                      -999 (2 MiB)
 *   SIM_XPU_STREAMS    streams of a device that may be alive (16)
 *   SIM_XPU_OFFSET     bytes from a multiple of 256 where memory begins (0)
 *   SIM_XPU_ALIGN      multiples where operands of kernels must begin (1)
 *   SIM_XPU_LAUNCH     1: XPU_FORCE_USERMODE_LAUNCH has to be set when the
 *                      runtime is loaded, or the process ends with status 97
 *   SIM_XPU_LACKS      ops that the shim lacks, with commas
 *   SIM_XPU_FAIL       "CALL:N:CODE": call number N of xpu_CALL fails
 *   SIM_XPU_PLANT      a bug of the host code, by name (planted.sh)
 *   SIM_XPU_DEVIATES   what this runtime does otherwise than is assumed, with
 *                      commas: query_early (xpu_event_query is 0 at once),
 *                      swapped_wait (xpu_stream_wait_event takes the event
 *                      first, and crashes), no_event_wait (xpu_event_wait
 *                      hangs), ml_fields (xpumlMemory_t has another word in
 *                      front), bf16_sums (of products), bkcl_values (not those
 *                      of its header), no_event_query and no_all_to_all_v
 *                      (there are no such calls)
 *   SIM_XPU_STRICT     1: the process ends with status 97 when something was
 *                      found wrong
 */
#ifndef XPUSIM_H
#define XPUSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XPUSIM_API __attribute__((visibility("default")))

/* Errors of the runtime, without their sign. */
enum {
    XPUSIM_INVALID_DEVICE = 701,
    XPUSIM_NOMEM = 705,
    XPUSIM_INVALID = 707,
    XPUSIM_NOSUPPORT = 712,
    XPUSIM_KERNEL = 714,
    XPUSIM_BUSY = 716,
    XPUSIM_REGISTERED = 816
};

/* The enumerators of this runtime, odd ones or those of the header. */
typedef struct xpusim_values {
    int device_to_host;
    int host_to_device;
    int device_to_device;
    int memory_main;
    int memory_l3;
} xpusim_values_t;
XPUSIM_API xpusim_values_t xpusim_values(void);

/* Notes what a program did wrong; on stderr as well, unless quiet. */
XPUSIM_API void xpusim_found(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* The code with the sign of this runtime. */
XPUSIM_API int xpusim_error(int code);
/* Counts a call; other than 0: it is to fail so, or the device is lost. */
XPUSIM_API int xpusim_enter(const char *call);
/* This runtime deviates so. */
XPUSIM_API int xpusim_deviates(const char *name);
/* The bug of this name is planted, and it is its turn. */
XPUSIM_API int xpusim_plant(const char *name);

/* Addresses of devices cannot be read by the host; this is where their bytes
 * are. NULL: not of a device. */
XPUSIM_API void *xpusim_host(const void *ptr);
/* 0: the range is memory of the device that is alive. Else it is noted, with
 * `who`, and the code is returned. */
XPUSIM_API int xpusim_check(const char *who, const void *ptr, size_t bytes,
                            int device);
/* 0 unless the address is of no device at all. */
XPUSIM_API int xpusim_is_device(const void *ptr);

/* Work on a stream (NULL: the default stream of the current device): `run` is
 * called with `data` by the thread of the stream, behind what is there; what it
 * returns, other than 0, is told by all who wait for the stream from then on.
 */
XPUSIM_API int xpusim_launch(void *stream, const char *name,
                             int (*run)(void *data), void *data);
/* What is on the stream begins, though nobody here waits for it: others wait
 * elsewhere. */
XPUSIM_API void xpusim_go(void *stream);
/* That of a stream; -1: it is none. */
XPUSIM_API int xpusim_device(void *stream);
/* The current one of this thread. */
XPUSIM_API int xpusim_current(void);

/* ---- for tests ----------------------------------------------------------- */

/* Reads the environment again. */
XPUSIM_API void xpusim_setup(void);
/* What was found wrong first since the last call of xpusim_forget; "". */
XPUSIM_API const char *xpusim_report(void);
XPUSIM_API void xpusim_forget(void);
XPUSIM_API void xpusim_quiet(int quiet);
/* Allocations, streams and events that are alive. */
XPUSIM_API int64_t xpusim_alive(void);
/* Calls of xpu_<name> so far; memcpy_inside: of copies by the runtime inside a
 * device. */
XPUSIM_API int64_t xpusim_calls(const char *name);

#ifdef __cplusplus
}
#endif

#endif
