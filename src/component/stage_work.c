/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the work of stages. Called by model.c. Read stage_work.h before. */
#include "stage_work.h"

static bool learns(const loong_component_t *c)
{
    int64_t i = 0;
    while (i < c->num_whole && c->whole[i].frozen) {
        i++;
    }
    return i < c->num_whole;
}

/* Of a row in a stage, forward and backward. */
static double flops_of(const loong_component_t *c,
                       const loong_stage_split_t *cut, bool whole)
{
    const loong_model_facts_t *f = &c->facts;
    double attention = c->params.family->attention_flops != NULL
                           ? c->params.family->attention_flops(
                                 c->params.config, c->params.request.seq_length)
                           : 0.0;
    double head = 6.0 * (double)f->vocab_size * (double)f->hidden_size;
    if (whole || f->num_layers == 0) {
        return f->flops_per_row + attention;
    }
    double layers = f->flops_per_row - head + attention;
    return layers * cut->num_layers / f->num_layers + (cut->ends ? head : 0.0);
}

void loongi_stage_work(const loong_component_t *component,
                       loong_stage_work_t *work)
{
    const loong_component_t *c = component;
    const loong_component_params_t *p = &c->params;
    int stages = p->mesh.size[LOONG_AXIS_PP] * c->num_chunks;
    bool again = p->compile.num_recompute > 0;
    for (int i = 0; i < stages; i++) {
        double flops = flops_of(c, &c->cuts[i], stages == 1);
        int64_t third = (int64_t)(flops / 3.0 * (double)p->request.rows /
                                  p->mesh.size[LOONG_AXIS_TP]);
        work[i].forward = LOONG_MAX(third, 1);
        work[i].backward = work[i].forward * (again ? 2 : 1);
        work[i].weights = learns(c) ? work[i].forward : 0;
    }
}
