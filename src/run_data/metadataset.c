/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of a run from its recipe, of which one may be a metadataset of
 * megatron-energon: a YAML file that names data sets, with weights or
 * repetitions, and other such files. Called by open_data.c. Read run_data.h
 * before. */
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "run_data.h"
#include "tree.h"

/* Files that name one another, at most. */
enum { MOST_DEEP = 16 };

/* How the sources of a file are mixed. */
typedef enum mix {
    ALONE,      /* there is one */
    WEIGHTS,    /* by their weights */
    REPETITIONS /* each gives its samples so many times in an epoch */
} mix_t;

static const char *const mix_names[] = {"one data set", "weights (blend)",
                                        "repetitions (blend_epochized)"};

/* What holds for all below. */
typedef struct outer {
    const char *part;
    double weight, repetitions;
    double begin, end; /* share of each data set */
    int depth;
} outer_t;

typedef struct reading {
    const loong_run_data_t *d;
    loong_source_list_t *list;
    loong_blend_source_t given; /* what the recipe says of it */
} reading_t;

static loong_status_t add_file(reading_t *r, const char *path,
                               const outer_t *outer, mix_t *mix_p);

static const char *text_of(const loong_tree_t *map, const char *key)
{
    const loong_tree_t *value = loongi_tree_get(map, key);
    return value != NULL && value->kind == LOONG_TREE_SCALAR && !value->is_null
               ? value->text
               : NULL;
}

/* ---- what stands beside a path ------------------------------------------- */

static loong_status_t refuse_keys(const reading_t *r, const loong_tree_t *node)
{
    static const char *const known[] = {
        "path",        "weight",    "repetitions", "subset",
        "split_part",  "subflavor", "subflavors",  "blend",
        "blend_epochized", "datasets"};
    static const char shuffle[] = "shuffle_over_epochs_multiplier";
    for (int64_t i = 0; i < node->count; i++) {
        const char *key = node->items[i].key;
        const char *value = text_of(node, key);
        bool is_known = strcmp(key, shuffle) == 0 &&
                        (value == NULL || strcmp(value, "1") == 0);
        for (int k = 0; k < LOONG_COUNT_OF(known); k++) {
            is_known = is_known || strcmp(key, known[k]) == 0;
        }
        LOONG_CHECK(r->d->plan->ctx, is_known, LOONG_ERR_UNSUPPORTED,
                    "%s:%d: %s: of a metadataset path, split_part, weight, "
                    "repetitions, subset, blend and blend_epochized are read",
                    node->file, node->items[i].line, key);
    }
    return LOONG_OK;
}

/* A number of at least 0 and not all 0; `usual` where it is not given. */
static loong_status_t take_number(const reading_t *r, const loong_tree_t *node,
                                  const char *key, double usual, double *to)
{
    const char *text = text_of(node, key);
    char *end = NULL;
    *to = text != NULL ? strtod(text, &end) : usual;
    LOONG_CHECK(r->d->plan->ctx,
                text == NULL || (end != text && *end == '\0' && *to > 0.0 &&
                                 *to <= 1e9),
                LOONG_ERR_CONFIG, "%s:%d: %s: found %s, a number above 0 is "
                                  "wanted",
                node->file, node->line, key, text);
    return LOONG_OK;
}

/* "25%" or "end"; -1: neither. */
static double share_of(const loong_tree_t *bound)
{
    char *end = NULL;
    double share = strtod(bound->text, &end) / 100.0;
    bool is_share = bound->kind == LOONG_TREE_SCALAR && end != bound->text &&
                    strcmp(end, "%") == 0 && share >= 0.0 && share <= 1.0;
    return strcmp(bound->text, "end") == 0 ? 1.0 : is_share ? share : -1.0;
}

/* A share of what is shared out by what holds already. */
static loong_status_t take_subset(const reading_t *r, const loong_tree_t *node,
                                  outer_t *own)
{
    const loong_tree_t *subset = loongi_tree_get(node, "subset");
    const loong_tree_t *range = loongi_tree_get(subset, "range");
    if (subset == NULL || subset->is_null) {
        return LOONG_OK;
    }
    bool two = range != NULL && range->kind == LOONG_TREE_LIST &&
               range->count == 2;
    double begin = two ? share_of(range->items[0].value) : -1.0;
    double end = two ? share_of(range->items[1].value) : -1.0;
    LOONG_CHECK(r->d->plan->ctx, begin >= 0.0 && begin < end,
                LOONG_ERR_UNSUPPORTED,
                "%s:%d: subset: range: two shares are read, as [25%%, 75%%]; "
                "numbers of samples are not",
                node->file, subset->line);
    double all = end - begin;
    end = begin + own->end * all;
    own->begin = begin + own->begin * all;
    own->end = end;
    return LOONG_OK;
}

