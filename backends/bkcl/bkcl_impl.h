/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this folder: the library, as one communicator has it. */
#ifndef LOONG_BKCL_IMPL_H
#define LOONG_BKCL_IMPL_H

#include "bkcl_abi.h"
#include "device_comm.h"
#include "xpu_library.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOONG_BKCL_FIELD(name_, parameters_) int(*name_) parameters_;
#define LOONG_BKCL_VALUE(name_) int name_;
typedef struct bkcl_library {
    void *file;
    loong_xpu_library_t xpu;
    LOONG_BKCL_FUNCTIONS(LOONG_BKCL_FIELD)
    LOONG_BKCL_OPTIONAL(LOONG_BKCL_FIELD)
    struct {
        LOONG_BKCL_NAMES(LOONG_BKCL_VALUE)
    } value;
    /* For each pending call, counts and offsets of an exchange: four rows of
     * the number of ranks, on the device and as they are written on the host.
     * They stay as they are until the call has passed. */
    size_t *counts;
    size_t *counts_here;
    size_t most; /* elements of one call: what is behind a count of 64 bits is
                    not known to be as wide */
} bkcl_library_t;
#undef LOONG_BKCL_FIELD
#undef LOONG_BKCL_VALUE

static inline bkcl_library_t *bkcl_of(const device_comm_t *n)
{
    return (bkcl_library_t *)n->library;
}

/* The thread's current device is that of the communicator during a call, and
 * what it was before behind it. */
#define BKCL_CALL(n_, result_, call_)         \
    do {                                      \
        int before_ = loongi_bkcl_select(n_); \
        (result_) = (call_);                  \
        loongi_bkcl_restore(n_, before_);     \
    } while (0)
int loongi_bkcl_select(const device_comm_t *n);
void loongi_bkcl_restore(const device_comm_t *n, int before);

/* An error of BKCL's as one of ours. */
LOONG_NODISCARD loong_status_t loongi_bkcl_failed(const device_comm_t *n,
                                                  const char *call, int result);

/* ---- bkcl_connect.c ---- */
LOONG_NODISCARD loong_status_t loongi_bkcl_connect(device_comm_t *n);
void loongi_bkcl_disconnect(device_comm_t *n, bool abort);

/* ---- bkcl_calls.c ---- */
LOONG_NODISCARD loong_status_t
loongi_bkcl_enqueue(device_comm_t *n, const loong_collective_t *call);
/* Sums, largest and smallest ones of known numbers in every type: enumerators
 * that are not those of this library give other results, or errors. Collective
 * on: comm. */
LOONG_NODISCARD loong_status_t loongi_bkcl_test(device_comm_t *n);

#ifdef __cplusplus
}
#endif

#endif
