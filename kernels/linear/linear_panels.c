/* SPDX-License-Identifier: Apache-2.0
 *
 * Panels of linear_quantized, and the processor's kernel of it. Called through
 * kernels/list.h and by linear_quantized_cuda.cu. Read linear_panels.h and
 * src/base/quant.h before. */
#include "linear_panels.h"

#include <stdio.h>
#include <string.h>

#include "base.h"
#include "list.h"
#include "quant.h"

enum { PANEL_ALIGN = 256, COLUMNS = LOONG_QUANT_BLOCK };
enum { BIAS = 2, OFFSETS = 3 }; /* operands of linear_quantized */

/* ---- panels -------------------------------------------------------------- */

/* A whole panel, and the last one where it is smaller. */
enum { WHOLE, LAST, SIZES };

typedef struct state {
    const loong_kernel_t *kernel;
    loong_linear_attr_t linear;
    loong_grouped_linear_attr_t grouped;
    int64_t columns[SIZES];
    loong_kernel_query_t query[SIZES];
    void *state[SIZES];
} state_t;

static bool is_grouped(const loong_kernel_query_t *q)
{
    return q->num_in > OFFSETS;
}

static int64_t columns_of(const loong_linear_panels_t *p,
                          const loong_kernel_query_t *q)
{
    int64_t all = loong_karg_cols(&q->arg[q->num_in]);
    int64_t inner = LOONG_MAX(loong_karg_cols(&q->arg[0]), 1);
    int64_t experts = is_grouped(q) ? q->arg[1].dim[0] : 1;
    int64_t fit = p->elements / (inner * experts) / COLUMNS * COLUMNS;
    return LOONG_MIN(LOONG_MAX(fit, (int64_t)COLUMNS), all);
}

/* The product of a panel; what stands beside w is the bias or the offsets. */
static loong_kernel_query_t query_of(const loong_kernel_query_t *q,
                                     const state_t *s, int64_t columns)
{
    loong_kernel_query_t of = *q;
    loong_karg_t *w = &of.arg[1];
    int64_t inner = loong_karg_cols(&q->arg[0]);
    bool grouped = is_grouped(q);
    of.op = grouped ? "grouped_linear" : "linear";
    of.attr = grouped ? (const void *)&s->grouped : &s->linear;
    of.num_in = LOONG_MIN(q->num_in, 3);
    w->dtype = q->arg[0].dtype;
    w->dim[w->rank - 2] = s->linear.transposed ? inner : columns;
    w->dim[w->rank - 1] = w->ld = s->linear.transposed ? columns : inner;
    if (grouped) {
        of.arg[2] = q->arg[OFFSETS];
    } else if (q->num_in > BIAS && q->arg[BIAS].rank > 0) {
        of.arg[2].dim[0] = of.arg[2].ld = columns;
    }
    of.arg[of.num_in] = q->arg[q->num_in];
    of.arg[of.num_in].dim[1] = columns;
    return of;
}

/* The attributes are the state's, to which its queries point. */
static bool begin(const loong_linear_panels_t *p, const loong_kernel_query_t *q,
                  state_t *s, char reason[LOONG_REASON_SIZE])
{
    const loong_linear_quantized_attr_t *a = q->attr;
    int64_t all = loong_karg_cols(&q->arg[q->num_in]);
    const loong_kernel_t *const *kernels =
        is_grouped(q) ? p->grouped : p->kernels;
    memset(s, 0, sizeof(*s));
    s->linear.transposed = s->grouped.transposed = a->transposed;
    s->grouped.share = a->share;
    s->columns[WHOLE] = columns_of(p, q);
    s->columns[LAST] = all % LOONG_MAX(s->columns[WHOLE], 1);
    for (int i = 0; i < SIZES; i++) {
        s->query[i] = query_of(q, s, s->columns[i]);
    }
    for (int k = 0; kernels[k] != NULL; k++) {
        bool can = true;
        for (int i = 0; i < SIZES && can; i++) {
            can = s->columns[i] == 0 || kernels[k]->support == NULL ||
                  kernels[k]->support(&s->query[i], reason);
        }
        if (can) {
            s->kernel = kernels[k];
            return true;
        }
    }
    return false;
}

bool loongi_panels_support(const loong_linear_panels_t *panels,
                           const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    state_t s;
    return begin(panels, query, &s, reason);
}

static size_t panel_bytes(const state_t *s)
{
    const loong_karg_t *w = &s->query[WHOLE].arg[1];
    return (size_t)loongi_round_up(loong_karg_rows(w) * loong_karg_cols(w) *
                                       (int64_t)loong_dtype_size(w->dtype),
                                   PANEL_ALIGN);
}

size_t loongi_panels_workspace(const loong_linear_panels_t *panels,
                               const loong_kernel_query_t *query)
{
    char reason[LOONG_REASON_SIZE];
    state_t s;
    size_t most = 0;
    if (!begin(panels, query, &s, reason)) {
        return 0;
    }
    for (int i = 0; i < SIZES; i++) {
        if (s.columns[i] > 0 && s.kernel->workspace != NULL) {
            most = LOONG_MAX(most, s.kernel->workspace(&s.query[i]));
        }
    }
    return panel_bytes(&s) + most;
}

