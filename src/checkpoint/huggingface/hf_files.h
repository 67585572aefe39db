/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a Hugging Face directory beside config.json and weights: those
 * of the tokenizer, generation_config.json, Python files. They are read once,
 * so that what is saved later does not need the directory any more. */
#ifndef LOONG_HF_FILES_H
#define LOONG_HF_FILES_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_files loong_hf_files_t;

LOONG_NODISCARD loong_status_t loongi_hf_files_create(loong_context_t *ctx,
                                                      loong_hf_files_t **files);
void loongi_hf_files_destroy(loong_hf_files_t **files);

/* Reads the files that belong to a tokenizer, Python files too where it names
 * some, and generation_config.json, as far as they exist. from: a directory,
 * or a tokenizer.json (by any name), then with its neighbours. */
LOONG_NODISCARD loong_status_t
loongi_hf_files_read_tokenizer(loong_hf_files_t *files, const char *from);
/* Reads the Python files of a directory. A name that was read before stays. */
LOONG_NODISCARD loong_status_t
loongi_hf_files_read_code(loong_hf_files_t *files, const char *dir);

/* Reads what the directory of a step keeps in hf/, if it does. */
LOONG_NODISCARD loong_status_t
loongi_hf_files_read_step(loong_hf_files_t *files, const char *step_dir);

int64_t loongi_hf_files_count(const loong_hf_files_t *files);
/* The name of one, and its bytes, which stay those of `files`. */
const char *loongi_hf_files_get(const loong_hf_files_t *files, int64_t index,
                                const char **bytes_p, size_t *length_p);
/* Writes all into a directory, which is made. From any thread, with its own
 * context. */
LOONG_NODISCARD loong_status_t loongi_hf_files_write(
    loong_context_t *ctx, const loong_hf_files_t *files, const char *dir);

/* Reads and writes; each directory may be NULL. */
LOONG_NODISCARD loong_status_t
loongi_hf_files_copy(loong_context_t *ctx, const char *tokenizer_dir,
                     const char *code_dir, const char *to);

#ifdef __cplusplus
}
#endif

#endif
