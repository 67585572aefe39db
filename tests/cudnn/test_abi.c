/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of cudnn_abi.h are those of cuDNN's own header, which is read as
 * text. */
#include <ctype.h>

#include "cudnn/cudnn_abi.h"
#include "test.h"

typedef struct entry {
    const char *name;
    int number;
} entry_t;

#define ENTRY(name_, number_) {"CUDNN_" #name_, number_},
static const entry_t entries[] = {
    LOONG_CUDNN_STATUSES(ENTRY) LOONG_CUDNN_DATA_TYPES(ENTRY)
    LOONG_CUDNN_MODES(ENTRY) LOONG_CUDNN_REDUCTIONS(ENTRY)
    LOONG_CUDNN_HEURISTICS(ENTRY) LOONG_CUDNN_NOTES(ENTRY)
    LOONG_CUDNN_TYPES(ENTRY) LOONG_CUDNN_DESCRIPTORS(ENTRY)
    LOONG_CUDNN_ATTRIBUTES(ENTRY)};

static char header[256 * 1024];

static void read_header(void)
{
    FILE *f = fopen(CUDNN_HEADER, "r");
    assert_non_null(f);
    size_t size = fread(header, 1, sizeof(header) - 1, f);
    fclose(f);
    assert_in_range(size, 1, sizeof(header) - 2); /* all of it */
    header[size] = '\0';
}

/* The number behind "NAME =", words between them skipped; -1: none. */
static int number_of(const char *name)
{
    size_t length = strlen(name);
    for (const char *p = strstr(header, name); p != NULL;
         p = strstr(p + 1, name)) {
        const char *q = p + length;
        if (*q != ' ' || isalnum((unsigned char)p[-1]) || p[-1] == '_') {
            continue;
        }
        q += strspn(q, " ");
        q += strspn(q, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"); /* "is deprecated" */
        q += strspn(q, " ");
        if (*q == '=') {
            return atoi(q + 1);
        }
    }
    return -1;
}

static void test_numbers(void **state)
{
    (void)state;
    read_header();
    assert_int_equal(number_of("CUDNN_NO_SUCH_NAME"), -1);
    for (int64_t i = 0; i < (int64_t)(sizeof(entries) / sizeof(entries[0]));
         i++) {
        if (number_of(entries[i].name) != entries[i].number) {
            fail_msg("%s is %d in the header, %d here", entries[i].name,
                     number_of(entries[i].name), entries[i].number);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
