/* SPDX-License-Identifier: Apache-2.0 */
#include "moments.h"

#include <stdio.h>
#include <string.h>

void loongi_moments_of(const loong_component_params_t *params,
                       const loong_bucket_t *bucket,
                       loong_moment_t moments[LOONG_MOMENTS])
{
    const loong_optimizer_params_t *p = &params->optimizer;
    loong_dtype_t wide = params->precision.wide;
    moments[0].kind = "exp_avg";
    moments[0].offset = bucket->exp_avg;
    moments[0].dtype = loongi_exp_avg_dtype(p, wide);
    moments[1].kind = "exp_avg_sq";
    moments[1].offset = bucket->exp_avg_sq;
    moments[1].dtype = loongi_exp_avg_sq_dtype(p, wide);
}

/* All of a kind are of one type. */
static const loong_checkpoint_tensor_t *
first_of(const loong_checkpoint_t *ck, const char *kind)
{
    int64_t i = 0;
    int64_t count = loongi_checkpoint_count(ck);
    while (i < count &&
           strcmp(loongi_checkpoint_get(ck, i)->kind, kind) != 0) {
        i++;
    }
    return i < count ? loongi_checkpoint_get(ck, i) : NULL;
}

/* Parameters are saved in the wide type, as masters; a conversion may have
 * made them less. */
static void tell_params(const loong_trainer_t *t, const loong_checkpoint_t *ck)
{
    loong_dtype_t wide = t->component->params.precision.wide;
    const loong_checkpoint_tensor_t *first = NULL;
    long long count = 0;
    for (int64_t i = 0; i < loongi_checkpoint_count(ck); i++) {
        const loong_checkpoint_tensor_t *there = loongi_checkpoint_get(ck, i);
        if (strcmp(there->kind, "param") == 0 && there->dtype != wide) {
            first = first != NULL ? first : there;
            count++;
        }
    }
    if (first != NULL) {
        char more[40] = "";
        if (count > 1) {
            snprintf(more, sizeof(more), " and %lld more", count - 1);
        }
        bool less = loong_dtype_size(first->dtype) < loong_dtype_size(wide);
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "param: %s in the checkpoint, converted to %s%s: %s%s",
                   loong_dtype_name(first->dtype), loong_dtype_name(wide),
                   less ? ", what masters had beyond it is not there" : "",
                   first->name, more);
    }
}

void loongi_moments_tell(const loong_trainer_t *t,
                         const loong_checkpoint_t *ck)
{
    const loong_bucket_t none = {0};
    loong_moment_t moments[LOONG_MOMENTS];
    tell_params(t, ck);
    loongi_moments_of(&t->component->params, &none, moments);
    for (int i = 0; i < LOONG_MOMENTS; i++) {
        const loong_moment_t *m = &moments[i];
        const loong_checkpoint_tensor_t *there = first_of(ck, m->kind);
        if (there != NULL && there->dtype != m->dtype) {
            loongi_log(t->ctx, LOONG_LOG_INFO,
                       "%s: %s in the checkpoint, converted to %s%s", m->kind,
                       loong_dtype_name(there->dtype),
                       loong_dtype_name(m->dtype),
                       m->dtype == LOONG_BF16 ? ", rounded to nearest" : "");
        }
    }
}
