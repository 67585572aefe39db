/* SPDX-License-Identifier: Apache-2.0
 *
 * A map of names as YAML, in the form that hf_map_file.c reads. Called by
 * verify.c and draft.c. Read hf_map_file.h before. */
#include <string.h>

#include "hf_map_file.h"
#include "json.h"
#include "safetensors.h"

void loongi_hf_yaml_name(loong_text_t *text, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./#@+-";
    if (name[strspn(name, plain)] != '\0' || name[0] == '\0' ||
        strchr("#@-.0123456789", name[0]) != NULL) {
        loongi_text_json_string(text, name);
    } else {
        loongi_text_printf(text, "%s", name);
    }
}

/* One tensor of the files with the names of what it holds. */
typedef struct line {
    const loong_hf_map_t *map;
    const char *pattern;
    const loong_hf_param_t *param; /* one of its parameters */
    unsigned how;
    int count;
    char names[16][128];
} line_t;

static void print_shape(const loong_hf_param_t *param, loong_text_t *text)
{
    char shape_text[LOONG_SHAPE_TEXT];
    int64_t shape[LOONG_HF_DIMS];
    int ndim = loongi_hf_file_shape(param, shape);
    loongi_text_printf(text, " # %s\n",
                       loongi_shape_text(ndim, shape, shape_text));
}

static void print_flag(loong_text_t *text, unsigned how, unsigned flag,
                       const char *name)
{
    if ((how & flag) != 0) {
        loongi_text_printf(text, "    %s: true\n", name);
    }
}

static void print_line(const line_t *l, loong_text_t *text)
{
    loong_text_t full = loongi_text_begin(text->ctx);
    unsigned flags = l->how & (HF_TURNED | HF_GROUPED | HF_FLAT);
    loongi_text_printf(&full, "%s%s",
                       loongi_hf_param_prefix(l->map, l->param), l->pattern);
    loongi_text_printf(text, "  ");
    loongi_hf_yaml_name(text, loongi_text_get(&full));
    loongi_text_free(&full);
    if (l->count == 1 && flags == 0) {
        loongi_text_printf(text, ": ");
        loongi_hf_yaml_name(text, l->names[0]);
        print_shape(l->param, text);
        return;
    }
    loongi_text_printf(text, ":");
    print_shape(l->param, text);
    loongi_text_printf(text, "    holds: [");
    for (int i = 0; i < l->count; i++) {
        loongi_text_printf(text, "%s", i > 0 ? ",\n            " : "");
        loongi_hf_yaml_name(text, l->names[i]);
    }
    loongi_text_printf(text, "]\n");
    print_flag(text, flags, HF_TURNED, "transposed");
    print_flag(text, flags, HF_GROUPED, "by_key_head");
    print_flag(text, flags, HF_FLAT, "as_row");
}

static void print_experts(line_t *l, const loong_hf_row_t *row,
                          loong_text_t *text)
{
    bool fused =
        row->second != NULL && strcmp(row->hf_name, row->second) == 0;
    for (int u = 0; u < (row->second != NULL ? 2 : 1); u++) {
        int unit = fused && row->part > 0 ? 1 - u : u;
        l->pattern = u == 0 ? row->hf_name : row->second;
        (void)loongi_hf_unit_name(row, unit, l->names[fused ? u : 0]);
        l->count = fused ? u + 1 : 1;
        if (!fused || u == 1) {
            print_line(l, text);
        }
    }
}

static void print_row(const loong_hf_map_t *map, const loong_hf_row_t *row,
                      loong_text_t *text)
{
    line_t l = {0};
    l.map = map;
    l.param = loongi_hf_map_first(map, row);
    if (l.param == NULL) {
        return;
    }
    l.how = row->how;
    l.pattern = row->hf_name != NULL ? row->hf_name : row->name;
    if (l.param->piece_names != NULL) {
        print_experts(&l, row, text);
        return;
    }
    for (int i = 0; i < row->parts; i++) {
        memcpy(l.names[l.count], row[i].name,
               LOONG_MIN(strlen(row[i].name), sizeof(l.names[0]) - 1));
        l.count++;
    }
    print_line(&l, text);
}

void loongi_hf_map_print(const loong_hf_map_t *map, loong_text_t *text)
{
    const loong_hf_row_t *row = map->family->rows;
    loongi_text_printf(text, "tensors:\n");
    for (; row->name != NULL; row += row->parts) {
        print_row(map, row, text);
    }
    if (map->ignored_count > 0) {
        loongi_text_printf(text, "ignore:\n");
    }
    for (int64_t i = 0; i < map->ignored_count; i++) {
        loongi_text_printf(text, "  - ");
        loongi_hf_yaml_name(text, map->ignored[i]);
        loongi_text_printf(text, "\n");
    }
}
