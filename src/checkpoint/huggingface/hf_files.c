/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files of a directory go with a model. Called by imports, exports and
 * the artifacts of a run. Read file_set.h and hf_code.h before. */
#include "hf_files.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_code.h"
#include "json.h"

/* An export reads it again: what is wrong is told of the file that has it. */
static loong_status_t check_object(loong_context_t *ctx, const char *path)
{
    loong_json_t *json = NULL;
    LOONG_TRY(loongi_json_load(ctx, path, &json));
    bool object = loongi_json_kind(json) == LOONG_JSON_OBJECT;
    loongi_json_destroy(&json);
    LOONG_CHECK(ctx, object, LOONG_ERR_FORMAT, "%s: an object is wanted", path);
    return LOONG_OK;
}

static loong_status_t read_one(loong_context_t *ctx, const char *path,
                               const char *name, loong_file_set_t *files)
{
    if (strcmp(name, "generation_config.json") == 0 ||
        strcmp(name, "tokenizer.json") == 0) {
        LOONG_TRY(check_object(ctx, path));
    }
    return loongi_file_set_read(files, path, name);
}

const char *const loongi_hf_image_processors[] = {
    LOONG_HF_IMAGE_PROCESSOR, "processor_config.json", NULL};

static loong_status_t read_present(loong_context_t *ctx, const char *dir,
                                   const char *name, loong_file_set_t *files)
{
    char path[PATH_MAX];
    LOONG_CHECK(ctx, snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX,
                LOONG_ERR_ARG, "the path '%s/%s' is too long", dir, name);
    return loongi_file_exists(path) ? read_one(ctx, path, name, files)
                                    : LOONG_OK;
}

/* What stands beside tokenizer.json. */
static loong_status_t read_neighbours(loong_context_t *ctx, const char *dir,
                                      loong_file_set_t *files)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "tiktoken.model",
                                        "qwen.tiktoken",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        LOONG_TRY(read_present(ctx, dir, names[i], files));
    }
    return loongi_hf_code_tokenizes(ctx, dir)
               ? loongi_file_set_read_dir(files, dir, ".py")
               : LOONG_OK;
}

loong_status_t loongi_hf_files_read_tokenizer(loong_context_t *ctx,
                                              const char *from,
                                              loong_file_set_t *files)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(from, '/');
    if (loongi_dir_exists(from)) {
        return read_neighbours(ctx, from, files);
    }
    if (loongi_file_exists(from)) {
        LOONG_TRY(read_one(ctx, from, "tokenizer.json", files));
    }
    snprintf(dir, sizeof(dir), "%.*s", slash != NULL ? (int)(slash - from) : 1,
             slash != NULL ? from : ".");
    return read_neighbours(ctx, dir, files);
}

loong_status_t loongi_hf_files_read(loong_context_t *ctx, const char *dir,
                                    loong_file_set_t *files)
{
    static const char *const others[] = {LOONG_HF_VIDEO_PROCESSOR,
                                         "chat_template.json"};
    LOONG_TRY(loongi_hf_files_read_tokenizer(ctx, dir, files));
    for (int i = 0; loongi_hf_image_processors[i] != NULL; i++) {
        LOONG_TRY(
            read_present(ctx, dir, loongi_hf_image_processors[i], files));
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        LOONG_TRY(read_present(ctx, dir, others[i], files));
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_files_copy(loong_context_t *ctx, const char *files_dir,
                                    const char *code_dir, const char *to)
{
    loong_file_set_t *files = NULL;
    LOONG_TRY(loongi_file_set_create(ctx, &files));
    loong_status_t status = files_dir != NULL
                                ? loongi_hf_files_read(ctx, files_dir, files)
                                : LOONG_OK;
    if (status == LOONG_OK && code_dir != NULL) {
        status = loongi_file_set_read_dir(files, code_dir, ".py");
    }
    if (status == LOONG_OK) {
        status = loongi_file_set_write(ctx, files, to);
    }
    loongi_file_set_destroy(&files);
    return status;
}
