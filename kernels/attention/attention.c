/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

loong_status_t loongi_attention_segments(loong_context_t *ctx,
                                         const int32_t *cu_seqlens,
                                         int64_t entries, int64_t tokens,
                                         int64_t max_seqlen,
                                         int64_t *segments_p)
{
    int64_t segments = 0;
    LOONG_CHECK(ctx, cu_seqlens[0] == 0, LOONG_ERR_ARG,
                "cu_seqlens[0] is %d, must be 0", cu_seqlens[0]);
    for (int64_t s = 0; s + 1 < entries; s++) {
        int64_t length = (int64_t)cu_seqlens[s + 1] - cu_seqlens[s];
        LOONG_CHECK(ctx, length >= 0 && length <= max_seqlen, LOONG_ERR_ARG,
                    "cu_seqlens[%lld] is %d after %d: a segment has 0 to %lld "
                    "rows",
                    (long long)s + 1, cu_seqlens[s + 1], cu_seqlens[s],
                    (long long)max_seqlen);
        if (length > 0) {
            segments = s + 1;
        }
    }
    LOONG_CHECK(ctx, cu_seqlens[entries - 1] == tokens, LOONG_ERR_ARG,
                "cu_seqlens ends with %d, must end with the %lld rows",
                cu_seqlens[entries - 1], (long long)tokens);
    *segments_p = segments;
    return LOONG_OK;
}