loong_status_t loongi_panels_prepare(loong_context_t *ctx,
                                     const loong_linear_panels_t *panels,
                                     const loong_kernel_query_t *query,
                                     void **state_p)
{
    char reason[LOONG_REASON_SIZE] = "";
    state_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "linear_quantized kernel", &s));
    loong_status_t status =
        begin(panels, query, s, reason)
            ? LOONG_OK
            : LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED, "%s", reason);
    for (int i = 0; i < SIZES && status == LOONG_OK; i++) {
        if (s->columns[i] > 0 && s->kernel->prepare != NULL) {
            status = s->kernel->prepare(ctx, &s->query[i], &s->state[i]);
        }
    }
    if (status != LOONG_OK) {
        loongi_panels_destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

void loongi_panels_destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    for (int i = 0; i < SIZES && s != NULL; i++) {
        if (s->state[i] != NULL) {
            s->kernel->destroy(ctx, s->state[i]);
        }
    }
    loongi_free(ctx, s);
}

static char *moved(void *p, const loong_karg_t *arg, int64_t elements)
{
    return p == NULL
               ? NULL
               : (char *)p + elements * (int64_t)loong_dtype_size(arg->dtype);
}

static loong_panel_t panel_of(const loong_kernel_query_t *q, int64_t col,
                              int64_t cols)
{
    const loong_linear_quantized_attr_t *a = q->attr;
    const loong_karg_t *w = &q->arg[1];
    int64_t each = w->dim[w->rank - 2];
    loong_panel_t panel = {
        loong_karg_rows(w) / each, each, col, cols, 0, a->cols};
    if (a->transposed) {
        panel.row = 0;
        panel.rows = each;
        panel.col = col;
        panel.cols = cols;
    }
    return panel;
}

loong_status_t loongi_panels_run(const loong_linear_panels_t *panels,
                                 const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const state_t *s = call->state;
    int64_t all = loong_karg_cols(&q->arg[q->num_in]);
    for (int64_t col = 0; col < all; col += s->columns[WHOLE]) {
        int size = all - col < s->columns[WHOLE] ? LAST : WHOLE;
        loong_panel_t panel = panel_of(q, col, s->columns[size]);
        void *ptr[LOONG_MAX_OPERANDS] = {call->ptr[0], call->workspace};
        loong_kernel_call_t product = *call;
        product.query = &s->query[size];
        product.state = s->state[size];
        product.ptr = ptr;
        product.workspace = (char *)call->workspace + panel_bytes(s);
        if (is_grouped(q)) {
            ptr[2] = call->ptr[OFFSETS];
        } else if (q->num_in > BIAS) {
            ptr[2] = moved(call->ptr[BIAS], &q->arg[BIAS], col);
        }
        ptr[product.query->num_in] =
            moved(call->ptr[q->num_in], &q->arg[q->num_in], col);
        LOONG_TRY(panels->make(call, &panel, call->workspace));
        LOONG_TRY(s->kernel->run(&product));
    }
    return LOONG_OK;
}

/* ---- the processor's ----------------------------------------------------- */

/* That of an expert without rows stays as it is: nothing reads it. */
static loong_status_t make(const loong_kernel_call_t *call,
                           const loong_panel_t *panel, void *to)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_quantized_attr_t *a = q->attr;
    const int32_t *offset = is_grouped(q) ? call->ptr[OFFSETS] : NULL;
    loong_quant_part_t part = {a->quant,   call->ptr[1], q->arg[1].ld,
                               a->cols,    panel->row,   panel->rows,
                               panel->col, panel->cols};
    for (int64_t e = 0; e < panel->experts; e++) {
        if (offset == NULL || offset[e] != offset[e + 1]) {
            loongi_quant_decode(&part, q->arg[0].dtype, to, part.num_cols,
                                q->threads);
        }
        part.row += panel->each;
        to = (char *)to + panel->rows * panel->cols *
                              (int64_t)loong_dtype_size(q->arg[0].dtype);
    }
    return LOONG_OK;
}

static const loong_kernel_t *const kernels[] = {&loongi_linear_onednn,
                                                &loongi_linear_onednn_widened,
                                                &loongi_linear_ref, NULL};
static const loong_kernel_t *const grouped[] = {
#define KERNEL(symbol_) &symbol_,
    LOONG_ISA_EACH(KERNEL, loongi_grouped_linear)
#undef KERNEL
        & loongi_grouped_linear_onednn,
    &loongi_grouped_linear_onednn_widened, &loongi_grouped_linear_ref, NULL};

/* A panel of 1 MiB of bf16, which a core's cache has beside what it is
 * multiplied with; of many experts more. */
static const loong_linear_panels_t panels = {1 << 19, kernels, grouped, make};

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return loongi_panels_support(&panels, query, reason);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return loongi_panels_workspace(&panels, query);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    return loongi_panels_prepare(ctx, &panels, query, state_p);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    return loongi_panels_run(&panels, call);
}

const loong_kernel_t loongi_linear_quantized_panels = {
    .name = "linear_quantized_panels",
    .op = "linear_quantized",
    .device = "cpu",
    .support = support,
    .workspace = workspace,
    .prepare = prepare,
    .destroy = loongi_panels_destroy,
    .run = run,
};
