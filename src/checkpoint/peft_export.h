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
 * was trained. parts: the components, the one with adapters last. */
LOONG_NODISCARD loong_status_t loongi_peft_export(
    int num_parts, const loong_native_part_t *parts, const char *dir);

#ifdef __cplusplus
}
#endif

#endif
