/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoints of a run: what each rank owns, by global name. Parameters
 * are stored as their masters (fp32 with bf16 training), moments as they are;
 * they are read into what the recipe says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "earlier.h"
#include "file.h"
#include "hf_code.h"
#include "loong/checkpoint.h"
#include "moments.h"
#include "native_dir.h"
#include "problems.h"
#include "save_source.h"
#include "trainer_hf.h"

enum { PATH_SIZE = 4096 };

/* ---- communication for the checkpoint module ----------------------------- */

static loong_status_t gather(void *user, const void *mine, size_t bytes,
                             void *all)
{
    return loong_comm_gather(user, mine, bytes, all, 0, "checkpoint");
}

static loong_status_t broadcast(void *user, void *data, size_t bytes)
{
    return loong_comm_broadcast(user, data, bytes, 0, "checkpoint");
}

/* ---- pieces -------------------------------------------------------------- */

/* Rows of a parameter inside elements [begin, end) of its flat buffer. */
static bool rows_in(const loong_param_place_t *p, int64_t begin, int64_t end,
                    int64_t *row_p, int64_t *n_p)
{
    loong_part_t part = loongi_part_of(p);
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

static loong_checkpoint_piece_t describe(const loong_trainer_t *t,
                                         const loong_param_place_t *p,
                                         const char *kind, int64_t row,
                                         int64_t rows)
{
    loong_checkpoint_piece_t piece;
    memset(&piece, 0, sizeof(piece));
    piece.kind = kind;
    piece.dtype = t->component->params.precision.wide;
    loong_part_t part = loongi_part_of(p);
    piece.ndim = p->params.shape.rank > 1 ? 2 : 1;
    piece.shape[0] = part.all_rows;
    piece.begin[0] = loongi_part_row(&part, row, &rows);
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
    const loong_param_place_t *param;
    const loong_bucket_t *bucket; /* NULL: in none */
    int64_t row;
    int64_t rows;
} rows_t;

static loong_status_t add_param(loong_trainer_t *t, const rows_t *r,
                                loong_arena_t *arena)
{
    const loong_stage_t *s = r->stage;
    const loong_param_place_t *p = r->param;
    const loong_bucket_t *b = r->bucket;
    const loong_flat_t *flat = &s->layout->flats[p->flat];
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", t->component->params.name, p->name);
    loong_checkpoint_piece_t piece = describe(t, p, "param", r->row, r->rows);
    piece.name = name;
    int64_t cols = loongi_part_of(p).cols;
    int64_t element = p->flat_offset + r->row * cols;
    const char *at = s->run.base[LOONG_BASE_PARAM] +
                     loongi_shards_param(s->shards, p->flat, element);
    const uint16_t *low = NULL;
    if (flat->dtype == LOONG_BF16) {
        low = (const uint16_t *)(s->run.base[LOONG_BASE_OPTIM] + b->low) +
              (element - b->update_begin);
    }
    LOONG_TRY(loongi_save_source(t, at, low, arena, &piece));
    return loongi_checkpoint_save_add(t->save, &piece);
}

/* A state of the optimizer as it is in memory and in checkpoints. */
static loong_dtype_t state_dtype(const loong_stage_t *stage,
                                 loong_optimizer_state_t state)
{
    return loongi_state_dtype(&stage->params->optimizer, state,
                              stage->params->precision.wide);
}

static loong_status_t add_states(loong_trainer_t *t, const rows_t *r,
                                 const loong_optimizer_class_t *class,
                                 loong_arena_t *arena)
{
    const loong_param_place_t *p = r->param;
    const loong_bucket_t *b = r->bucket;
    int64_t cols = loongi_part_of(p).cols;
    int64_t element = p->flat_offset + r->row * cols - b->update_begin;
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", t->component->params.name, p->name);
    for (int i = 0; i < class->num_states; i++) {
        loong_checkpoint_piece_t piece = describe(
            t, p, loongi_state_name(class->states[i]), r->row, r->rows);
        piece.name = name;
        piece.dtype = state_dtype(r->stage, class->states[i]);
        LOONG_TRY(loongi_save_source(
            t,
            r->stage->run.base[LOONG_BASE_OPTIM] + b->state[i] +
                element * (int64_t)loong_dtype_size(piece.dtype),
            NULL, arena, &piece));
        LOONG_TRY(loongi_checkpoint_save_add(t->save, &piece));
    }
    return LOONG_OK;
}

/* Parameter and states, piece by piece. */
static loong_status_t add_rows(loong_trainer_t *t, rows_t r,
                               loong_arena_t *arena)
{
    loong_part_t part = loongi_part_of(r.param);
    const loong_optimizer_class_t *class =
        loongi_optimizer_of(&r.stage->params->optimizer, &r.param->params);
    for (int64_t end = r.row + r.rows; r.row < end; r.row += r.rows) {
        r.rows = end - r.row;
        loongi_part_row(&part, r.row, &r.rows);
        LOONG_TRY(add_param(t, &r, arena));
        if (class != NULL) {
            LOONG_TRY(add_states(t, &r, class, arena));
        }
    }
    return LOONG_OK;
}

/* Every rank adds the rows it owns; of what is in no bucket, because it is
 * frozen and all have it, the first rank. */
static loong_status_t add_stage(loong_trainer_t *t, const loong_stage_t *stage,
                                loong_arena_t *arena)
{
    const loong_chunk_t *c = stage->layout;
    const loong_shards_t *s = stage->shards;
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_param_place_t *p = &c->params[i];
        if (p->params.place.copy) {
            continue;
        }
        const loong_bucket_t *b =
            loongi_shards_bucket(s, p->flat, p->flat_offset);
        rows_t r = {stage, p, b, 0, loongi_part_of(p).rows};
        bool mine = b != NULL ? rows_in(p, b->own_begin, b->own_end, &r.row,
                                        &r.rows)
                              : loong_mesh_group_rank(
                                    &s->mesh,
                                    loongi_shards_group(s, p->flat)) == 0;
        if (mine) {
            LOONG_TRY(add_rows(t, r, arena));
        }
    }
    return LOONG_OK;
}

