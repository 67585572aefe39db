/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of a native checkpoint: what this rank holds of a component, by global
 * name, to and from its memory. Called by trainer_save.c. Read native.h and
 * src/optim/shards.h before. */
#include "component_native.h"

#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "moments.h"
#include "stage_load.h"

/* ---- where a piece comes from -------------------------------------------- */

/* What the writing thread fetches: the two halves of bf16 masters, and what is
 * in the memory of a device. */
typedef struct source {
    loong_device_t *device;
    void *stream;
    const char *data;    /* of row 0 of the piece */
    const uint16_t *low; /* NULL: data is all of it */
    int64_t length;
    size_t size; /* of an element */
} source_t;

/* To the host, behind the update that the save waited for. */
static loong_status_t bring(const source_t *s, void *dst, const void *src,
                            size_t bytes)
{
    LOONG_TRY(loong_device_stream_copy(s->device, s->stream, dst, src, bytes));
    return loong_device_stream_synchronize(s->device, s->stream);
}

static loong_status_t fetch_master(void *user, int64_t row, int64_t rows,
                                   void *dst)
{
    enum { BLOCK = 1 << 14 };
    const source_t *s = user;
    uint32_t *bits = dst;
    uint16_t high[BLOCK];
    uint16_t low[BLOCK];
    const uint16_t *data = (const uint16_t *)(const void *)s->data;
    int64_t end = (row + rows) * s->length;
    for (int64_t at = row * s->length; at < end; at += BLOCK) {
        int64_t n = LOONG_MIN(end - at, (int64_t)BLOCK);
        size_t bytes = (size_t)n * sizeof(*low);
        LOONG_TRY(bring(s, high, data + at, bytes));
        LOONG_TRY(bring(s, low, s->low + at, bytes));
        for (int64_t i = 0; i < n; i++) {
            *bits++ = ((uint32_t)high[i] - (low[i] >> 15)) << 16 | low[i];
        }
    }
    return LOONG_OK;
}

static loong_status_t fetch_rows(void *user, int64_t row, int64_t rows,
                                 void *dst)
{
    const source_t *s = user;
    size_t length = (size_t)s->length * s->size;
    return bring(s, dst, s->data + (size_t)row * length, (size_t)rows * length);
}

/* Fills the data of a piece whose shape is set. Live memory that the writer can
 * read stays where it is. low: of bf16, the rest of a master; else NULL. */
static loong_status_t add_source(const loong_piece_writer_t *to,
                                 const char *data, const uint16_t *low,
                                 loong_checkpoint_piece_t *piece)
{
    source_t *s = NULL;
    if (low == NULL && loong_device_is_host(to->device)) {
        piece->data = data;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(to->arena, sizeof(*s), &s));
    s->device = to->device;
    s->stream = to->stream;
    s->data = data;
    s->low = low;
    s->length = piece->ndim > 1 ? piece->count[1] : 1;
    s->size = loong_dtype_size(piece->dtype);
    piece->fetch = low != NULL ? fetch_master : fetch_rows;
    piece->user = s;
    return LOONG_OK;
}

/* ---- pieces -------------------------------------------------------------- */

/* Rows of a parameter inside elements [begin, end) of its flat buffer. */
static bool rows_in(const loong_chunk_param_t *p, int64_t begin, int64_t end,
                    int64_t *row_p, int64_t *n_p)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    int64_t length = part.cols;
    int64_t first = LOONG_MAX(begin, p->flat_offset);
    int64_t last = LOONG_MIN(end, p->flat_offset + part.rows * length);
    if (first >= last) {
        return false;
    }
    *row_p = (first - p->flat_offset) / length;
    *n_p = (last - first) / length;
    return true;
}

static loong_checkpoint_piece_t describe(const loong_stage_t *stage,
                                         const loong_chunk_param_t *p,
                                         const char *kind, int64_t row,
                                         int64_t rows)
{
    loong_checkpoint_piece_t piece;
    memset(&piece, 0, sizeof(piece));
    piece.kind = kind;
    piece.dtype = stage->params->precision.wide;
    loong_param_slice_t part = loongi_param_slice_of(p);
    piece.ndim = p->params.shape.rank > 1 ? 2 : 1;
    piece.shape[0] = part.all_rows;
    piece.begin[0] = loongi_param_slice_row(&part, row, &rows);
    piece.count[0] = rows;
    if (piece.ndim > 1) {
        piece.shape[1] = part.all_cols;
        piece.begin[1] = part.col;
        piece.count[1] = part.cols;
    }
    return piece;
}

