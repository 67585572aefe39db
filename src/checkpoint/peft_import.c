/* SPDX-License-Identifier: Apache-2.0
 *
 * From adapters of peft's to those of a native checkpoint. Called by
 * import.c and, to compare with a base, by verify.c. Read peft_import.h and
 * hf_adapters.h before.
 *
 * Where a tensor of the files is several parameters here, its adapter has one
 * matrix a for all of them, and each has its rows of b. Of experts b has one
 * below the other here, [experts out, rank]. Of an embedding b here has a row
 * for each id: both matrices are peft's other one, turned. */
#include "peft_import.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "file.h"
#include "hf_adapters.h"
#include "hf_composite.h"
#include "native_source.h"
#include "problems.h"

typedef struct loong_peft_part {
    const loong_peft_tensor_t *from;
    const loong_hf_param_t *rows; /* whose rows they are; NULL: all */
    int64_t experts;              /* it is a matrix b of so many; else 0 */
    bool turned;                  /* columns of the files are rows here */
} part_t;

typedef struct importer {
    loong_peft_import_t *import;
    const loong_hf_map_t *map;
    const char *component;
    loong_arena_t *arena;
    loong_pairs_t *metadata;
    loong_problems_t *problems;
} importer_t;

const char *loongi_peft_base(const loong_peft_t *peft, const char *asked)
{
    if (peft->base == NULL) {
        return asked;
    }
    if (asked == NULL) {
        return loongi_dir_exists(peft->base) ? peft->base : NULL;
    }
    /* Directories are copied, renamed and lie in caches: by its name alone it
     * is no error. */
    const char *slash = strrchr(peft->base, '/');
    const char *name = slash != NULL ? slash + 1 : peft->base;
    if (strstr(asked, name) == NULL) {
        loongi_log(peft->ctx, LOONG_LOG_WARN,
                   "%s: adapters of '%s', by their adapter_config.json; the "
                   "base is '%s'",
                   peft->path, peft->base, asked);
    }
    return asked;
}

static loong_status_t add(const importer_t *im, const char *module,
                          const char *end, const part_t *part, int64_t rows)
{
    loong_peft_import_t *to = im->import;
    loong_checkpoint_tensor_t *t = &to->tensors[to->count];
    char *name = NULL;
    LOONG_TRY(loongi_arena_printf(im->arena, &name, "%s.%s%s", im->component,
                                  module, end));
    t->kind = "param";
    t->name = name;
    t->dtype = part->from->stored;
    t->ndim = part->from->ndim;
    memcpy(t->shape, part->from->shape, sizeof(part->from->shape));
    t->shape[0] = rows;
    if (part->turned) {
        t->shape[1] = part->from->shape[0];
    } else if (t->ndim > 1) {
        t->shape[1] /= LOONG_MAX(part->experts, 1);
    }
    to->parts[to->count++] = *part;
    return LOONG_OK;
}

/* A module of the files, with the first of the parameters that it is. */
static loong_status_t add_module(const importer_t *im,
                                 const loong_peft_module_t *m,
                                 const loong_hf_param_t *first)
{
    char module[LOONG_HF_MODULE];
    char key[LOONG_HF_MODULE + 64];
    const part_t a = {.from = &m->a};
    loongi_lora_module(first, module);
    if (m->a.shape[1] != first->shape[1] ||
        m->b.shape[0] != loongi_hf_file_rows(first)) {
        loongi_problems_add(
            im->problems,
            "%s: matrices are [%lld, %lld] and [%lld, %lld], "
            "that of the base is [%lld, %lld]",
            m->name, (long long)m->a.shape[0], (long long)m->a.shape[1],
            (long long)m->b.shape[0], (long long)m->b.shape[1],
            (long long)loongi_hf_file_rows(first), (long long)first->shape[1]);
        return LOONG_OK;
    }
    for (int i = 0; i < first->parts; i++) {
        const part_t b = {.from = &m->b, .rows = first + i};
        char own[LOONG_HF_MODULE];
        loongi_lora_module(&first[i], own);
        LOONG_TRY(add(im, own, ".lora_B.weight", &b, first[i].shape[0]));
        if (m->magnitude.ndim > 0) {
            const part_t magnitude = {.from = &m->magnitude, .rows = first + i};
            LOONG_TRY(add(im, own, LOONG_PEFT_MAGNITUDE, &magnitude,
                          first[i].shape[0]));
        }
    }
    if (first->parts > 1 && !loongi_lora_fuse(module)) {
        loongi_problems_add(im->problems,
                            "%s: its parts have no adapter in common here",
                            m->name);
        return LOONG_OK;
    }
    snprintf(key, sizeof(key), LOONG_ADAPTER_KEY "%s.%s", im->component,
             module);
    LOONG_TRY(loongi_pairs_set_real(im->metadata, key, m->scale));
    return add(im, module, ".lora_A.weight", &a, m->a.shape[0]);
}

