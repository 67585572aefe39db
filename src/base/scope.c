/* SPDX-License-Identifier: Apache-2.0
 *
 * Globs over scopes. Called by all that recipes let choose parameters or ops.
 * Read base.h before. */
#include "base.h"

static bool glob(const char *p, const char *s)
{
    for (; *p != '\0'; p++) {
        if (*p == '*') {
            for (;; s++) {
                if (glob(p + 1, s)) {
                    return true;
                }
                if (*s == '\0') {
                    return false;
                }
            }
        }
        if (*p != *s) {
            return false;
        }
        s++;
    }
    return *s == '\0' || *s == '.';
}

bool loongi_scope_match(const char *pattern, const char *scope)
{
    return glob(pattern, scope);
}

bool loongi_scope_any(int num_globs, const char *const *globs,
                      const char *scope)
{
    for (int i = 0; i < num_globs; i++) {
        if (loongi_scope_match(globs[i], scope)) {
            return true;
        }
    }
    return false;
}
