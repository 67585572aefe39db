/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a blend, for blend.c and blend_describe.c. */
#ifndef LOONG_BLEND_IMPL_H
#define LOONG_BLEND_IMPL_H

#include "apportion.h"
#include "base.h"
#include "loong/blend.h"

typedef struct blend_source {
    void *source; /* of info.source_class; owned */
    loong_blend_source_info_t info;
} blend_source_t;

struct loong_blend {
    loong_context_t *ctx;
    char *name;
    int64_t num_sources;
    blend_source_t *sources;
    int64_t seq_length;
    uint64_t seed;
    bool shuffle;
    loong_apportion_t table;
    int64_t epoch_samples;
    int64_t max_samples;
    loong_text_t description;
    uint64_t fingerprint;
};

/* Fills description and fingerprint from the rest. */
LOONG_NODISCARD loong_status_t loongi_blend_describe(loong_blend_t *blend);

#endif
