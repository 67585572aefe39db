/* SPDX-License-Identifier: Apache-2.0
 *
 * From the choice of experts to their sum. Row r of the experts belongs to
 * slot source[r] = t k + j, the j-th expert of token t; dest[t,j] = r.
 *
 *   permute         y_r = w_tj x_t
 *   unpermute       y_t = sum over j of w_tj x_r
 *     each is the other's adjoint;  dw_tj = sum over channels of dy_t x_r
 *   grouped_linear  y_r = x_r W_e'  for the rows of expert e
 *     dx_r = dy_r W_e,  dW_e = sum over the rows of e of dy_r' x_r
 *   sigmoid_gate    y = s x, s = 1 / (1 + e^-g)
 *     dx = s dy,  dg = s (1 - s) sum over channels of dy x
 *   loss_scale      y = the frame's scale of a loss
 *
 * Without weights w = 1. Slots without a row (-1) count 0; rows without a slot
 * and tokens that are none (LOONG_NO_TOKEN) are neither read nor written.
 *
 * Listed as references in kernels/list.h; read loong/moe.h and ref_dense.h
 * before. */
#include "list.h"
#include "moe.h"
#include "ref.h"
#include "ref_dense.h"

/* ---- expert_order -------------------------------------------------------- */

static loong_status_t check_choice(const loong_kernel_call_t *call,
                                   const int32_t *chosen, int64_t token,
                                   int64_t k)
{
    const loong_expert_order_attr_t *a = call->query->attr;
    for (int64_t j = 0; j < k; j++) {
        LOONG_CHECK(call->ctx,
                    chosen[j] >= LOONG_NO_TOKEN && chosen[j] < a->experts,
                    LOONG_ERR_ARG,
                    "%s: expert %d of token %lld, allowed -1 to %d",
                    call->query->op, chosen[j], (long long)token,
                    a->experts - 1);
        for (int64_t i = 0; i < j; i++) {
            LOONG_CHECK(call->ctx, chosen[j] < 0 || chosen[i] != chosen[j],
                        LOONG_ERR_ARG,
                        "%s: token %lld has expert %d twice", call->query->op,
                        (long long)token, chosen[j]);
        }
    }
    return LOONG_OK;
}

/* There is a row for each choice of these experts. */
static loong_status_t check_room(const loong_kernel_call_t *call,
                                 int64_t slots, int64_t rows)
{
    const loong_expert_order_attr_t *a = call->query->attr;
    const int32_t *chosen = call->ptr[0];
    int64_t wanted = 0;
    for (int64_t s = 0; s < slots; s++) {
        wanted += chosen[s] >= a->begin && chosen[s] - a->begin < a->count;
    }
    LOONG_CHECK(call->ctx, wanted <= rows, LOONG_ERR_ARG,
                "%s: %lld rows of experts %d to %d, room for %lld",
                call->query->op, (long long)wanted, a->begin,
                a->begin + a->count - 1, (long long)rows);
    return LOONG_OK;
}

/* A counting sort, which keeps the order of the tokens. offset[e + 1] is first
 * the number of rows of e, then where its next row goes. */
static loong_status_t order(const loong_kernel_call_t *call)
{
    const loong_expert_order_attr_t *a = call->query->attr;
    ref_mat_t index = ref_arg(call, 0);
    const int32_t *chosen = index.p;
    int32_t *offset = call->ptr[1];
    int32_t *source = call->ptr[2];
    int32_t *dest = call->ptr[3];
    int64_t k = index.cols;
    memset(offset, 0, sizeof(*offset) * (size_t)(a->count + 1));
    for (int64_t t = 0; t < index.rows; t++) {
        LOONG_TRY(check_choice(call, chosen + t * k, t, k));
        for (int64_t s = t * k; s < (t + 1) * k; s++) {
            int32_t e = chosen[s] - a->begin;
            if (e >= 0 && e + 1 < a->count) {
                offset[e + 2]++;
            }
        }
    }
    for (int e = 2; e <= a->count; e++) {
        offset[e] += offset[e - 1];
    }
    int64_t rows = call->query->arg[2].dim[0];
    LOONG_TRY(check_room(call, index.rows * k, rows));
    for (int64_t s = 0; s < index.rows * k; s++) {
        int32_t e = chosen[s] - a->begin;
        bool here = e >= 0 && e < a->count;
        dest[s] = here ? offset[e + 1]++ : LOONG_MIN(chosen[s], -1);
        if (here) {
            source[dest[s]] = (int32_t)s;
        }
    }
    for (int64_t r = offset[a->count]; r < rows; r++) {
        source[r] = -1;
    }
    return LOONG_OK;
}

/* ---- permute and unpermute ----------------------------------------------- */

/* Weight of a slot; input 3, or 1. */
static double weight(const loong_kernel_call_t *call, int64_t slot)
{
    if (call->query->num_in < 4 || call->ptr[3] == NULL) {
        return 1.0;
    }
    return ref_get(call->ptr[3], call->query->arg[3].dtype, slot);
}

static loong_status_t permute(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    const int32_t *source = ref_i32(call, 1);
    int64_t k = call->query->arg[2].dim[1];
    LOONG_TRY(loongi_moe_check_rows(call));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t r = 0; r < y.rows; r++) {
        int64_t s = source[r];
        for (int64_t c = 0; c < (s >= 0 ? y.cols : 0); c++) {
            ref_put(&y, r, c, weight(call, s) * ref_at(&x, s / k, c));
        }
    }
    return LOONG_OK;
}

