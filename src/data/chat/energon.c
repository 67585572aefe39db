/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron-energon's metadata of a directory of tar files (.nv-meta): which
 * shards are a part, and what samples are made of. Called by files.c and
 * shard.c. Read chat.h before. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "chat.h"
#include "file.h"
#include "tree.h"

#define DATASET "dataset.yaml"

/* What allows which fields; crude: none. */
static const struct {
    const char *sample, *dataset;
    unsigned fields; /* bits of chat_field_t */
} types[] = {
    {"CrudeSample", "CrudeWebdataset", 0},
    {"CaptioningSample", "CaptioningWebdataset",
     1 << CHAT_FIELD_image | 1 << CHAT_FIELD_caption},
    {"VQASample", "VQAWebdataset",
     1 << CHAT_FIELD_image | 1 << CHAT_FIELD_context | 1 << CHAT_FIELD_answers |
         1 << CHAT_FIELD_answer_weights},
    {"VidQASample", "VidQAWebdataset",
     1 << CHAT_FIELD_video | 1 << CHAT_FIELD_context | 1 << CHAT_FIELD_answers |
         1 << CHAT_FIELD_answer_weights},
};
#define ALLOWED                                                        \
    "allowed are CrudeWebdataset, or a sample_type CaptioningSample, " \
    "VQASample or VidQASample of megatron.energon with field_map"

const char *const loongi_chat_field_names[CHAT_FIELDS] = {
#define CHAT_FIELD_NAME(name_) #name_,
    CHAT_FIELD_LIST(CHAT_FIELD_NAME)
#undef CHAT_FIELD_NAME
};

typedef struct chat_energon {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const char *directory;
    int type;
    const char *fields[CHAT_FIELDS];
    const char **excluded;
    int64_t num_excluded, excluded_room;
    uint64_t hash;
} chat_energon_t;

const char *loongi_chat_energon_field(const chat_energon_t *energon,
                                      chat_field_t field)
{
    return energon->fields[field];
}

bool loongi_chat_energon_is_crude(const chat_energon_t *energon)
{
    return energon->type == 0;
}

uint64_t loongi_chat_energon_hash(const chat_energon_t *energon)
{
    return energon->hash;
}

static bool is_excluded(const chat_energon_t *e, const char *name)
{
    for (int64_t i = 0; i < e->num_excluded; i++) {
        if (strcmp(e->excluded[i], name) == 0) {
            return true;
        }
    }
    return false;
}

bool loongi_chat_energon_excludes(const chat_energon_t *energon,
                                  const char *shard, const char *key,
                                  size_t length)
{
    char name[PATH_MAX];
    snprintf(name, sizeof(name), "%s/%.*s", shard, (int)length, key);
    return energon->num_excluded > 0 && is_excluded(energon, name);
}

/* ---- files --------------------------------------------------------------- */

/* The first of two names that is there; NULL and no error: none is. */
static loong_status_t load(chat_energon_t *e, const char *first,
                           const char *second, loong_tree_t **tree_p)
{
    const char *names[] = {first, second};
    char *path = NULL;
    char *text = NULL;
    size_t length = 0;
    for (int i = 0; i < 2; i++) {
        LOONG_TRY(loongi_arena_printf(e->arena, &path, "%s/.nv-meta/%s",
                                      e->directory, names[i]));
        if (loongi_file_exists(path)) {
            LOONG_TRY(loongi_file_read(e->ctx, path, &text, &length));
            e->hash = XXH3_64bits_withSeed(text, length, e->hash);
            loong_status_t status =
                loongi_tree_parse(e->ctx, e->arena, path, text, length, tree_p);
            loongi_free(e->ctx, text);
            LOONG_TRY(status);
            LOONG_CHECK(e->ctx, *tree_p != NULL, LOONG_ERR_FORMAT,
                        "%s: is empty", path);
            return LOONG_OK;
        }
    }
    return LOONG_FAIL(e->ctx, LOONG_ERR_NOT_FOUND,
                      "%s/.nv-meta: there is neither %s nor %s", e->directory,
                      first, second);
}

