/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_linear in tiles (formulas: moe_ref.c), for experts with few rows: an
 * expert's weights are read from memory once, as they lie there, while tiles of
 * them that came before are multiplied.
 *
 *   y' = W x'    weights are the rows of the product, so that nothing but x
 *                must be transposed before, and y after it
 *   dx = dy W    weights are its columns, packed tile by tile
 *
 * Work is split over experts, groups of their rows, and blocks of columns of
 * the output; no result depends on who does which. Listed in kernels/list.h;
 * read fast.h and moe.h before. */
#include <omp.h>

#include "fast.h"
#include "moe.h"
#include "pieces.h"
#include "tile_pack.h"

enum {
    GROUP = 256, /* rows of an expert that are multiplied together */
    BLOCK = 96,  /* columns of y of one unit of work: a multiple of TILE_MR */
    DEPTH = 512 * TILE_PAIR,   /* of a product of W x' */
    SHALLOW = 128 * TILE_PAIR, /* of a product of dy W */
};

/* One launch. */
typedef struct job {
    const loong_kernel_call_t *call;
    const int32_t *offset;
    fast_mat_t x;
    fast_mat_t y;
    const elem_t *w; /* [experts, n, k], rows ldw apart */
    int64_t experts;
    int64_t n;
    int64_t k;
    int64_t ldw;
    int64_t padded; /* k in whole units */
    bool transposed;
} job_t;

/* Columns of y for some rows of one expert. */
typedef struct unit {
    int64_t expert;
    int64_t row;
    int64_t rows;
    int64_t col;
    int64_t cols;
} unit_t;

/* What one thread works with. */
typedef struct scratch {
    elem_t *rows;   /* of x: [TILE_N, padded] */
    elem_t *x;      /* a group of rows in panels of k units */
    elem_t *w;      /* [SHALLOW, TILE_N] as a panel */
    float *c;       /* a product: [GROUP, BLOCK] */
    float *transposed; /* [TILE_N, BLOCK] */
    int64_t packed; /* the first row in x; -1: none */
    int64_t expert; /* where the units begin with number `first` */
    int64_t first;
} scratch_t;

static job_t job_of(const loong_kernel_query_t *q)
{
    const loong_grouped_linear_attr_t *attr = q->attr;
    job_t j;
    memset(&j, 0, sizeof(j));
    j.experts = q->arg[1].dim[0];
    j.n = q->arg[1].dim[1];
    j.k = q->arg[1].dim[2];
    j.ldw = q->arg[1].ld;
    j.padded = round_to(j.k, TILE_PAIR);
    j.transposed = attr->transposed;
    return j;
}

static scratch_t take_scratch(const job_t *j, pieces_t *from)
{
    scratch_t s;
    memset(&s, 0, sizeof(s));
    s.packed = -1;
    s.c = take_floats(from, GROUP * BLOCK);
    if (j->transposed) {
        s.w = take_elems(from, SHALLOW * TILE_N);
    } else {
        s.rows = take_elems(from, TILE_N * j->padded);
        s.x = take_elems(from, GROUP * j->padded);
        s.transposed = take_floats(from, TILE_N * BLOCK);
    }
    return s;
}

static size_t workspace(const loong_kernel_query_t *q)
{
    job_t j = job_of(q);
    pieces_t own = {NULL, 0};
    (void)take_scratch(&j, &own);
    return (size_t)(q->threads * own.used);
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    job_t j = job_of(q);
    loong_dtype_t dtype = TILE_PAIR == 2 ? LOONG_BF16 : LOONG_F32;
    for (int i = 0; i < 4; i++) {
        if (i != 2 && q->arg[i].dtype != dtype) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d is %s, this kernel takes %s", i,
                     loong_dtype_name(q->arg[i].dtype),
                     loong_dtype_name(dtype));
            return false;
        }
    }
    if (j.transposed && TILE_PAIR == 1 &&
        loongi_isa() >= LOONG_ISA_LEVEL_avx512) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "with AVX-512 oneDNN's gradient of x is faster");
        return false;
    }
    if ((j.transposed ? j.n : j.k) % TILE_PAIR != 0) {
        snprintf(reason, LOONG_REASON_SIZE, "sums over an odd number, %lld",
                 (long long)(j.transposed ? j.n : j.k));
        return false;
    }
    if (j.transposed && j.k % VEC_SIZE != 0) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld columns are no multiple of %d", (long long)j.k,
                 VEC_SIZE);
        return false;
    }
    return loongi_isa_support(LOONG_ISA_LEVEL, reason);
}

