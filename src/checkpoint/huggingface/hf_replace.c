/* SPDX-License-Identifier: Apache-2.0
 *
 * What an export or an import would replace. Called by import.c, hf_export.c
 * and export_check.c. Read hf_weights.h before. */
#include <inttypes.h>
#include <string.h>

#include "file.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "peft.h"
#include "safetensors.h"

static int64_t elements(const loong_hf_map_t *map)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        sum += loongi_shape_count(p->ndim, p->shape);
    }
    return sum;
}

static bool same_tensors(const loong_hf_map_t *a, const loong_hf_map_t *b)
{
    if (loongi_hf_map_count(a) != loongi_hf_map_count(b)) {
        return false;
    }
    for (int64_t i = 0; i < loongi_hf_map_count(a); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(a, i);
        const loong_hf_param_t *q = loongi_hf_map_find(b, p->name);
        if (q == NULL || q->ndim != p->ndim ||
            memcmp(q->shape, p->shape,
                   (size_t)p->ndim * sizeof(*p->shape)) != 0) {
            return false;
        }
    }
    return true;
}

loong_status_t loongi_hf_check_same(loong_context_t *ctx, const char *dir,
                                    const loong_pairs_t *theirs,
                                    const loong_pairs_t *ours)
{
    loong_hf_map_t *there = NULL;
    loong_hf_map_t *here = NULL;
    const char *family = loongi_pairs_get(theirs, "family");
    const char *own = loongi_pairs_get(ours, "family");
    loong_status_t status = loongi_hf_map_create(ctx, theirs, &there);
    if (status == LOONG_OK) {
        status = loongi_hf_map_create(ctx, ours, &here);
    }
    if (status == LOONG_OK &&
        (strcmp(family, own) != 0 || !same_tensors(there, here))) {
        status = LOONG_FAIL(ctx, LOONG_ERR_ARG,
                            "'%s' holds another model (%s with %" PRId64
                            " parameters; this one is %s with %" PRId64
                            "): name another directory, or remove that one",
                            dir, family, elements(there), own,
                            elements(here));
    }
    loongi_hf_map_destroy(&here);
    loongi_hf_map_destroy(&there);
    return status;
}

loong_status_t loongi_hf_check_replaced(loong_context_t *ctx, const char *dir,
                                        const loong_pairs_t *model)
{
    loong_pairs_t *theirs = NULL;
    LOONG_CHECK(ctx, !loongi_peft_is(dir), LOONG_ERR_ARG,
                "'%s' holds adapters (" LOONG_PEFT_CONFIG "), which would be "
                "added to the model: name another directory, or remove that "
                "one",
                dir);
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/config.json", dir);
    loong_status_t status = path.status;
    bool there = status == LOONG_OK && loongi_file_exists(path.data);
    loongi_text_free(&path);
    if (!there) {
        return status;
    }
    status = loongi_hf_config_read(ctx, dir, &theirs);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "'%s' is not replaced: name another directory, "
                               "or remove that one", dir);
        return status;
    }
    status = loongi_hf_check_same(ctx, dir, theirs, model);
    loongi_pairs_destroy(&theirs);
    return status;
}