static const char *text_of(const loong_tree_t *map, const char *key)
{
    const loong_tree_t *value = loongi_tree_get(map, key);
    return value != NULL && value->kind == LOONG_TREE_SCALAR ? value->text
                                                             : NULL;
}

/* ---- names with braces --------------------------------------------------- */

/* Who takes the names. */
typedef struct taker {
    chat_energon_t *energon;
    loong_status_t (*take)(void *user, const char *name);
    void *user;
} taker_t;

static loong_status_t expand(const taker_t *t, const char *name);

/* "head" + one of what the braces say + "tail". */
static loong_status_t expand_one(const taker_t *t, const char *name,
                                 const char *open, const char *close,
                                 const char *one)
{
    char *whole = NULL;
    LOONG_TRY(loongi_arena_printf(t->energon->arena, &whole, "%.*s%s%s",
                                  (int)(open - name), name, one, close + 1));
    return expand(t, whole);
}

/* "{000..011}" and "{a,b}", several of them, as a shell does. */
static loong_status_t expand(const taker_t *t, const char *name)
{
    const chat_energon_t *e = t->energon;
    const char *open = strchr(name, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    int64_t range[2];
    int widths[4] = {0};
    char one[256];
    if (close == NULL) {
        return t->take(t->user, name);
    }
    if (sscanf(open, "{%n%" SCNd64 "%n..%n%" SCNd64 "%n", &widths[0], &range[0],
               &widths[1], &widths[2], &range[1], &widths[3]) == 2 &&
        open + widths[3] == close) {
        int width = LOONG_MAX(widths[1] - widths[0], widths[3] - widths[2]);
        bool padded = open[1] == '0' || open[widths[2]] == '0';
        LOONG_CHECK(e->ctx, range[0] >= 0 && range[1] >= range[0],
                    LOONG_ERR_UNSUPPORTED, "%s: '%s': ranges ascend from 0",
                    e->directory, name);
        for (int64_t i = range[0]; i <= range[1]; i++) {
            snprintf(one, sizeof(one), "%0*" PRId64, padded ? width : 1, i);
            LOONG_TRY(expand_one(t, name, open, close, one));
        }
        return LOONG_OK;
    }
    for (const char *at = open + 1; at <= close;) {
        size_t length = strcspn(at, ",}");
        snprintf(one, sizeof(one), "%.*s", (int)length, at);
        LOONG_TRY(expand_one(t, name, open, close, one));
        at += length + 1;
    }
    return LOONG_OK;
}

static loong_status_t expand_all(const taker_t *t, const loong_tree_t *list)
{
    for (int64_t i = 0; list != NULL && i < list->count; i++) {
        LOONG_TRY(expand(t, list->items[i].value->text));
    }
    return LOONG_OK;
}

/* ---- what samples are ---------------------------------------------------- */

static loong_status_t find_type(chat_energon_t *e, const loong_tree_t *set)
{
    const loong_tree_t *sample = loongi_tree_get(set, "sample_type");
    const char *name = text_of(sample != NULL ? sample : set, "__class__");
    const char *module = text_of(sample != NULL ? sample : set, "__module__");
    for (int i = 0; i < LOONG_COUNT_OF(types) && name != NULL; i++) {
        if (strcmp(name, sample != NULL ? types[i].sample : types[i].dataset) ==
                0 &&
            (module == NULL || strncmp(module, "megatron.energon", 16) == 0)) {
            e->type = i;
            return LOONG_OK;
        }
    }
    return LOONG_FAIL(
        e->ctx, LOONG_ERR_UNSUPPORTED,
        "%s/.nv-meta/" DATASET ": the class '%s' of '%s'; " ALLOWED,
        e->directory, name != NULL ? name : "", module != NULL ? module : "");
}

static loong_status_t take_field(chat_energon_t *e,
                                 const loong_tree_item_t *item)
{
    for (int f = 0; f < CHAT_FIELDS; f++) {
        const char *text = item->value->text;
        if ((types[e->type].fields >> f & 1) == 0 ||
            strcmp(loongi_chat_field_names[f], item->key) != 0 ||
            item->value->kind != LOONG_TREE_SCALAR) {
            continue;
        }
        LOONG_CHECK(e->ctx, f > CHAT_FIELD_video || strchr(text, '[') == NULL,
                    LOONG_ERR_UNSUPPORTED,
                    "%s/.nv-meta/" DATASET ": field_map.%s: '%s', a member's "
                    "ending is wanted",
                    e->directory, item->key, text);
        e->fields[f] = text;
        return LOONG_OK;
    }
    return LOONG_FAIL(e->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s/.nv-meta/" DATASET ": field_map.%s is no field of %s "
                      "that is read",
                      e->directory, item->key, types[e->type].sample);
}

static loong_status_t take_set(chat_energon_t *e, const loong_tree_t *set)
{
    static const char *const read[] = {"__module__", "__class__", "sample_type",
                                       "field_map", "subflavors"};
    for (int64_t i = 0; i < set->count; i++) {
        const loong_tree_item_t *item = &set->items[i];
        bool known = false;
        for (int k = 0; k < LOONG_COUNT_OF(read); k++) {
            known = known || strcmp(item->key, read[k]) == 0;
        }
        LOONG_CHECK(e->ctx, known, LOONG_ERR_UNSUPPORTED,
                    "%s/.nv-meta/" DATASET ": '%s: %s' is not read; " ALLOWED,
                    e->directory, item->key, item->value->text);
    }
    LOONG_TRY(find_type(e, set));
    const loong_tree_t *map = loongi_tree_get(set, "field_map");
    LOONG_CHECK(e->ctx, (map != NULL && map->count > 0) == (e->type > 0),
                LOONG_ERR_FORMAT, "%s/.nv-meta/" DATASET ": %s %s field_map",
                e->directory, types[e->type].sample,
                e->type > 0 ? "needs a" : "has no");
    for (int64_t i = 0; map != NULL && i < map->count; i++) {
        LOONG_TRY(take_field(e, &map->items[i]));
    }
    for (int f = 0; f < CHAT_FIELD_answer_weights; f++) {
        LOONG_CHECK(
            e->ctx,
            (types[e->type].fields >> f & 1) == 0 || e->fields[f] != NULL,
            LOONG_ERR_FORMAT, "%s/.nv-meta/" DATASET ": field_map has no '%s'",
            e->directory, loongi_chat_field_names[f]);
    }
    return LOONG_OK;
}

/* ---- shards -------------------------------------------------------------- */

typedef struct listing {
    chat_files_t *files;
    chat_energon_t *energon;
    const loong_tree_t *counts;
} listing_t;

static loong_status_t add_excluded(void *user, const char *name)
{
    chat_energon_t *e = user;
    LOONG_TRY(loongi_grow(e->ctx, &e->excluded, &e->excluded_room,
                          e->num_excluded + 1, sizeof(*e->excluded),
                          "what is excluded"));
    e->excluded[e->num_excluded++] = name;
    return LOONG_OK;
}

static loong_status_t add_shard(void *user, const char *name)
{
    listing_t *l = user;
    chat_energon_t *e = l->energon;
    char *path = NULL;
    if (is_excluded(e, name)) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_arena_printf(e->arena, &path, "%s/%s", e->directory, name));
    const char *count = text_of(l->counts, name);
    LOONG_CHECK(e->ctx, count != NULL, LOONG_ERR_FORMAT,
                "%s/.nv-meta: shard_counts has no '%s', which is of a part",
                e->directory, name);
    const char *kind = loongi_chat_kind(path);
    LOONG_CHECK(e->ctx, kind != NULL && strcmp(kind, ".tar") == 0,
                LOONG_ERR_UNSUPPORTED, "%s: shards are .tar files", path);
    LOONG_TRY(loongi_chat_add_file(l->files, path));
    chat_file_t *file = &l->files->file[l->files->count - 1];
    file->energon = e;
    file->shard = name;
    file->shard_samples = strtoll(count, NULL, 10);
    return LOONG_OK;
}