/* What is saved of a parameter: rows of a stage's that follow one another in
 * the whole. */
typedef struct rows {
    const loong_stage_t *stage;
    const loong_chunk_param_t *param;
    const loong_bucket_t *bucket; /* NULL: in none */
    int64_t row;
    int64_t rows;
} rows_t;

static loong_status_t add_param(const loong_piece_writer_t *to, const rows_t *r)
{
    const loong_stage_t *s = r->stage;
    const loong_chunk_param_t *p = r->param;
    const loong_bucket_t *b = r->bucket;
    const loong_flat_t *flat = &s->layout->flats[p->flat];
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", r->stage->params->name, p->name);
    loong_checkpoint_piece_t piece = describe(s, p, "param", r->row, r->rows);
    piece.name = name;
    int64_t cols = loongi_param_slice_of(p).cols;
    int64_t element = p->flat_offset + r->row * cols;
    const char *at = s->run.base[LOONG_BASE_PARAM] +
                     loongi_shards_param(s->shards, p->flat, element);
    const uint16_t *low = NULL;
    if (flat->dtype == LOONG_BF16 && (s->optimizer == NULL || flat->frozen)) {
        piece.dtype = flat->dtype; /* there is no master */
    } else if (flat->dtype == LOONG_BF16) {
        low = (const uint16_t *)(s->run.base[LOONG_BASE_OPTIM] + b->low) +
              (element - b->update_begin);
    }
    LOONG_TRY(add_source(to, at, low, &piece));
    return loongi_checkpoint_save_add(to->save, &piece);
}

/* A state of the optimizer as it is in memory and in checkpoints. */
static loong_dtype_t state_dtype(const loong_stage_t *stage,
                                 loong_optimizer_state_t state)
{
    return loongi_state_dtype(&stage->params->optimizer, state,
                              stage->params->precision.wide);
}

/* So many states of a parameter, those of its class and its average, and where
 * state i of a bucket is in OPTIM, by name and type. */
static int count_states(const loong_optimizer_class_t *class,
                        const loong_bucket_t *b)
{
    return class == NULL ? 0 : class->num_states + (b->ema >= 0);
}

static int64_t find_state(const loong_stage_t *stage,
                          const loong_optimizer_class_t *class,
                          const loong_bucket_t *b, int i,
                          loong_checkpoint_piece_t *piece)
{
    bool average = i == class->num_states;
    piece->kind = average ? LOONG_EMA : loongi_state_name(class->states[i]);
    piece->dtype = average ? stage->params->precision.wide
                           : state_dtype(stage, class->states[i]);
    return average ? b->ema : b->state[i];
}

static loong_status_t add_states(const loong_piece_writer_t *to,
                                 const rows_t *r,
                                 const loong_optimizer_class_t *class)
{
    const loong_chunk_param_t *p = r->param;
    const loong_bucket_t *b = r->bucket;
    int64_t cols = loongi_param_slice_of(p).cols;
    int64_t element = p->flat_offset + r->row * cols - b->update_begin;
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", r->stage->params->name, p->name);
    for (int i = 0; i < count_states(class, b); i++) {
        loong_checkpoint_piece_t piece =
            describe(r->stage, p, NULL, r->row, r->rows);
        int64_t offset = find_state(r->stage, class, b, i, &piece);
        piece.name = name;
        LOONG_TRY(
            add_source(to,
                       r->stage->run.base[LOONG_BASE_OPTIM] + offset +
                           element * (int64_t)loong_dtype_size(piece.dtype),
                       NULL, &piece));
        LOONG_TRY(loongi_checkpoint_save_add(to->save, &piece));
    }
    return LOONG_OK;
}

