/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the adapters of a checkpoint as a directory that peft loads. */
#ifndef LOONG_PEFT_EXPORT_H
#define LOONG_PEFT_EXPORT_H

#include "native_source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* adapter_config.json and adapter_model.safetensors, and what beside adapters
 * was trained. map: of the component's model. */
LOONG_NODISCARD loong_status_t
loongi_peft_export(const loong_native_source_t *source,
                   const loong_hf_map_t *map, const char *dir);

#ifdef __cplusplus
}
#endif

#endif
