/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device has no kernel for, all of it at once: before anything runs.
 * Called by compile.c. Read passes.h before. */
#include <string.h>

#include "loong/register.h"
#include "passes.h"

static bool is_first(const loong_graph_t *g, const int32_t *order, int64_t i)
{
    const char *op = g->nodes[order[i]].op->name;
    for (int64_t k = 0; k < i; k++) {
        if (strcmp(g->nodes[order[k]].op->name, op) == 0) {
            return false;
        }
    }
    return true;
}

loong_status_t loongi_check_kernels(const loong_graph_t *g,
                                    const int32_t *order, int64_t count,
                                    const char *device)
{
    loong_text_t lacks = loongi_text_begin(g->ctx);
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < count; i++) {
        const char *op = g->nodes[order[i]].op->name;
        if (loong_find_kernel(g->ctx, op, device, 0) == NULL &&
            is_first(g, order, i)) {
            loongi_text_printf(&lacks, "%s%s", lacks.length > 0 ? ", " : "",
                               op);
        }
    }
    if (lacks.length > 0) {
        const char *list = loongi_text_get(&lacks);
        status = LOONG_FAIL(g->ctx, LOONG_ERR_UNSUPPORTED,
                            "%s lacks: %s (no kernel of device %s for any of "
                            "them); added to train.host_ops, they are done by "
                            "the processor, which is slow",
                            device, list, device);
    }
    loongi_text_free(&lacks);
    return status;
}
