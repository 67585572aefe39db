/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of a context: growing lists, searched from the newest. Lookups
 * happen when programs are compiled, never while they run. */
#include <string.h>

#include "base.h"
#include "loong/family.h"
#include "loong/register.h"
#include "registry.h"

static loong_status_t append(loong_context_t *ctx, const void ***items_p,
                             int64_t *count_p, int64_t *capacity_p,
                             const void *item)
{
    LOONG_TRY(loongi_grow(ctx, items_p, capacity_p, *count_p + 1,
                          sizeof(void *), "registry"));
    (*items_p)[(*count_p)++] = item;
    return LOONG_OK;
}

loong_status_t loong_register_op(loong_context_t *ctx, const loong_op_t *op)
{
    loong_registry_t *r = loongi_context_registry(ctx);
    LOONG_CHECK(ctx, op != NULL && op->name != NULL && op->infer != NULL,
                LOONG_ERR_ARG, "an op needs a name and a shape rule");
    LOONG_CHECK(ctx, loong_find_op(ctx, op->name) == NULL, LOONG_ERR_ARG,
                "op %s is registered already", op->name);
    return append(ctx, &r->ops, &r->num_ops, &r->cap_ops, op);
}

loong_status_t loong_register_kernel(loong_context_t *ctx,
                                     const loong_kernel_t *kernel)
{
    loong_registry_t *r = loongi_context_registry(ctx);
    LOONG_CHECK(ctx,
                kernel != NULL && kernel->name != NULL && kernel->op != NULL &&
                    kernel->run != NULL,
                LOONG_ERR_ARG,
                "a kernel needs a name, an op and a run function");
    return append(ctx, &r->kernels, &r->num_kernels, &r->cap_kernels, kernel);
}

loong_status_t loong_register_family(loong_context_t *ctx,
                                     const loong_family_t *family)
{
    loong_registry_t *r = loongi_context_registry(ctx);
    LOONG_CHECK(ctx,
                family != NULL && family->name != NULL &&
                    family->configure != NULL && family->facts != NULL &&
                    family->build != NULL,
                LOONG_ERR_ARG,
                "a family needs a name, configure, facts and build");
    LOONG_CHECK(ctx, loong_find_family(ctx, family->name) == NULL,
                LOONG_ERR_ARG, "family %s is registered already",
                family->name);
    return append(ctx, &r->families, &r->num_families, &r->cap_families,
                  family);
}

const loong_family_t *loong_family_at(const loong_context_t *ctx,
                                      int64_t index)
{
    const loong_registry_t *r = loongi_context_registry_const(ctx);
    return index >= 0 && index < r->num_families ? r->families[index] : NULL;
}

const loong_family_t *loong_find_family(const loong_context_t *ctx,
                                        const char *name)
{
    for (int64_t i = 0; loong_family_at(ctx, i) != NULL; i++) {
        if (strcmp(loong_family_at(ctx, i)->name, name) == 0) {
            return loong_family_at(ctx, i);
        }
    }
    return NULL;
}

const loong_op_t *loong_find_op(const loong_context_t *ctx, const char *name)
{
    const loong_registry_t *r = loongi_context_registry_const(ctx);
    for (int64_t i = 0; i < r->num_ops; i++) {
        const loong_op_t *op = r->ops[i];
        if (strcmp(op->name, name) == 0) {
            return op;
        }
    }
    return NULL;
}

const loong_kernel_t *loong_find_kernel(const loong_context_t *ctx,
                                        const char *op, const char *device,
                                        int i)
{
    const loong_registry_t *r = loongi_context_registry_const(ctx);
    for (int64_t k = r->num_kernels - 1; k >= 0; k--) {
        const loong_kernel_t *kernel = r->kernels[k];
        bool fits = kernel->device == NULL ||
                    strcmp(kernel->device, device) == 0;
        if (fits && strcmp(kernel->op, op) == 0 && i-- == 0) {
            return kernel;
        }
    }
    return NULL;
}

void loongi_registry_clear(loong_context_t *ctx)
{
    loong_registry_t *r = loongi_context_registry(ctx);
    loongi_free(ctx, r->ops);
    loongi_free(ctx, r->kernels);
    loongi_free(ctx, r->devices);
    loongi_free(ctx, r->families);
    memset(r, 0, sizeof(*r));
}
