/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that a recipe asks for (`fault:`), so that what is said about real
 * ones in docs/faults.md can be tried. Each happens once, on one rank, at one
 * step, and says so. */
#ifndef LOONG_FAULT_H
#define LOONG_FAULT_H

#include "base.h"
#include "fields.h"
#include "loong/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text): the names are those of the recipe. */
#define LOONG_FAULT_LIST(X)                                                   \
    X(KILL, "kill")                         /* SIGKILL */                     \
    X(CRASH, "crash")                       /* a segmentation fault */        \
    X(STOP, "stop")                         /* SIGSTOP */                     \
    X(HANG, "hang")                         /* it sleeps for good */          \
    X(EXIT, "exit")                         /* it ends early, with 0 */       \
    X(SLOW, "slow")                         /* `seconds` late */              \
    X(WRONG_COLLECTIVE, "wrong_collective") /* where others do the header */  \
    X(IO_ERROR, "io_error")                 /* of the loader */               \
    X(NAN_GRADIENT, "nan_gradient")         /* from the loss on */            \
    X(CORRUPT_CHECKPOINT, "corrupt_checkpoint") /* its file, once saved */

typedef enum loong_fault_kind {
#define LOONG_FAULT_ENUM(name_, text_) LOONG_FAULT_##name_,
    LOONG_FAULT_LIST(LOONG_FAULT_ENUM)
#undef LOONG_FAULT_ENUM
        LOONG_FAULT_COUNT
} loong_fault_kind_t;

extern const loong_recipe_table_t loongi_fault_keys;

typedef struct loong_faults loong_faults_t;

/* Those of the recipe for this attempt of the job; all ranks are warned.
 * *faults_p is NULL when there are none. Collective on: comm. */
LOONG_NODISCARD loong_status_t
loongi_faults_create(loong_context_t *ctx, loong_comm_t *comm,
                     const loong_recipe_t *recipe, loong_faults_t **faults_p);
void loongi_faults_destroy(loong_faults_t **faults_p);

/* Does one of this kind await this rank, at any step? */
bool loongi_fault_is_set(const loong_faults_t *faults, loong_fault_kind_t kind);
/* Does it happen now? Then it is logged, and will not happen again. faults may
 * be NULL. Not collective. */
bool loongi_fault_due(loong_faults_t *faults, loong_fault_kind_t kind,
                      int64_t step);

/* The kinds up to WRONG_COLLECTIVE, before the header of a step. Some do not
 * return. */
LOONG_NODISCARD loong_status_t loongi_fault_begin_step(loong_faults_t *faults,
                                                       int64_t step);
/* CORRUPT_CHECKPOINT, when the checkpoint of a step is whole. Errors:
 * LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_fault_saved(loong_faults_t *faults,
                                                  const char *dir,
                                                  int64_t step);

#ifdef __cplusplus
}
#endif

#endif
