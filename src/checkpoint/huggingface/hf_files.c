/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the files beside config.json and weights into memory, and gives them
 * out again. Called by imports, exports and native checkpoints. Read hf_code.h
 * before. */
#include "hf_files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_code.h"
#include "json.h"

typedef struct kept {
    char name[NAME_MAX + 1];
    char *bytes;
    size_t length;
} kept_t;

struct loong_hf_files {
    loong_context_t *ctx;
    int64_t count;
    int64_t capacity;
    kept_t *items;
};

loong_status_t loongi_hf_files_create(loong_context_t *ctx,
                                      loong_hf_files_t **files)
{
    loong_hf_files_t *f = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*f), "files of a tokenizer", &f));
    f->ctx = ctx;
    *files = f;
    return LOONG_OK;
}

void loongi_hf_files_destroy(loong_hf_files_t **files)
{
    loong_hf_files_t *f = *files;
    if (f == NULL) {
        return;
    }
    for (int64_t i = 0; i < f->count; i++) {
        loongi_free(f->ctx, f->items[i].bytes);
    }
    loongi_free(f->ctx, f->items);
    loongi_free(f->ctx, f);
    *files = NULL;
}

int64_t loongi_hf_files_count(const loong_hf_files_t *files)
{
    return files->count;
}

const char *loongi_hf_files_get(const loong_hf_files_t *files, int64_t index,
                                const char **bytes_p, size_t *length_p)
{
    const kept_t *kept = &files->items[index];
    *bytes_p = kept->bytes;
    *length_p = kept->length;
    return kept->name;
}

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

static loong_status_t read_one(loong_hf_files_t *f, const char *path,
                               const char *name)
{
    char *bytes = NULL;
    size_t length = 0;
    for (int64_t i = 0; i < f->count; i++) {
        if (strcmp(f->items[i].name, name) == 0) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_grow(f->ctx, &f->items, &f->capacity, f->count + 1,
                          sizeof(*f->items), "files of a tokenizer"));
    if (strcmp(name, "generation_config.json") == 0 ||
        strcmp(name, "tokenizer.json") == 0) {
        LOONG_TRY(check_object(f->ctx, path));
    }
    LOONG_TRY(loongi_file_read(f->ctx, path, &bytes, &length));
    kept_t *kept = &f->items[f->count++];
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    kept->bytes = bytes;
    kept->length = length;
    return LOONG_OK;
}

static loong_status_t path_of(loong_context_t *ctx, const char *dir,
                              const char *name, char path[PATH_MAX])
{
    LOONG_CHECK(ctx, snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX,
                LOONG_ERR_ARG, "the path '%s/%s' is too long", dir, name);
    return LOONG_OK;
}

static bool is_python(const char *name)
{
    size_t length = strlen(name);
    return name[0] != '.' && length > 3 &&
           strcmp(name + length - 3, ".py") == 0;
}

loong_status_t loongi_hf_files_read_code(loong_hf_files_t *files,
                                         const char *from)
{
    char path[PATH_MAX];
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(from);
    LOONG_CHECK(files->ctx, dir != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", from, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        if (!is_python(entry->d_name)) {
            continue;
        }
        status = path_of(files->ctx, from, entry->d_name, path);
        if (status == LOONG_OK && loongi_file_exists(path)) {
            status = read_one(files, path, entry->d_name);
        }
    }
    closedir(dir);
    return status;
}

/* What stands beside tokenizer.json. */
static loong_status_t read_neighbours(loong_hf_files_t *files, const char *dir)
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
    char path[PATH_MAX];
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        LOONG_TRY(path_of(files->ctx, dir, names[i], path));
        if (loongi_file_exists(path)) {
            LOONG_TRY(read_one(files, path, names[i]));
        }
    }
    return loongi_hf_code_tokenizes(files->ctx, dir)
               ? loongi_hf_files_read_code(files, dir)
               : LOONG_OK;
}

loong_status_t loongi_hf_files_read_tokenizer(loong_hf_files_t *files,
                                              const char *from)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(from, '/');
    if (loongi_dir_exists(from)) {
        return read_neighbours(files, from);
    }
    if (loongi_file_exists(from)) {
        LOONG_TRY(read_one(files, from, "tokenizer.json"));
    }
    snprintf(dir, sizeof(dir), "%.*s", slash != NULL ? (int)(slash - from) : 1,
             slash != NULL ? from : ".");
    return read_neighbours(files, dir);
}

loong_status_t loongi_hf_files_read_step(loong_hf_files_t *files,
                                         const char *step_dir)
{
    char dir[PATH_MAX];
    LOONG_TRY(path_of(files->ctx, step_dir, "hf", dir));
    if (!loongi_dir_exists(dir)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_files_read_tokenizer(files, dir));
    return loongi_hf_files_read_code(files, dir);
}

loong_status_t loongi_hf_files_write(loong_context_t *ctx,
                                     const loong_hf_files_t *files,
                                     const char *dir)
{
    char path[PATH_MAX];
    LOONG_TRY(loongi_dir_make(ctx, dir));
    for (int64_t i = 0; i < files->count; i++) {
        const kept_t *kept = &files->items[i];
        LOONG_TRY(path_of(ctx, dir, kept->name, path));
        LOONG_TRY(loongi_file_write(ctx, path, kept->bytes, kept->length));
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_files_copy(loong_context_t *ctx,
                                    const char *tokenizer_dir,
                                    const char *code_dir, const char *to)
{
    loong_hf_files_t *files = NULL;
    LOONG_TRY(loongi_hf_files_create(ctx, &files));
    loong_status_t status =
        tokenizer_dir != NULL
            ? loongi_hf_files_read_tokenizer(files, tokenizer_dir)
            : LOONG_OK;
    if (status == LOONG_OK && code_dir != NULL) {
        status = loongi_hf_files_read_code(files, code_dir);
    }
    if (status == LOONG_OK) {
        status = loongi_hf_files_write(ctx, files, to);
    }
    loongi_hf_files_destroy(&files);
    return status;
}