/* The part of a set's name; "val" where it is not that of a part. */
static loong_status_t find_part(chat_energon_t *e, const loong_tree_t *split,
                                const char *part, const loong_tree_t **list_p)
{
    const loong_tree_t *parts = loongi_tree_get(split, "split_parts");
    loong_text_t names = loongi_text_begin(e->ctx);
    *list_p = loongi_tree_get(parts, part);
    if (*list_p == NULL && strcmp(part, "train") != 0) {
        part = "val";
        *list_p = loongi_tree_get(parts, part);
    }
    e->hash = XXH3_64bits_withSeed(part, strlen(part), e->hash);
    for (int64_t i = 0; parts != NULL && i < parts->count; i++) {
        loongi_text_printf(&names, " %s", parts->items[i].key);
    }
    loong_status_t status = LOONG_OK;
    if (*list_p == NULL) {
        status = LOONG_FAIL(e->ctx, LOONG_ERR_NOT_FOUND,
                            "%s/.nv-meta: split_parts has no '%s', it has:%s",
                            e->directory, part, loongi_text_get(&names));
    }
    loongi_text_free(&names);
    return status;
}

static loong_status_t list_shards(chat_files_t *files, const char *part)
{
    chat_energon_t *e = files->energon;
    loong_tree_t *set = NULL;
    loong_tree_t *split = NULL;
    loong_tree_t *info = NULL;
    const loong_tree_t *names = NULL;
    LOONG_TRY(load(e, DATASET, "dataset.json", &set));
    LOONG_TRY(take_set(e, set));
    LOONG_TRY(load(e, "split.yaml", "split.json", &split));
    LOONG_TRY(load(e, ".info.json", ".info.yaml", &info));
    LOONG_TRY(find_part(e, split, part, &names));
    listing_t l = {files, e, loongi_tree_get(info, "shard_counts")};
    const taker_t excluded = {e, add_excluded, e};
    const taker_t shards = {e, add_shard, &l};
    LOONG_TRY(expand_all(&excluded, loongi_tree_get(split, "exclude")));
    LOONG_TRY(expand_all(&shards, names));
    LOONG_CHECK(e->ctx, files->count > 0, LOONG_ERR_NOT_FOUND,
                "%s/.nv-meta: the part '%s' has no shards", e->directory, part);
    return LOONG_OK;
}

loong_status_t loongi_chat_energon_list(chat_files_t *files, const char *path,
                                        const char *part)
{
    chat_energon_t *e = NULL;
    loong_text_t meta = loongi_text_begin(files->ctx);
    char *copy = NULL;
    loongi_text_printf(&meta, "%s/.nv-meta", path);
    bool there = loongi_dir_exists(loongi_text_get(&meta));
    loong_status_t status = meta.status;
    loongi_text_free(&meta);
    LOONG_TRY(status);
    if (!there) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_alloc(files->ctx, sizeof(*e), "metadata of shards", &e));
    e->ctx = files->ctx;
    files->energon = e;
    LOONG_TRY(loongi_arena_create(e->ctx, "metadata of shards", &e->arena));
    LOONG_TRY(loongi_arena_strdup(e->arena, path, &copy));
    e->directory = copy;
    return list_shards(files, part);
}

void loongi_chat_energon_free(chat_files_t *files)
{
    chat_energon_t *e = files->energon;
    if (e != NULL) {
        loongi_free(e->ctx, e->excluded);
        loongi_arena_destroy(&e->arena);
        loongi_free(e->ctx, e);
        files->energon = NULL;
    }
}
