/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML document as a tree that remembers where every node stands. */
#ifndef LOONG_TREE_H
#define LOONG_TREE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_tree_kind {
    LOONG_TREE_SCALAR,
    LOONG_TREE_MAP,
    LOONG_TREE_LIST
} loong_tree_kind_t;

typedef struct loong_tree loong_tree_t;

/* One entry of a map (key set) or of a list (key NULL). */
typedef struct loong_tree_item {
    const char *key;
    int line; /* of the key */
    loong_tree_t *value;
} loong_tree_item_t;

struct loong_tree {
    loong_tree_kind_t kind;
    const char *text; /* of a scalar; "" for null */
    bool is_null;     /* ~, null or nothing, not quoted */
    bool is_read;     /* somebody asked for the value */
    bool is_wrong;    /* against the schema: reads as if it were the default */
    const char *file; /* "demo.yaml", "command line", "default" */
    int line;         /* 1-based; 0: no line */
    int column;
    int64_t count;
    int64_t capacity;
    loong_tree_item_t *items; /* in the arena */
};

/* Parses one document. All memory comes from the arena. Depth and number of
 * nodes are limited; duplicate keys are refused; an alias becomes a copy.
 * `file` names the text in messages and is copied. *tree_p is NULL when there
 * is no document. Errors: LOONG_ERR_CONFIG with file:line. */
LOONG_NODISCARD loong_status_t
loongi_tree_parse(loong_context_t *ctx, loong_arena_t *arena, const char *file,
                  const char *text, size_t length, loong_tree_t **tree_p);

/* New nodes. */
LOONG_NODISCARD loong_status_t loongi_tree_map(loong_arena_t *arena,
                                               const char *file, int line,
                                               loong_tree_t **tree_p);
LOONG_NODISCARD loong_status_t loongi_tree_scalar(loong_arena_t *arena,
                                                  const char *file,
                                                  const char *text,
                                                  loong_tree_t **tree_p);

/* The value of a key of a map; NULL when absent or no map. */
loong_tree_t *loongi_tree_get(const loong_tree_t *map, const char *key);

/* Sets a key of a map; the value is shared, not copied. */
LOONG_NODISCARD loong_status_t loongi_tree_put(loong_arena_t *arena,
                                               loong_tree_t *map,
                                               const char *key, int line,
                                               loong_tree_t *value);

/* Appends to a list. */
LOONG_NODISCARD loong_status_t loongi_tree_add(loong_arena_t *arena,
                                               loong_tree_t *list,
                                               loong_tree_t *value);

/* Removes a key; false when it is not there. */
bool loongi_tree_remove(loong_tree_t *map, const char *key);

/* Is it "a.b[2].c"? */
bool loongi_tree_is_path(const char *path);

/* A copy of root (may be NULL) with `value` laid over what is at the path;
 * maps on the way are made, lists are not: an index is at most their length.
 * A NULL value removes. What is beside the path is shared.
 * Errors: LOONG_ERR_CONFIG; root is never changed. */
LOONG_NODISCARD loong_status_t
loongi_tree_edit(loong_context_t *ctx, loong_arena_t *arena,
                 const loong_tree_t *root, const char *path,
                 loong_tree_t *value, loong_tree_t **edited_p);

/* Lays `over` on `under`: maps are merged key by key into new maps, anything
 * else of `over` replaces. */
LOONG_NODISCARD loong_status_t loongi_tree_merge(loong_arena_t *arena,
                                                 const loong_tree_t *under,
                                                 loong_tree_t *over,
                                                 loong_tree_t **merged_p);

/* Looks up "a.b[2].c"; NULL when absent. */
loong_tree_t *loongi_tree_find(const loong_tree_t *root, const char *path);

/* YAML text; with origins, each scalar is followed by "# file:line". */
void loongi_tree_print(const loong_tree_t *tree, bool origins,
                       loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
