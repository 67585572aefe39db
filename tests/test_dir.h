/* SPDX-License-Identifier: Apache-2.0
 *
 * A new directory for all tests of a file: TEST_DIR(dir) defines its path, what
 * cmocka_run_group_tests calls before and after them, paths of files in it
 * (in_dir(name): 32 at a time), and remove_all(ctx, names) of these. */
#ifndef LOONG_TEST_DIR_H
#define LOONG_TEST_DIR_H

#include <stdio.h>
#include <stdlib.h>

#include "file.h"
#include "test.h"

#define TEST_DIR(name_)                                  \
    static char name_[] = "/tmp/loong_test_XXXXXX";      \
                                                         \
    static int make_dir(void **state)                    \
    {                                                    \
        (void)state;                                     \
        return mkdtemp(name_) == NULL;                   \
    }                                                    \
                                                         \
    static int remove_dir(void **state)                  \
    {                                                    \
        (void)state;                                     \
        loong_context_t *ctx = test_context();           \
        assert_ok(ctx, loongi_dir_remove(ctx, name_));   \
        test_context_end(&ctx);                          \
        return 0;                                        \
    }                                                    \
                                                         \
    static inline const char *in_##name_(const char *of) \
    {                                                    \
        static char paths[32][512];                      \
        static int turn;                                 \
        turn = (turn + 1) % 32;                          \
        snprintf(paths[turn], sizeof(paths[turn]),       \
                 "%s/%s", name_, of);                    \
        return paths[turn];                              \
    }                                                    \
                                                         \
    static inline void remove_all(loong_context_t *ctx,  \
                                  const char *const *of) \
    {                                                    \
        for (; *of != NULL; of++) {                      \
            assert_ok(ctx, loongi_dir_remove(            \
                               ctx, in_##name_(*of)));   \
        }                                                \
    }

#endif
