/* SPDX-License-Identifier: Apache-2.0
 *
 * Enters the device of backends/host_offload behind the built-in ones (linked
 * with --wrap=loong_register_builtin), so that tests of every device run on it
 * unchanged. */
#include "loong/extension.h"
#include "loong/register.h"

const loong_extension_t *loong_extension(void);
loong_status_t __real_loong_register_builtin(loong_context_t *ctx);
loong_status_t __wrap_loong_register_builtin(loong_context_t *ctx);

loong_status_t __wrap_loong_register_builtin(loong_context_t *ctx)
{
    bool before = loong_find_op(ctx, "linear") != NULL;
    loong_status_t status = __real_loong_register_builtin(ctx);
    return status == LOONG_OK && !before ? loong_extension()->enter(ctx)
                                         : status;
}
