/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs loong-ckpt and looks at what it prints. */
#ifndef TEST_CLI_CKPT_PROGRAM_H
#define TEST_CLI_CKPT_PROGRAM_H

#include <sys/wait.h>

#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"
TEST_DIR(dir)
static const char *program;
static char output[1 << 16];

/* Runs with the arguments; %s in them is the test's directory. */
static int run(const char *arguments)
{
    char expanded[2048], command[4096];
    size_t used = 0;
    for (const char *c = arguments; *c != '\0'; c++) {
        if (c[0] == '%') {
            used += (size_t)snprintf(expanded + used, sizeof(expanded) - used,
                                     "%s", dir);
        } else {
            expanded[used++] = *c;
        }
    }
    expanded[used] = '\0';
    snprintf(command, sizeof(command), "%s %s 2>&1", program, expanded);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(output, 1, sizeof(output) - 1, pipe);
    output[length] = '\0';
    int code = pclose(pipe);
    assert_true(WIFEXITED(code));
    return WEXITSTATUS(code);
}

#define assert_run(arguments_, code_, text_)                              \
    do {                                                                  \
        int run_code_ = run(arguments_);                                  \
        if (run_code_ != (code_) || strstr(output, text_) == NULL) {      \
            fail_msg("%s: exit %d, expected %d and '%s'\n%s", arguments_, \
                     run_code_, code_, text_, output);                    \
        }                                                                 \
    } while (0)

#endif
