/* SPDX-License-Identifier: Apache-2.0
 *
 * Globs and regular expressions over scopes. Called by all that recipes let
 * choose parameters or ops. Read base.h before. */
#include <regex.h>
#include <stdio.h>
#include <string.h>

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

/* Behind "re:"; NULL: the pattern is a glob. */
static const char *expression(const char *pattern)
{
    static const char mark[] = "re:";
    return strncmp(pattern, mark, strlen(mark)) == 0 ? pattern + strlen(mark)
                                                     : NULL;
}

bool loongi_scope_valid(const char *pattern, char reason[LOONG_SCOPE_REASON])
{
    const char *text = expression(pattern);
    regex_t regex;
    int error =
        text != NULL ? regcomp(&regex, text, REG_EXTENDED | REG_NOSUB) : 0;
    if (error != 0) {
        regerror(error, &regex, reason, LOONG_SCOPE_REASON);
    } else if (text != NULL) {
        regfree(&regex);
    }
    return error == 0;
}

/* Lists are short and graphs are built a few times: none is kept. */
static bool matches(const char *text, const char *scope)
{
    regex_t regex;
    if (regcomp(&regex, text, REG_EXTENDED | REG_NOSUB) != 0) {
        return false;
    }
    bool found = regexec(&regex, scope, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

bool loongi_scope_match(const char *pattern, const char *scope)
{
    const char *text = expression(pattern);
    return text != NULL ? matches(text, scope) : glob(pattern, scope);
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

bool loongi_scope_ends(const char *pattern, const char *scope)
{
    char inside[512];
    snprintf(inside, sizeof(inside), "*.%s", pattern);
    return loongi_scope_match(pattern, scope) ||
           loongi_scope_match(inside, scope);
}

bool loongi_scope_ends_any(int num_globs, const char *const *globs,
                           const char *scope)
{
    int i = 0;
    while (i < num_globs && !loongi_scope_ends(globs[i], scope)) {
        i++;
    }
    return i < num_globs;
}
