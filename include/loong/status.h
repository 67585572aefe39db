/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes. Every function of the library that can fail returns one;
 * the text that belongs to a failure is kept by the context (context.h).
 */
#ifndef LOONG_STATUS_H
#define LOONG_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LOONG_API __attribute__((visibility("default")))
#define LOONG_PRINTF(fmt_, args_) __attribute__((format(printf, fmt_, args_)))
#define LOONG_NODISCARD __attribute__((warn_unused_result))
#else
#define LOONG_API
#define LOONG_PRINTF(fmt_, args_)
#define LOONG_NODISCARD
#endif

/* X(name, text). What the code says about what survives:
 * argument, config, data: nothing was changed, the caller may go on;
 * rank: this rank's work failed, the communicator is intact;
 * comm: the communicator is lost, the job must end. */
#define LOONG_STATUS_LIST(X)                                                  \
    X(OK, "success")                                                          \
    X(ERR_ARG, "wrong argument")                                              \
    X(ERR_CONFIG, "wrong recipe")                                             \
    X(ERR_NOT_FOUND, "not found")                                             \
    X(ERR_FORMAT, "malformed or corrupt data")                                \
    X(ERR_MISMATCH, "data that does not match")                               \
    X(ERR_UNSUPPORTED, "not supported")                                       \
    X(ERR_MEMORY, "out of memory")                                            \
    X(ERR_IO, "input or output failed")                                       \
    X(ERR_CANNOT_WRITE, "an output cannot be written")                        \
    X(ERR_NUMERIC, "not a number or infinity in loss or gradient")            \
    X(ERR_INTERRUPTED, "stopped on request")                                  \
    X(ERR_DEVICE, "device failed")                                            \
    X(ERR_COMM, "communication failed")                                       \
    X(ERR_INTERNAL, "broken invariant of the library")

typedef enum loong_status {
#define LOONG_STATUS_ENUM(name_, text_) LOONG_##name_,
    LOONG_STATUS_LIST(LOONG_STATUS_ENUM)
#undef LOONG_STATUS_ENUM
    LOONG_STATUS_COUNT
} loong_status_t;

/* The code's text, never NULL; "unknown status" for a value out of range. */
LOONG_API const char *loong_status_text(loong_status_t status);

#ifdef __cplusplus
}
#endif

#endif