/* Parameter and states, piece by piece. */
static loong_status_t add_rows(const loong_piece_writer_t *to, rows_t r)
{
    loong_param_slice_t part = loongi_param_slice_of(r.param);
    const loong_optimizer_class_t *class =
        loongi_optimizer_of(&r.stage->params->optimizer, &r.param->params);
    for (int64_t end = r.row + r.rows; r.row < end; r.row += r.rows) {
        r.rows = end - r.row;
        loongi_param_slice_row(&part, r.row, &r.rows);
        LOONG_TRY(add_param(to, &r));
        if (class != NULL) {
            LOONG_TRY(add_states(to, &r, class));
        }
    }
    return LOONG_OK;
}

/* Every rank adds the rows it owns; of what is in no bucket, because it is
 * frozen and all have it, the first rank. */
static loong_status_t add_stage(const loong_piece_writer_t *to,
                                const loong_stage_t *stage)
{
    const loong_model_chunk_t *c = stage->layout;
    const loong_shards_t *s = stage->shards;
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_chunk_param_t *p = &c->params[i];
        if (p->params.place.copy ||
            loongi_in_base(stage->params, p->params.frozen,
                           p->params.adapter)) {
            continue;
        }
        const loong_bucket_t *b =
            loongi_shards_bucket(s, p->flat, p->flat_offset);
        rows_t r = {stage, p, b, 0, loongi_param_slice_of(p).rows};
        bool mine = b != NULL
                        ? rows_in(p, b->own_begin, b->own_end, &r.row, &r.rows)
                        : loong_mesh_group_rank(
                              &s->mesh, loongi_shards_group(s, p->flat)) == 0;
        if (mine) {
            LOONG_TRY(add_rows(to, r));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_component_write(const loong_component_t *component,
                                      const loong_piece_writer_t *to)
{
    for (int i = 0; i < component->num_stages; i++) {
        LOONG_TRY(add_stage(to, component->stages[i]));
    }
    return LOONG_OK;
}

/* ---- loading ------------------------------------------------------------- */

/* What is read into a stage, and as what. */
typedef struct reader {
    loong_checkpoint_t *ck;
    loong_stage_t *stage;
    const char *kind;
    loong_dtype_t dtype;
    double *block; /* `room` elements */
    int64_t room;
} reader_t;

/* Rows of what this rank holds of a parameter, dense; no more than these. */
static loong_status_t read_block(const reader_t *r,
                                 const loong_chunk_param_t *p, int64_t row,
                                 int64_t rows, void *to)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    size_t length = (size_t)part.cols * loong_dtype_size(r->dtype);
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", r->stage->params->name, p->name);
    int64_t n = 0;
    for (int64_t at = 0; at < rows; at += n) {
        n = rows - at;
        int64_t outside = loongi_param_slice_row(&part, row + at, &n);
        int64_t begin[LOONG_TENSOR_MAX_DIMS] = {outside, part.col};
        int64_t count[LOONG_TENSOR_MAX_DIMS] = {n, part.cols};
        LOONG_TRY(loongi_checkpoint_read(
            r->ck, loongi_checkpoint_find(r->ck, r->kind, name), begin, count,
            r->dtype, (char *)to + (size_t)at * length));
    }
    return LOONG_OK;
}

static bool has_average(const reader_t *r, const loong_chunk_param_t *p)
{
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", r->stage->params->name, p->name);
    return loongi_checkpoint_find(r->ck, LOONG_EMA, name) != NULL;
}

static loong_status_t load_param(reader_t *r, const loong_chunk_param_t *p)
{
    int64_t cols = loongi_param_slice_of(p).cols;
    int64_t step = LOONG_MAX(r->room / cols, 1);
    int64_t first = 0;
    int64_t rows = 0;
    loongi_stage_shard_rows(r->stage, p, &first, &rows);
    r->kind = !r->stage->params->train &&
                      r->stage->params->optimizer.ema.evaluates &&
                      has_average(r, p)
                  ? LOONG_EMA
                  : "param";
    r->dtype = LOONG_F64;
    for (int64_t row = first; row < first + rows; row += step) {
        int64_t n = LOONG_MIN(step, first + rows - row);
        LOONG_TRY(read_block(r, p, row, n, r->block));
        LOONG_TRY(loongi_stage_set_param(r->stage, p, row * cols, n * cols,
                                         r->block));
    }
    return LOONG_OK;
}

/* States of the rows this rank updates. */
static loong_status_t load_states(reader_t *r, const loong_chunk_param_t *p)
{
    const loong_optimizer_class_t *class =
        loongi_optimizer_of(&r->stage->params->optimizer, &p->params);
    const loong_bucket_t *b =
        loongi_shards_bucket(r->stage->shards, p->flat, p->flat_offset);
    int64_t cols = loongi_param_slice_of(p).cols;
    int64_t step = LOONG_MAX(r->room / cols, 1);
    int64_t row = 0;
    int64_t rows = 0;
    if (class == NULL ||
        !rows_in(p, b->update_begin, b->update_end, &row, &rows)) {
        return LOONG_OK;
    }
    int64_t element = p->flat_offset + row * cols - b->update_begin;
    for (int i = 0; i < count_states(class, b); i++) {
        loong_checkpoint_piece_t state;
        int64_t offset = find_state(r->stage, class, b, i, &state);
        r->kind = state.kind;
        r->dtype = state.dtype;
        if (i == class->num_states && !has_average(r, p)) {
            continue; /* it begins as the parameter: moments.c knows when */
        }
        int64_t size = (int64_t)loong_dtype_size(r->dtype);
        for (int64_t at = 0; at < rows; at += step) {
            int64_t n = LOONG_MIN(step, rows - at);
            loong_operand_t to = {LOONG_BASE_OPTIM,
                                  offset + (element + at * cols) * size};
            LOONG_TRY(read_block(r, p, row + at, n, r->block));
            LOONG_TRY(loongi_binding_write(&r->stage->run, to, r->block,
                                           (size_t)(n * cols * size)));
        }
    }
    return LOONG_OK;
}

/* The checkpoint leaves it to the directory that the component began with. */
static bool is_elsewhere(const reader_t *r, const loong_chunk_param_t *p)
{
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", r->stage->params->name, p->name);
    return loongi_in_base(r->stage->params, p->params.frozen,
                          p->params.adapter) &&
           loongi_checkpoint_find(r->ck, "param", name) == NULL;
}

static loong_status_t load_stage(loong_stage_t *stage, loong_checkpoint_t *ck,
                                 bool states)
{
    const loong_model_chunk_t *c = stage->layout;
    loong_origin_t from = loongi_checkpoint_origin(ck);
    reader_t reader = {.ck = ck, .stage = stage, .room = 2 * 1024 * 1024};
    for (int64_t i = 0; i < c->num_params; i++) {
        loong_param_slice_t part = loongi_param_slice_of(&c->params[i]);
        reader.room = LOONG_MAX(reader.room, part.cols);
    }
    LOONG_TRY(loongi_calloc(stage->ctx, (size_t)reader.room, sizeof(double),
                            "rows of a checkpoint", &reader.block));
    loong_status_t status = loongi_stage_upload(stage);
    for (int64_t i = 0; i < c->num_params && status == LOONG_OK; i++) {
        if (!loongi_place_is_new(stage, &from, &c->params[i]) &&
            !is_elsewhere(&reader, &c->params[i])) {
            status = load_param(&reader, &c->params[i]);
        }
        if (status == LOONG_OK && states) {
            status = load_states(&reader, &c->params[i]);
        }
    }
    status = loongi_stage_uploaded(stage, status);
    loongi_free(stage->ctx, reader.block);
    return status;
}

loong_status_t loongi_component_read(loong_component_t *component,
                                     loong_checkpoint_t *ck, bool states,
                                     uint64_t seed)
{
    loong_origin_t from = loongi_checkpoint_origin(ck);
    if (loongi_in_base(&component->params, true, 0.0)) {
        LOONG_TRY(loongi_component_begin(component, seed));
    }
    LOONG_TRY(loongi_new_params_initialize(component, &from, seed));
    for (int i = 0; i < component->num_stages; i++) {
        LOONG_TRY(load_stage(component->stages[i], ck, states));
    }
    return LOONG_OK;
}
