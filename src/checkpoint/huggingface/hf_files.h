/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a Hugging Face directory beside config.json and weights: those
 * of the tokenizer and the image processor, generation_config.json, Python
 * files. They are read once, so that what is saved later does not need the
 * directory any more. */
#ifndef LOONG_HF_FILES_H
#define LOONG_HF_FILES_H

#include "file_set.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the files that belong to a tokenizer, Python files too where it names
 * some, and generation_config.json, as far as they exist. from: a directory,
 * or a tokenizer.json (by any name), then with its neighbours. */
LOONG_NODISCARD loong_status_t loongi_hf_files_read_tokenizer(
    loong_context_t *ctx, const char *from, loong_file_set_t *files);
/* Reads those of a directory, and what transformers' AutoImageProcessor reads
 * there, as far as it exists. */
#define LOONG_HF_IMAGE_PROCESSOR "preprocessor_config.json"
#define LOONG_HF_VIDEO_PROCESSOR "video_preprocessor_config.json"
/* That, and where transformers 5 has it among others; ends with NULL. */
extern const char *const loongi_hf_image_processors[];
LOONG_NODISCARD loong_status_t loongi_hf_files_read(loong_context_t *ctx,
                                                    const char *dir,
                                                    loong_file_set_t *files);
/* Reads and writes; each directory may be NULL. */
LOONG_NODISCARD loong_status_t loongi_hf_files_copy(loong_context_t *ctx,
                                                    const char *files_dir,
                                                    const char *code_dir,
                                                    const char *to);

#ifdef __cplusplus
}
#endif

#endif
