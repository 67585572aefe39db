/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates that come with the library. Called by those who look for the
 * template of a recipe. Read named.h before, and names.txt. */
#include <stddef.h>
#include <string.h>

#include "named.h"

static const struct {
    const char *name, *text;
} rows[] = {
#include "named_texts.inc"
};

const char *loongi_named_template(const char *name)
{
    const size_t length = strlen(name);
    const size_t bare = length > 3 && strcmp(name + length - 3, "-hf") == 0
                            ? length - 3
                            : length;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        if (strlen(rows[k].name) == bare &&
            memcmp(rows[k].name, name, bare) == 0) {
            return rows[k].text;
        }
    }
    return NULL;
}

const char *loongi_named_template_name(int64_t k)
{
    return k >= 0 && k < (int64_t)(sizeof(rows) / sizeof(rows[0]))
               ? rows[k].name
               : NULL;
}
