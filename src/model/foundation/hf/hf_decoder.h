/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders in Hugging Face files. */
#ifndef LOONG_HF_DECODER_H
#define LOONG_HF_DECODER_H

#include "hf_kind.h"
#include "layer_kinds.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_hf_kind_t loongi_hf_decoder;

/* ---- hf_decoder_types.c ---- */
extern const loong_hf_type_t loongi_hf_decoder_types[];

/* ---- hf_decoder_names.c ---- */
extern const loong_hf_names_t loongi_hf_decoder_names[];
LOONG_NODISCARD loong_status_t
loongi_hf_decoder_size(loong_hf_map_t *map, const loong_pairs_t *model);

/* ---- hf_decoder_read.c ---- */
LOONG_NODISCARD loong_status_t loongi_hf_decoder_read(loong_hf_reader_t *r);
/* The class has a width of heads of its own that others derive. */
bool loongi_hf_has_width(const loong_hf_reader_t *r);

/* ---- hf_decoder_moe.c, hf_decoder_kinds.c ---- */
/* What a mixture says beyond its table; nothing for other types. */
LOONG_NODISCARD loong_status_t loongi_hf_map_mixture(loong_hf_reader_t *r);
LOONG_NODISCARD loong_status_t loongi_hf_map_deepseek(loong_hf_reader_t *r);
/* Which layers have experts; all: no key. */
LOONG_NODISCARD loong_status_t
loongi_hf_set_kinds(loong_hf_reader_t *r, const loong_layer_kinds_t *kinds,
                    int64_t layers);
/* As Qwen says it: decoder_sparse_step, mlp_only_layers. */
LOONG_NODISCARD loong_status_t loongi_hf_map_kinds(loong_hf_reader_t *r);

/* ---- hf_decoder_window.c ---- */
LOONG_NODISCARD loong_status_t loongi_hf_map_window(loong_hf_reader_t *r);
/* layer_types against the window that has been read. */
void loongi_hf_check_layer_types(loong_hf_reader_t *r);

/* ---- hf_decoder_rope.c ---- */
LOONG_NODISCARD loong_status_t loongi_hf_map_rope(loong_hf_reader_t *r);
/* Keys of rope_scaling / rope_parameters per scaling type. */
typedef struct loong_hf_rope_key {
    const char *name;
    const char *types; /* " linear llama3 yarn " */
    bool required;
} loong_hf_rope_key_t;
extern const loong_hf_rope_key_t loongi_hf_rope_keys[];
/* The type changes frequencies, and the library has it. */
bool loongi_hf_rope_is_scaling(const char *type);

/* ---- hf_decoder_guess.c, hf_decoder_origin.c, hf_decoder_unread.c ---- */
LOONG_NODISCARD loong_status_t
loongi_hf_decoder_guess(loong_hf_reader_t *r, const loong_hf_field_t *used);
bool loongi_hf_decoder_tell(const loong_hf_reader_t *r, const char *key,
                            loong_text_t *text);
const loong_hf_field_t *loongi_hf_decoder_unread(const loong_hf_type_t *type,
                                                 const char *name);

/* ---- hf_decoder_write.c ---- */
void loongi_hf_decoder_write(loong_hf_writer_t *w, const char *torch_dtype);
void loongi_hf_decoder_choose(loong_hf_writer_t *w);

/* ---- hf_decoder_write_moe.c, hf_decoder_write_rope.c ---- */
/* What a mixture says beyond its table, and which keys that takes. */
void loongi_hf_emit_mixture(loong_hf_writer_t *w);
bool loongi_hf_writes_mixture(const loong_hf_writer_t *w, const char *key);
void loongi_hf_emit_deepseek(loong_hf_writer_t *w);
void loongi_hf_emit_rope(loong_hf_writer_t *w);

#ifdef __cplusplus
}
#endif

#endif
