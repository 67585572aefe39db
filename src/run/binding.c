/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of bound bases and of a frame beside running programs. The
 * trainer and the executor call it; executor.h says what they mean. */
#include <string.h>

#include "executor.h"

bool loongi_step_runs(const loong_step_t *step, const loong_frame_t *frame)
{
    if (step->hollow ==
        (frame->hollow ? LOONG_HOLLOW_SKIPS : LOONG_HOLLOW_ONLY)) {
        return false;
    }
    switch (step->when) {
    case LOONG_WHEN_FIRST:
        return frame->first != 0;
    case LOONG_WHEN_LAST:
        return frame->last != 0;
    case LOONG_WHEN_LOGGED:
        return frame->log_tensors != 0;
    default:
        return true;
    }
}

loong_status_t loongi_binding_read(const loong_binding_t *run,
                                   loong_operand_t from, void *to, size_t bytes,
                                   const char *what)
{
    if (run->device != NULL) {
        return loong_device_read(run->device, to,
                                 run->base[from.base] + from.offset, bytes,
                                 what);
    }
    memcpy(to, run->base[from.base] + from.offset, bytes);
    return LOONG_OK;
}

loong_status_t loongi_binding_write(const loong_binding_t *run,
                                    loong_operand_t to, const void *from,
                                    size_t bytes)
{
    if (run->device != NULL) {
        return loong_device_copy(run->device, run->base[to.base] + to.offset,
                                 from, bytes);
    }
    memcpy(run->base[to.base] + to.offset, from, bytes);
    return LOONG_OK;
}
