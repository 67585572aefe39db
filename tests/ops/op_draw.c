/* SPDX-License-Identifier: Apache-2.0 */
#include "op_draw.h"

#include <inttypes.h>

#include "rng.h"

static uint64_t number_of(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : usual;
}

op_draw_t op_draw_begin(int everyday)
{
    op_draw_t d = {number_of("OP_SEED", 1) - 1, 0,
                   (int)number_of("OP_CASES", (uint64_t)everyday)};
    return d;
}

bool op_draw_next(op_draw_t *d)
{
    if (d->left == 0) {
        return false;
    }
    d->left--;
    d->seed++;
    d->drawn = 0;
    print_message("OP_SEED=%" PRIu64 " OP_CASES=1\n", d->seed);
    return true;
}

int op_draw_below(op_draw_t *d, int n)
{
    return (int)(loongi_rng_uniform(d->seed, 77, d->drawn++) * n);
}

int64_t op_draw_size(op_draw_t *d, int64_t most)
{
    int kind = op_draw_below(d, 8);
    int64_t edge = (INT64_C(1) << (1 + op_draw_below(d, 10))) +
                   op_draw_below(d, 3) - 1;
    int64_t any = 1 + op_draw_below(d, (int)most);
    return kind == 0 ? 1 : kind < 5 && edge <= most ? edge : any;
}

loong_dtype_t op_draw_dtype(op_draw_t *d)
{
    return op_draw_below(d, 2) == 0 ? LOONG_F32 : LOONG_BF16;
}

int64_t op_draw_gap(op_draw_t *d)
{
    static const int64_t gaps[] = {0, 0, 8, 3};
    return gaps[op_draw_below(d, LOONG_COUNT_OF(gaps))];
}