static loong_status_t add_pieces(loong_trainer_t *t, loong_arena_t *arena)
{
    for (int i = 0; i < t->component->num_stages; i++) {
        LOONG_TRY(add_stage(t, t->component->stages[i], arena));
    }
    return LOONG_OK;
}

/* ---- metadata ------------------------------------------------------------ */

static const char *params_dtype(const loong_trainer_t *t)
{
    return loong_dtype_name(t->component->params.precision.compute);
}

static loong_status_t fill_metadata(loong_trainer_t *t, loong_pairs_t *meta)
{
    const char *text = NULL;
    char window[LOONG_WINDOW_TEXT];
    loongi_window_print(&t->report.losses, window);
    LOONG_TRY(loong_recipe_print(t->recipe, false, &text));
    LOONG_TRY(loongi_pairs_set(meta, "recipe", text));
    LOONG_TRY(loongi_pairs_set(meta, LOONG_PARAMS_DTYPE, params_dtype(t)));
    LOONG_TRY(loongi_pairs_set(meta, "loss_window", window));
    LOONG_TRY(loongi_pairs_set_int(meta, "step", t->state.step));
    LOONG_TRY(loongi_pairs_set_int(meta, "consumed_samples",
                                   t->state.consumed_samples));
    LOONG_TRY(loongi_pairs_set_int(meta, "updates", t->state.updates));
    for (int64_t i = 0; t->tokens != NULL && i < t->tokens->count; i++) {
        const loong_pair_t *token = &t->tokens->items[i];
        LOONG_TRY(loongi_pairs_set(meta, token->key, token->value));
    }
    LOONG_TRY(loongi_pairs_set(meta, "data", loong_blend_describe(t->blend)));
    for (int64_t i = 0; i < t->model_keys->count; i++) {
        char key[256];
        snprintf(key, sizeof(key), "model.%s.%s", t->component->params.name,
                 t->model_keys->items[i].key);
        LOONG_TRY(
            loongi_pairs_set(meta, key, t->model_keys->items[i].value));
    }
    return LOONG_OK;
}

