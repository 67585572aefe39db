/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel with mistakes on request, which the host model must find. */
#ifndef PROOF_H
#define PROOF_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, what the report says) */
#define PROOF_BUGS(X)                                                         \
    X(NOTHING, "")                                                            \
    X(NO_FENCE, "before a fence: a copy to it is under way")                  \
    X(LATE_WRITE, "before a fence: a copy of it is under way")                \
    X(EARLY_COPY, "LM2GM local memory before a fence: a scalar wrote it")     \
    X(EARLY_VECTOR, "before a fence: a scalar wrote it")                      \
    X(EARLY_SCALAR, "before a fence: a vector wrote it")                      \
    X(READ_BACK, "an earlier copy of the core is writing")                    \
    X(LEFT_COPY, "the core ends while GM2LM is under way")                    \
    X(BEYOND_LOCAL, "read of 4 bytes out of bounds of local memory")          \
    X(BEYOND_COPY, "not within an array of the core's local memory")          \
    X(BEYOND_GLOBAL, "GM2LM of 256 bytes: not in the array")                  \
    X(HOST_POINTER, "GM2LM of 64 bytes: not in the array")                    \
    X(DIRECT_GLOBAL, "global memory is reached by copies alone")              \
    X(NEGATIVE_SIZE, "-4 bytes")                                              \
    X(MUCH_LOCAL, "8448 bytes of local memory, at most 6144")                 \
    X(MUCH_SHARED, "bytes of shared memory, at most 40960")             \
    X(ODD_VECTOR, "is at no multiple of 64 bytes")                            \
    X(WRONG_MEMORY, "is not in the memory it is of")                          \
    X(OTHER_CORE, "out of the core's own local memory")                       \
    X(NO_BARRIER, "without a barrier between")                                \
    X(BARRIER_UNFENCED, "barrier before a fence")                             \
    X(BARRIER_COPYING, "barrier while GM2SM is under way")                    \
    X(TWO_BARRIERS, "while core ")                                            \
    X(CORE_LEAVES, "for ever")                                                \
    X(TWO_WRITERS, "touch the same global memory")                            \
    X(CLUSTER_ORDER, "touch the same global memory")                          \
    X(FEW_CORES, "12 clusters of 16 cores")

typedef enum proof_bug {
#define PROOF_ENUM(name_, text_) PROOF_##name_,
    PROOF_BUGS(PROOF_ENUM)
#undef PROOF_ENUM
        PROOF_COUNT
} proof_bug_t;

/* x += 1, of n floats. */
int proof_run(proof_bug_t bug, float *x, int n);

#ifdef __cplusplus
}
#endif

#endif
