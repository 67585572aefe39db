/* SPDX-License-Identifier: Apache-2.0
 *
 * Labelled pictures in tar files, WebDataset's convention: labels are read
 * once, pictures at their offsets. Called by source.c and source_directory.c.
 * Read source.h and tar.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "source.h"
#include "tar.h"

enum { LONGEST_LABEL = 1 << 16 };

/* A tar file, and the sample whose members are being read. */
typedef struct listing {
    loong_image_source_t *source;
    loong_context_t *ctx;
    const char *path;
    int fd;
    int64_t size;
    char *first;       /* the name of the sample's first member */
    size_t key_length; /* of the part that all members share */
    image_entry_t entry;
    int64_t cls, json; /* its labels; -1: none */
} listing_t;

static loong_status_t end_sample(listing_t *l)
{
    bool picture = l->entry.name != NULL;
    l->entry.label = l->cls >= 0 ? l->cls : l->json;
    LOONG_CHECK(l->ctx, picture == (l->entry.label >= 0), LOONG_ERR_FORMAT,
                "%s: sample %.*s has no %s", l->path, (int)l->key_length,
                l->first,
                picture ? "label (.cls, or .json with \"label\")"
                        : "picture (.jpg .jpeg .png .webp)");
    if (picture) {
        LOONG_TRY(loongi_image_source_add(l->source, &l->entry));
    }
    l->entry = (image_entry_t){.file = l->path, .file_size = l->size};
    l->cls = l->json = -1;
    return LOONG_OK;
}

static loong_status_t set_picture(listing_t *l, const tar_member_t *member)
{
    char *copy = NULL;
    LOONG_CHECK(l->ctx, l->entry.name == NULL, LOONG_ERR_FORMAT,
                "%s: %s: a second picture of its sample", l->path,
                member->name);
    l->entry.offset = member->offset;
    l->entry.length = member->size;
    LOONG_TRY(loongi_arena_printf(l->source->arena, &copy, "%s: %s", l->path,
                                  member->name));
    l->entry.name = copy;
    return LOONG_OK;
}

/* A number that is the text of a .cls. */
static int64_t number_of(const char *text)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool whole = end > text && end[strspn(end, " \r\n\t")] == '\0';
    return whole && errno == 0 ? number : -1;
}

/* "label" of a .json; -1 where it has none. */
static loong_status_t label_of(loong_context_t *ctx, const char *text,
                               const char *where, int64_t *label_p)
{
    loong_json_t *json = NULL;
    LOONG_TRY(loongi_json_parse(ctx, text, strlen(text), where, &json));
    const loong_json_t *label = loongi_json_get(json, "label");
    bool is_number = loongi_json_kind(label) == LOONG_JSON_INT;
    *label_p = is_number ? loongi_json_int(label) : -1;
    loongi_json_destroy(&json);
    return LOONG_OK;
}

static loong_status_t set_label(listing_t *l, const tar_member_t *member,
                                bool is_json, char *text)
{
    char where[256];
    snprintf(where, sizeof(where), "%s: %s", l->path, member->name);
    LOONG_TRY(loongi_file_pread(l->ctx, l->fd, where, text,
                                (size_t)member->size, (off_t)member->offset));
    text[member->size] = '\0';
    if (is_json) {
        return label_of(l->ctx, text, where, &l->json);
    }
    l->cls = number_of(text);
    LOONG_CHECK(l->ctx, l->cls >= 0, LOONG_ERR_FORMAT,
                "%s: is \"%.32s\", not the number of a class", where, text);
    return LOONG_OK;
}

static loong_status_t add_member(void *user, const tar_member_t *member)
{
    static const char *const cls[] = {"cls", NULL};
    static const char *const json[] = {"json", NULL};
    listing_t *l = user;
    const char *name = member->name;
    size_t length = loongi_tar_key(name);
    if (loongi_tar_is_hidden(name)) {
        return LOONG_OK;
    }
    LOONG_CHECK(l->ctx, !member->is_link || name[length] != '.',
                LOONG_ERR_UNSUPPORTED, "%s: %s: is a link, a file is wanted",
                l->path, name);
    if (l->first == NULL || length != l->key_length ||
        memcmp(name, l->first, length) != 0) {
        LOONG_TRY(end_sample(l));
        LOONG_TRY(loongi_arena_strdup(l->source->arena, name, &l->first));
        l->key_length = length;
    }
    const char *ending = name + length;
    bool is_json = loongi_image_has_ending(ending, json);
    if (strchr(ending, '.') != strrchr(ending, '.')) {
        return LOONG_OK; /* "0001.mask.png" is another thing */
    }
    if (loongi_image_has_ending(ending, loongi_image_endings)) {
        return set_picture(l, member);
    }
    if (is_json || loongi_image_has_ending(ending, cls)) {
        char *text = NULL;
        LOONG_CHECK(l->ctx, member->size < LONGEST_LABEL, LOONG_ERR_UNSUPPORTED,
                    "%s: %s: has %" PRId64 " bytes, %d are allowed", l->path,
                    name, member->size, LONGEST_LABEL - 1);
        LOONG_TRY(loongi_alloc(l->ctx, LONGEST_LABEL, "label", &text));
        loong_status_t status = set_label(l, member, is_json, text);
        loongi_free(l->ctx, text);
        return status;
    }
    return LOONG_OK;
}

loong_status_t loongi_image_list_tar(loong_image_source_t *source,
                                     const char *path)
{
    listing_t l = {.source = source, .ctx = source->ctx, .cls = -1, .json = -1};
    struct stat info = {0};
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(source->arena, path, &copy));
    l.path = copy;
    l.fd = open(path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(l.ctx, l.fd >= 0, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    l.size = fstat(l.fd, &info) == 0 ? info.st_size : 0;
    loong_status_t status = loongi_tar_list(l.ctx, path, add_member, &l);
    if (status == LOONG_OK) {
        status = end_sample(&l);
    }
    close(l.fd);
    return status;
}
