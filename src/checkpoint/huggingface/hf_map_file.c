/* SPDX-License-Identifier: Apache-2.0
 *
 * A map of names from a YAML file: the family's rows with other names. Called
 * by hf_names.c, hf_map_print.c and draft_match.c. Read hf_map_file.h
 * before. */
#include "hf_map_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "problems.h"
#include "tree.h"

enum { MAX_PARTS = 16 };

/* A tensor of the files. */
typedef struct entry {
    const char *pattern;
    int line;
    unsigned how;
    int count;
    const loong_hf_row_t *rows[MAX_PARTS]; /* of the family */
    int units[MAX_PARTS];                  /* of experts; -1: no experts */
} entry_t;

/* What a row of the family has become. */
typedef struct place {
    const entry_t *entry[LOONG_HF_UNITS];
    int at[LOONG_HF_UNITS]; /* among the parts of the entry */
} place_t;

typedef struct reader {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const char *path;
    const loong_hf_names_t *family;
    int64_t family_count;
    loong_problems_t problems;
    int64_t count;
    entry_t *entries;
    place_t *places; /* per row of the family */
    int64_t row_count;
    loong_hf_row_t *rows;
} reader_t;

static bool is_expert(const loong_hf_row_t *row)
{
    return strstr(row->name, ".experts.") != NULL;
}

const char *loongi_hf_unit_name(const loong_hf_row_t *row, int unit,
                                char name[128])
{
    static const char *const two[] = {"gate_proj", "up_proj"};
    const char *mark = strstr(row->name, ".experts.");
    bool both = mark != NULL && strcmp(mark, ".experts.gate_up_proj") == 0;
    if (mark == NULL || unit >= (both ? 2 : 1)) {
        return NULL;
    }
    snprintf(name, 128, "%.*s.experts.@.%s.weight", (int)(mark - row->name),
             row->name, both ? two[unit] : mark + strlen(".experts."));
    return name;
}

