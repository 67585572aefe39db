/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix of class muon, step by step: momentum, the whole matrix of all
 * tensor-parallel ranks, its norm, Newton-Schulz by products, the change of the
 * rank's part. optimizer.c calls it; read muon_steps.h before, and
 * loong/update.h for the formulas.
 *
 * [R,C] is the whole matrix, [r,c] the rank's part, m the lesser of R and C. */
#include "muon_steps.h"

#include <math.h>

#include "loong/ops.h"
#include "param_slice.h"
#include "steps.h"

enum { ALIGN = 64 };

typedef struct matrix {
    loong_optimizer_t *o;
    const loong_bucket_t *bucket;
    const loong_chunk_param_t *param;
    int64_t element;    /* of the flat buffer, where it begins */
    int64_t rows, cols; /* r, c */
    int64_t all_rows, all_cols;
    loong_operand_t u, x, a, p, stats; /* [R,C] twice, [m,m] twice, f64 [3] */
    const loong_muon_attr_t *attr;
} matrix_t;

/* ---- matrices ------------------------------------------------------------ */

static int64_t count_of(const loong_chunk_param_t *p)
{
    return p->shape.rank > 2 ? p->shape.dim[0] : 1;
}

static void measure(const loong_chunk_param_t *p, matrix_t *m)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    m->param = p;
    m->cols = part.cols;
    m->rows = p->elements / count_of(p) / LOONG_MAX(m->cols, 1);
    m->all_cols = part.all_cols;
    m->all_rows =
        p->shape.rank > 2 ? p->params.shape.dim[1] : p->params.shape.dim[0];
}

static int64_t whole_bytes(const matrix_t *m, int64_t rows, int64_t cols)
{
    int64_t size = (int64_t)loong_dtype_size(m->o->shards->wide);
    return loongi_round_up(rows * cols * size, ALIGN);
}

/* Places what a matrix works in; returns the bytes. */
static int64_t place(matrix_t *m)
{
    int64_t least = LOONG_MIN(m->all_rows, m->all_cols);
    int64_t whole = whole_bytes(m, m->all_rows, m->all_cols);
    int64_t square = whole_bytes(m, least, least);
    int64_t at = m->o->room_offset;
    m->u = loongi_at(LOONG_BASE_OPTIM, at);
    m->x = loongi_at(LOONG_BASE_OPTIM, at + whole);
    m->a = loongi_at(LOONG_BASE_OPTIM, at + 2 * whole);
    m->p = loongi_at(LOONG_BASE_OPTIM, at + 2 * whole + square);
    m->stats = loongi_at(LOONG_BASE_OPTIM, at + 2 * whole + 2 * square);
    return 2 * whole + 2 * square + ALIGN;
}

static bool is_muon(const loong_optimizer_t *o,
                    const loong_param_params_t *param)
{
    const loong_optimizer_class_t *class =
        loongi_optimizer_of(&o->params, param);
    return class != NULL && class->matrix;
}

int64_t loongi_muon_room(const loong_optimizer_t *o)
{
    int64_t most = 0;
    for (int64_t i = 0; i < o->chunk->num_params; i++) {
        matrix_t m = {.o = (loong_optimizer_t *)o};
        if (is_muon(o, &o->chunk->params[i].params)) {
            measure(&o->chunk->params[i], &m);
            most = LOONG_MAX(most, place(&m));
        }
    }
    return most;
}

/* ---- steps --------------------------------------------------------------- */

static void set_arg(loong_step_t *step, loong_dtype_t dtype, int64_t rows,
                    int64_t cols, loong_operand_t operand)
{
    int i = step->query.num_in + step->query.num_out;
    loong_karg_t arg = {dtype, 2, {rows, cols, 0, 0}, cols};
    step->query.arg[i] = arg;
    step->operand[i] = operand;
}

static void add_in(const matrix_t *m, loong_step_t *step, int64_t rows,
                   int64_t cols, loong_operand_t operand)
{
    set_arg(step, m->o->shards->wide, rows, cols, operand);
    step->query.num_in++;
}

static void add_out(const matrix_t *m, loong_step_t *step, int64_t rows,
                    int64_t cols, loong_operand_t operand)
{
    set_arg(step, m->o->shards->wide, rows, cols, operand);
    step->query.num_out++;
}

