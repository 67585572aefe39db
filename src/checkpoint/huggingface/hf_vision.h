/* SPDX-License-Identifier: Apache-2.0
 *
 * Vision transformers in config.json: model types vit, clip_vision_model and
 * siglip_vision_model, and the image encoders of clip and siglip, which stand
 * in vision_config. */
#ifndef LOONG_HF_VISION_H
#define LOONG_HF_VISION_H

#include "hf_config.h"
#include "hf_config_read.h"
#include "hf_config_write.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ends with a NULL model_type. */
extern const loong_hf_type_t loongi_hf_vision_types[];

/* Whether a family or model type is one of them. */
bool loongi_hf_is_vision(const char *name);

/* The keys of a file whose type has been found; problems are added. */
LOONG_NODISCARD loong_status_t loongi_hf_map_vision(loong_hf_reader_t *r);

/* States every key of w->model, defaults filled in. */
LOONG_NODISCARD loong_status_t loongi_hf_fill_vision(loong_hf_writer_t *w);

/* The whole of config.json, into w->text; problems are added. */
void loongi_hf_compose_vision(loong_hf_writer_t *w, const char *torch_dtype);

#ifdef __cplusplus
}
#endif

#endif
