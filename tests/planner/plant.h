/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted bugs: the linker puts functions of this file before those of the
 * library (--wrap), which do what the library does and one thing wrong. The
 * planner test must notice each. */
#ifndef LOONG_PLANT_H
#define LOONG_PLANT_H

#include <stdint.h>

#define PLANT_LIST(X)                                                         \
    X(NONE, "nothing")                                                        \
    X(END, "an interval of memory ends one step early")                       \
    X(BEGIN, "an interval of memory begins one step late")                    \
    X(OFFSET, "two intervals of memory overlap")                              \
    X(IN_PLACE, "an output takes over an input that is read later")           \
    X(PEAK, "256 bytes less are planned than are used")                        \
    X(WASTE, "256 bytes more are planned than are used")                       \
    X(COLOUR, "one slot too few, shared in turn")                             \
    X(SPLIT, "a node that B needs runs in W")                                 \
    X(GATHER, "a gradient is written by two programs")                        \
    X(FIRST, "the first writer of a gradient adds")                           \
    X(LATER, "a later writer of a gradient overwrites")                       \
    X(GAPS, "operands with gaps for kernels that want none")                  \
    X(ASSEMBLE, "a part of a concat one column aside")                        \
    X(RECOMPUTE, "a clone reads its inputs in another order")                 \
    X(DEAD, "a node that is needed is removed")                               \
    X(PAIR_SCRATCH, "the programs of a pair share scratch")                   \
    X(PAIR_FRAME, "the programs of a pair swap frames")                       \
    X(STALE_FRAME, "every micro-batch is the first of the step")

typedef enum plant {
#define PLANT_ENUM(name_, text_) PLANT_##name_,
    PLANT_LIST(PLANT_ENUM)
#undef PLANT_ENUM
    PLANT_COUNT
} plant_t;

typedef struct plant_state {
    plant_t plant;   /* NONE: the library as it is */
    uint64_t seed;   /* chooses where */
    int64_t planted; /* times that it was done */
} plant_state_t;

extern plant_state_t plant_state;
const char *plant_text(plant_t plant);

#endif