/* ---- saving -------------------------------------------------------------- */

static loong_status_t begin_save(loong_trainer_t *t, loong_pairs_t *meta)
{
    loong_checkpoint_comm_t comm = {loong_comm_rank(t->comm),
                                    loong_comm_size(t->comm), t->comm, gather,
                                    broadcast};
    loong_checkpoint_save_params_t params;
    memset(&params, 0, sizeof(params));
    params.dir = loong_recipe_text(t->recipe, "checkpoint.save");
    params.step = t->state.step;
    params.comm = &comm;
    params.metadata = meta;
    params.files = t->files;
    params.async = t->set.async_save;
    params.keep_last = t->set.keep_last;
    LOONG_TRY(fill_metadata(t, meta));
    LOONG_TRY(loongi_checkpoint_save_begin(t->ctx, &params, &t->save));
    LOONG_TRY(add_pieces(t, meta->arena));
    return loongi_checkpoint_save_start(t->save);
}

/* The checkpoint is whole, or it failed. */
static loong_status_t end_save(loong_trainer_t *t, loong_status_t status)
{
    if (status == LOONG_OK) {
        status = loongi_report_save(t);
    }
    loongi_checkpoint_save_destroy(&t->save);
    loongi_pairs_destroy(&t->save_metadata);
    return status == LOONG_OK ? loongi_supervise_saved(t) : status;
}

loong_status_t loongi_trainer_advance_save(loong_trainer_t *t)
{
    bool whole = false;
    double begin = loongi_now();
    loong_status_t status = loongi_checkpoint_save_advance(t->save, &whole);
    t->save_stall += loongi_now() - begin;
    return whole || status != LOONG_OK ? end_save(t, status) : LOONG_OK;
}

loong_status_t loongi_trainer_finish_save(loong_trainer_t *t)
{
    while (t->save != NULL) {
        LOONG_TRY(loongi_trainer_advance_save(t));
    }
    return LOONG_OK;
}

/* The directory of a step in checkpoint.save. */
static void step_path(const loong_trainer_t *t, int64_t step,
                      char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s/" LOONG_STEP_FORMAT,
             loong_recipe_text(t->recipe, "checkpoint.save"),
             (long long)step);
}

loong_status_t loongi_trainer_save(loong_trainer_t *t)
{
    if (t->saved_step == t->state.step) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_trainer_finish_save(t));
    loongi_trainer_renew(t);
    double begin = loongi_now();
    LOONG_TRY(loongi_pairs_create(t->ctx, &t->save_metadata));
    LOONG_TRY(loong_device_synchronize(t->device, "a checkpoint"));
    LOONG_TRY(begin_save(t, t->save_metadata));
    t->saved_step = t->state.step;
    t->save_stall = loongi_now() - begin;
    return t->set.async_save ? LOONG_OK : loongi_trainer_finish_save(t);
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
                                 const loong_param_place_t *p, int64_t row,
                                 int64_t rows, void *to)
{
    loong_part_t part = loongi_part_of(p);
    size_t length = (size_t)part.cols * loong_dtype_size(r->dtype);
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", r->stage->params->name, p->name);
    int64_t n = 0;
    for (int64_t at = 0; at < rows; at += n) {
        n = rows - at;
        int64_t outside = loongi_part_row(&part, row + at, &n);
        int64_t begin[LOONG_TENSOR_MAX_DIMS] = {outside, part.col};
        int64_t count[LOONG_TENSOR_MAX_DIMS] = {n, part.cols};
        LOONG_TRY(loongi_checkpoint_read(
            r->ck, loongi_checkpoint_find(r->ck, r->kind, name), begin, count,
            r->dtype, (char *)to + (size_t)at * length));
    }
    return LOONG_OK;
}

