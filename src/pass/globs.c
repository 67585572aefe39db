/* SPDX-License-Identifier: Apache-2.0
 *
 * Globs of a recipe that stand for scopes, or for products by the names of
 * their parameters: what they match, and what was meant where they match
 * nothing. The component's plan calls; label.c reads the names of products.
 * Read passes.h before. */
#include <stdio.h>
#include <string.h>

#include "passes.h"

enum { NAMES = 64, NAME_SIZE = LOONG_MAX_SCOPE + 64, LIST_SIZE = 640 };

/* ---- products ------------------------------------------------------------ */

int loongi_product_members(const loong_graph_t *g, const loong_node_t *node)
{
    bool product = strcmp(node->op->name, "linear") == 0 ||
                   strcmp(node->op->name, "linear_quantized") == 0 ||
                   strcmp(node->op->name, "grouped_linear") == 0;
    const loong_value_t *w =
        product && node->in[1] >= 0 ? &g->values[node->in[1]] : NULL;
    return w != NULL && w->kind == LOONG_VALUE_PARAM ? w->members : 0;
}

const char *loongi_product_name(const loong_graph_t *g,
                                const loong_node_t *node, int member,
                                char *name, size_t size)
{
    static const char end[] = ".weight";
    int64_t index = g->values[node->in[1]].index + member;
    snprintf(name, size, "%s", g->params[index].params.name);
    size_t length = strlen(name);
    if (length > sizeof(end) - 1 &&
        strcmp(name + length - (sizeof(end) - 1), end) == 0) {
        name[length - (sizeof(end) - 1)] = '\0';
    }
    return name;
}

bool loongi_product_match(const loong_graph_t *g, const char *glob,
                          const loong_node_t *node)
{
    char name[NAME_SIZE];
    for (int m = 0; m < loongi_product_members(g, node); m++) {
        if (loongi_scope_match(glob, loongi_product_name(g, node, m, name,
                                                         sizeof(name)))) {
            return true;
        }
    }
    return false;
}

/* ---- what was meant ------------------------------------------------------ */

/* Names of a model, each once: layers have '*' for their number. */
typedef struct names {
    int count;
    char name[NAMES][NAME_SIZE];
} names_t;

/* "layers.*.mlp" of "layers.3.mlp". */
static void without_numbers(const char *name, char out[NAME_SIZE])
{
    size_t n = 0;
    for (const char *c = name; *c != '\0' && n + 1 < NAME_SIZE; c++) {
        bool begins = c == name || c[-1] == '.';
        size_t digits = begins ? strspn(c, "0123456789") : 0;
        if (digits > 0 && (c[digits] == '.' || c[digits] == '\0')) {
            c += digits - 1;
            out[n++] = '*';
        } else {
            out[n++] = *c;
        }
    }
    out[n] = '\0';
}

static void add_name(names_t *names, const char *name)
{
    char plain[NAME_SIZE];
    without_numbers(name, plain);
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->name[i], plain) == 0) {
            return;
        }
    }
    if (names->count < NAMES && plain[0] != '\0') {
        memcpy(names->name[names->count++], plain, NAME_SIZE);
    }
}

static void list_names(const loong_graph_t *g, bool products, names_t *names)
{
    char name[NAME_SIZE];
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        int members = products ? loongi_product_members(g, node) : 0;
        add_name(names, node->scope);
        for (int m = 0; m < members; m++) {
            add_name(names, loongi_product_name(g, node, m, name,
                                                sizeof(name)));
        }
    }
}

/* The name, or what stands above one, that is nearest to the glob. */
static void find_likeliest(const names_t *names, const char *glob,
                           char likeliest[NAME_SIZE])
{
    char wanted[NAME_SIZE];
    int least = NAME_SIZE;
    without_numbers(glob, wanted);
    likeliest[0] = '\0';
    for (int i = 0; i < names->count; i++) {
        char name[NAME_SIZE];
        memcpy(name, names->name[i], NAME_SIZE);
        for (char *end = name + strlen(name); end != NULL;
             end = strrchr(name, '.')) {
            *end = '\0';
            int distance = loongi_edit_distance(wanted, name, least);
            if (distance < least) {
                least = distance;
                memcpy(likeliest, name, NAME_SIZE);
            }
        }
    }
}

static loong_status_t refuse(const loong_graph_t *g, const char *what,
                             const char *glob, bool products)
{
    names_t *names = NULL;
    char likeliest[NAME_SIZE];
    char list[LIST_SIZE] = "";
    size_t used = 0;
    LOONG_TRY(loongi_calloc(g->ctx, 1, sizeof(*names), "scopes", &names));
    list_names(g, products, names);
    find_likeliest(names, glob, likeliest);
    for (int i = 0; i < names->count && used < sizeof(list); i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                 i > 0 ? ", " : "", names->name[i]);
    }
    loongi_free(g->ctx, names);
    return LOONG_FAIL(g->ctx, LOONG_ERR_CONFIG,
                      "%s: '%s' matches no scope; did you mean '%s'? There "
                      "are %s%s",
                      what, glob, likeliest, list,
                      used < sizeof(list) ? "" : " ...");
}

static bool matches(const loong_graph_t *g, const char *glob, bool products)
{
    bool found = false;
    for (int64_t n = 0; n < g->num_nodes && !found; n++) {
        found = loongi_scope_match(glob, g->nodes[n].scope) ||
                (products && loongi_product_match(g, glob, &g->nodes[n]));
    }
    return found;
}

loong_status_t loongi_pass_check_globs(const loong_graph_t *g,
                                       const char *what, bool products,
                                       int num_globs,
                                       const char *const *globs)
{
    for (int i = 0; i < num_globs; i++) {
        if (!matches(g, globs[i], products)) {
            return refuse(g, what, globs[i], products);
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_pass_keep_globs(const loong_graph_t *g, bool products,
                                      loong_arena_t *arena, int *num_globs,
                                      const char *const **globs)
{
    const char **kept = NULL;
    int count = 0;
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)LOONG_MAX(*num_globs, 1) * sizeof(*kept), &kept));
    for (int i = 0; i < *num_globs; i++) {
        if (matches(g, (*globs)[i], products)) {
            kept[count++] = (*globs)[i];
        }
    }
    *num_globs = count;
    *globs = kept;
    return LOONG_OK;
}
