/* SPDX-License-Identifier: Apache-2.0
 *
 * What every file of the library uses: failing with a message, propagating,
 * named allocation, logging, arenas, string building, checked casts.
 *
 * The first function that decides which error it is writes the message
 * (LOONG_FAIL); callers propagate (LOONG_TRY) and may add where they were
 * (loongi_error_note). Outputs are set only on success.
 */
#ifndef LOONG_BASE_H
#define LOONG_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends "file:line: message" to the trail and returns status. */
loong_status_t loongi_fail_at(loong_context_t *ctx, loong_status_t status,
                              const char *file, int line, const char *fmt, ...)
    LOONG_PRINTF(5, 6);

/* Adds one line of context to the trail ("while reading ..."). */
void loongi_error_note(loong_context_t *ctx, const char *fmt, ...)
    LOONG_PRINTF(2, 3);

#define LOONG_FAIL(ctx_, status_, ...)                                        \
    loongi_fail_at(ctx_, status_, __FILE__, __LINE__, __VA_ARGS__)

#define LOONG_TRY(expr_)                                                      \
    do {                                                                      \
        loong_status_t try_status_ = (expr_);                                 \
        if (try_status_ != LOONG_OK) {                                        \
            return try_status_;                                               \
        }                                                                     \
    } while (0)

/* For places that hold resources: status_ is an lvalue the label reads. */
#define LOONG_TRY_GOTO(expr_, status_, label_)                                \
    do {                                                                      \
        (status_) = (expr_);                                                  \
        if ((status_) != LOONG_OK) {                                          \
            goto label_;                                                      \
        }                                                                     \
    } while (0)

#define LOONG_CHECK(ctx_, cond_, status_, ...)                                \
    do {                                                                      \
        if (!(cond_)) {                                                       \
            return LOONG_FAIL(ctx_, status_, __VA_ARGS__);                    \
        }                                                                     \
    } while (0)

/* Logging; lines carry no newline. */
void loongi_log(loong_context_t *ctx, loong_log_level_t level, const char *fmt,
                ...) LOONG_PRINTF(3, 4);

/* Allocation. `what` is a string literal that names the allocation. Memory is
 * zeroed and aligned to 64 bytes. *ptr_p is set on success only. A size of 0
 * gives a valid pointer. */
LOONG_NODISCARD loong_status_t loongi_alloc(loong_context_t *ctx, size_t size,
                                            const char *what, void *ptr_p);
/* count * size with overflow check. */
LOONG_NODISCARD loong_status_t loongi_calloc(loong_context_t *ctx,
                                             size_t count, size_t size,
                                             const char *what, void *ptr_p);
/* Grows *ptr_p (may hold NULL) to size bytes, keeping its content; the new
 * tail is zeroed. */
LOONG_NODISCARD loong_status_t loongi_realloc(loong_context_t *ctx,
                                              size_t size, const char *what,
                                              void *ptr_p);
void loongi_free(loong_context_t *ctx, void *ptr); /* NULL is accepted */
LOONG_NODISCARD loong_status_t loongi_strdup(loong_context_t *ctx,
                                             const char *text, char **copy_p);

/* Makes room for one more element of a growing array: capacity doubles. */
LOONG_NODISCARD loong_status_t loongi_grow(loong_context_t *ctx, void *array_p,
                                           int64_t *capacity_p, int64_t need,
                                           size_t element, const char *what);

/* Bump allocator for things that die together. Zeroed, 16-byte aligned. */
typedef struct loong_arena loong_arena_t;
LOONG_NODISCARD loong_status_t loongi_arena_create(loong_context_t *ctx,
                                                   const char *what,
                                                   loong_arena_t **arena_p);
void loongi_arena_destroy(loong_arena_t **arena_p);
LOONG_NODISCARD loong_status_t loongi_arena_alloc(loong_arena_t *arena,
                                                  size_t size, void *ptr_p);
LOONG_NODISCARD loong_status_t loongi_arena_strdup(loong_arena_t *arena,
                                                   const char *text,
                                                   char **copy_p);
/* printf into the arena. */
LOONG_NODISCARD loong_status_t loongi_arena_printf(loong_arena_t *arena,
                                                   char **text_p,
                                                   const char *fmt, ...)
    LOONG_PRINTF(3, 4);

/* Growing text. Zero-initialise, append, then free. After an allocation
 * failure appends do nothing and loongi_text_status tells. */
typedef struct loong_text {
    loong_context_t *ctx;
    char *data; /* NUL-terminated once something was appended, else NULL */
    size_t length;
    size_t capacity;
    loong_status_t status;
} loong_text_t;

static inline loong_text_t loongi_text_begin(loong_context_t *ctx)
{
    loong_text_t text = {ctx, 0, 0, 0, LOONG_OK};
    return text;
}
void loongi_text_printf(loong_text_t *text, const char *fmt, ...)
    LOONG_PRINTF(2, 3);
void loongi_text_append(loong_text_t *text, const void *bytes, size_t length);
const char *loongi_text_get(const loong_text_t *text); /* never NULL */
void loongi_text_free(loong_text_t *text);

/* True when a scope path matches a glob: '*' stands for any run of characters;
 * a pattern also matches all paths below it. Behind "re:" is an extended
 * regular expression (POSIX), which is looked for in the path. */
bool loongi_scope_match(const char *pattern, const char *scope);
/* Whether that can be read; else the reason. */
enum { LOONG_SCOPE_REASON = 128 };
bool loongi_scope_valid(const char *pattern, char reason[LOONG_SCOPE_REASON]);
/* Any of some globs matches it. */
bool loongi_scope_any(int num_globs, const char *const *globs,
                      const char *scope);
/* It, or its last parts: "q_proj" of "layers.0.q_proj". */
bool loongi_scope_ends(const char *pattern, const char *scope);
bool loongi_scope_ends_any(int num_globs, const char *const *globs,
                           const char *scope);

/* Levenshtein distance, for "did you mean"; at most `limit` + 1 is returned.*/
int loongi_edit_distance(const char *a, const char *b, int limit);

/* "12.3 MiB" and "1.23M" style figures into a caller's buffer. */
#define LOONG_HUMAN_SIZE 32
const char *loongi_human_bytes(double bytes, char buffer[LOONG_HUMAN_SIZE]);
const char *loongi_human_count(double count, char buffer[LOONG_HUMAN_SIZE]);

/* Casts at the borders of libraries with int sizes. */
LOONG_NODISCARD loong_status_t loongi_to_int(loong_context_t *ctx,
                                             int64_t value, const char *what,
                                             int *out_p);

double loongi_now(void); /* monotonic seconds */

#define LOONG_COUNT_OF(array_) ((int64_t)(sizeof(array_) / sizeof((array_)[0])))
#define LOONG_MIN(a_, b_) ((a_) < (b_) ? (a_) : (b_))
#define LOONG_MAX(a_, b_) ((a_) > (b_) ? (a_) : (b_))

static inline int64_t loongi_round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

#ifdef __cplusplus
}
#endif

#endif
