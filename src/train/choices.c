/* SPDX-License-Identifier: Apache-2.0 */
#include "choices.h"

#include <string.h>

#include "devices.h"
#include "file.h"
#include "loong/ops.h"
#include "products.h"

/* ---- products and attention ---------------------------------------------- */

#define ATTENTION_KEY "train.attention_backend"

static loong_status_t read_attention(const loong_trainer_t *t, int *backend_p)
{
    const char *text = loong_recipe_text(t->recipe, ATTENTION_KEY);
    bool has = loong_device_has_fused_attention(t->device);
    bool fused = strcmp(text, "fused") == 0;
    LOONG_CHECK(t->ctx, has || !fused || loongi_devices_are_mixed(t),
                LOONG_ERR_CONFIG,
                ATTENTION_KEY ": fused, but device %s has no cuDNN; auto takes "
                "it where there is one, local never",
                loong_device_name(t->device));
    *backend_p = strcmp(text, "local") == 0 ? LOONG_ATTENTION_LOCAL
                 : fused                    ? LOONG_ATTENTION_FUSED
                                            : LOONG_ATTENTION_AUTO;
    return LOONG_OK;
}

#define FILE_KEY "gemm.algorithms_file"

/* By one rank, once. */
static void tell_file(const loong_trainer_t *t, const loong_products_t *p)
{
    bool chooses = loong_device_has_algorithms(t->device);
    if (p->algorithms == NULL || loong_comm_rank(t->comm) != 0) {
        return;
    }
    if (!chooses && !loongi_devices_are_mixed(t)) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   FILE_KEY " has no effect: device %s has no algorithms to "
                   "choose from", loong_device_name(t->device));
    }
    if (chooses && p->fixed && !t->plan_only) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   FILE_KEY ": '%s' may not be written: no product is "
                   "measured, one that it lacks is made by the library's "
                   "first algorithm", p->algorithms);
    }
}

loong_status_t loongi_choices_products(loong_trainer_t *t)
{
    const char *name = loong_device_name(t->device);
    loong_products_t p = {
        loong_recipe_bool(t->recipe, "precision.tf32"),
        loong_recipe_text(t->recipe, FILE_KEY), LOONG_ATTENTION_LOCAL, false};
    bool mixed = loongi_devices_are_mixed(t);
    p.tf32 = p.tf32 && (!mixed || loong_device_has_tf32(t->device));
    LOONG_TRY(read_attention(t, &p.attention));
    LOONG_CHECK(t->ctx, !p.tf32 || loong_device_has_tf32(t->device),
                LOONG_ERR_CONFIG,
                "precision.tf32: device %s does not multiply tf32; leave the "
                "key out, or choose a device that does", name);
    p.fixed = p.algorithms != NULL && loongi_file_is_fixed(p.algorithms);
    tell_file(t, &p);
    loongi_context_set_products(t->ctx, &p);
    return LOONG_OK;
}

/* ---- graphs -------------------------------------------------------------- */

#define GRAPHS_KEY "train.cuda_graph_impl"

loong_status_t loongi_choices_graphs(const loong_trainer_t *t,
                                     loong_component_params_t *p)
{
    const char *impl = loong_recipe_text(t->recipe, GRAPHS_KEY);
    bool has = loong_device_has_graphs(t->device);
    LOONG_CHECK(t->ctx,
                has || strcmp(impl, "local") != 0 || p->staging.on,
                LOONG_ERR_CONFIG,
                GRAPHS_KEY ": local, but device %s has no graphs; auto takes "
                "them where there are, none never",
                loong_device_name(t->device));
    p->graphs_go_on = strcmp(impl, "auto") == 0;
    p->graphs = has && strcmp(impl, "none") != 0;
    return LOONG_OK;
}
