/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the parameters that this rank holds from a Hugging Face directory.
 * Called by trainer_create.c and preflight.c. Read hf_weights.h before. */
#include "stage_load.h"

#include <string.h>

#include "adapter_start.h"
#include "graph_impl.h"
#include "hf_quantize.h"
#include "new_params.h"

static int find_hf(const void *file, const char *role, const char *name,
                   int64_t shape[2])
{
    const loong_hf_param_t *p =
        loongi_hf_map_find(loongi_hf_get_map(file), name);
    (void)role;
    if (p != NULL) {
        memcpy(shape, p->shape, (size_t)p->ndim * sizeof(*shape));
    }
    return p != NULL ? p->ndim : 0;
}

static loong_status_t check_hf(const loong_component_t *s,
                               const loong_hf_t *hf)
{
    loong_origin_t from = {hf, find_hf};
    int64_t count = 0;
    loong_hf_wanted_t *wanted = NULL;
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)s->num_whole, sizeof(*wanted),
                            "wanted parameters", &wanted));
    for (int64_t i = 0; i < s->num_whole; i++) {
        const loong_whole_param_t *p = &s->whole[i];
        loong_hf_wanted_t w = {p->name, p->ndim, {p->shape[0], p->shape[1]}};
        int64_t there[2];
        bool is_new = loongi_param_is_new(&s->params, &from, p, there);
        if (is_new) { /* then it may have any shape */
            memcpy(w.shape, there, sizeof(there));
        }
        if (!is_new || there[0] > 0) {
            wanted[count++] = w;
        }
    }
    loong_status_t status = loongi_hf_check(hf, wanted, count);
    loongi_free(s->ctx, wanted);
    return status == LOONG_OK ? loongi_new_params_check(s, &from) : status;
}

/* Where rows of a parameter are read to: `room` elements each. */
typedef struct buffers {
    double *block; /* of the part */
    double *rows;  /* of the tensor */
    int64_t room;
} buffers_t;

/* Rows of the tensor, the part's columns, dense. */
static loong_status_t read_block(const loong_hf_t *hf, const char *name,
                                 const loong_param_slice_t *part, int64_t row,
                                 int64_t rows, const buffers_t *b)
{
    bool whole = part->cols == part->all_cols;
    LOONG_TRY(loongi_hf_read(hf, name, row, rows, LOONG_F64,
                             whole ? b->block : b->rows));
    for (int64_t r = 0; r < rows && !whole; r++) {
        memcpy(b->block + r * part->cols,
               b->rows + r * part->all_cols + part->col,
               (size_t)part->cols * sizeof(*b->block));
    }
    return LOONG_OK;
}

/* Rows of codes of the part, a byte as an element. */
static loong_status_t read_codes(loong_hf_quantizer_t *q,
                                 const loong_chunk_param_t *p, int64_t row,
                                 int64_t rows, const buffers_t *b)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    loong_param_params_t numbers = p->params;
    numbers.quant = LOONG_QUANT_NONE;
    loong_shape_t shape = loongi_param_shape(&numbers);
    const uint8_t *bytes = (const uint8_t *)(const void *)b->rows;
    LOONG_TRY(loongi_hf_quantizer_read(q, row, rows, part.col,
                                       shape.dim[shape.rank - 1], b->rows));
    for (int64_t i = 0; i < rows * part.cols; i++) {
        b->block[i] = (double)bytes[i];
    }
    return LOONG_OK;
}

static loong_status_t load_param(loong_stage_t *s, const loong_hf_t *hf,
                                 loong_hf_quantizer_t *q,
                                 const loong_chunk_param_t *p,
                                 const buffers_t *b)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    int64_t step = LOONG_MAX(b->room / LOONG_MAX(part.all_cols, part.cols), 1);
    int64_t first = 0;
    int64_t rows = 0;
    loongi_stage_shard_rows(s, p, &first, &rows);
    int64_t n = 0;
    for (int64_t row = first; row < first + rows; row += n) {
        n = LOONG_MIN(step, first + rows - row);
        int64_t outside = loongi_param_slice_row(&part, row, &n);
        LOONG_TRY(q != NULL ? read_codes(q, p, outside, n, b)
                            : read_block(hf, p->name, &part, outside, n, b));
        LOONG_TRY(loongi_stage_set_param(s, p, row * part.cols, n * part.cols,
                                         b->block));
    }
    for (int64_t row = part.rows; row < p->shape.dim[0]; row += n) {
        n = LOONG_MIN(step, p->shape.dim[0] - row);
        memset(b->block, 0, (size_t)(n * part.cols) * sizeof(*b->block));
        LOONG_TRY(loongi_stage_set_param(s, p, row * part.cols, n * part.cols,
                                         b->block));
    }
    return LOONG_OK;
}

