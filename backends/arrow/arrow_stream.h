/* SPDX-License-Identifier: Apache-2.0
 *
 * The Arrow C data interface (arrow.apache.org/docs/format/CDataInterface.html,
 * CStreamInterface.html): its structs by its names, and what opens a file as a
 * stream of them. Arrow's C++ library has no C interface of its own. */
#ifndef LOONG_ARROW_STREAM_H
#define LOONG_ARROW_STREAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

#define LOONG_ARROW_OBJECT "libloong_arrow.so"

/* The rows of a .parquet, .arrow or .feather file, some hundred at a time: what
 * is in memory does not grow with the file but by its largest row group. What
 * is wrong goes into error[size]; 0: nothing is. */
typedef int (*loong_arrow_open_fn)(const char *path,
                                   struct ArrowArrayStream *stream, char *error,
                                   size_t size);
#define LOONG_ARROW_OPEN "loong_arrow_open"

#ifdef __cplusplus
}
#endif

#endif
