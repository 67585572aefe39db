/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a source of conversations, and what their names say they are.
 * Called by prepare.c. Read chat.h before. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "chat.h"
#include "file.h"

/* Kinds that need a library, and what turns them into lines of JSON. */
static const struct {
    const char *suffix, *command;
} foreign[] = {
    {".parquet", "python3 -c \"import pandas; pandas.read_parquet('%s')"
                 ".to_json('%.*s.jsonl', orient='records', lines=True)\""},
    {".arrow", "python3 -c \"import datasets; datasets.Dataset.from_file('%s')"
               ".to_json('%.*s.jsonl')\""},
    {".feather", "python3 -c \"import pandas; pandas.read_feather('%s')"
                 ".to_json('%.*s.jsonl', orient='records', lines=True)\""},
};

static const char *const packed[] = {".gz", ".xz", ".zst"};
static const char *const known[] = {".jsonl",   ".ndjson", ".json",    ".csv",
                                    ".tsv",     ".txt",    ".parquet", ".arrow",
                                    ".feather", ".tar"};

#define KINDS                                                            \
    ".jsonl, .ndjson, .json, .csv, .tsv or .txt, or such a one as .gz, " \
    ".xz or .zst, or .tar"

static bool ends(const char *name, size_t length, const char *suffix)
{
    size_t n = strlen(suffix);
    return length > n && memcmp(name + length - n, suffix, n) == 0;
}

const char *loongi_chat_kind(const char *path)
{
    size_t length = strlen(path);
    for (int64_t i = 0; i < LOONG_COUNT_OF(packed); i++) {
        if (ends(path, length, packed[i])) {
            length -= strlen(packed[i]);
            break;
        }
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(known); i++) {
        if (ends(path, length, known[i])) {
            return known[i];
        }
    }
    return NULL;
}

static loong_status_t refuse_foreign(loong_context_t *ctx, const char *path)
{
    size_t length = strlen(path);
    for (int64_t i = 0; i < LOONG_COUNT_OF(foreign); i++) {
        const char *suffix = foreign[i].suffix;
        if (ends(path, length, suffix) && !loongi_chat_arrow_loads()) {
            char command[2048];
            int stem = (int)(length - strlen(suffix));
            /* its formats are the table's */
            snprintf(command, sizeof(command), foreign[i].command, path, stem,
                     path);
            return LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED,
                              "%s: %s files are read with Arrow "
                              "(-DLOONG_ARROW=DIR, docs/install.md), which "
                              "this build has not; this converts it:\n  %s",
                              path, suffix + 1, command);
        }
    }
    return LOONG_OK;
}

static loong_status_t add_file(chat_files_t *files, const char *path,
                               const struct stat *info)
{
    LOONG_TRY(loongi_grow(files->ctx, &files->file, &files->room,
                          files->count + 1, sizeof(*files->file),
                          "files of conversations"));
    chat_file_t *f = &files->file[files->count];
    memset(f, 0, sizeof(*f));
    LOONG_TRY(loongi_strdup(files->ctx, path, &f->path));
    f->size = info->st_size;
    f->changed_s = info->st_mtim.tv_sec;
    f->changed_ns = info->st_mtim.tv_nsec;
    files->count++;
    return LOONG_OK;
}

loong_status_t loongi_chat_add_file(chat_files_t *files, const char *path)
{
    struct stat info;
    LOONG_CHECK(files->ctx, stat(path, &info) == 0, LOONG_ERR_IO, "%s: %s",
                path, strerror(errno));
    return add_file(files, path, &info);
}

static loong_status_t add_directory(chat_files_t *files, const char *path);

/* What has another name than data in a directory is no part of it. */
static loong_status_t add_entry(chat_files_t *files, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return LOONG_FAIL(files->ctx, LOONG_ERR_IO, "%s: %s", path,
                          strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        return add_directory(files, path);
    }
    LOONG_TRY(refuse_foreign(files->ctx, path));
    return loongi_chat_kind(path) != NULL ? add_file(files, path, &info)
                                          : LOONG_OK;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static loong_status_t add_directory(chat_files_t *files, const char *path)
{
    struct dirent **names = NULL;
    int count = scandir(path, &names, is_visible, alphasort);
    LOONG_CHECK(files->ctx, count >= 0, LOONG_ERR_IO, "cannot list '%s': %s",
                path, strerror(errno));
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < count; i++) {
        loong_text_t child = loongi_text_begin(files->ctx);
        loongi_text_printf(&child, "%s/%s", path, names[i]->d_name);
        if (status == LOONG_OK) {
            status = child.status;
        }
        if (status == LOONG_OK) {
            status = add_entry(files, child.data);
        }
        loongi_text_free(&child);
        free(names[i]);
    }
    free(names);
    return status;
}

loong_status_t loongi_chat_list(chat_files_t *files, const char *path,
                                const char *part)
{
    struct stat info;
    loong_context_t *ctx = files->ctx;
    if (stat(path, &info) != 0) {
        int code = errno;
        return LOONG_FAIL(
            ctx, code == ENOENT ? LOONG_ERR_NOT_FOUND : LOONG_ERR_IO, "%s: %s",
            path, code == ENOENT ? "there is no such file" : strerror(code));
    }
    if (S_ISDIR(info.st_mode)) {
        LOONG_TRY(loongi_chat_energon_list(files, path, part));
        if (files->energon != NULL) {
            return LOONG_OK;
        }
        LOONG_TRY(add_directory(files, path));
        LOONG_CHECK(ctx, files->count > 0, LOONG_ERR_NOT_FOUND,
                    "%s: no file in it is " KINDS, path);
        return LOONG_OK;
    }
    LOONG_TRY(refuse_foreign(ctx, path));
    LOONG_CHECK(ctx, loongi_chat_kind(path) != NULL, LOONG_ERR_UNSUPPORTED,
                "%s: conversations are " KINDS, path);
    return add_file(files, path, &info);
}

void loongi_chat_files_free(chat_files_t *files)
{
    for (int64_t i = 0; i < files->count; i++) {
        loongi_free(files->ctx, files->file[i].path);
    }
    loongi_free(files->ctx, files->file);
    loongi_chat_energon_free(files);
}
