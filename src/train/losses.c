/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisers and values of losses. Called by the training step and by
 * evaluations. Read loong_graph_loss in include/loong/graph.h before. */
#include "losses.h"

#include <math.h>
#include <string.h>

#include "exact_sum.h"
#include "loong/op.h"

_Static_assert((int)LOONG_STEP_SUMS == (int)LOONG_MAX_LOSSES,
               "a normaliser for each loss");

static int find_normaliser(loong_losses_t *l, const char *name)
{
    int i = 0;
    while (i < l->num_normalisers && strcmp(l->normaliser[i], name) != 0) {
        i++;
    }
    if (i == l->num_normalisers) {
        l->normaliser[l->num_normalisers++] = name;
    }
    return i;
}

/* Of the processor's sums; -1: it has none of that name. */
static int find_sum(const loong_processor_t *processor, const char *name)
{
    int i = 0;
    while (processor->normalisers[i] != NULL &&
           strcmp(processor->normalisers[i], name) != 0) {
        i++;
    }
    return processor->normalisers[i] != NULL ? i : -1;
}

static loong_status_t refuse_normaliser(const loong_component_t *c, int loss,
                                        const loong_processor_t *processor)
{
    loong_text_t names = loongi_text_begin(c->ctx);
    for (int i = 0; processor->normalisers[i] != NULL; i++) {
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "",
                           processor->normalisers[i]);
    }
    loong_status_t status = LOONG_FAIL(
        c->ctx, LOONG_ERR_CONFIG,
        "loss '%s' is divided by '%s', which %s data does not sum: it sums %s",
        c->losses[loss].name, c->losses[loss].normaliser, processor->name,
        loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

loong_status_t loongi_losses_open(loong_losses_t *losses,
                                  const loong_component_t *component,
                                  const loong_processor_t *processor)
{
    const loong_component_t *c = component;
    losses->component = c;
    losses->scale = 1.0;
    LOONG_CHECK(c->ctx, c->num_losses > 0, LOONG_ERR_CONFIG,
                "the model declares no loss: nothing is trained");
    for (int i = 0; i < c->num_losses; i++) {
        int kind = find_sum(processor, c->losses[i].normaliser);
        if (kind < 0) {
            return refuse_normaliser(c, i, processor);
        }
        int n = find_normaliser(losses, c->losses[i].normaliser);
        losses->normaliser_of[i] = n;
        losses->kind[n] = kind;
    }
    return LOONG_OK;
}

/* Of ranks that hold the same rows the first counts them. */
static bool counts(const loong_mesh_t *mesh, uint32_t same)
{
    return ((same & LOONG_SAME_TP) == 0 || mesh->coord[LOONG_AXIS_TP] == 0) &&
           ((same & LOONG_SAME_CP) == 0 || mesh->coord[LOONG_AXIS_CP] == 0);
}

void loongi_losses_count(const loong_losses_t *losses,
                         const loong_loader_sums_t *own,
                         int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS])
{
    const loong_mesh_t *mesh = &losses->component->params.mesh;
    bool first = !losses->component->params.absent &&
                 mesh->coord[LOONG_AXIS_TP] == 0 &&
                 mesh->coord[LOONG_AXIS_PP] == 0;
    for (int i = 0; first && i < losses->num_normalisers; i++) {
        loongi_exact_merge(sums[i], own->of[losses->kind[i]]);
    }
}

void loongi_losses_normalise(loong_losses_t *losses,
                             int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS])
{
    for (int i = 0; i < losses->num_normalisers; i++) {
        losses->sum[i] = loongi_exact_value(sums[i]);
    }
}

void loongi_losses_begin(loong_losses_t *losses)
{
    memset(losses->record, 0, sizeof(losses->record));
}

bool loongi_losses_any(const loong_losses_t *losses)
{
    bool any = false;
    for (int i = 0; i < losses->component->num_losses; i++) {
        any = any ||
              (losses->component->losses[i].coupling == LOONG_LOSS_OF_ITEM &&
               losses->sum[losses->normaliser_of[i]] > 0.0);
    }
    return any;
}

/* Of a sum of 0 the loss is 0 as well. */
static double divisor(const loong_losses_t *l, int loss)
{
    double sum = l->sum[l->normaliser_of[loss]];
    return sum > 0.0 ? sum : 1.0;
}

void loongi_losses_scale(const loong_losses_t *losses,
                         const loong_model_chunk_t *chunk, loong_frame_t *frame)
{
    for (int i = 0; i < chunk->num_losses; i++) {
        const loong_loss_port_t *loss = &chunk->losses[i];
        frame->loss_scale[i] = loss->params.weight *
                               (losses->scale / divisor(losses, loss->number));
    }
}

loong_status_t loongi_losses_keep(loong_losses_t *losses,
                                  loong_step_metrics_t *metrics,
                                  const loong_binding_t *run,
                                  const loong_model_chunk_t *chunk)
{
    for (int i = 0; i < chunk->num_losses; i++) {
        const loong_loss_port_t *loss = &chunk->losses[i];
        if (counts(&losses->component->params.mesh, loss->params.same)) {
            LOONG_TRY(loongi_step_metrics_add_losses(
                metrics, run, &loss->port, losses->record[loss->number]));
        }
    }
    return LOONG_OK;
}

int64_t *loongi_losses_norm(loong_losses_t *losses)
{
    return losses->record[losses->component->num_losses];
}

loong_status_t loongi_losses_end(loong_losses_t *losses, loong_comm_t *comm,
                                 const char *what)
{
    int count = losses->component->num_losses;
    losses->own_finite = true;
    for (int i = 0; i < count; i++) {
        losses->own_finite = losses->own_finite &&
                             isfinite(loongi_exact_value(losses->record[i]));
    }
    LOONG_TRY(loong_comm_all_reduce(comm, losses->record,
                                    (count + 1) * LOONG_EXACT_WORDS, LOONG_I64,
                                    LOONG_REDUCE_SUM, what));
    for (int i = 0; i < count; i++) {
        losses->value[i] =
            loongi_exact_value(losses->record[i]) / divisor(losses, i);
    }
    return LOONG_OK;
}