static loong_status_t load_codes(loong_stage_t *s, const loong_hf_t *hf,
                                 const loong_chunk_param_t *p,
                                 const buffers_t *b)
{
    loong_hf_quantizer_t *q = NULL;
    LOONG_TRY(loongi_hf_quantizer_create(hf, p->name, p->params.quant, &q));
    loong_status_t status = load_param(s, hf, q, p, b);
    loongi_hf_quantizer_destroy(&q);
    return status;
}

static loong_status_t load_stage(loong_stage_t *stage, const loong_hf_t *hf,
                                 const loong_origin_t *from)
{
    buffers_t b = {NULL, NULL, 2 * 1024 * 1024};
    for (int64_t i = 0; i < stage->layout->num_params; i++) {
        loong_param_slice_t part =
            loongi_param_slice_of(&stage->layout->params[i]);
        b.room = LOONG_MAX(b.room, LOONG_MAX(part.all_cols, part.cols));
    }
    LOONG_TRY(loongi_calloc(stage->ctx, 2 * (size_t)b.room, sizeof(*b.block),
                            "rows of a checkpoint", &b.block));
    b.rows = b.block + b.room;
    loong_status_t status = loongi_stage_upload(stage);
    for (int64_t i = 0; i < stage->layout->num_params && status == LOONG_OK;
         i++) {
        const loong_chunk_param_t *p = &stage->layout->params[i];
        if (p->params.quant != LOONG_QUANT_NONE) {
            status = load_codes(stage, hf, p, &b);
        } else if (!loongi_place_is_new(stage, from, p)) {
            status = load_param(stage, hf, NULL, p, &b);
        }
    }
    status = loongi_stage_uploaded(stage, status);
    loongi_free(stage->ctx, b.block);
    return status;
}

loong_status_t loongi_component_load_hf(loong_component_t *component,
                                        const loong_hf_t *hf, uint64_t seed)
{
    loong_origin_t from = {hf, find_hf};
    LOONG_TRY(check_hf(component, hf));
    LOONG_TRY(loongi_new_params_initialize(component, &from, seed));
    for (int i = 0; i < component->num_stages; i++) {
        LOONG_TRY(load_stage(component->stages[i], hf, &from));
    }
    return loongi_adapter_load(component, hf, component->params.adapter);
}

static loong_status_t open_init(const loong_component_t *component,
                                loong_hf_t **hf_p)
{
    const loong_hf_open_params_t open = {.dir = component->params.init,
                                         .role = loong_recipe_role_kind(
                                             component->params.name),
                                         .adapters =
                                             component->params.init_adapters};
    return loongi_hf_open_as(component->ctx, &open, hf_p);
}

loong_status_t loongi_component_check_init(const loong_component_t *component)
{
    loong_hf_t *hf = NULL;
    if (component->params.init == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(open_init(component, &hf));
    loong_status_t status = check_hf(component, hf);
    if (status == LOONG_OK && component->params.adapter != NULL) {
        status = loongi_adapter_check(component, hf, component->params.adapter);
    }
    loongi_hf_close(&hf);
    return status;
}

loong_status_t loongi_component_begin(loong_component_t *component,
                                      uint64_t seed)
{
    const char *dir = component->params.init;
    loong_hf_t *hf = NULL;
    for (int i = 0; i < component->num_stages && dir == NULL; i++) {
        LOONG_TRY(loongi_stage_initialize(component->stages[i], seed));
    }
    if (dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(open_init(component, &hf));
    loong_status_t status = loongi_component_load_hf(component, hf, seed);
    loongi_hf_close(&hf);
    return status;
}
