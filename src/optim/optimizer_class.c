/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of classes of optimizers. Called by optimizer.c, which places and
 * updates what it says, by src/plan and by src/checkpoint/training, which saves
 * and loads it. Read optimizer_class.h before. */
#include "optimizer_class.h"

static const loong_optimizer_class_t classes[] = {
    {"adamw", false, 2, {LOONG_STATE_EXP_AVG, LOONG_STATE_EXP_AVG_SQ}},
    {"lion", false, 1, {LOONG_STATE_EXP_AVG}},
    {"sgd", false, 1, {LOONG_STATE_MOMENTUM_BUFFER}},
    {"muon", true, 1, {LOONG_STATE_MOMENTUM_BUFFER}},
};

const char *loongi_state_name(loong_optimizer_state_t state)
{
    static const char *const names[] = {
#define STATE_NAME(name_, text_) text_,
        LOONG_OPTIMIZER_STATES(STATE_NAME)
#undef STATE_NAME
    };
    return names[state];
}

const loong_optimizer_class_t *loongi_optimizer_class(int number)
{
    return &classes[number];
}