static loong_status_t load_param(reader_t *r, const loong_param_place_t *p)
{
    int64_t cols = loongi_part_of(p).cols;
    int64_t step = LOONG_MAX(r->room / cols, 1);
    int64_t first = 0;
    int64_t rows = 0;
    loongi_stage_kept_rows(r->stage, p, &first, &rows);
    r->kind = "param";
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
static loong_status_t load_states(reader_t *r, const loong_param_place_t *p)
{
    const loong_optimizer_class_t *class =
        loongi_optimizer_of(&r->stage->params->optimizer, &p->params);
    const loong_bucket_t *b =
        loongi_shards_bucket(r->stage->shards, p->flat, p->flat_offset);
    int64_t cols = loongi_part_of(p).cols;
    int64_t step = LOONG_MAX(r->room / cols, 1);
    int64_t row = 0;
    int64_t rows = 0;
    if (class == NULL ||
        !rows_in(p, b->update_begin, b->update_end, &row, &rows)) {
        return LOONG_OK;
    }
    int64_t element = p->flat_offset + row * cols - b->update_begin;
    for (int i = 0; i < class->num_states; i++) {
        r->kind = loongi_state_name(class->states[i]);
        r->dtype = state_dtype(r->stage, class->states[i]);
        int64_t size = (int64_t)loong_dtype_size(r->dtype);
        for (int64_t at = 0; at < rows; at += step) {
            int64_t n = LOONG_MIN(step, rows - at);
            loong_operand_t to = {LOONG_BASE_OPTIM,
                                  b->state[i] + (element + at * cols) * size};
            LOONG_TRY(read_block(r, p, row + at, n, r->block));
            LOONG_TRY(loongi_run_write(&r->stage->run, to, r->block,
                                       (size_t)(n * cols * size)));
        }
    }
    return LOONG_OK;
}

static loong_status_t load_stage(loong_stage_t *stage, loong_checkpoint_t *ck,
                                 bool states)
{
    const loong_chunk_t *c = stage->layout;
    reader_t reader = {.ck = ck, .stage = stage, .room = 2 * 1024 * 1024};
    for (int64_t i = 0; i < c->num_params; i++) {
        loong_part_t part = loongi_part_of(&c->params[i]);
        reader.room = LOONG_MAX(reader.room, part.cols);
    }
    LOONG_TRY(loongi_calloc(stage->ctx, (size_t)reader.room, sizeof(double),
                            "rows of a checkpoint", &reader.block));
    loong_status_t status = loongi_stage_upload(stage);
    for (int64_t i = 0; i < c->num_params && status == LOONG_OK; i++) {
        status = load_param(&reader, &c->params[i]);
        if (status == LOONG_OK && states) {
            status = load_states(&reader, &c->params[i]);
        }
    }
    status = loongi_stage_uploaded(stage, status);
    loongi_free(stage->ctx, reader.block);
    return status;
}

static loong_status_t load_tensors(loong_trainer_t *t, loong_checkpoint_t *ck)
{
    if (t->set.load_optim) {
        loongi_moments_tell(t, ck);
    }
    for (int i = 0; i < t->component->num_stages; i++) {
        LOONG_TRY(load_stage(t->component->stages[i], ck, t->set.load_optim));
    }
    return LOONG_OK;
}

loong_status_t loongi_trainer_check_resume(loong_trainer_t *t,
                                           loong_checkpoint_t *ck)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(ck);
    const char *data = loongi_pairs_get(meta, "data");
    if (loongi_pairs_get(meta, "recipe") != NULL) {
        LOONG_TRY(loongi_check_earlier(meta, t->recipe, t->model_keys,
                                       params_dtype(t), t->plan.evaluate_only));
    } else {
        LOONG_TRY(loongi_trainer_check_import(t, meta));
    }
    if (data != NULL && !t->plan.evaluate_only &&
        !loong_recipe_may_change(t->recipe, "data")) {
        loong_status_t status = loong_blend_compare(t->blend, data);
        if (status != LOONG_OK) {
            loongi_error_note(t->ctx, "resume.override: [data] goes on with "
                                      "changed data");
            return status;
        }
    }
    return loongi_moments_check(t, ck);
}

