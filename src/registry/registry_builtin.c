/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in lists of ops, kernels and devices, entered into a context.
 * Called by loongrun and loong-bench. Read loong/register.h before. */
#include "chat.h"
#include "cpu_device.h"
#include "cuda_device.h"
#include "decoder.h"
#include "image_text.h"
#include "list.h"
#include "loong/register.h"
#include "op_impl.h"
#include "projector.h"
#include "slots.h"
#include "source_class.h"
#include "source_tokens.h"
#include "staged_comm.h"
#include "vision.h"
#include "xpu_device.h"
#include "xpu_kernels.h"

static loong_status_t register_kernels(loong_context_t *ctx,
                                       const loong_kernel_t *const *list)
{
    int64_t count = 0;
    while (list[count] != NULL) {
        count++;
    }
    while (count > 0) { /* the newest is the first choice */
        LOONG_TRY(loong_register_kernel(ctx, list[--count]));
    }
    return LOONG_OK;
}

loong_status_t loong_register_builtin(loong_context_t *ctx)
{
    loong_slot_t *slot = loongi_context_slot(ctx, "built-in");
    if (slot->data != NULL) {
        return LOONG_OK;
    }
    slot->data = slot; /* they are entered */
    LOONG_TRY(loongi_register_ops(ctx));
    LOONG_TRY(register_kernels(ctx, loongi_cpu_kernels));
    LOONG_TRY(register_kernels(ctx, loongi_cuda_kernels));
    LOONG_TRY(loongi_xpu_kernels_register(ctx));
    LOONG_TRY(loongi_register_decoders(ctx));
    LOONG_TRY(loongi_register_vision(ctx));
    LOONG_TRY(loongi_register_projector(ctx));
    LOONG_TRY(loong_register_source(ctx, &loongi_token_source));
    LOONG_TRY(loong_register_source(ctx, &loongi_document_source));
    LOONG_TRY(loong_register_source(ctx, &loongi_image_source));
    LOONG_TRY(loong_register_source(ctx, &loongi_image_text_source));
    LOONG_TRY(loong_register_source(ctx, &loongi_chat_source));
    LOONG_TRY(loong_register_source(ctx, &loongi_image_chat_source));
    LOONG_TRY(loongi_stager_register(ctx, &loongi_staged_stager));
    /* The last one is "auto" where it is found. */
    LOONG_TRY(loong_register_device(ctx, &loongi_cpu_device));
    LOONG_TRY(loong_register_device(ctx, &loongi_xpu_device));
    return loong_register_device(ctx, &loongi_cuda_device);
}