static void begin(const matrix_t *m, const char *op, const void *attr,
                  loong_step_t *step)
{
    loongi_step_begin(step, op, "optimizer", &m->o->shards->params);
    step->query.attr = attr;
}

static loong_status_t append(const matrix_t *m, const loong_step_t *step)
{
    loong_optimizer_t *o = m->o;
    return loongi_program_append(o->ctx, &o->update, o->shards->params.device,
                                 step, o->arena);
}

static loong_operand_t state_at(const matrix_t *m)
{
    int64_t size = (int64_t)loong_dtype_size(m->o->shards->wide);
    return loongi_at(LOONG_BASE_OPTIM,
                     m->bucket->state[0] +
                         (m->element - m->bucket->update_begin) * size);
}

/* u [R,C] of the gradient [r,c]. */
static loong_status_t add_momentum(const matrix_t *m)
{
    loong_step_t step;
    begin(m, "muon_momentum", m->attr, &step);
    add_in(m, &step, m->rows, m->cols,
           loongi_at(LOONG_BASE_GRAD,
                     loongi_shards_grad(m->o->shards, m->bucket, m->element)));
    add_out(m, &step, m->rows, m->cols, state_at(m));
    add_out(m, &step, m->all_rows, m->all_cols, m->u);
    return append(m, &step);
}

/* Every element is of one rank, and 0 on the others. */
static loong_status_t add_gather(const matrix_t *m)
{
    const loong_placement_t *at = &m->param->params.place;
    int ranks = loong_mesh_group_size(&m->o->shards->mesh, LOONG_GROUP_TP);
    loong_step_t step;
    if (m->rows == m->all_rows && m->cols == m->all_cols) {
        return LOONG_OK;
    }
    LOONG_CHECK(m->o->ctx,
                m->rows * m->cols * ranks == m->all_rows * m->all_cols &&
                    !at->copy && !at->expert,
                LOONG_ERR_CONFIG,
                "%s: class muon takes whole matrices, of which %d "
                "tensor-parallel ranks must hold equal parts, each its own, "
                "and those of experts whole; this one holds %lld of %lld "
                "elements",
                m->param->name, ranks, (long long)(m->rows * m->cols),
                (long long)(m->all_rows * m->all_cols));
    LOONG_TRY(loongi_step_collective(m->o->shards, "flat_all_reduce",
                                     LOONG_GROUP_TP, m->bucket, &step));
    step.query.arg[0] =
        loongi_flat_arg(m->o->shards->wide, m->all_rows * m->all_cols);
    step.operand[0] = m->u;
    return append(m, &step);
}

/* x = u / norm. */
static loong_status_t add_normalize(const matrix_t *m)
{
    loong_step_t step;
    begin(m, "tensor_stats", NULL, &step);
    add_in(m, &step, m->all_rows, m->all_cols, m->u);
    step.query.num_out = 1;
    step.query.arg[1] = loongi_flat_arg(LOONG_F64, 3);
    step.operand[1] = m->stats;
    LOONG_TRY(append(m, &step));
    begin(m, "muon_normalize", m->attr, &step);
    add_in(m, &step, m->all_rows, m->all_cols, m->u);
    step.query.num_in = 2;
    step.query.arg[1] = loongi_flat_arg(LOONG_F64, 3);
    step.operand[1] = m->stats;
    add_out(m, &step, m->all_rows, m->all_cols, m->x);
    return append(m, &step);
}

static const loong_linear_attr_t straight = {false, LOONG_ACT_NONE};
static const loong_linear_attr_t transposed = {true, LOONG_ACT_NONE};

/* x to u by a step of Newton-Schulz: (3.4445 I - 4.7750 a + 2.0315 a a) x with
 * a = x x', or for a tall x with a = x' x from the right. a is symmetric. */
static loong_status_t add_iteration(const matrix_t *m)
{
    int64_t rows = m->all_rows;
    int64_t cols = m->all_cols;
    bool tall = rows > cols;
    int64_t least = LOONG_MIN(rows, cols);
    loong_step_t step;
    begin(m, tall ? "linear_dw" : "linear", &straight, &step);
    add_in(m, &step, rows, cols, m->x);
    add_in(m, &step, rows, cols, m->x);
    add_out(m, &step, least, least, m->a);
    LOONG_TRY(append(m, &step));
    begin(m, "linear", &straight, &step);
    add_in(m, &step, least, least, m->a);
    add_in(m, &step, least, least, m->a);
    add_out(m, &step, least, least, m->p);
    LOONG_TRY(append(m, &step));
    begin(m, "muon_polynomial", m->attr, &step);
    add_in(m, &step, least, least, m->a);
    add_in(m, &step, least, least, m->p);
    add_out(m, &step, least, least, m->p);
    LOONG_TRY(append(m, &step));
    begin(m, "linear", tall ? &straight : &transposed, &step);
    add_in(m, &step, tall ? rows : least, least, tall ? m->x : m->p);
    add_in(m, &step, tall ? least : rows, tall ? least : cols,
           tall ? m->p : m->x);
    add_out(m, &step, rows, cols, m->u);
    return append(m, &step);
}

