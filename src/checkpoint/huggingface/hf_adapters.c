/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of adapters. Called by peft_export.c, native_source.c and what starts
 * a training (adapter_start.c). Read hf_weights.h before. */
#include "hf_adapters.h"

#include <stdio.h>
#include <string.h>

#include "hf_composite.h"
#include "peft.h"

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