/* What was loaded is this run's own step: there is no need to save it. */
static bool is_own(const loong_trainer_t *t, const loong_checkpoint_t *ck)
{
    char path[PATH_SIZE];
    if (!t->set.saves) {
        return false;
    }
    step_path(t, t->state.step, path);
    return loongi_file_same(path, loongi_checkpoint_path(ck));
}

/* Moments that begin at 0 have seen none. */
static void load_updates(loong_trainer_t *t, const loong_pairs_t *meta)
{
    if (t->set.load_optim &&
        !loongi_pairs_int(meta, "updates", &t->state.updates)) {
        t->state.updates = t->state.step;
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "the checkpoint does not count updates: as many as steps, "
                   "%lld, are taken to be in its moments",
                   (long long)t->state.step);
    }
}

loong_status_t loongi_trainer_load(loong_trainer_t *t, loong_checkpoint_t *ck)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(ck);
    char took[LOONG_HUMAN_SIZE];
    char all[LOONG_HUMAN_SIZE];
    LOONG_TRY(load_tensors(t, ck));
    LOONG_TRY(loong_comm_barrier(t->comm, "resume")); /* all have loaded */
    loongi_pairs_int(meta, "step", &t->state.step);
    loongi_pairs_int(meta, "consumed_samples", &t->state.consumed_samples);
    load_updates(t, meta);
    const char *window = loongi_pairs_get(meta, "loss_window");
    LOONG_CHECK(t->ctx,
                window == NULL ||
                    loongi_window_read(window, &t->report.losses),
                LOONG_ERR_FORMAT, "%s: loss_window is no list of losses",
                loongi_checkpoint_path(ck));
    t->saved_step = is_own(t, ck) ? t->state.step : -1;
    t->loaded_bytes = loongi_checkpoint_bytes_read(ck);
    loongi_log(t->ctx, LOONG_LOG_INFO,
               "resumed from %s at step %lld: this rank took %s of %s",
               loongi_checkpoint_path(ck), (long long)t->state.step,
               loongi_human_bytes((double)t->loaded_bytes, took),
               loongi_human_bytes((double)loongi_checkpoint_bytes(ck), all));
    return LOONG_OK;
}

/* ---- export -------------------------------------------------------------- */

loong_status_t loong_trainer_export(loong_trainer_t *trainer, const char *dir)
{
    loong_trainer_t *t = trainer;
    const char *save = loong_recipe_text(t->recipe, "checkpoint.save");
    LOONG_CHECK(t->ctx, save != NULL, LOONG_ERR_CONFIG,
                "export.hf goes through a checkpoint: set checkpoint.save");
    LOONG_TRY(loongi_trainer_save(t));
    LOONG_TRY(loongi_trainer_finish_save(t));
    loong_status_t status = LOONG_OK;
    if (loong_comm_rank(t->comm) == 0) {
        char path[PATH_SIZE];
        loong_checkpoint_export_params_t params;
        step_path(t, t->state.step, path); /* `latest` may be another one */
        memset(&params, 0, sizeof(params));
        params.checkpoint = path;
        params.out_dir = dir;
        params.as = loong_recipe_text(t->recipe, "export.as");
        params.bos_token_id = params.eos_token_id = params.pad_token_id = -1;
        status = loong_checkpoint_export(t->ctx, &params);
    }
    LOONG_TRY(loong_comm_barrier(t->comm, "export"));
    return status;
}