/* The change of the parameter [r,c] by x [R,C]. */
static loong_status_t add_change(const matrix_t *m)
{
    const loong_shards_t *s = m->o->shards;
    const loong_flat_t *flat = &s->flats[m->bucket->flat];
    int64_t param = loongi_shards_param(s, m->bucket->flat, m->element);
    loong_step_t step;
    begin(m, "muon_step", m->attr, &step);
    add_in(m, &step, m->all_rows, m->all_cols, m->x);
    set_arg(&step, flat->dtype, m->rows, m->cols,
            loongi_at(LOONG_BASE_PARAM, param));
    step.query.num_out = 2;
    if (m->bucket->low >= 0) {
        int64_t low = m->element - m->bucket->update_begin;
        step.query.arg[2] = loongi_flat_arg(LOONG_U16, m->rows * m->cols);
        step.operand[2] = loongi_at(LOONG_BASE_OPTIM, m->bucket->low + 2 * low);
    }
    return append(m, &step);
}

/* ---- a matrix ------------------------------------------------------------ */

/* Steps of the published sizes: as large as the matrix is tall, or as adamw's
 * (Liu et al. 2025). */
static double scale_of(const matrix_t *m, const loong_optimizer_group_t *g)
{
    double rows = (double)m->all_rows;
    double cols = (double)m->all_cols;
    return g->match_rms ? 0.2 * sqrt(fmax(rows, cols))
                        : sqrt(fmax(1.0, rows / cols));
}

static loong_status_t describe(matrix_t *m)
{
    const loong_flat_t *flat = &m->o->shards->flats[m->bucket->flat];
    const loong_optimizer_group_t *g = &m->o->params.group[flat->optimizer];
    loong_param_slice_t part = loongi_param_slice_of(m->param);
    loong_muon_attr_t *attr = NULL;
    LOONG_TRY(loongi_arena_alloc(m->o->arena, sizeof(*attr), &attr));
    *attr = (loong_muon_attr_t){
        .group = flat->optimizer,
        .momentum = g->momentum,
        .nesterov = g->nesterov,
        .weight_decay = flat->weight_decay * g->weight_decay,
        .scale = scale_of(m, g),
        .row = part.row % m->all_rows,
        .span = part.span,
        .apart = part.apart,
        .col = part.col,
    };
    m->attr = attr;
    return LOONG_OK;
}

static loong_status_t add_matrix(matrix_t *m)
{
    const loong_flat_t *flat = &m->o->shards->flats[m->bucket->flat];
    int steps = m->o->params.group[flat->optimizer].ns_steps;
    LOONG_TRY(describe(m));
    LOONG_TRY(add_momentum(m));
    LOONG_TRY(add_gather(m));
    LOONG_TRY(add_normalize(m));
    for (int i = 0; i < steps; i++) {
        LOONG_TRY(add_iteration(m));
        loong_operand_t next = m->u;
        m->u = m->x;
        m->x = next;
    }
    return add_change(m);
}

loong_status_t loongi_muon_add(loong_optimizer_t *o,
                               const loong_bucket_t *bucket)
{
    for (int64_t i = 0; i < o->chunk->num_params; i++) {
        const loong_chunk_param_t *p = &o->chunk->params[i];
        matrix_t m = {.o = o, .bucket = bucket};
        measure(p, &m);
        for (int64_t k = 0; k < count_of(p) && p->flat == bucket->flat; k++) {
            m.element = p->flat_offset + k * m.rows * m.cols;
            if (m.rows * m.cols > 0 && m.element >= bucket->update_begin &&
                m.element < bucket->update_end) {
                (void)place(&m);
                LOONG_TRY(add_matrix(&m));
            }
        }
    }
    return LOONG_OK;
}
