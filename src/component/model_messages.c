/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a rank's lists: those of each component's pipeline, and of
 * edges between components. Called by model.c and the step. Read
 * model_messages.h before. */
#include "model_messages.h"

#include "edges.h"

/* Stages of the components before one: pipelines of several components may be
 * the same ranks, whose messages tags tell apart. */
static int stages_before(const loong_model_t *m, int component)
{
    int stages = 0;
    for (int i = 0; i < component; i++) {
        const loong_component_t *c = m->components[loongi_model_number(m, i)];
        stages += c->params.mesh.size[LOONG_AXIS_PP] * c->num_chunks;
    }
    return stages;
}

/* The messages of a stage to the stages before and behind it, in a list of a
 * component. */
static loong_status_t create_transfer(loong_model_t *m, int component,
                                      int index, int variant, int kept)
{
    const loong_component_t *c =
        m->components[loongi_model_number(m, component)];
    loong_stage_t *s = c->stages[index];
    int at = m->memory_plan->first_chunk[component] + index;
    const loong_model_chunk_t *chunk = m->chunks[variant][at];
    if (chunk == NULL || m->use[variant] < 0) {
        return LOONG_OK;
    }
    const loong_rank_schedule_t *list =
        loongi_model_entries(m, (loong_variant_t)variant);
    loong_transfer_params_t p = {
        chunk, c->run.group[LOONG_GROUP_PP], c->comms.links,
        loongi_component_stage(c, index), stages_before(m, component),
        list->chunks[at].slots};
    return loongi_transfer_create(&p, &s->transfer[kept]);
}

loong_status_t loongi_model_create_transfers(loong_model_t *model)
{
    loong_model_t *m = model;
    int count = m->training != NULL ? m->training->params.num_components
                                    : m->num_components;
    for (int i = 0; i < count; i++) {
        bool ahead = i >= m->num_components;
        const loong_component_t *c = m->components[loongi_model_number(m, i)];
        for (int s = 0; s < c->num_stages; s++) {
            for (int k = 0; k < (ahead ? 1 : LOONG_VARIANT_COUNT); k++) {
                LOONG_TRY(create_transfer(m, i, s, k,
                                          ahead ? LOONG_VARIANT_COUNT : k));
            }
        }
    }
    return LOONG_OK;
}

static loong_transfer_t *transfer_of(const loong_model_t *m,
                                     loong_variant_t variant,
                                     const loong_entry_t *entry)
{
    bool ahead = entry->component >= m->num_components;
    return loongi_model_stage(m, entry)
        ->transfer[ahead ? LOONG_VARIANT_COUNT : (int)variant];
}

loong_status_t loongi_model_create_edges(loong_model_t *model)
{
    loong_model_t *m = model;
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        loongi_edges_destroy(&m->under_way[k]);
        if (m->use[k] >= 0) {
            LOONG_TRY(
                loongi_edges_create(m, (loong_variant_t)k, &m->under_way[k]));
        }
    }
    return LOONG_OK;
}

void loongi_model_cancel_messages(loong_model_t *model)
{
    loong_model_t *m = model;
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        m->busy = !loongi_edges_cancel(m->under_way[k]) || m->busy;
    }
    for (int i = 0; i < m->num_stages; i++) {
        for (int k = 0; k < LOONG_VARIANT_COUNT + 1; k++) {
            bool done = loongi_transfer_cancel(m->stages[i]->transfer[k]);
            m->busy = m->busy || !done;
        }
    }
}

loong_status_t loongi_model_begin(const loong_model_t *model,
                                  loong_variant_t variant,
                                  const loong_entry_t *entry)
{
    if (entry->message >= 0) {
        return loongi_edges_begin(model->under_way[variant], entry);
    }
    loong_frame_t frame;
    LOONG_TRY(loongi_model_frame(model, entry, &frame));
    if (frame.hollow) { /* all stages of the pipeline know it */
        return LOONG_OK;
    }
    loong_binding_t run = loongi_model_bind(model, variant, entry);
    return loongi_transfer_begin(transfer_of(model, variant, entry), &run,
                                 entry);
}

loong_status_t loongi_model_need(const loong_model_t *model,
                                 loong_variant_t variant,
                                 const loong_entry_t *entry)
{
    loong_transfer_t *transfer = transfer_of(model, variant, entry);
    if (transfer != NULL) {
        LOONG_TRY(loongi_transfer_need(transfer, entry));
    }
    return loongi_edges_need(model->under_way[variant], entry);
}

loong_status_t loongi_model_finish(const loong_model_t *model,
                                   loong_variant_t variant)
{
    for (int i = 0; i < model->num_stages; i++) {
        loong_transfer_t *const *all = model->stages[i]->transfer;
        loong_transfer_t *const own[] = {
            all[variant], variant == LOONG_VARIANT_TRAIN
                              ? all[LOONG_VARIANT_COUNT]
                              : NULL};
        for (int k = 0; k < 2; k++) {
            LOONG_TRY(own[k] != NULL ? loongi_transfer_finish(own[k])
                                     : LOONG_OK);
        }
    }
    return loongi_edges_finish(model->under_way[variant]);
}
