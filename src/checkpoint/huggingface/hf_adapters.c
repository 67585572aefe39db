/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of adapters, and what is beside them. Called by peft_export.c,
 * peft_import.c, native_source.c and what starts a training (adapter_load.c).
 * Read hf_weights.h before. */
#include "hf_adapters.h"

#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "hf_composite.h"
#include "hf_names.h"

/* Layers that some files have as one. */
static const struct {
    const char *part;
    const char *fused;
} fused_parts[] = {{"q_proj", "qkv_proj"},
                   {"k_proj", "qkv_proj"},
                   {"v_proj", "qkv_proj"},
                   {"gate_proj", "gate_up_proj"},
                   {"up_proj", "gate_up_proj"}};

static const char *last_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

/* Cuts `end` off; false: it is not there. */
static bool cut_end(const char *name, const char *end,
                    char module[LOONG_HF_MODULE])
{
    size_t length = strlen(name);
    size_t tail = strlen(end);
    if (length < tail || length - tail >= LOONG_HF_MODULE ||
        strcmp(name + length - tail, end) != 0) {
        return false;
    }
    memcpy(module, name, length - tail);
    module[length - tail] = '\0';
    return true;
}

loong_lora_matrix_t loongi_lora_matrix(const char *name,
                                       char module[LOONG_HF_MODULE])
{
    if (cut_end(name, ".lora_A.weight", module)) {
        return LOONG_LORA_A;
    }
    if (cut_end(name, ".lora_B.weight", module)) {
        return LOONG_LORA_B;
    }
    return cut_end(name, LOONG_PEFT_MAGNITUDE, module) ? LOONG_LORA_MAGNITUDE
                                                    : LOONG_LORA_NONE;
}

const char *loongi_lora_fused(const char *module)
{
    const char *last = last_of(module);
    for (int64_t i = 0; i < LOONG_COUNT_OF(fused_parts); i++) {
        if (strcmp(last, fused_parts[i].part) == 0) {
            return fused_parts[i].fused;
        }
    }
    return NULL;
}

/* The same path with another last part. */
static void renamed(const char *module, const char *last,
                    char to[LOONG_HF_MODULE])
{
    snprintf(to, LOONG_HF_MODULE, "%.*s%s", (int)(last_of(module) - module),
             module, last);
}

bool loongi_lora_fuse(char module[LOONG_HF_MODULE])
{
    char own[LOONG_HF_MODULE];
    const char *fused = loongi_lora_fused(module);
    memcpy(own, module, sizeof(own));
    if (fused != NULL) {
        renamed(own, fused, module);
    }
    return fused != NULL;
}

bool loongi_lora_module_of_a(const char *module, loong_lora_find_fn there,
                             const void *user, char found[LOONG_HF_MODULE])
{
    const char *fused = loongi_lora_fused(module);
    char name[LOONG_HF_MODULE + 16];
    snprintf(found, LOONG_HF_MODULE, "%s", module);
    snprintf(name, sizeof(name), "%s.lora_A.weight", found);
    if (there(user, name) || fused == NULL) {
        return there(user, name);
    }
    renamed(module, fused, found);
    snprintf(name, sizeof(name), "%s.lora_A.weight", found);
    return there(user, name);
}

/* Matrices of experts have no ".weight" behind them. */
static const loong_hf_param_t *weight_of(const loong_hf_map_t *map,
                                         const char *module)
{
    char name[LOONG_HF_MODULE + 16];
    snprintf(name, sizeof(name), "%s.weight", module);
    const loong_hf_param_t *found = loongi_hf_map_find(map, name);
    return found != NULL ? found : loongi_hf_map_find(map, module);
}

const loong_hf_param_t *loongi_lora_base(const loong_hf_map_t *map,
                                         const char *module)
{
    const loong_hf_param_t *base = weight_of(map, module);
    for (int64_t i = 0; i < LOONG_COUNT_OF(fused_parts) && base == NULL; i++) {
        char part[LOONG_HF_MODULE];
        if (strcmp(fused_parts[i].fused, last_of(module)) == 0) {
            renamed(module, fused_parts[i].part, part);
            base = weight_of(map, part);
        }
    }
    return base;
}

static void cut_weight(const char *name, char module[LOONG_HF_MODULE])
{
    if (!cut_end(name, ".weight", module)) {
        snprintf(module, LOONG_HF_MODULE, "%.*s", LOONG_HF_MODULE - 1, name);
    }
}

void loongi_lora_module(const loong_hf_param_t *base,
                        char module[LOONG_HF_MODULE])
{
    cut_weight(base->name, module);
}

static void in_files(const loong_hf_map_t *map, const loong_hf_param_t *base,
                     const char *end, char module[LOONG_HF_MODULE])
{
    char name[LOONG_HF_MODULE + 16];
    snprintf(name, sizeof(name), "%s%s", loongi_hf_module_prefix(map, base),
             end);
    cut_weight(name, module);
}

void loongi_lora_hf_module(const loong_hf_map_t *map,
                           const loong_hf_param_t *base,
                           char module[LOONG_HF_MODULE])
{
    in_files(map, base,
             loongi_lora_of_experts(base) ? base->name : base->hf_name, module);
}