/* A matrix of all experts. */
static loong_status_t add_experts(const importer_t *im,
                                  const loong_peft_module_t *m,
                                  const loong_hf_param_t *base)
{
    char module[LOONG_HF_MODULE];
    char key[LOONG_HF_MODULE + 64];
    const part_t a = {.from = &m->a};
    const part_t b = {.from = &m->b, .experts = m->experts};
    if (m->experts != base->pieces / base->units ||
        m->a.shape[1] != base->shape[1] ||
        m->b.shape[0] * m->experts != base->shape[0]) {
        loongi_problems_add(
            im->problems,
            "%s: matrices are [%lld, %lld] and [%lld, %lld] of %lld experts, "
            "the base has %lld of [%lld, %lld] together",
            m->name, (long long)m->a.shape[0], (long long)m->a.shape[1],
            (long long)m->b.shape[0], (long long)m->b.shape[1],
            (long long)m->experts, (long long)(base->pieces / base->units),
            (long long)base->shape[0], (long long)base->shape[1]);
        return LOONG_OK;
    }
    loongi_lora_module(base, module);
    snprintf(key, sizeof(key), LOONG_ADAPTER_KEY "%s.%s", im->component,
             module);
    LOONG_TRY(loongi_pairs_set_real(im->metadata, key, m->scale));
    LOONG_TRY(add(im, module, ".lora_A.weight", &a, m->a.shape[0]));
    return add(im, module, ".lora_B.weight", &b, base->shape[0]);
}

static loong_status_t add_embedding(const importer_t *im,
                                    const loong_peft_module_t *m,
                                    const loong_hf_param_t *base)
{
    const part_t a = {.from = &m->b, .turned = true};
    const part_t b = {.from = &m->a, .turned = true};
    char key[LOONG_HF_MODULE + 64];
    if (m->a.shape[1] != base->shape[0] || m->b.shape[0] != base->shape[1]) {
        loongi_problems_add(im->problems,
                            "%s: matrices are [%lld, %lld] and [%lld, %lld], "
                            "the table of the base is [%lld, %lld]",
                            m->name, (long long)m->a.shape[0],
                            (long long)m->a.shape[1],
                            (long long)m->b.shape[0],
                            (long long)m->b.shape[1],
                            (long long)base->shape[0],
                            (long long)base->shape[1]);
        return LOONG_OK;
    }
    snprintf(key, sizeof(key), LOONG_ADAPTER_KEY "%s." LOONG_LORA_EMBEDDING,
             im->component);
    LOONG_TRY(loongi_pairs_set_real(im->metadata, key, m->scale));
    LOONG_TRY(add(im, LOONG_LORA_EMBEDDING, ".lora_A.weight", &a,
                  m->b.shape[1]));
    return add(im, LOONG_LORA_EMBEDDING, ".lora_B.weight", &b, m->a.shape[1]);
}

static bool is_embedding(const loong_hf_param_t *base)
{
    return base != NULL &&
           strcmp(base->name, LOONG_LORA_EMBEDDING ".weight") == 0;
}

/* "model.layers.0.mlp.experts.3.down_proj", as before transformers 5. */
static bool is_piece(const char *name)
{
    static const char scope[] = ".experts.";
    const char *at = strstr(name, scope);
    return at != NULL && isdigit((unsigned char)at[strlen(scope)]) != 0;
}

static loong_status_t add_modules(const importer_t *im,
                                  const loong_peft_t *peft)
{
    for (int64_t i = 0; i < peft->num_modules; i++) {
        const char *name = peft->modules[i].name;
        const loong_hf_param_t *base = NULL;
        for (int64_t k = 0; k < loongi_hf_map_count(im->map); k++) {
            const loong_hf_param_t *p = loongi_hf_map_get(im->map, k);
            char module[LOONG_HF_MODULE];
            if (p->ndim == 2 && p->part == 0 &&
                (p->pieces == 1 || loongi_lora_of_experts(p))) {
                loongi_lora_hf_module(im->map, p, module);
                base = strcmp(module, name) == 0 ? p : base;
            }
        }
        if (base == NULL || is_embedding(base) != peft->modules[i].embedding) {
            loongi_problems_add(im->problems,
                                !loongi_lora_owns(im->map, name)
                                    ? "%s: adapters of the language model "
                                      "alone are read"
                                : is_piece(name)
                                    ? "%s: adapters of single experts are read "
                                      "by a training alone, finetune.adapter"
                                    : "%s: the base has no matrix of this name",
                                name);
        } else if (is_embedding(base)) {
            LOONG_TRY(add_embedding(im, &peft->modules[i], base));
        } else if (loongi_lora_of_experts(base)) {
            LOONG_TRY(add_experts(im, &peft->modules[i], base));
        } else {
            LOONG_TRY(add_module(im, &peft->modules[i], base));
        }
    }
    return LOONG_OK;
}