/* ---- units of work ------------------------------------------------------- */

static int64_t whole(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

static int64_t block_of(const job_t *j)
{
    return j->transposed ? TILE_N : BLOCK;
}

static int64_t units_of(const job_t *j, int64_t expert)
{
    return whole(j->offset[expert + 1] - j->offset[expert], GROUP) *
           whole(j->y.cols, block_of(j));
}

/* Unit number i; a thread asks for rising numbers. */
static unit_t unit_at(const job_t *j, int64_t i, scratch_t *s)
{
    while (i - s->first >= units_of(j, s->expert)) {
        s->first += units_of(j, s->expert);
        s->expert++;
    }
    int64_t block = block_of(j);
    int64_t blocks = whole(j->y.cols, block);
    unit_t u;
    u.expert = s->expert;
    u.row = j->offset[u.expert] + (i - s->first) / blocks * GROUP;
    u.rows = LOONG_MIN(j->offset[u.expert + 1] - u.row, GROUP);
    u.col = (i - s->first) % blocks * block;
    u.cols = LOONG_MIN(j->y.cols - u.col, block);
    return u;
}

/* ---- y' = W x' ----------------------------------------------------------- */

/* Rows of a group that are one panel: panels of a group are about as wide as
 * one another. */
typedef struct panel {
    int64_t row; /* of the group */
    int64_t rows;
    int64_t width; /* rows in whole vectors */
} panel_t;

static int64_t panels_of(int64_t rows)
{
    return whole(rows, TILE_N);
}

static panel_t panel_of(int64_t rows, int64_t p)
{
    int64_t vectors = whole(rows, VEC_SIZE);
    int64_t count = panels_of(rows);
    panel_t panel;
    panel.row = p * vectors / count * VEC_SIZE;
    panel.width = (p + 1) * vectors / count * VEC_SIZE - panel.row;
    panel.rows = LOONG_MIN(rows - panel.row, panel.width);
    return panel;
}

static void pack_rows(const job_t *j, const unit_t *u, scratch_t *s)
{
    int64_t units = j->padded / TILE_PAIR;
    for (int64_t p = 0; p < panels_of(u->rows); p++) {
        panel_t panel = panel_of(u->rows, p);
        tile_source_t from = {fast_at(&j->x, u->row + panel.row, 0), j->x.half,
                              j->x.ld};
        tile_copy(&from, panel.rows, j->k, s->rows, j->padded, panel.width);
        tile_transpose(
            (const word_t *)(const void *)s->rows, units, panel.width, units,
            (word_t *)(void *)(s->x + panel.row * j->padded), panel.width);
    }
    s->packed = u->row;
}

/* Turns the product of a panel and writes it. */
static void store_panel(const job_t *j, const unit_t *u, const panel_t *panel,
                        const float *c, float *transposed)
{
    tile_transpose((const word_t *)(const void *)c, panel->width, u->cols,
                   panel->width, (word_t *)(void *)transposed, u->cols);
    for (int64_t r = 0; r < panel->rows; r++) {
        const float *from = transposed + r * u->cols;
        char *to = fast_at(&j->y, u->row + panel->row + r, u->col);
        if (TILE_PAIR == 2) {
            fast_narrow(from, (uint16_t *)(void *)to, u->cols);
        } else {
            memcpy(to, from, sizeof(*from) * (size_t)u->cols);
        }
    }
}

static void multiply_rows(const job_t *j, const unit_t *u, scratch_t *s)
{
    const elem_t *w = j->w + (u->expert * j->n + u->col) * j->ldw;
    if (s->packed != u->row) {
        pack_rows(j, u, s);
    }
    for (int64_t k = 0; k < j->k; k += DEPTH) {
        int64_t depth = LOONG_MIN(j->k - k, DEPTH);
        /* The next strip of weights. */
        int64_t lines = whole(depth * (int64_t)sizeof(elem_t), TILE_LINE);
        tile_prefetch_t prefetch = {(const char *)(w + TILE_MR * j->ldw + k),
                                    j->ldw * (int64_t)sizeof(elem_t),
                                    u->cols,
                                    lines,
                                    0,
                                    TILE_MR};
        for (int64_t p = 0; p < panels_of(u->rows); p++) {
            panel_t panel = panel_of(u->rows, p);
            tile_product_t t = {u->cols,
                                panel.width,
                                depth,
                                w + k,
                                j->ldw,
                                s->x + panel.row * j->padded + k * panel.width,
                                0,
                                s->c + panel.row * u->cols,
                                panel.width,
                                k > 0,
                                p == 0 ? &prefetch : NULL};
            tile_multiply(&t);
        }
    }
    for (int64_t p = 0; p < panels_of(u->rows); p++) {
        panel_t panel = panel_of(u->rows, p);
        store_panel(j, u, &panel, s->c + panel.row * u->cols, s->transposed);
    }
}

/* ---- dx = dy W ----------------------------------------------------------- */

/* The weights that come after those of depth n .. n + SHALLOW - 1. */
static tile_prefetch_t next_weights(const job_t *j, const unit_t *u,
                                    const elem_t *w, int64_t n)
{
    int64_t next = n + SHALLOW;
    int64_t chunks =
        whole(u->rows, TILE_MR) * (SHALLOW / TILE_PAIR) / TILE_FETCH;
    tile_prefetch_t prefetch;
    prefetch.at = (const char *)(next < j->n ? w + next * j->ldw : w + TILE_N);
    prefetch.ld = j->ldw * (int64_t)sizeof(elem_t);
    prefetch.rows = next < j->n ? LOONG_MIN(j->n - next, SHALLOW) : SHALLOW;
    prefetch.lines = whole(u->cols * (int64_t)sizeof(elem_t), TILE_LINE);
    prefetch.line = 0;
    prefetch.each = whole(prefetch.rows * prefetch.lines, chunks);
    return prefetch;
}

static void multiply_columns(const job_t *j, const unit_t *u, scratch_t *s)
{
    const elem_t *w = j->w + u->expert * j->n * j->ldw + u->col;
    const elem_t *x = (const elem_t *)(const void *)fast_at(&j->x, u->row, 0);
    for (int64_t n = 0; n < j->n; n += SHALLOW) {
        int64_t depth = LOONG_MIN(j->n - n, SHALLOW);
        tile_prefetch_t prefetch = next_weights(j, u, w, n);
        tile_product_t t = {u->rows, u->cols, depth,   x + n, j->x.ld,  s->w,
                            0,       s->c,    u->cols, n > 0, &prefetch};
        tile_pack(w + n * j->ldw, j->ldw, depth, u->cols, s->w);
        tile_multiply(&t);
    }
    for (int64_t r = 0; r < u->rows; r++) {
        const float *from = s->c + r * u->cols;
        char *to = fast_at(&j->y, u->row + r, u->col);
        if (TILE_PAIR == 2) {
            fast_narrow(from, (uint16_t *)(void *)to, u->cols);
        } else {
            memcpy(to, from, sizeof(*from) * (size_t)u->cols);
        }
    }
}

/* ---- a launch ------------------------------------------------------------ */

static void run_team(const job_t *j)
{
    int64_t units = 0;
    pieces_t size = {NULL, 0};
    (void)take_scratch(j, &size);
    for (int64_t e = 0; e < j->experts; e++) {
        units += units_of(j, e);
    }
#pragma omp parallel num_threads(j->call->query->threads)
    {
        pieces_t own = {j->call->workspace, size.used * omp_get_thread_num()};
        scratch_t s = take_scratch(j, &own);
#pragma omp for schedule(monotonic : dynamic, 1)
        for (int64_t i = 0; i < units; i++) {
            unit_t u = unit_at(j, i, &s);
            if (j->transposed) {
                multiply_columns(j, &u, &s);
            } else {
                multiply_rows(j, &u, &s);
            }
        }
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    job_t j = job_of(call->query);
    j.call = call;
    j.offset = call->ptr[2];
    j.x = fast_arg(call, 0);
    j.y = fast_out(call, 0);
    j.w = call->ptr[1];
    LOONG_TRY(loongi_moe_check_offsets(call, 2, call->query->arg[0].dim[0]));
    run_team(&j);
    return LOONG_OK;
}

FAST_KERNEL(grouped_linear, support, workspace, run);
