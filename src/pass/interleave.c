/* SPDX-License-Identifier: Apache-2.0 */
#include "passes.h"

/* Flops that take as long as moving one byte, roughly, on all devices. */
static const double flops_per_byte = 64.0;

static double weight(const loong_step_t *step)
{
    return 1.0 + step->cost.bytes + step->cost.flops / flops_per_byte;
}

static double total(const loong_program_t *p)
{
    double sum = 0.0;
    for (int64_t i = 0; i < p->num_steps; i++) {
        sum += weight(&p->steps[i]);
    }
    return sum;
}

void loongi_pass_interleave(const loong_program_t *a, const loong_program_t *b,
                            uint8_t *order)
{
    const loong_program_t *p[2] = {a, b};
    double all[2] = {total(a), total(b)};
    double done[2] = {0.0, 0.0};
    int64_t next[2] = {0, 0};
    for (int64_t i = 0; i < a->num_steps + b->num_steps; i++) {
        int who = next[0] == a->num_steps ||
                  (next[1] < b->num_steps &&
                   done[1] * all[0] < done[0] * all[1]);
        done[who] += weight(&p[who]->steps[next[who]++]);
        order[i] = (uint8_t)who;
    }
}
