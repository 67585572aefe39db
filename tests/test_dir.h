/* SPDX-License-Identifier: Apache-2.0
 *
 * A new directory for all tests of a file: TEST_DIR(dir) defines its path and
 * what cmocka_run_group_tests calls before and after them. */
#ifndef LOONG_TEST_DIR_H
#define LOONG_TEST_DIR_H

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
    }

#endif