static loong_status_t add_saved(const importer_t *im,
                                const loong_peft_saved_t *s)
{
    const loong_peft_tensor_t *t = &s->tensor;
    const loong_hf_param_t *p = loongi_lora_saved(im->map, s->name);
    if (!loongi_lora_owns(im->map, s->name)) {
        return LOONG_OK;
    }
    bool fits = p != NULL && p->ndim == t->ndim &&
                t->shape[0] == loongi_hf_file_rows(p) &&
                (t->ndim < 2 || t->shape[1] == p->shape[1]);
    for (int i = 0; fits && i < p->parts; i++) {
        const part_t part = {.from = t, .rows = p + i};
        LOONG_TRY(add(im, p[i].name, "", &part, p[i].shape[0]));
    }
    if (fits) {
        return LOONG_OK;
    }
    loongi_problems_add(im->problems,
                        "%s: the base has no tensor of this name and shape, "
                        "or has it in another form",
                        s->name);
    return LOONG_OK;
}

loong_status_t loongi_peft_import(const loong_peft_t *peft,
                                  const loong_peft_beside_t *base,
                                  loong_arena_t *arena, loong_pairs_t *metadata,
                                  loong_peft_import_t *import)
{
    int last = base->count - 1;
    const loong_hf_map_t *map = loongi_hf_get_map(base->hf[last]);
    int64_t most = 8 * peft->num_saved + 3 * loongi_hf_map_count(map);
    loong_problems_t problems = loongi_problems_begin(peft->ctx);
    importer_t im = {import, map, base->roles[last],
                     arena, metadata, &problems};
    import->ctx = peft->ctx;
    import->count = 0;
    LOONG_TRY(loongi_arena_alloc(arena, (size_t)most * sizeof(*import->tensors),
                                 &import->tensors));
    LOONG_TRY(loongi_arena_alloc(arena, (size_t)most * sizeof(*import->parts),
                                 &import->parts));
    loong_status_t status = add_modules(&im, peft);
    for (int part = 0; part < base->count; part++) {
        im.map = loongi_hf_get_map(base->hf[part]);
        im.component = base->roles[part];
        for (int64_t i = 0; i < peft->num_saved && status == LOONG_OK; i++) {
            status = add_saved(&im, &peft->saved[i]);
        }
    }
    loong_status_t found =
        loongi_problems_end(&problems, LOONG_ERR_MISMATCH, peft->path);
    LOONG_TRY(status);
    LOONG_TRY(found);
    return loongi_pairs_set_real(metadata, LOONG_ADAPTER_KEY "dropout",
                                 peft->dropout);
}

/* Elements of a row one after the other: column k of expert e is column
 * k E + e of the files, and what is turned lies down a column. */
static loong_status_t scattered_row(const loong_peft_import_t *im,
                                    const part_t *part, int64_t row, char *to)
{
    const loong_peft_tensor_t *t = part->from;
    size_t size = loong_dtype_size(t->dtype);
    int64_t out = t->shape[0];
    int64_t at = row % out * t->shape[1] + row / out;
    int64_t step = part->experts;
    int64_t count = t->shape[1] / LOONG_MAX(step, 1);
    if (part->turned) {
        at = row;
        step = t->shape[1];
        count = t->shape[0];
    }
    for (int64_t k = 0; k < count; k++) {
        LOONG_TRY(loongi_convert(
            im->ctx, t->dtype,
            (const char *)t->data + (size_t)(at + k * step) * size,
            t->stored, to + (size_t)k * loong_dtype_size(t->stored), 1));
    }
    return LOONG_OK;
}

loong_status_t loongi_peft_import_rows(void *user, int64_t index, int64_t row,
                                       int64_t rows, void *buffer,
                                       const void **data_p)
{
    const loong_peft_import_t *im = user;
    const part_t *part = &im->parts[index];
    const loong_peft_tensor_t *t = part->from;
    size_t cols = (size_t)loongi_safetensors_row(t->ndim, t->shape);
    size_t bytes = (part->turned ? (size_t)t->shape[0]
                                 : cols / (size_t)LOONG_MAX(part->experts, 1)) *
                   loong_dtype_size(t->stored);
    (void)data_p;
    for (int64_t r = 0; r < rows; r++) {
        char *to = (char *)buffer + (size_t)r * bytes;
        int64_t at = part->rows != NULL
                         ? loongi_hf_file_row(part->rows, row + r)
                         : row + r;
        const char *from = (const char *)t->data +
                           (size_t)at * cols * loong_dtype_size(t->dtype);
        LOONG_TRY(part->experts > 0 || part->turned
                      ? scattered_row(im, part, row + r, to)
                      : loongi_convert(im->ctx, t->dtype, from, t->stored, to,
                                       (int64_t)cols));
    }
    return LOONG_OK;
}
