/* SPDX-License-Identifier: Apache-2.0 */
#include "op_device.h"
#include "op_launch.h"

#include "loong/register.h"

/* With a count symbol for the first dimension where that is `rows`. */
static loong_kernel_query_t counted_query(const op_case_t *c, int64_t rows)
{
    loong_kernel_query_t q = op_query(c, false);
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        if (q.arg[i].rank > 0 && q.arg[i].dim[0] == rows) {
            q.arg[i].count = 0;
        }
    }
    return q;
}

typedef struct counted {
    int64_t rows, live;
} counted_t;

/* Overwrites the rows behind the first `live` bytes, not what is between. */
static void refill(const loong_karg_t *k, const buffer_t *b, size_t live,
                   int byte)
{
    size_t size = loong_dtype_size(k->dtype);
    size_t row = (size_t)k->dim[k->rank - 1] * size;
    size_t step = (size_t)k->ld * size;
    if (k->rank == 1) {
        memset(b->data + live, byte, b->size - live);
        return;
    }
    for (size_t at = 0; at + row <= b->size; at += step) {
        if (at >= live) {
            memset(b->data + at, byte, row);
        }
    }
}

static void check_counted(const op_case_t *c, loong_context_t *ctx,
                          const loong_kernel_t *kernel, counted_t n)
{
    op_case_t some = *c;
    launch_t all;
    launch_t few;
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        if (c->arg[i].dim[0] == n.rows) {
            some.arg[i].dim[0] = n.live;
        }
    }
    launch_begin(&some, ctx, kernel, false, &few);
    assert_ok(ctx, launch_run(&some, &few));
    /* The state is made for the query with its symbol. */
    loong_kernel_query_t query = counted_query(c, n.rows);
    launch_begin_query(c, ctx, kernel, &query, &all);
    all.frame.count[0] = n.live;
    for (int i = 0; i < c->num_in + c->num_out; i++) {
        if (query.arg[i].count == 0) {
            int byte = i < c->num_in ? 0xFF : OP_PATTERN; /* NaN, id -1 */
            refill(&query.arg[i], &all.buffer[i], few.buffer[i].size, byte);
        }
    }
    assert_ok(ctx, launch_run(c, &all));
    launch_check_untouched(c, &all);
    for (int i = c->num_in; i < c->num_in + c->num_out; i++) {
        const char *got = all.buffer[i].data;
        size_t live = few.buffer[i].size;
        if (live > 0 && memcmp(got, few.buffer[i].data, live) != 0) {
            fail_msg("%s: output %d of %lld rows of at most %lld differs from "
                     "that of %lld rows",
                     kernel->name, i - c->num_in, (long long)n.live,
                     (long long)n.rows, (long long)n.live);
        }
        for (size_t b = live; b < all.buffer[i].size; b++) {
            if ((unsigned char)got[b] != OP_PATTERN) {
                fail_msg("%s wrote behind the last of %lld rows of output %d",
                         kernel->name, (long long)n.live, i - c->num_in);
            }
        }
    }
    launch_end(&all);
    launch_end(&few);
}

int op_case_counts(const op_case_t *c, int64_t rows, int64_t live)
{
    loong_context_t *ctx = op_context();
    loong_kernel_query_t q = counted_query(c, rows);
    const loong_kernel_t *k = NULL;
    int count = 0;
    for (int i = 0; (k = loong_find_kernel(ctx, c->op, OP_DEVICE, i)) != NULL;
         i++) {
        if (op_supports(k, &q)) {
            check_counted(c, ctx, k, (counted_t){rows, live});
            count++;
        }
    }
    op_context_end(&ctx);
    return count;
}
