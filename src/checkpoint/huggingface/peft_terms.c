/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the adapters that a list names. Called by hf_merged.c, hf_digest.c,
 * peft_export.c and export_check.c. Read peft_terms.h before. */
#include "peft_terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads one line, of so many characters. */
static loong_status_t read_term(loong_context_t *ctx, const char *line,
                                size_t length, loong_peft_terms_t *to)
{
    char dir[4096];
    double weight = 1.0;
    LOONG_CHECK(ctx, length < sizeof(dir), LOONG_ERR_CONFIG,
                "init.adapters: '%.40s...' is too long a path", line);
    memcpy(dir, line, length);
    dir[length] = '\0';
    char *equals = strrchr(dir, '=');
    if (equals != NULL && !loongi_peft_is(dir)) {
        char *end = NULL;
        weight = strtod(equals + 1, &end);
        LOONG_CHECK(ctx, end != equals + 1 && *end == '\0' && isfinite(weight),
                    LOONG_ERR_CONFIG,
                    "init.adapters: '%s': behind = a number is wanted, by "
                    "which what the adapter adds is multiplied",
                    dir);
        *equals = '\0';
    }
    to->weights[to->count] = weight;
    LOONG_TRY(loongi_peft_read(ctx, dir, &to->terms[to->count]));
    to->count++;
    return LOONG_OK;
}

static loong_status_t read_all(loong_context_t *ctx, const char *list,
                               loong_peft_terms_t *to)
{
    size_t most = 1;
    for (const char *at = list; *at != '\0'; at++) {
        most += *at == '\n';
    }
    LOONG_TRY(
        loongi_calloc(ctx, most, sizeof(*to->terms), "adapters", &to->terms));
    LOONG_TRY(loongi_calloc(ctx, most, sizeof(*to->weights),
                            "weights of adapters", &to->weights));
    while (*list != '\0') {
        size_t length = strcspn(list, "\n");
        LOONG_TRY(read_term(ctx, list, length, to));
        list += length + (list[length] == '\n');
    }
    return LOONG_OK;
}

loong_status_t loongi_peft_terms_read(loong_context_t *ctx, const char *list,
                                      loong_peft_terms_t **terms_p)
{
    loong_peft_terms_t *terms = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*terms), "adapters", &terms));
    loong_status_t status = read_all(ctx, list, terms);
    if (status != LOONG_OK) {
        loongi_peft_terms_destroy(ctx, &terms);
        return status;
    }
    *terms_p = terms;
    return LOONG_OK;
}

void loongi_peft_terms_destroy(loong_context_t *ctx, loong_peft_terms_t **terms)
{
    if (*terms == NULL) {
        return;
    }
    for (int64_t i = 0; i < (*terms)->count; i++) {
        loongi_peft_destroy(&(*terms)->terms[i]);
    }
    loongi_free(ctx, (*terms)->weights);
    loongi_free(ctx, (*terms)->terms);
    loongi_free(ctx, *terms);
    *terms = NULL;
}