/* ---- sources ------------------------------------------------------------- */

static loong_status_t add_source(const loong_run_data_t *d,
                                 loong_source_list_t *list,
                                 const loong_blend_source_t *source)
{
    LOONG_CHECK(d->plan->ctx, list->count < LOONG_MAX_SOURCES, LOONG_ERR_CONFIG,
                "%s: more than %d sources", list->name, LOONG_MAX_SOURCES);
    list->source[list->count++] = *source;
    return LOONG_OK;
}

static loong_status_t add_data_set(reading_t *r, const char *path,
                                   const outer_t *own)
{
    loong_blend_source_t source = r->given;
    source.path = path;
    source.part = own->part;
    source.weight = own->weight;
    source.repetitions = own->repetitions;
    source.split_begin = own->begin;
    source.split_end = own->end;
    if (own->begin == 0.0 && own->end == 1.0) {
        source.split_end = 0.0; /* all of it */
    }
    return add_source(r->d, r->list, &source);
}

/* Whether a path is that of a metadataset. */
static bool is_metadataset(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL &&
           (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* A data set, or a file of some; paths are relative to the file that names
 * them. */
static loong_status_t add_reference(reading_t *r, const loong_tree_t *node,
                                    const outer_t *outer, mix_t *mix_p)
{
    const char *given = text_of(node, "path");
    const char *part = text_of(node, "split_part");
    const char *slash = strrchr(node->file, '/');
    int directory = slash != NULL ? (int)(slash + 1 - node->file) : 0;
    outer_t own = *outer;
    char *path = NULL;
    LOONG_CHECK(r->d->plan->ctx, given != NULL, LOONG_ERR_FORMAT,
                "%s:%d: path: the path of a data set is wanted", node->file,
                node->line);
    LOONG_TRY(refuse_keys(r, node));
    LOONG_TRY(take_subset(r, node, &own));
    LOONG_TRY(loongi_arena_printf(r->list->arena, &path, "%.*s%s",
                                  given[0] == '/' ? 0 : directory, node->file,
                                  given));
    own.part = part != NULL ? part : own.part;
    own.depth++;
    *mix_p = ALONE;
    return is_metadataset(path) ? add_file(r, path, &own, mix_p)
                                : add_data_set(r, path, &own);
}

/* A list of them. */
static loong_status_t add_blend(reading_t *r, const loong_tree_t *list,
                                mix_t mix, const outer_t *outer)
{
    double sum = 0.0;
    double weight = 0.0;
    LOONG_CHECK(r->d->plan->ctx,
                list->kind == LOONG_TREE_LIST && list->count > 0,
                LOONG_ERR_FORMAT, "%s:%d: a list of data sets is wanted",
                list->file, list->line);
    for (int64_t i = 0; i < list->count && mix == WEIGHTS; i++) {
        LOONG_TRY(
            take_number(r, list->items[i].value, "weight", 1.0, &weight));
        sum += weight;
    }
    for (int64_t i = 0; i < list->count; i++) {
        const loong_tree_t *node = list->items[i].value;
        outer_t own = *outer;
        mix_t inner = ALONE;
        double times = 1.0;
        if (mix == WEIGHTS) {
            LOONG_TRY(take_number(r, node, "weight", 1.0, &weight));
            own.weight *= weight / sum;
        } else {
            LOONG_TRY(take_number(r, node, "repetitions", 1.0, &times));
            own.repetitions *= times;
        }
        LOONG_TRY(add_reference(r, node, &own, &inner));
        LOONG_CHECK(r->d->plan->ctx, inner == ALONE || inner == mix,
                    LOONG_ERR_CONFIG,
                    "%s:%d: path: found %s among %s; they are not mixed",
                    node->file, node->line, mix_names[inner], mix_names[mix]);
    }
    return LOONG_OK;
}

/* ---- a file -------------------------------------------------------------- */

static loong_status_t parse(const reading_t *r, const char *path,
                            loong_tree_t **tree_p)
{
    loong_context_t *ctx = r->d->plan->ctx;
    char *text = NULL;
    size_t length = 0;
    LOONG_TRY(loongi_file_read(ctx, path, &text, &length));
    loong_status_t status =
        loongi_tree_parse(ctx, r->list->arena, path, text, length, tree_p);
    loongi_free(ctx, text);
    LOONG_TRY(status);
    const char *class_name = text_of(*tree_p, "__class__");
    LOONG_CHECK(ctx,
                class_name == NULL || strcmp(class_name, "Metadataset") == 0 ||
                    strcmp(class_name, "MetadatasetV2") == 0,
                LOONG_ERR_UNSUPPORTED,
                "%s: __class__: found %s, Metadataset and MetadatasetV2 are "
                "read",
                path, class_name);
    return LOONG_OK;
}

/* The part of a set's name; of a set of data.validation "val" where there is
 * none of it. */
static loong_status_t find_split(const reading_t *r, const loong_tree_t *tree,
                                 const char *path, outer_t *own,
                                 const loong_tree_t **split_p)
{
    const loong_tree_t *splits = loongi_tree_get(tree, "splits");
    loong_text_t names = loongi_text_begin(r->d->plan->ctx);
    *split_p = loongi_tree_get(splits, own->part);
    if (*split_p == NULL && own->depth == 0 &&
        strcmp(own->part, "train") != 0) {
        own->part = "val";
        *split_p = loongi_tree_get(splits, own->part);
    }
    for (int64_t i = 0; splits != NULL && i < splits->count; i++) {
        loongi_text_printf(&names, " %s", splits->items[i].key);
    }
    loong_status_t status = LOONG_OK;
    if (*split_p == NULL) {
        status = LOONG_FAIL(r->d->plan->ctx, LOONG_ERR_NOT_FOUND,
                            "%s: %s '%s'%s%s", path,
                            splits == NULL ? "is no metadataset: it has no map "
                                             "'splits' with a"
                                           : "splits has no",
                            own->part, splits == NULL ? "" : ", it has:",
                            loongi_text_get(&names));
    }
    loongi_text_free(&names);
    return status;
}

static loong_status_t add_file(reading_t *r, const char *path,
                               const outer_t *outer, mix_t *mix_p)
{
    static const struct {
        const char *key;
        mix_t mix;
    } lists[] = {{"blend", WEIGHTS},
                 {"datasets", WEIGHTS}, /* of Metadataset */
                 {"blend_epochized", REPETITIONS}};
    loong_tree_t *tree = NULL;
    const loong_tree_t *split = NULL;
    outer_t own = *outer;
    LOONG_CHECK(r->d->plan->ctx, own.depth < MOST_DEEP, LOONG_ERR_CONFIG,
                "%s: %d metadatasets name one another", path, MOST_DEEP);
    LOONG_TRY(parse(r, path, &tree));
    LOONG_TRY(find_split(r, tree, path, &own, &split));
    for (int i = 0; i < LOONG_COUNT_OF(lists); i++) {
        const loong_tree_t *list = loongi_tree_get(split, lists[i].key);
        if (list != NULL) {
            LOONG_TRY(refuse_keys(r, split));
            LOONG_TRY(take_subset(r, split, &own));
            *mix_p = lists[i].mix;
            return add_blend(r, list, lists[i].mix, &own);
        }
    }
    return add_reference(r, split, &own, mix_p);
}

/* ---- the recipe ---------------------------------------------------------- */

/* Weights of a file are shares of the weight that the recipe gives it; the
 * only source of a recipe needs none. */
static loong_status_t check_mix(const reading_t *r, int64_t of, mix_t mix)
{
    bool weighed = r->given.weight > 0.0;
    LOONG_CHECK(r->d->plan->ctx, mix != WEIGHTS || weighed || of == 1,
                LOONG_ERR_CONFIG,
                "%s: '%s' has weights of its own: of several sources all want "
                "a weight",
                r->list->name, r->given.path);
    LOONG_CHECK(r->d->plan->ctx, mix != REPETITIONS || !weighed,
                LOONG_ERR_CONFIG,
                "%s: '%s' has repetitions (blend_epochized), which go by "
                "numbers of samples: without weights in the recipe",
                r->list->name, r->given.path);
    return LOONG_OK;
}

loong_status_t loongi_source_list_read(const loong_run_data_t *d, int64_t of,
                                       const char *part,
                                       const loong_blend_source_t *given,
                                       loong_source_list_t *list)
{
    reading_t r = {d, list, *given};
    mix_t mix = ALONE;
    outer_t outer = {.part = part, .weight = 1.0, .repetitions = 1.0,
                     .end = 1.0};
    int64_t first = list->count;
    if (!is_metadataset(given->path)) {
        return add_source(d, list, given);
    }
    LOONG_TRY(add_file(&r, given->path, &outer, &mix));
    LOONG_TRY(check_mix(&r, of, mix));
    for (int64_t i = first; i < list->count; i++) {
        loong_blend_source_t *s = &list->source[i];
        s->weight = given->weight > 0.0 ? s->weight * given->weight
                    : mix == WEIGHTS    ? s->weight
                                        : 0.0;
    }
    return LOONG_OK;
}