static loong_status_t unpermute(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    const int32_t *dest = ref_i32(call, 2);
    int64_t k = call->query->arg[2].dim[1];
    LOONG_TRY(loongi_moe_check_rows(call));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < y.rows; t++) {
        int64_t cols = dest[t * k] != LOONG_NO_TOKEN ? y.cols : 0;
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0.0;
            for (int64_t s = t * k; s < (t + 1) * k; s++) {
                sum += dest[s] >= 0
                           ? weight(call, s) * ref_at(&x, dest[s], c)
                           : 0.0;
            }
            ref_add(call, 0, &y, t, c, sum);
        }
    }
    return LOONG_OK;
}

static loong_status_t unpermute_dw(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t dw = ref_out(call, 0);
    const int32_t *dest = ref_i32(call, 2);
    LOONG_TRY(loongi_moe_check(call, 2, LOONG_NO_TOKEN, x.rows - 1));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < dw.rows; t++) {
        bool there = dest[t * dw.cols] != LOONG_NO_TOKEN;
        for (int64_t j = 0; j < (there ? dw.cols : 0); j++) {
            int64_t r = dest[t * dw.cols + j];
            double sum = 0.0;
            for (int64_t c = 0; c < (r < 0 ? 0 : dy.cols); c++) {
                sum += ref_at(&dy, t, c) * ref_at(&x, r, c);
            }
            ref_add(call, 0, &dw, t, j, sum);
        }
    }
    return LOONG_OK;
}

/* ---- grouped_linear ------------------------------------------------------ */

static loong_status_t grouped(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_grouped_linear_attr_t *attr = q->attr;
    const int32_t *offset = ref_i32(call, 2);
    int64_t rows = q->arg[0].dim[0];
    int64_t k = loong_karg_cols(&q->arg[0]);
    int64_t n = loong_karg_cols(&q->arg[3]);
    char *cursor = call->workspace;
    LOONG_TRY(loongi_moe_check_offsets(call, 2, rows));
    double *x = loongi_ref_load(call, 0, &cursor);
    double *w = loongi_ref_load(call, 1, &cursor);
    double *y = loongi_ref_output(call, 0, &cursor);
    int64_t experts = q->arg[1].dim[0];
    for (int64_t e = 0; e < experts; e++) {
        loong_ref_matmul_t product = {
            offset[e + 1] - offset[e], n, k,
            x + offset[e] * k, k, 1,
            w + e * n * k, 1, k,
            y + offset[e] * n, q->threads};
        if (attr->transposed) {
            product.bp = n;
            product.bs = 1;
        }
        loongi_ref_matmul(&product);
    }
    ref_mat_t to = ref_out(call, 0);
    for (int64_t i = 0; i < offset[experts] * n; i++) {
        ref_put(&to, i / n, i % n, y[i]);
    }
    return LOONG_OK;
}

static loong_status_t grouped_dw(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const int32_t *offset = ref_i32(call, 2);
    int64_t n = loong_karg_cols(&q->arg[0]);
    int64_t k = loong_karg_cols(&q->arg[1]);
    char *cursor = call->workspace;
    LOONG_TRY(loongi_moe_check_offsets(call, 2, q->arg[0].dim[0]));
    double *dy = loongi_ref_load(call, 0, &cursor);
    double *x = loongi_ref_load(call, 1, &cursor);
    double *dw = loongi_ref_output(call, 0, &cursor);
    for (int64_t e = 0; e < q->arg[3].dim[0]; e++) {
        loong_ref_matmul_t product = {
            n, k, offset[e + 1] - offset[e],
            dy + offset[e] * n, 1, n,
            x + offset[e] * k, k, 1,
            dw + e * n * k, q->threads};
        loongi_ref_matmul(&product);
    }
    loongi_ref_store(call, 0, dw);
    return LOONG_OK;
}

/* ---- sigmoid_gate -------------------------------------------------------- */

static double sigmoid(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static loong_status_t gate(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t g = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        double s = sigmoid(ref_at(&g, t, 0));
        for (int64_t c = 0; c < x.cols; c++) {
            ref_put(&y, t, c, s * ref_at(&x, t, c));
        }
    }
    return LOONG_OK;
}

static loong_status_t gate_grad(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t g = ref_arg(call, 2);
    ref_mat_t dx = ref_out(call, 0);
    ref_mat_t dg = ref_out(call, 1);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        double s = sigmoid(ref_at(&g, t, 0));
        double sum = 0.0;
        for (int64_t c = 0; c < x.cols; c++) {
            sum += ref_at(&dy, t, c) * ref_at(&x, t, c);
            ref_put(&dx, t, c, s * ref_at(&dy, t, c));
        }
        ref_put(&dg, t, 0, s * (1.0 - s) * sum);
    }
    return LOONG_OK;
}

/* ---- loss_scale ---------------------------------------------------------- */

static loong_status_t scale(const loong_kernel_call_t *call)
{
    const loong_loss_attr_t *a = call->query->attr;
    ref_mat_t y = ref_out(call, 0);
    for (int64_t i = 0; i < y.cols; i++) {
        ref_put(&y, 0, i, call->frame->loss_scale[a->loss]);
    }
    return LOONG_OK;
}

REF_KERNEL(expert_order, NULL, order);
REF_KERNEL(permute, NULL, permute);
REF_KERNEL(unpermute, NULL, unpermute);
REF_KERNEL(unpermute_dw, NULL, unpermute_dw);
REF_KERNEL(grouped_linear, loongi_ref_workspace, grouped);
REF_KERNEL(grouped_linear_dw, loongi_ref_workspace, grouped_dw);
REF_KERNEL(sigmoid_gate, NULL, gate);
REF_KERNEL(sigmoid_gate_grad, NULL, gate_grad);
REF_KERNEL(loss_scale, NULL, scale);
