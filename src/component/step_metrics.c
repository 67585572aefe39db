/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings losses and squares of gradients to the host. Called by the training
 * step and by evaluations. Read src/base/exact_sum.h before. */
#include "step_metrics.h"

#include "exact_sum.h"

enum { ALIGN = 64, RECORD_BYTES = LOONG_EXACT_WORDS * sizeof(int64_t) };

static int64_t port_bytes(const loong_port_t *port)
{
    return loongi_round_up(loongi_shape_elements(&port->shape) *
                               (int64_t)loong_dtype_size(port->dtype),
                           ALIGN);
}

/* Of one micro-batch of a stage, in the larger of its chunks. */
static int64_t stage_bytes(const loong_stage_t *s)
{
    int64_t most = 0;
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        const loong_model_chunk_t *c = s->chunk[k];
        int64_t bytes = 0;
        for (int i = 0; c != NULL && i < c->num_losses; i++) {
            bytes += port_bytes(&c->losses[i].port);
        }
        most = LOONG_MAX(most, bytes);
    }
    return most;
}

loong_status_t loongi_step_metrics_open(loong_step_metrics_t *metrics,
                                        const loong_model_t *model,
                                        loong_device_t *device)
{
    int64_t micro_batches =
        model->components[model->num_components - 1]->params.micro_batches;
    void *memory = NULL;
    int64_t bytes = 0;
    for (int i = 0; i < model->num_stages; i++) {
        bytes += micro_batches * stage_bytes(model->stages[i]) +
                 loongi_round_up(RECORD_BYTES, ALIGN);
    }
    metrics->ctx = model->ctx;
    metrics->device = device;
    metrics->max_copies =
        model->num_stages * (LOONG_MAX_LOSSES * micro_batches + 1);
    metrics->bytes = bytes;
    LOONG_TRY(loongi_calloc(model->ctx, (size_t)metrics->max_copies,
                            sizeof(*metrics->copies), "metrics of a step",
                            &metrics->copies));
    LOONG_TRY(loong_device_host_alloc(device, (size_t)bytes,
                                      "metrics of a step", &memory));
    metrics->memory = memory;
    return LOONG_OK;
}

void loongi_step_metrics_close(loong_step_metrics_t *metrics)
{
    if (metrics->ctx != NULL) {
        loongi_free(metrics->ctx, metrics->copies);
        loong_device_host_free(metrics->device, metrics->memory);
    }
}

static loong_status_t add(loong_step_metrics_t *m, const loong_binding_t *run,
                          loong_operand_t from, loong_metric_copy_t copy)
{
    int64_t bytes = copy.count * (int64_t)loong_dtype_size(copy.dtype);
    copy.at = m->used;
    LOONG_CHECK(m->ctx,
                m->num_copies < m->max_copies && copy.at + bytes <= m->bytes,
                LOONG_ERR_INTERNAL,
                "%lld metrics of a step with %lld bytes are planned",
                (long long)m->max_copies, (long long)m->bytes);
    m->used += loongi_round_up(bytes, ALIGN);
    m->copies[m->num_copies++] = copy;
    return loong_device_copy(m->device, m->memory + copy.at,
                             run->base[from.base] + from.offset, (size_t)bytes);
}

loong_status_t loongi_step_metrics_add_losses(loong_step_metrics_t *metrics,
                                              const loong_binding_t *run,
                                              const loong_port_t *port,
                                              int64_t *record)
{
    if (port == NULL) {
        return LOONG_OK;
    }
    loong_metric_copy_t copy = {record, port->dtype, port->shape.dim[0], 0};
    return add(metrics, run, port->operand, copy);
}

loong_status_t loongi_step_metrics_add_record(loong_step_metrics_t *metrics,
                                              const loong_binding_t *run,
                                              loong_operand_t from,
                                              int64_t *record)
{
    loong_metric_copy_t copy = {record, LOONG_I64, LOONG_EXACT_WORDS, 0};
    return add(metrics, run, from, copy);
}

static void add_up(const loong_metric_copy_t *c, const void *values)
{
    for (int64_t i = 0; i < c->count; i++) {
        if (c->dtype == LOONG_I64) {
            c->record[i] += ((const int64_t *)values)[i];
        } else {
            double value = c->dtype == LOONG_F64
                               ? ((const double *)values)[i]
                               : (double)((const float *)values)[i];
            loongi_exact_add(c->record, value);
        }
    }
    if (c->dtype != LOONG_I64) {
        loongi_exact_carry(c->record);
    }
}

loong_status_t loongi_step_metrics_finish(loong_step_metrics_t *metrics,
                                          const char *what)
{
    LOONG_TRY(loong_device_synchronize(metrics->device, what));
    for (int64_t i = 0; i < metrics->num_copies; i++) {
        const loong_metric_copy_t *c = &metrics->copies[i];
        add_up(c, metrics->memory + c->at);
    }
    metrics->num_copies = metrics->used = 0;
    return LOONG_OK;
}
