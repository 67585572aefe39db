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

enum { MOST_NAMES = 1000000 }; /* of a range */

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

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
    const char **excluded; /* sorted */
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

/* The first that is not less. */
static int64_t find_excluded(const chat_energon_t *e, const char *name)
{
    int64_t begin = 0;
    int64_t end = e->num_excluded;
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        if (strcmp(e->excluded[middle], name) < 0) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

static bool is_excluded(const chat_energon_t *e, const char *name)
{
    int64_t i = find_excluded(e, name);
    return i < e->num_excluded && strcmp(e->excluded[i], name) == 0;
}

bool loongi_chat_energon_excludes(const chat_energon_t *energon,
                                  const char *shard, const char *key,
                                  size_t length)
{
    char name[PATH_MAX];
    snprintf(name, sizeof(name), "%s/%.*s", shard, (int)length, key);
    return energon->num_excluded > 0 && is_excluded(energon, name);
}

int64_t loongi_chat_energon_num_excluded(const chat_energon_t *energon,
                                         const char *shard)
{
    char begin[PATH_MAX];
    char end[PATH_MAX]; /* '0' stands behind '/' */
    snprintf(begin, sizeof(begin), "%s/", shard);
    snprintf(end, sizeof(end), "%s0", shard);
    return find_excluded(energon, end) - find_excluded(energon, begin);
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

static loong_status_t refuse_braces(const taker_t *t, const char *name)
{
    return LOONG_FAIL(t->energon->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s/.nv-meta: '%s': braces are ranges {000..011}, "
                      "{0..10..2}, {a..f} of at most %d names, and lists {a,b}",
                      t->energon->directory, name, MOST_NAMES);
}

/* One end of a range: a whole number, or a letter's place among LETTERS. What
 * is behind it; NULL: it is neither. */
static const char *read_end(const char *text, bool *is_letter_p,
                            int64_t *value_p)
{
    size_t sign = text[0] == '-';
    size_t digits = strspn(text + sign, "0123456789");
    const char *letter = text[0] != '\0' ? strchr(LETTERS, text[0]) : NULL;
    *is_letter_p = letter != NULL;
    if (letter != NULL) {
        *value_p = letter - LETTERS;
        return text + 1;
    }
    *value_p = strtoll(text, NULL, 10);
    return digits > 0 && digits < 18 ? text + sign + digits : NULL;
}

/* "007" and "-07", not "0". */
static bool is_padded(const char *text, int length)
{
    int sign = text[0] == '-';
    return text[sign] == '0' && length > sign + 1;
}

/* "{first..last}" and "{first..last..step}", up or down; *found_p false: the
 * braces hold something else. */
static loong_status_t expand_range(const taker_t *t, const char *name,
                                   const char *open, const char *close,
                                   bool *found_p)
{
    bool letter[3] = {false};
    int64_t range[3] = {0, 0, 1};
    const char *ends[3] = {NULL};
    int count = 0;
    const char *at = open + 1;
    int width = 0;
    bool padded = false;
    for (bool more = true; more && count < 3; count++) {
        ends[count] = at;
        at = read_end(at, &letter[count], &range[count]);
        if (at == NULL) {
            return LOONG_OK;
        }
        int length = (int)(at - ends[count]);
        if (count < 2) {
            width = LOONG_MAX(width, length);
            padded = padded || is_padded(ends[count], length);
        }
        more = strncmp(at, "..", 2) == 0;
        at += more ? 2 : 0;
    }
    if (at != close || count < 2 || letter[0] != letter[1] || letter[2]) {
        return LOONG_OK;
    }
    *found_p = true;
    int64_t step = range[2] == 0 ? 1 : llabs(range[2]);
    int64_t names = llabs(range[1] - range[0]) / step + 1;
    if (names > MOST_NAMES) {
        return refuse_braces(t, name);
    }
    for (int64_t i = 0; i < names; i++) {
        char one[32];
        int64_t value = range[0] + (range[1] > range[0] ? step : -step) * i;
        if (letter[0]) {
            snprintf(one, sizeof(one), "%c", LETTERS[value]);
        } else {
            snprintf(one, sizeof(one), "%0*" PRId64, padded ? width : 0, value);
        }
        LOONG_TRY(expand_one(t, name, open, close, one));
    }
    return LOONG_OK;
}

/* The bracket that closes the one here; NULL: there is none. With commas: the
 * comma that ends what stands behind this one, if there is one before. */
static const char *find_close(const char *open, bool commas)
{
    int depth = 1;
    const char *at = open + 1;
    for (; *at != '\0'; at++) {
        depth += (*at == '{') - (*at == '}');
        if (depth == 0 || (commas && depth == 1 && *at == ',')) {
            return at;
        }
    }
    return NULL;
}

/* Names with ranges and lists in braces, several of them or one in another, as
 * Python's braceexpand makes them, which energon calls. */
static loong_status_t expand(const taker_t *t, const char *name)
{
    const char *open = strpbrk(name, "{}\\");
    if (open == NULL) {
        return t->take(t->user, name);
    }
    const char *close = *open == '{' ? find_close(open, false) : NULL;
    bool found = false;
    if (close == NULL) {
        return refuse_braces(t, name);
    }
    LOONG_TRY(expand_range(t, name, open, close, &found));
    if (found) {
        return LOONG_OK;
    }
    if (find_close(open, true) == close) {
        return refuse_braces(t, name);
    }
    for (const char *at = open; at < close;) {
        char *one = NULL;
        const char *end = find_close(at, true);
        LOONG_TRY(loongi_arena_printf(t->energon->arena, &one, "%.*s",
                                      (int)(end - at - 1), at + 1));
        LOONG_TRY(expand_one(t, name, open, close, one));
        at = end;
    }
    return LOONG_OK;
}

static loong_status_t expand_all(const taker_t *t, const char *key,
                                 const loong_tree_t *list)
{
    const chat_energon_t *e = t->energon;
    if (list == NULL || list->is_null) {
        return LOONG_OK;
    }
    bool is_list = list->kind == LOONG_TREE_LIST;
    for (int64_t i = 0; is_list && i < list->count; i++) {
        is_list = list->items[i].value->kind == LOONG_TREE_SCALAR;
    }
    LOONG_CHECK(
        e->ctx, is_list, LOONG_ERR_FORMAT,
        "%s:%d: '%s' is to be a list of names, [s0.tar, \"s{1..9}.tar\"]",
        list->file, list->line, key);
    for (int64_t i = 0; i < list->count; i++) {
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

/* "json[turns][0],txt": endings, with keys in brackets that are closed. */
static bool is_field(const char *text)
{
    for (;;) {
        size_t length = strcspn(text, "[], \t\n");
        text += length;
        while (length > 0 && *text == '[') {
            length = strcspn(text + 1, "[],");
            text += length + 1;
            length = *text == ']' ? length : 0;
            text += *text == ']';
        }
        if (length == 0 || (*text != ',' && *text != '\0')) {
            return false;
        }
        if (*text++ == '\0') {
            return true;
        }
    }
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
        LOONG_CHECK(e->ctx, is_field(text), LOONG_ERR_FORMAT,
                    "%s/.nv-meta/" DATASET ": field_map.%s: '%s', endings are "
                    "wanted as in \"json[turns][0],txt\", without blanks",
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

/* The part of a set's name; "val" where it is not that of a part, unless that
 * very one is wanted. */
static loong_status_t find_part(chat_energon_t *e, const loong_tree_t *split,
                                const char *part, bool exact,
                                const loong_tree_t **list_p)
{
    const loong_tree_t *parts = loongi_tree_get(split, "split_parts");
    loong_text_t names = loongi_text_begin(e->ctx);
    *list_p = loongi_tree_get(parts, part);
    if (*list_p == NULL && !exact && strcmp(part, "train") != 0) {
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

/* What is excluded and is neither a shard nor in one is a slip of the pen. */
static void warn_of_excluded(const chat_energon_t *e,
                             const loong_tree_t *counts)
{
    for (int64_t i = 0; i < e->num_excluded; i++) {
        bool found = false;
        for (int64_t k = 0; counts != NULL && k < counts->count; k++) {
            const char *shard = counts->items[k].key;
            size_t length = strlen(shard);
            const char *rest = e->excluded[i] + length;
            found = found || (strncmp(e->excluded[i], shard, length) == 0 &&
                              (*rest == '\0' || *rest == '/'));
        }
        if (!found) {
            loongi_log(e->ctx, LOONG_LOG_WARN,
                       "%s/.nv-meta: '%s', which is excluded, is no shard",
                       e->directory, e->excluded[i]);
        }
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
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
    LOONG_TRY(find_part(e, split, part, files->exact, &names));
    listing_t l = {files, e, loongi_tree_get(info, "shard_counts")};
    const taker_t excluded = {e, add_excluded, e};
    const taker_t shards = {e, add_shard, &l};
    LOONG_TRY(
        expand_all(&excluded, "exclude", loongi_tree_get(split, "exclude")));
    warn_of_excluded(e, l.counts);
    if (e->num_excluded > 0) {
        qsort(e->excluded, (size_t)e->num_excluded, sizeof(*e->excluded),
              by_name);
    }
    LOONG_TRY(expand_all(&shards, part, names));
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
