/* SPDX-License-Identifier: Apache-2.0
 *
 * A tree as YAML that reads back as the same tree. Called by recipe.c. Read
 * tree.h before. */
#include <stdlib.h>
#include <string.h>

#include "tree.h"

/* The code point at *text, which is valid UTF-8, and its bytes. */
static unsigned decode(const char *text, int *bytes_p)
{
    const unsigned char *c = (const unsigned char *)text;
    int n = c[0] < 0x80 ? 1 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    unsigned code = n == 1 ? c[0] : c[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        code = code << 6 | (c[i] & 0x3fu);
    }
    *bytes_p = n;
    return code;
}

/* Does YAML want this character written as an escape? */
static bool is_special(unsigned code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 ||
           code == 0x2029 || code == 0xfeff || code == 0xfffe ||
           code == 0xffff;
}

static bool has_special(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text += n) {
        if (is_special(decode(text, &n))) {
            return true;
        }
    }
    return false;
}

static bool is_number(const char *text)
{
    char *end = NULL;
    (void)strtod(text, &end);
    return end != text && *end == '\0';
}

/* Can it stand without quotes? */
static bool is_plain(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || strcmp(text, "null") == 0 || text[0] == ' ' ||
        text[n - 1] == ' ' || text[n - 1] == ':' || has_special(text)) {
        return false;
    }
    if (text[0] == '-') {
        return is_number(text);
    }
    return strchr("?~:=.", text[0]) == NULL &&
           strpbrk(text, "\"'\\#{}[],&*!|>%@`<") == NULL &&
           strstr(text, ": ") == NULL;
}

static void print_quoted(const char *at, loong_text_t *text)
{
    int n = 0;
    loongi_text_printf(text, "\"");
    for (; *at != '\0'; at += n) {
        unsigned code = decode(at, &n);
        if (code == '\n') {
            loongi_text_printf(text, "\\n");
        } else if (is_special(code)) {
            loongi_text_printf(text, "\\u%04x", code);
        } else if (code == '"' || code == '\\') {
            loongi_text_printf(text, "\\%c", (int)code);
        } else {
            loongi_text_append(text, at, (size_t)n);
        }
    }
    loongi_text_printf(text, "\"");
}

static void print_scalar(const loong_tree_t *node, loong_text_t *text)
{
    if (node->is_null) {
        loongi_text_printf(text, "null");
    } else if (is_plain(node->text)) {
        loongi_text_printf(text, "%s", node->text);
    } else {
        print_quoted(node->text, text);
    }
}

static void print_node(const loong_tree_t *node, int depth, bool origins,
                       loong_text_t *text);

static void print_value(const loong_tree_t *node, int depth, bool origins,
                        loong_text_t *text)
{
    if (node->kind != LOONG_TREE_SCALAR && node->count > 0) {
        loongi_text_printf(text, "\n");
        print_node(node, depth + 1, origins, text);
        return;
    }
    loongi_text_printf(text, " ");
    if (node->kind == LOONG_TREE_SCALAR) {
        print_scalar(node, text);
    } else {
        loongi_text_printf(text, node->kind == LOONG_TREE_MAP ? "{}" : "[]");
    }
    if (origins && node->line > 0) {
        loongi_text_printf(text, "  # %s:%d", node->file, node->line);
    } else if (origins) {
        loongi_text_printf(text, "  # %s", node->file);
    }
    loongi_text_printf(text, "\n");
}

static void print_node(const loong_tree_t *node, int depth, bool origins,
                       loong_text_t *text)
{
    for (int64_t i = 0; i < node->count; i++) {
        loongi_text_printf(text, "%*s", depth * 2, "");
        if (node->kind == LOONG_TREE_MAP) {
            loongi_text_printf(text, "%s:", node->items[i].key);
        } else {
            loongi_text_printf(text, "-");
        }
        print_value(node->items[i].value, depth, origins, text);
    }
}

void loongi_tree_print(const loong_tree_t *tree, bool origins,
                       loong_text_t *text)
{
    if (tree->kind == LOONG_TREE_SCALAR) {
        print_scalar(tree, text);
        loongi_text_printf(text, "\n");
    } else {
        print_node(tree, 0, origins, text);
    }
}
