/* SPDX-License-Identifier: Apache-2.0
 *
 * libyaml's events to a tree. Called by recipe.c, hf_map_file.c and
 * hf_model_file.c. Read tree.h before. */
#include <string.h>
#include <yaml.h>

#include "tree.h"

enum { MAX_DEPTH = 64, MAX_NODES = 200000, MAX_ANCHORS = 256 };

typedef struct parser {
    loong_context_t *ctx;
    loong_arena_t *arena;
    yaml_parser_t yaml;
    const char *file;
    const char *text;
    int nodes;
    int num_anchors;
    struct {
        const char *name;
        loong_tree_t *node;
        bool open; /* still being read: an alias would contain itself */
    } anchors[MAX_ANCHORS];
} parser_t;

/* Bytes that are no text: libyaml names their offset alone. */
static loong_status_t fail_bytes(parser_t *p)
{
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < p->yaml.problem_offset; i++) {
        column = p->text[i] == '\n' ? 1 : column + 1;
        line += p->text[i] == '\n';
    }
    return LOONG_FAIL(p->ctx, LOONG_ERR_CONFIG,
                      "%s:%zu:%zu: %s; UTF-8 wanted", p->file, line, column,
                      p->yaml.problem);
}

static loong_status_t next_event(parser_t *p, yaml_event_t *event)
{
    if (yaml_parser_parse(&p->yaml, event)) {
        return LOONG_OK;
    }
    if (p->yaml.error == YAML_READER_ERROR) {
        return fail_bytes(p);
    }
    const char *context = p->yaml.context != NULL ? p->yaml.context : "";
    bool alias = strstr(context, "alias") != NULL;
    return LOONG_FAIL(p->ctx, LOONG_ERR_CONFIG, "%s:%zu:%zu: %s%s%s%s",
                      p->file, p->yaml.problem_mark.line + 1,
                      p->yaml.problem_mark.column + 1,
                      p->yaml.problem != NULL ? p->yaml.problem
                                              : "not readable as YAML",
                      context[0] != '\0' ? ", " : "", context,
                      alias ? "; a text that begins with * takes quotes" : "");
}

static loong_status_t fail_at(parser_t *p, const yaml_event_t *event,
                              const char *text)
{
    return LOONG_FAIL(p->ctx, LOONG_ERR_CONFIG, "%s:%zu:%zu: %s", p->file,
                      event->start_mark.line + 1,
                      event->start_mark.column + 1, text);
}

/* "!!str" and its like; "!" alone says what is so anyway. */
static bool is_tagged(const yaml_event_t *event)
{
    const yaml_char_t *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        tag = event->data.mapping_start.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        tag = event->data.sequence_start.tag;
    }
    return tag != NULL && strcmp((const char *)tag, "!") != 0;
}

static loong_status_t new_node(parser_t *p, const yaml_event_t *event,
                               loong_tree_kind_t kind, const char *anchor,
                               loong_tree_t **node_p)
{
    loong_tree_t *node = NULL;
    if (is_tagged(event)) {
        return fail_at(p, event, "a tag (!...): the schema says what type a "
                                 "value has");
    }
    if (++p->nodes > MAX_NODES) {
        return fail_at(p, event, "more than 200000 nodes");
    }
    LOONG_TRY(loongi_arena_alloc(p->arena, sizeof(*node), &node));
    node->kind = kind;
    node->text = "";
    node->file = p->file;
    node->line = (int)event->start_mark.line + 1;
    node->column = (int)event->start_mark.column + 1;
    if (anchor != NULL) {
        char *copy = NULL;
        if (p->num_anchors == MAX_ANCHORS) {
            return fail_at(p, event, "more than 256 anchors");
        }
        LOONG_TRY(loongi_arena_strdup(p->arena, anchor, &copy));
        p->anchors[p->num_anchors].name = copy;
        p->anchors[p->num_anchors++].node = node;
    }
    *node_p = node;
    return LOONG_OK;
}

static loong_status_t parse_scalar(parser_t *p, const yaml_event_t *event,
                                   loong_tree_t **node_p)
{
    const char *text = (const char *)event->data.scalar.value;
    char *copy = NULL;
    if (strlen(text) != event->data.scalar.length) {
        return fail_at(p, event, "a NUL byte in a text");
    }
    LOONG_TRY(new_node(p, event, LOONG_TREE_SCALAR,
                       (const char *)event->data.scalar.anchor, node_p));
    LOONG_TRY(loongi_arena_strdup(p->arena, text, &copy));
    (*node_p)->text = copy;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    (*node_p)->is_null = plain && (copy[0] == '\0' || strcmp(copy, "~") == 0 ||
                                   strcmp(copy, "null") == 0);
    return LOONG_OK;
}

/* Copies count as nodes, so aliases of aliases cannot grow without bound. */
static loong_status_t copy_node(parser_t *p, const yaml_event_t *event,
                                const loong_tree_t *from,
                                loong_tree_t **node_p)
{
    loong_tree_t *node = NULL;
    LOONG_TRY(new_node(p, event, from->kind, NULL, &node));
    node->text = from->text;
    node->is_null = from->is_null;
    for (int64_t i = 0; i < from->count; i++) {
        const loong_tree_item_t *item = &from->items[i];
        loong_tree_t *child = NULL;
        LOONG_TRY(copy_node(p, event, item->value, &child));
        if (from->kind == LOONG_TREE_LIST) {
            LOONG_TRY(loongi_tree_add(p->arena, node, child));
        } else {
            LOONG_TRY(loongi_tree_put(p->arena, node, item->key, node->line,
                                      child));
        }
    }
    *node_p = node;
    return LOONG_OK;
}

