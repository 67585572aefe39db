/* SPDX-License-Identifier: Apache-2.0
 *
 * The few things every test uses on top of cmocka: a context whose log goes
 * to stderr, and an assertion that prints the error trail. */
#ifndef LOONG_TEST_H
#define LOONG_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base.h"
#include "slots.h"

static inline void test_log(void *user, loong_log_level_t level,
                            const char *line)
{
    (void)user;
    fprintf(stderr, "%s%s\n", level == LOONG_LOG_WARN ? "warning: " : "", line);
}

/* A context that reports leaks as a test failure when destroyed. */
static inline loong_context_t *test_context(void)
{
    loong_context_params_t params = {test_log, NULL, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    assert_int_equal(loong_context_create(&params, &ctx), LOONG_OK);
    return ctx;
}

static inline void test_context_end(loong_context_t **ctx)
{
    loongi_context_clear(*ctx);
    size_t alive = loong_context_alloc_bytes(*ctx);
    loong_context_destroy(ctx);
    assert_int_equal(alive, 0);
}

#define assert_ok(ctx_, expr_)                                                \
    do {                                                                      \
        loong_status_t ok_status_ = (expr_);                                  \
        if (ok_status_ != LOONG_OK) {                                         \
            fail_msg("%s: %s\n%s", #expr_, loong_status_text(ok_status_),     \
                     loong_context_error(ctx_));                              \
        }                                                                     \
    } while (0)

/* Fails with the given status and a trail that contains the text. */
#define assert_fails(ctx_, expr_, status_, text_)                             \
    do {                                                                      \
        loong_context_clear_error(ctx_);                                      \
        assert_int_equal((expr_), status_);                                   \
        if (strstr(loong_context_error(ctx_), text_) == NULL) {               \
            fail_msg("'%s' is not in: %s", text_, loong_context_error(ctx_)); \
        }                                                                     \
        loong_context_clear_error(ctx_);                                      \
    } while (0)

#endif
