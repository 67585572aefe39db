/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest of a directory's weights. Called where checkpoints of adapters are
 * saved, resumed and exported. Read hf_digest.h before. */
#include "hf_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checksum.h"
#include "peft_terms.h"
#include "safetensors.h"

enum { SOME = 4096 }; /* bytes, at three places of a tensor */

static void add_tensor(loong_checksum_t *sum, const loong_safetensor_t *t)
{
    const char *data = t->data;
    size_t some = LOONG_MIN(t->bytes, (size_t)SOME);
    loongi_checksum_add(sum, t->name, strlen(t->name) + 1);
    loongi_checksum_add(sum, &t->dtype, sizeof(t->dtype));
    loongi_checksum_add(sum, t->shape, (size_t)t->ndim * sizeof(*t->shape));
    loongi_checksum_add(sum, data, some);
    loongi_checksum_add(sum, data + (t->bytes - some) / 2, some);
    loongi_checksum_add(sum, data + t->bytes - some, some);
}

static void add_matrix(loong_checksum_t *sum, const loong_peft_tensor_t *t)
{
    if (t->ndim > 0) {
        const loong_safetensor_t like = {
            .name = "",
            .dtype = t->dtype,
            .ndim = t->ndim,
            .shape = {t->shape[0], t->shape[1]},
            .data = t->data,
            .bytes = (size_t)loongi_shape_count(t->ndim, t->shape) *
                     loong_dtype_size(t->dtype)};
        add_tensor(sum, &like);
    }
}

static void add_term(loong_checksum_t *sum, const loong_peft_t *peft,
                     double weight)
{
    loongi_checksum_add(sum, &weight, sizeof(weight));
    for (int64_t i = 0; i < peft->num_modules; i++) {
        const loong_peft_module_t *m = &peft->modules[i];
        loongi_checksum_add(sum, m->name, strlen(m->name) + 1);
        loongi_checksum_add(sum, &m->scale, sizeof(m->scale));
        add_matrix(sum, &m->a);
        add_matrix(sum, &m->b);
        add_matrix(sum, &m->magnitude);
    }
    for (int64_t i = 0; i < peft->num_saved; i++) {
        add_matrix(sum, &peft->saved[i].tensor);
    }
}

static loong_status_t add_adapters(loong_context_t *ctx, const char *adapters,
                                   loong_checksum_t *sum)
{
    loong_peft_terms_t *terms = NULL;
    if (adapters == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_peft_terms_read(ctx, adapters, &terms));
    for (int64_t i = 0; i < terms->count; i++) {
        add_term(sum, terms->terms[i], terms->weights[i]);
    }
    loongi_peft_terms_destroy(ctx, &terms);
    return LOONG_OK;
}

loong_status_t loongi_hf_digest(loong_context_t *ctx, const char *dir,
                                const char *adapters,
                                char digest[LOONG_HF_DIGEST])
{
    loong_safetensors_set_t *set = NULL;
    loong_checksum_t *sum = NULL;
    LOONG_TRY(loongi_safetensors_set_open(ctx, dir, &set));
    loong_status_t status = loongi_checksum_create(ctx, &sum);
    for (int64_t i = 0;
         i < loongi_safetensors_set_count(set) && status == LOONG_OK; i++) {
        add_tensor(sum, loongi_safetensors_set_get(set, i));
    }
    if (status == LOONG_OK) {
        status = add_adapters(ctx, adapters, sum);
    }
    if (status == LOONG_OK) {
        snprintf(digest, LOONG_HF_DIGEST, "%016" PRIx64,
                 loongi_checksum_get(sum));
    }
    loongi_checksum_destroy(&sum);
    loongi_safetensors_set_close(&set);
    return status;
}

loong_status_t loongi_hf_digest_check(loong_context_t *ctx, const char *dir,
                                      const char *adapters, const char *wanted)
{
    char digest[LOONG_HF_DIGEST] = "";
    LOONG_TRY(loongi_hf_digest(ctx, dir, adapters, digest));
    LOONG_CHECK(
        ctx, wanted == NULL || strcmp(wanted, digest) == 0, LOONG_ERR_MISMATCH,
        "'%s'%s: its weights are others than those that the adapters "
        "of the checkpoint belong to (digest %s, then %s)",
        dir, adapters != NULL ? " with init.adapters" : "", digest, wanted);
    return LOONG_OK;
}