bool loongi_hf_pattern_matches(const char *pattern, const char *name)
{
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '#' || *pattern == '@') {
            size_t digits = strspn(name, "0123456789");
            if (digits == 0) {
                return false;
            }
            name += digits;
            pattern += pattern[0] == '@' && pattern[1] == '+';
        } else if (*pattern != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

/* ---- the file ---- */

/* The likest of all names that the family has. */
static void refuse_name(reader_t *r, int line, const char *name)
{
    char unit[128], best[128] = "";
    int least = (int)strlen(name);
    for (int64_t i = 0; i < r->family_count; i++) {
        const loong_hf_row_t *row = &r->family->rows[i];
        for (int u = 0; u < LOONG_HF_UNITS; u++) {
            const char *known =
                is_expert(row) ? loongi_hf_unit_name(row, u, unit) : row->name;
            int d = known != NULL ? loongi_edit_distance(name, known, least)
                                  : least;
            if (d < least) {
                least = d;
                snprintf(best, sizeof(best), "%s", known);
            }
        }
    }
    loongi_problems_add(&r->problems,
                        "line %d: '%s' is no parameter of the family %s; "
                        "nearest: %s", line, name, r->family->name, best);
}

static bool find_row(const reader_t *r, const char *name, int64_t *index_p,
                     int *unit_p)
{
    char unit_name[128];
    for (int64_t i = 0; i < r->family_count; i++) {
        const loong_hf_row_t *row = &r->family->rows[i];
        if (!is_expert(row) && strcmp(row->name, name) == 0) {
            *index_p = i;
            *unit_p = -1;
            return true;
        }
        for (int u = 0; is_expert(row) && u < LOONG_HF_UNITS; u++) {
            const char *known = loongi_hf_unit_name(row, u, unit_name);
            if (known != NULL && strcmp(known, name) == 0) {
                *index_p = i;
                *unit_p = u;
                return true;
            }
        }
    }
    return false;
}

static bool has(const char *text, char mark)
{
    return strchr(text, mark) != NULL;
}

static void add_param(reader_t *r, entry_t *e, const loong_tree_t *node)
{
    int64_t index = 0;
    int unit = -1;
    if (node->kind != LOONG_TREE_SCALAR || node->is_null) {
        loongi_problems_add(&r->problems,
                            "line %d: '%s' must hold names of parameters",
                            node->line, e->pattern);
        return;
    }
    if (!find_row(r, node->text, &index, &unit)) {
        refuse_name(r, node->line, node->text);
        return;
    }
    place_t *place = &r->places[index];
    int slot = LOONG_MAX(unit, 0);
    if (has(node->text, '#') != has(e->pattern, '#') ||
        (unit < 0 && has(e->pattern, '@'))) {
        loongi_problems_add(&r->problems,
                            "line %d: '%s' and '%s' need a # for the layer in "
                            "both or in none, and an @ only for experts",
                            node->line, e->pattern, node->text);
    } else if (place->entry[slot] != NULL) {
        loongi_problems_add(&r->problems,
                            "line %d: '%s' is in '%s' (line %d) as well",
                            node->line, node->text,
                            place->entry[slot]->pattern,
                            place->entry[slot]->line);
    } else if (e->count == MAX_PARTS) {
        loongi_problems_add(&r->problems,
                            "line %d: '%s' holds more than %d parameters",
                            node->line, e->pattern, (int)MAX_PARTS);
    } else {
        place->entry[slot] = e;
        place->at[slot] = e->count;
        e->units[e->count] = unit;
        e->rows[e->count++] = &r->family->rows[index];
    }
}

static void add_params(reader_t *r, entry_t *e, const loong_tree_t *node)
{
    if (node->kind != LOONG_TREE_LIST) {
        add_param(r, e, node);
        return;
    }
    for (int64_t i = 0; i < node->count; i++) {
        add_param(r, e, node->items[i].value);
    }
}

static void add_flag(reader_t *r, entry_t *e, const loong_tree_item_t *item)
{
    static const struct {
        const char *name;
        unsigned flag;
    } flags[] = {{"transposed", HF_TURNED},
                 {"by_key_head", HF_GROUPED},
                 {"as_row", HF_FLAT}};
    const loong_tree_t *value = item->value;
    for (int64_t i = 0; i < LOONG_COUNT_OF(flags); i++) {
        if (strcmp(item->key, flags[i].name) != 0) {
            continue;
        }
        if (value->kind == LOONG_TREE_SCALAR &&
            strcmp(value->text, "true") == 0) {
            e->how |= flags[i].flag;
        } else if (value->kind != LOONG_TREE_SCALAR ||
                   strcmp(value->text, "false") != 0) {
            loongi_problems_add(&r->problems,
                                "line %d: %s must be true or false",
                                item->line, item->key);
        }
        return;
    }
    loongi_problems_add(&r->problems,
                        "line %d: '%s' is not known beside holds, transposed, "
                        "by_key_head and as_row", item->line, item->key);
}

static void read_entry(reader_t *r, const loong_tree_item_t *item)
{
    entry_t *e = &r->entries[r->count++];
    const loong_tree_t *value = item->value;
    const loong_tree_t *holds = value;
    e->pattern = item->key;
    e->line = item->line;
    if (value->kind == LOONG_TREE_MAP) {
        holds = loongi_tree_get(value, "holds");
        for (int64_t i = 0; i < value->count; i++) {
            if (strcmp(value->items[i].key, "holds") != 0) {
                add_flag(r, e, &value->items[i]);
            }
        }
    }
    if (holds == NULL) {
        loongi_problems_add(&r->problems,
                            "line %d: '%s' does not say what it holds",
                            item->line, item->key);
        return;
    }
    add_params(r, e, holds);
}

/* ---- what does not go together ---- */

static void check_entry(reader_t *r, const entry_t *e)
{
    for (int i = 0; i < e->count; i++) {
        if ((e->how & HF_TURNED) != 0 && e->rows[i]->columns == HF_NONE) {
            loongi_problems_add(&r->problems,
                                "line %d: '%s' holds the vector '%s', which "
                                "cannot be transposed",
                                e->line, e->pattern, e->rows[i]->name);
        }
        if ((e->units[i] >= 0) != (e->units[0] >= 0) ||
            (e->units[i] >= 0 &&
             (e->count > 2 || e->rows[i] != e->rows[0] ||
              (e->how & (HF_GROUPED | HF_FLAT)) != 0))) {
            loongi_problems_add(&r->problems,
                                "line %d: '%s': of experts a tensor holds "
                                "gate_proj, up_proj, both or down_proj, and "
                                "it can be transposed", e->line, e->pattern);
            return;
        }
    }
}

static void check_row(reader_t *r, int64_t index)
{
    const loong_hf_row_t *row = &r->family->rows[index];
    const place_t *place = &r->places[index];
    char name[2][128];
    if (is_expert(row)) {
        bool both = loongi_hf_unit_name(row, 1, name[1]) != NULL;
        const entry_t *a = place->entry[0];
        const entry_t *b = place->entry[1];
        if (both && (a == NULL) != (b == NULL)) {
            loongi_problems_add(
                &r->problems, "line %d: %s has a tensor here, %s has none",
                (a != NULL ? a : b)->line,
                loongi_hf_unit_name(row, a == NULL, name[0]),
                loongi_hf_unit_name(row, a != NULL, name[1]));
        } else if (both && a != NULL &&
                   (a->how != b->how ||
                    has(a->pattern, '@') != has(b->pattern, '@'))) {
            loongi_problems_add(&r->problems,
                                "lines %d and %d: gate_proj and up_proj of "
                                "experts must lie alike", a->line, b->line);
        }
        return;
    }
    const place_t *first = place - row->part;
    if (row->parts > 1 &&
        (place->entry[0] == NULL) != (first->entry[0] == NULL)) {
        loongi_problems_add(&r->problems,
                            "the family has '%s' and '%s' in one tensor: the "
                            "map must name both or none", row->name,
                            (row - row->part)->name);
    }
}

/* ---- rows ---- */

static void add_plain(reader_t *r, const entry_t *e)
{
    for (int i = 0; i < e->count; i++) {
        loong_hf_row_t *row = &r->rows[r->row_count++];
        *row = *e->rows[i];
        row->hf_name = e->pattern;
        row->second = NULL;
        row->how = e->how | (row->how & HF_EXACT);
        row->part = i;
        row->parts = e->count;
    }
}

static void add_experts(reader_t *r, int64_t index)
{
    const place_t *place = &r->places[index];
    const entry_t *e = place->entry[0];
    loong_hf_row_t *row = &r->rows[r->row_count++];
    *row = r->family->rows[index];
    row->hf_name = e->pattern;
    row->second = place->entry[1] != NULL ? place->entry[1]->pattern : NULL;
    row->how = e->how | (has(e->pattern, '@') ? 0u : (unsigned)HF_STACKED);
    row->part = place->entry[1] == e && place->at[0] > place->at[1];
}

static loong_status_t full_name(reader_t *r, const char *row_name,
                                const char **name_p)
{
    char *name = NULL;
    if (*name_p == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_printf(
        r->arena, &name, "%s%s",
        strcmp(row_name, LOONG_HF_HEAD) != 0 ? r->family->prefix : "",
        *name_p));
    *name_p = name;
    return LOONG_OK;
}

/* The family's own name, with its prefix. */
static loong_status_t add_rest(reader_t *r, int64_t index)
{
    loong_hf_row_t *row = &r->rows[r->row_count++];
    *row = r->family->rows[index];
    row->hf_name = row->hf_name != NULL ? row->hf_name : row->name;
    LOONG_TRY(full_name(r, row->name, &row->hf_name));
    return full_name(r, row->name, &row->second);
}

static loong_status_t make_rows(reader_t *r)
{
    LOONG_TRY(loongi_arena_alloc(
        r->arena, (size_t)(r->family_count + 1) * sizeof(*r->rows), &r->rows));
    for (int64_t i = 0; i < r->count; i++) {
        const entry_t *e = &r->entries[i];
        int64_t index = e->count > 0 ? e->rows[0] - r->family->rows : -1;
        if (index >= 0 && e->units[0] < 0) {
            add_plain(r, e);
        } else if (index >= 0 && r->places[index].entry[0] == e) {
            add_experts(r, index);
        }
    }
    for (int64_t i = 0; i < r->family_count; i++) {
        if (r->places[i].entry[0] == NULL) {
            LOONG_TRY(add_rest(r, i));
        }
    }
    return LOONG_OK; /* the last row is zero: the end */
}

static loong_status_t read_ignored(reader_t *r, const loong_tree_t *list,
                                   loong_hf_map_file_t *file)
{
    const char **names = NULL;
    if (list->kind != LOONG_TREE_LIST) {
        loongi_problems_add(&r->problems,
                            "line %d: ignore must be a list of tensors",
                            list->line);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(
        r->arena, (size_t)list->count * sizeof(*names), &names));
    for (int64_t i = 0; i < list->count; i++) {
        const loong_tree_t *value = list->items[i].value;
        names[i] = value->kind == LOONG_TREE_SCALAR ? value->text : "";
    }
    file->ignored = names;
    file->ignored_count = list->count;
    return LOONG_OK;
}

static loong_status_t read_tree(reader_t *r, const loong_tree_t *tree,
                                loong_hf_map_file_t *file)
{
    const loong_tree_t *tensors =
        tree != NULL ? loongi_tree_get(tree, "tensors") : NULL;
    LOONG_CHECK(r->ctx, tensors != NULL && tensors->kind == LOONG_TREE_MAP,
                LOONG_ERR_CONFIG, "%s: no map 'tensors'", r->path);
    while (r->family->rows[r->family_count].name != NULL) {
        r->family_count++;
    }
    LOONG_TRY(loongi_arena_alloc(
        r->arena, (size_t)r->family_count * sizeof(*r->places), &r->places));
    LOONG_TRY(loongi_arena_alloc(
        r->arena, (size_t)tensors->count * sizeof(*r->entries), &r->entries));
    for (int64_t i = 0; i < tensors->count; i++) {
        read_entry(r, &tensors->items[i]);
    }
    for (int64_t i = 0; i < tree->count; i++) {
        const loong_tree_item_t *item = &tree->items[i];
        if (strcmp(item->key, "ignore") == 0) {
            LOONG_TRY(read_ignored(r, item->value, file));
        } else if (strcmp(item->key, "tensors") != 0) {
            loongi_problems_add(&r->problems,
                                "line %d: '%s' is neither tensors nor ignore",
                                item->line, item->key);
        }
    }
    for (int64_t i = 0; i < r->count; i++) {
        check_entry(r, &r->entries[i]);
    }
    for (int64_t i = 0; i < r->family_count; i++) {
        check_row(r, i);
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_map_file_read(loong_context_t *ctx,
                                       loong_arena_t *arena, const char *path,
                                       const loong_hf_names_t *family,
                                       loong_hf_map_file_t *file_p)
{
    reader_t r = {0};
    loong_hf_map_file_t file = {0};
    loong_hf_names_t *names = NULL;
    loong_tree_t *tree = NULL;
    char *text = NULL;
    size_t length = 0;
    r.ctx = ctx;
    r.arena = arena;
    r.path = path;
    r.family = family;
    r.problems = loongi_problems_begin(ctx);
    LOONG_TRY(loongi_file_read(ctx, path, &text, &length));
    loong_status_t status =
        loongi_tree_parse(ctx, arena, path, text, length, &tree);
    loongi_free(ctx, text);
    if (status == LOONG_OK) {
        status = read_tree(&r, tree, &file);
    }
    loong_status_t listed =
        loongi_problems_end(&r.problems, LOONG_ERR_CONFIG, path);
    LOONG_TRY(status != LOONG_OK ? status : listed);
    LOONG_TRY(make_rows(&r));
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*names), &names));
    *names = *family;
    names->prefix = "";
    names->rows = r.rows;
    file.names = names;
    *file_p = file;
    return LOONG_OK;
}
