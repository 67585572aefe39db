/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of optimizers: the states that one keeps of every element of a
 * parameter, and the op that updates them. Checkpoints call the states by
 * their names, optimizer.<state>_dtype of a recipe says how they are stored.
 * A class is a line of the table in optimizer_class.c; groups of parameters
 * (optimizer.h) have its number.
 */
#ifndef LOONG_OPTIMIZER_CLASS_H
#define LOONG_OPTIMIZER_CLASS_H

#include "base.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names are torch.optim's. X(name, text) */
#define LOONG_OPTIMIZER_STATES(X) \
    X(EXP_AVG, "exp_avg")         \
    X(EXP_AVG_SQ, "exp_avg_sq")   \
    X(MOMENTUM_BUFFER, "momentum_buffer")

typedef enum loong_optimizer_state {
#define LOONG_STATE_ENUM(name_, text_) LOONG_STATE_##name_,
    LOONG_OPTIMIZER_STATES(LOONG_STATE_ENUM)
#undef LOONG_STATE_ENUM
    LOONG_STATE_COUNT
} loong_optimizer_state_t;

enum { LOONG_MAX_STATES = 2 }; /* of one class */

typedef struct loong_optimizer_class {
    const char *name; /* of the op, and in recipes */
    bool matrix;      /* a step takes whole matrices (muon.h), else elements */
    int num_states;
    loong_optimizer_state_t states[LOONG_MAX_STATES];
} loong_optimizer_class_t;

const char *loongi_state_name(loong_optimizer_state_t state);

const loong_optimizer_class_t *loongi_optimizer_class(int number);

#ifdef __cplusplus
}
#endif

#endif