static loong_status_t parse_alias(parser_t *p, const yaml_event_t *event,
                                  loong_tree_t **node_p)
{
    const char *name = (const char *)event->data.alias.anchor;
    for (int i = p->num_anchors - 1; i >= 0; i--) {
        if (strcmp(p->anchors[i].name, name) == 0) {
            if (p->anchors[i].open) {
                return fail_at(p, event, "an alias inside its own anchor");
            }
            return copy_node(p, event, p->anchors[i].node, node_p);
        }
    }
    return fail_at(p, event, "an alias without its anchor; a text that begins "
                             "with * takes quotes");
}

static loong_status_t parse_node(parser_t *p, const yaml_event_t *event,
                                 int depth, loong_tree_t **node_p);

static loong_status_t put(parser_t *p, loong_tree_t *map,
                          const loong_tree_t *key, loong_tree_t *value)
{
    LOONG_CHECK(p->ctx, strcmp(key->text, "<<") != 0, LOONG_ERR_CONFIG,
                "%s:%d:%d: a merge key (<<): keys that recipes share go into "
                "a file under defaults:", p->file, key->line, key->column);
    LOONG_CHECK(p->ctx, loongi_tree_get(map, key->text) == NULL,
                LOONG_ERR_CONFIG, "%s:%d:%d: key %s is there twice", p->file,
                key->line, key->column, key->text);
    return loongi_tree_put(p->arena, map, key->text, key->line, value);
}

/* The items up to the end event of a map or list. */
static loong_status_t parse_items(parser_t *p, loong_tree_t *node, int depth)
{
    bool map = node->kind == LOONG_TREE_MAP;
    for (;;) {
        yaml_event_t event;
        loong_tree_t *key = NULL;
        loong_tree_t *value = NULL;
        LOONG_TRY(next_event(p, &event));
        if (event.type == YAML_MAPPING_END_EVENT ||
            event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return LOONG_OK;
        }
        loong_status_t status =
            parse_node(p, &event, depth, map ? &key : &value);
        if (status == LOONG_OK && map && key->kind != LOONG_TREE_SCALAR) {
            status = fail_at(p, &event, "a key must be a text");
        }
        yaml_event_delete(&event);
        LOONG_TRY(status);
        if (!map) {
            LOONG_TRY(loongi_tree_add(p->arena, node, value));
            continue;
        }
        LOONG_TRY(next_event(p, &event));
        status = parse_node(p, &event, depth, &value);
        yaml_event_delete(&event);
        LOONG_TRY(status);
        LOONG_TRY(put(p, node, key, value));
    }
}

/* A map or list; it can be aliased once it is complete. */
static loong_status_t parse_branch(parser_t *p, const yaml_event_t *event,
                                   int depth, loong_tree_t **node_p)
{
    bool map = event->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *anchor = map ? event->data.mapping_start.anchor
                                    : event->data.sequence_start.anchor;
    int own = p->num_anchors;
    if (depth > MAX_DEPTH) {
        return fail_at(p, event, "nested deeper than 64");
    }
    LOONG_TRY(new_node(p, event, map ? LOONG_TREE_MAP : LOONG_TREE_LIST,
                       (const char *)anchor, node_p));
    if (anchor != NULL) {
        p->anchors[own].open = true;
    }
    LOONG_TRY(parse_items(p, *node_p, depth + 1));
    if (anchor != NULL) {
        p->anchors[own].open = false;
    }
    return LOONG_OK;
}

static loong_status_t parse_node(parser_t *p, const yaml_event_t *event,
                                 int depth, loong_tree_t **node_p)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return parse_scalar(p, event, node_p);
    case YAML_ALIAS_EVENT:
        return parse_alias(p, event, node_p);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        return parse_branch(p, event, depth, node_p);
    default:
        return fail_at(p, event, "not expected here");
    }
}

static loong_status_t parse_document(parser_t *p, loong_tree_t **tree_p)
{
    for (;;) {
        yaml_event_t event;
        LOONG_TRY(next_event(p, &event));
        yaml_event_type_t type = event.type;
        loong_status_t status = LOONG_OK;
        bool content = type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT ||
                       type == YAML_MAPPING_START_EVENT ||
                       type == YAML_SEQUENCE_START_EVENT;
        if (content && *tree_p != NULL) {
            status = fail_at(p, &event, "a second document in one file");
        } else if (content) {
            status = parse_node(p, &event, 0, tree_p);
        }
        yaml_event_delete(&event);
        LOONG_TRY(status);
        if (type == YAML_STREAM_END_EVENT) {
            return LOONG_OK;
        }
    }
}

loong_status_t loongi_tree_parse(loong_context_t *ctx, loong_arena_t *arena,
                                 const char *file, const char *text,
                                 size_t length, loong_tree_t **tree_p)
{
    parser_t p;
    char *name = NULL;
    loong_tree_t *tree = NULL;
    memset(&p, 0, sizeof(p));
    p.ctx = ctx;
    p.text = text;
    p.arena = arena;
    LOONG_TRY(loongi_arena_strdup(arena, file, &name));
    p.file = name;
    LOONG_CHECK(ctx, yaml_parser_initialize(&p.yaml), LOONG_ERR_MEMORY,
                "cannot start the YAML parser");
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)text, length);
    loong_status_t status = parse_document(&p, &tree);
    yaml_parser_delete(&p.yaml);
    LOONG_TRY(status);
    *tree_p = tree;
    return LOONG_OK;
}
