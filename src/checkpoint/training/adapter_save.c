/* SPDX-License-Identifier: Apache-2.0
 *
 * What checkpoints say of adapters and of the directory beside them. Called by
 * trainer_save.c. Read adapter_start.h and native_source.h before. */
#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "file.h"
#include "hf_adapters.h"
#include "hf_digest.h"
#include "native_source.h"
#include "quant.h"

loong_status_t loongi_adapter_metadata(const loong_component_t *component,
                                       loong_pairs_t *metadata)
{
    const loong_component_params_t *p = &component->params;
    char key[LOONG_HF_MODULE + 64];
    char digest[LOONG_HF_DIGEST] = "";
    if (!p->beside_adapters) {
        return LOONG_OK;
    }
    for (int64_t i = 0; i < component->num_whole; i++) {
        const loong_whole_param_t *w = &component->whole[i];
        char module[LOONG_HF_MODULE];
        if (loongi_lora_matrix(w->name, module) == LOONG_LORA_A) {
            snprintf(key, sizeof(key), LOONG_ADAPTER_KEY "%s.%s", p->name,
                     module);
            LOONG_TRY(loongi_pairs_set_real(metadata, key, w->adapter));
        }
        if (w->quant != LOONG_QUANT_NONE) {
            snprintf(key, sizeof(key), LOONG_QUANT_KEY "%s.%s", p->name,
                     w->name);
            LOONG_TRY(loongi_pairs_set(metadata, key,
                                       loongi_quant_name(w->quant)));
        }
    }
    if (p->request.rules.adapters != NULL) {
        LOONG_TRY(
            loongi_pairs_set_real(metadata, LOONG_ADAPTER_KEY "dropout",
                                  p->request.rules.adapters->dropout));
    }
    if (p->init == NULL) {
        return LOONG_OK;
    }
    if (p->init_adapters != NULL) {
        snprintf(key, sizeof(key), LOONG_BASE_ADAPTERS_KEY "%s", p->name);
        LOONG_TRY(loongi_pairs_set(metadata, key, p->init_adapters));
    }
    LOONG_TRY(loongi_hf_digest(component->ctx, p->init, p->init_adapters,
                               digest));
    snprintf(key, sizeof(key), LOONG_BASE_KEY "%s", p->name);
    LOONG_TRY(loongi_pairs_set(metadata, key, p->init));
    snprintf(key, sizeof(key), LOONG_BASE_DIGEST_KEY "%s", p->name);
    return loongi_pairs_set(metadata, key, digest);
}

loong_status_t loongi_adapter_check_base(const loong_component_t *component,
                                         const loong_checkpoint_t *ck)
{
    const loong_component_params_t *p = &component->params;
    char key[128];
    snprintf(key, sizeof(key), LOONG_BASE_DIGEST_KEY "%s", p->name);
    const char *digest = loongi_pairs_get(loongi_checkpoint_metadata(ck), key);
    if (digest == NULL) {
        return LOONG_OK;
    }
    LOONG_CHECK(component->ctx, loongi_in_base(p, true, 0.0),
                LOONG_ERR_MISMATCH,
                "%s has adapters and not the model beside them: "
                "finetune.method and init.from_hf as they were are wanted",
                loongi_checkpoint_path(ck));
    return loongi_hf_digest_check(component->ctx, p->init, p->init_adapters,
                                  digest);
}
