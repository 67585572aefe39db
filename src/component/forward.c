/* SPDX-License-Identifier: Apache-2.0
 *
 * One forward without gradients, for evaluations and sampled text. Read
 * src/engine/schedule.h before. */
#include "model.h"

loong_status_t loongi_model_forward(const loong_model_t *m,
                                    loong_variant_t variant,
                                    const loong_frame_t *frame,
                                    loong_fill_entry_t fill, void *user)
{
    const loong_rank_schedule_t *list = loongi_model_entries(m, variant);
    loong_frame_t own = *frame;
    const loong_frame_t *frames[2] = {&own, NULL};
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *e = &list->entries[i];
        if (variant == LOONG_VARIANT_LOGITS &&
            (e->component < m->num_components - 1 || e->message >= 0)) {
            continue; /* the last component alone has logits */
        }
        if (e->kind != LOONG_ENTRY_E) {
            LOONG_TRY(loongi_model_begin(m, variant, e));
            continue;
        }
        LOONG_TRY(loongi_model_need(m, variant, e));
        LOONG_TRY(loongi_model_frame(m, e, &own));
        LOONG_TRY(fill != NULL && !own.hollow ? fill(user, e) : LOONG_OK);
        LOONG_TRY(loongi_model_run(m, variant, i, frames));
    }
    return loongi_model_finish(m, variant);
}