void loongi_lora_hf_piece(const loong_hf_map_t *map,
                          const loong_hf_param_t *base, int64_t piece,
                          char module[LOONG_HF_MODULE])
{
    in_files(map, base, base->piece_names[piece], module);
}

/* ---- what was trained as it is, and what only looks so ------------------- */

bool loongi_lora_owns(const loong_hf_map_t *map, const char *name)
{
    return map->composite == NULL ||
           loongi_hf_composite_owner(map->composite, name) == map->part;
}

const loong_hf_param_t *loongi_lora_saved(const loong_hf_map_t *map,
                                          const char *name)
{
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        const char *prefix = loongi_hf_module_prefix(map, p);
        size_t length = strlen(prefix);
        if (p->part == 0 && p->pieces == 1 && !p->transposed &&
            p->places == 0 &&
            strncmp(name, prefix, length) == 0 &&
            strcmp(name + length, p->hf_name) == 0) {
            return p;
        }
    }
    return NULL;
}

loong_status_t loongi_lora_check_saved(loong_context_t *ctx,
                                       const loong_hf_map_t *map,
                                       const loong_hf_param_t *p)
{
    LOONG_CHECK(ctx, p->pieces == 1 && !p->transposed && p->places == 0,
                LOONG_ERR_UNSUPPORTED,
                "%s is trained beside adapters; its files have it in another "
                "form: an export that is merged can have it (export.merge, "
                "loong-ckpt export --merge)",
                p->name);
    LOONG_CHECK(ctx,
                strcmp(p->name, LOONG_LORA_EMBEDDING ".weight") != 0 ||
                    loongi_hf_map_find(map, LOONG_HF_HEAD) != NULL,
                LOONG_ERR_UNSUPPORTED,
                "%s is trained as it is, and is the head as well, which peft "
                "would leave to the base: an export that is merged can have "
                "both (export.merge, loong-ckpt export --merge)",
                p->name);
    return LOONG_OK;
}

/* Rows of the model's table in the type of the other are the same bits. */
static loong_status_t compare_rows(const loong_hf_t *hf,
                                   const loong_hf_param_t *p,
                                   const loong_peft_t *peft,
                                   const loong_peft_tensor_t *t, bool *same_p)
{
    const int64_t cols = p->shape[1];
    const size_t bytes = (size_t)cols * loong_dtype_size(t->dtype);
    double *row = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(peft->ctx, 2 * (size_t)cols * sizeof(*row),
                           "a row of a table", &row));
    for (int64_t r = 0; r < p->shape[0] && *same_p && status == LOONG_OK; r++) {
        status = loongi_hf_read(hf, p->name, r, 1, LOONG_F64, row);
        if (status == LOONG_OK) {
            status = loongi_convert(peft->ctx, LOONG_F64, row, t->dtype,
                                    row + cols, cols);
        }
        *same_p = memcmp(row + cols, (const char *)t->data + (size_t)r * bytes,
                         bytes) == 0;
    }
    loongi_free(peft->ctx, row);
    return status;
}

static loong_status_t check_table(const loong_peft_t *peft,
                                  const loong_peft_saved_t *saved,
                                  const loong_hf_t *hf)
{
    const loong_peft_tensor_t *t = &saved->tensor;
    const loong_hf_param_t *p =
        loongi_lora_saved(loongi_hf_get_map(hf), saved->name);
    bool same = p != NULL && p->parts == 1 && t->ndim == 2 &&
                t->shape[0] == p->shape[0] &&
                t->shape[1] == p->shape[1];
    LOONG_TRY(same ? compare_rows(hf, p, peft, t, &same) : LOONG_OK);
    LOONG_CHECK(peft->ctx, same, LOONG_ERR_MISMATCH,
                "%s: %s, which is beside its adapter, is not the model's own "
                "(was the vocabulary resized, or is this another model?): "
                "peft's model.get_base_model().save_pretrained makes one to "
                "begin with",
                peft->path, saved->name);
    return LOONG_OK;
}

static loong_status_t rename_module(const loong_peft_t *peft,
                                    const loong_hf_composite_t *composite,
                                    const char **name)
{
    char module[LOONG_HF_MODULE];
    char *own = NULL;
    if (!loongi_hf_composite_module(composite, *name, module,
                                    LOONG_HF_MODULE)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_strdup(peft->arena, module, &own));
    *name = own;
    return LOONG_OK;
}

loong_status_t loongi_lora_fit(loong_peft_t *peft, const loong_hf_t *hf)
{
    const loong_hf_map_t *map = loongi_hf_get_map(hf);
    int64_t kept = 0;
    for (int64_t i = 0; i < peft->num_modules && map->composite != NULL; i++) {
        LOONG_TRY(
            rename_module(peft, map->composite, &peft->modules[i].name));
    }
    for (int64_t i = 0; i < peft->num_saved; i++) {
        loong_peft_saved_t *saved = &peft->saved[i];
        if (map->composite != NULL) {
            LOONG_TRY(rename_module(peft, map->composite, &saved->name));
        }
        bool table = saved->of_base && loongi_lora_owns(map, saved->name);
        LOONG_TRY(table ? check_table(peft, saved, hf) : LOONG_OK);
        if (!table) {
            peft->saved[kept++] = *saved;
        }
    }
    peft->num_saved = kept;
    return LOONG_OK;
}
