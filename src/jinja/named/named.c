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
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        if (strcmp(rows[k].name, name) == 0) {
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
