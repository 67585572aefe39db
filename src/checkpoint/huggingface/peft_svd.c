/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a lower rank: the best approximation of what each adds, by its
 * singular values, as peft's "svd". Called by merge.c. Read peft.h before.
 *
 * With rank k the product is the sum over k of x_k y_k', x the columns of b and
 * y the rows of a. A rotation of two x and of their y alike leaves it as it is.
 * Rotated until the x are orthogonal, of length 1 (their lengths go to the y),
 * and again until the y are, it is the singular value decomposition (one-sided
 * Jacobi: Hestenes 1958). */
#include <math.h>
#include <string.h>

#include "peft.h"

enum { SWEEPS = 60 };

/* `count` vectors of `length` elements each, one behind the other. */
typedef struct vectors {
    int64_t count, length;
    double *at;
} vectors_t;

static double *vector(const vectors_t *v, int64_t k)
{
    return v->at + k * v->length;
}

static double dot(const vectors_t *v, int64_t p, int64_t q)
{
    const double *a = vector(v, p);
    const double *b = vector(v, q);
    double sum = 0.0;
    for (int64_t i = 0; i < v->length; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void rotate(const vectors_t *v, int64_t p, int64_t q, double c, double s)
{
    double *a = vector(v, p);
    double *b = vector(v, q);
    for (int64_t i = 0; i < v->length; i++) {
        double before = a[i];
        a[i] = c * before - s * b[i];
        b[i] = s * before + c * b[i];
    }
}

/* Makes two of x orthogonal; false: they were. */
static bool turn(const vectors_t *x, const vectors_t *y, int64_t p, int64_t q)
{
    double pp = dot(x, p, p);
    double qq = dot(x, q, q);
    double pq = dot(x, p, q);
    if (fabs(pq) <= 1e-14 * sqrt(pp * qq)) {
        return false;
    }
    double zeta = (qq - pp) / (2.0 * pq);
    double t = copysign(1.0, zeta) / (fabs(zeta) + sqrt(1.0 + zeta * zeta));
    double c = 1.0 / sqrt(1.0 + t * t);
    rotate(x, p, q, c, c * t);
    rotate(y, p, q, c, c * t);
    return true;
}

/* Rotates x, and y with it, until all x are orthogonal, and makes the x as long
 * as 1 (those of 0 stay) and the y longer by as much. */
static void decompose(const vectors_t *x, const vectors_t *y)
{
    bool turned = true;
    for (int sweep = 0; sweep < SWEEPS && turned; sweep++) {
        turned = false;
        for (int64_t p = 0; p < x->count; p++) {
            for (int64_t q = p + 1; q < x->count; q++) {
                turned = turn(x, y, p, q) || turned;
            }
        }
    }
    for (int64_t k = 0; k < x->count; k++) {
        double length = sqrt(dot(x, k, k));
        for (int64_t i = 0; i < x->length && length > 0.0; i++) {
            vector(x, k)[i] /= length;
        }
        for (int64_t i = 0; i < y->length; i++) {
            vector(y, k)[i] *= length;
        }
    }
}

/* The k-th largest of x, by their lengths; `taken` ones are marked. */
static int64_t next(const vectors_t *x, bool *taken)
{
    int64_t best = -1;
    for (int64_t k = 0; k < x->count; k++) {
        if (!taken[k] && (best < 0 || dot(x, k, k) > dot(x, best, best))) {
            best = k;
        }
    }
    taken[best] = true;
    return best;
}

/* Elements of an adapter's matrices, of expert e: of rank k the row of a and
 * the column of b. */
typedef struct expert {
    double *a, *b;
    int64_t rank, e, experts;
} expert_t;

static double *element_a(const expert_t *x, int64_t k, int64_t in, int64_t i)
{
    return x->a + (x->e * x->rank + k) * in + i;
}

static double *element_b(const expert_t *x, int64_t k, int64_t o)
{
    return x->b + (o * x->rank + k) * x->experts + x->e;
}

static loong_status_t truncate_expert(loong_context_t *ctx,
                                      const expert_t *from, const expert_t *to,
                                      int64_t in, int64_t out)
{
    double *room = NULL;
    LOONG_TRY(loongi_calloc(ctx, (size_t)(from->rank * (in + out + 1)),
                            sizeof(*room), "singular vectors", &room));
    vectors_t x = {from->rank, out, room};
    vectors_t y = {from->rank, in, room + from->rank * out};
    bool *taken = (bool *)(room + from->rank * (in + out));
    for (int64_t k = 0; k < from->rank; k++) {
        for (int64_t o = 0; o < out; o++) {
            vector(&x, k)[o] = *element_b(from, k, o);
        }
        memcpy(vector(&y, k), element_a(from, k, in, 0),
               (size_t)in * sizeof(*room));
    }
    decompose(&x, &y);
    decompose(&y, &x);
    for (int64_t k = 0; k < to->rank; k++) {
        int64_t best = next(&x, taken);
        for (int64_t o = 0; o < out; o++) {
            *element_b(to, k, o) = vector(&x, best)[o];
        }
        memcpy(element_a(to, k, in, 0), vector(&y, best),
               (size_t)in * sizeof(*room));
    }
    loongi_free(ctx, room);
    return LOONG_OK;
}

loong_status_t loongi_peft_truncate(loong_peft_t *sum, int64_t rank)
{
    for (int64_t i = 0; i < sum->num_modules; i++) {
        loong_peft_module_t *m = &sum->modules[i];
        int64_t experts = LOONG_MAX(m->experts, 1);
        int64_t before = loongi_peft_rank(m);
        int64_t in = m->a.shape[1];
        int64_t out = m->b.shape[0];
        int64_t rows = rank * experts;
        expert_t from = {(double *)m->a.data, (double *)m->b.data, before, 0,
                         experts};
        expert_t to = {NULL, NULL, rank, 0, experts};
        if (before <= rank) {
            continue;
        }
        LOONG_TRY(loongi_arena_alloc(
            sum->arena, (size_t)(rows * in) * sizeof(*to.a), &to.a));
        LOONG_TRY(loongi_arena_alloc(
            sum->arena, (size_t)(rows * out) * sizeof(*to.b), &to.b));
        for (; to.e < experts; to.e++, from.e++) {
            LOONG_TRY(truncate_expert(sum->ctx, &from, &to, in, out));
        }
        m->a.shape[0] = m->b.shape[1] = rows;
        m->a.data = to.a;
        m->b.data = to.b;
    }
    return LOONG_OK;
}
