/* SPDX-License-Identifier: Apache-2.0
 *
 * What is called of BKCL (libbkcl.so), in declarations of our own. Marks as in
 * docs/devices/xpu.md: shapes of calls are B (independent programs agree), the
 * numbers behind the vendor's names are not public at all (D): they come from
 * the kernel shim, which was compiled against bkcl.h, or from the user
 * (LOONG_BKCL_ENUMS). Results are 0 or an error of either sign. Streams are
 * XPUStream, counts are in elements. */
#ifndef LOONG_BKCL_ABI_H
#define LOONG_BKCL_ABI_H

#include <stddef.h>
#include <stdint.h>

/* More than any BKCLUniqueId that was seen (252 and 4096 bytes at most): it is
 * given by pointer, and shipped as a whole. */
enum { LOONG_BKCL_ID_BYTES = 4096 };

/* X(name, parameters) of bkcl_<name>. Note the places: rank before the number
 * of ranks; counts between buffers; peers before types. */
#define LOONG_BKCL_FUNCTIONS(X)                                              \
    X(get_unique_id, (void *id))                                             \
    X(init_rank, (void **context_p, int rank, int ranks, void *id))          \
    X(destroy_context, (void *context))                                      \
    X(group_start, (void))                                                   \
    X(group_end, (void))                                                     \
    X(all_reduce, (void *context, const void *send, void *receive,           \
                   size_t count, int type, int op, void *stream))            \
    X(all_gather, (void *context, const void *send, size_t count,            \
                   void *receive, int type, void *stream))                   \
    X(reduce_scatter, (void *context, const void *send, void *receive,       \
                       size_t count, int type, int op, void *stream))        \
    X(broadcast, (void *context, const void *send, void *receive,            \
                  size_t count, int type, int root, void *stream))           \
    X(send, (void *context, const void *send, size_t count, int peer,        \
             int type, void *stream))                                        \
    X(recv, (void *context, void *receive, size_t count, int peer, int type, \
             void *stream))

/* Not in every release. Without reduce and all_to_all_v messages take their
 * place; without comm_abort a communicator that is given up is left behind. */
#define LOONG_BKCL_OPTIONAL(X)                                               \
    X(reduce, (void *context, const void *send, void *receive, size_t count, \
               int type, int op, int root, void *stream))                    \
    X(all_to_all_v,                                                          \
      (void *context, const void *send, const size_t *send_counts,           \
       const size_t *send_offsets, int type, void *receive,                  \
       const size_t *receive_counts, const size_t *receive_offsets,          \
       int receive_type, void *stream))                                      \
    X(comm_abort, (void *context))

/* X(name after BKCL_): what is needed of the vendor's enumerators. */
#define LOONG_BKCL_NAMES(X) \
    X(UINT8)                \
    X(INT32)                \
    X(INT64)                \
    X(FLOAT16)              \
    X(BFLOAT16)             \
    X(FLOAT)                \
    X(FLOAT64)              \
    X(ADD)                  \
    X(MAX)                  \
    X(MIN)

#endif
