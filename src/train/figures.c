/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes between the host and the device in a step without either waiting
 * for the other: the inputs of micro-batches, filled in a ring of areas that
 * the device copies from, and the figures that programs leave behind (losses,
 * squares of gradients), copied to the host and added up once the step is
 * over. And the stream of the checkpoint's writer. */
#include <string.h>

#include "trainer_impl.h"

enum { AREAS = LOONG_INPUT_AREAS, ALIGN = 64 };

/* ---- memory -------------------------------------------------------------- */

static int64_t port_bytes(const loong_port_t *port)
{
    return port == NULL ? 0
                        : loongi_round_up(
                              loongi_shape_elements(&port->shape) *
                                  (int64_t)loong_dtype_size(port->dtype),
                              ALIGN);
}

/* Of one micro-batch of a stage, in the larger of its chunks. */
static int64_t stage_bytes(const loong_stage_t *s)
{
    int64_t most = 0;
    for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
        const loong_batch_ports_t *p = &s->ports[k];
        if (s->chunk[k] != NULL) {
            most = LOONG_MAX(most, port_bytes(p->lm) + port_bytes(p->router));
        }
    }
    return most;
}

static loong_status_t create_areas(loong_trainer_t *t)
{
    void *memory = NULL;
    int64_t bytes = 0;
    for (int i = 0; i < t->component->num_stages; i++) {
        for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
            const loong_chunk_t *c = t->component->stages[i]->chunk[k];
            bytes = LOONG_MAX(bytes, c != NULL ? c->input_bytes : 0);
        }
    }
    t->inputs.bytes = loongi_round_up(bytes, ALIGN);
    LOONG_TRY(loong_device_host_alloc(t->device,
                                      (size_t)(AREAS * t->inputs.bytes),
                                      "inputs", &memory));
    t->inputs.memory = memory;
    for (int i = 0; i < AREAS; i++) {
        LOONG_TRY(
            loong_device_event_create(t->device, &t->inputs.copied[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_figures_open(loong_trainer_t *t)
{
    int64_t micro_batches = t->component->params.micro_batches;
    void *memory = NULL;
    int64_t bytes = 0;
    for (int i = 0; i < t->component->num_stages; i++) {
        bytes += micro_batches * stage_bytes(t->component->stages[i]) +
                 loongi_round_up(LOONG_EXACT_WORDS * (int64_t)sizeof(int64_t),
                                 ALIGN);
    }
    t->figures.room = t->component->num_stages * (2 * micro_batches + 1);
    t->figures.bytes = bytes;
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)t->figures.room,
                            sizeof(*t->figures.list), "figures of a step",
                            &t->figures.list));
    LOONG_TRY(loong_device_host_alloc(t->device, (size_t)bytes,
                                      "figures of a step", &memory));
    t->figures.memory = memory;
    LOONG_TRY(loong_device_stream_create(t->device, &t->save_stream));
    return create_areas(t);
}

void loongi_figures_close(loong_trainer_t *t)
{
    loongi_free(t->ctx, t->figures.list);
    if (t->device == NULL) {
        return;
    }
    loong_device_stream_destroy(t->device, t->save_stream);
    loong_device_host_free(t->device, t->figures.memory);
    loong_device_host_free(t->device, t->inputs.memory);
    for (int i = 0; i < AREAS; i++) {
        loong_device_event_destroy(t->device, t->inputs.copied[i]);
    }
}

/* ---- figures ------------------------------------------------------------- */

static loong_status_t keep(loong_trainer_t *t, const loong_run_t *run,
                           loong_operand_t from, const loong_figure_t *figure)
{
    loong_figure_t f = *figure;
    int64_t bytes = f.count * (int64_t)loong_dtype_size(f.dtype);
    f.at = t->figures.used;
    LOONG_CHECK(t->ctx,
                t->figures.count < t->figures.room &&
                    f.at + bytes <= t->figures.bytes,
                LOONG_ERR_INTERNAL,
                "%lld figures of a step with %lld bytes are planned",
                (long long)t->figures.room, (long long)t->figures.bytes);
    t->figures.used += loongi_round_up(bytes, ALIGN);
    t->figures.list[t->figures.count++] = f;
    return loong_device_copy(t->device, t->figures.memory + f.at,
                             run->base[from.base] + from.offset,
                             (size_t)bytes);
}

loong_status_t loongi_keep_losses(loong_trainer_t *t, const loong_run_t *run,
                                  const loong_port_t *port, int64_t *record)
{
    if (port == NULL) {
        return LOONG_OK;
    }
    loong_figure_t f = {record, port->dtype, port->shape.dim[0], 0};
    return keep(t, run, port->operand, &f);
}

loong_status_t loongi_keep_record(loong_trainer_t *t, const loong_run_t *run,
                                  loong_operand_t from, int64_t *record)
{
    loong_figure_t f = {record, LOONG_I64, LOONG_EXACT_WORDS, 0};
    return keep(t, run, from, &f);
}

static void add_up(const loong_figure_t *f, const void *values)
{
    for (int64_t i = 0; i < f->count; i++) {
        if (f->dtype == LOONG_I64) {
            f->record[i] += ((const int64_t *)values)[i];
        } else {
            double value = f->dtype == LOONG_F64
                               ? ((const double *)values)[i]
                               : (double)((const float *)values)[i];
            loongi_exact_add(f->record, value);
        }
    }
    if (f->dtype != LOONG_I64) {
        loongi_exact_carry(f->record);
    }
}

loong_status_t loongi_add_figures(loong_trainer_t *t, const char *what)
{
    LOONG_TRY(loong_device_synchronize(t->device, what));
    for (int64_t i = 0; i < t->figures.count; i++) {
        const loong_figure_t *f = &t->figures.list[i];
        add_up(f, t->figures.memory + f->at);
    }
    t->figures.count = t->figures.used = 0;
    return LOONG_OK;
}

/* ---- inputs -------------------------------------------------------------- */

/* Where an input is filled; NULL when the chunk has none of that name. */
static void *place(char *area, const loong_port_t *port)
{
    return port != NULL ? area + port->operand.offset : NULL;
}

static loong_status_t send(loong_trainer_t *t, const loong_run_t *run,
                           const loong_batch_ports_t *p, char *area)
{
    const loong_port_t *const ports[] = {
        p->tokens,         p->labels, p->positions,  p->token_key,
        p->all_token_keys, p->places, p->cu_seqlens, p->loss_weight,
        p->token_types};
    for (int64_t i = 0; i < LOONG_COUNT_OF(ports); i++) {
        const loong_port_t *port = ports[i];
        if (port != NULL) {
            LOONG_TRY(loong_device_copy(
                t->device,
                run->base[port->operand.base] + port->operand.offset,
                place(area, port),
                (size_t)loongi_shape_elements(&port->shape) *
                    loong_dtype_size(port->dtype)));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_fill_inputs(loong_trainer_t *t, const loong_run_t *run,
                                  const loong_batch_ports_t *ports,
                                  loong_loader_t *loader, int64_t consumed,
                                  int64_t k)
{
    const loong_batch_ports_t *p = ports;
    const loong_port_t *weight = p->loss_weight;
    int64_t index = t->inputs.filled++ % AREAS;
    char *area = t->inputs.memory + index * t->inputs.bytes;
    loong_batch_t batch;
    LOONG_TRY(loong_device_event_await(t->device, t->inputs.copied[index],
                                       "inputs to be copied"));
    memset(&batch, 0, sizeof(batch));
    batch.tokens = place(area, p->tokens);
    batch.labels = place(area, p->labels);
    batch.token_types = place(area, p->token_types);
    batch.position_ids = place(area, p->positions);
    batch.token_key = place(area, p->token_key);
    batch.all_token_keys = place(area, p->all_token_keys);
    batch.places = place(area, p->places);
    batch.cu_seqlens = place(area, p->cu_seqlens);
    batch.cu_seqlens_size =
        p->cu_seqlens != NULL ? p->cu_seqlens->shape.dim[0] : 0;
    double *wide = place(area, weight);
    bool convert = weight != NULL && weight->dtype == LOONG_F64;
    batch.loss_weight = convert ? t->weights : (float *)(void *)wide;
    LOONG_TRY(loong_loader_fill(loader, consumed, k, &batch));
    for (int64_t i = 0; convert && i < weight->shape.dim[0]; i++) {
        wide[i] = (double)t->weights[i];
    }
    LOONG_TRY(send(t, run, p, area));
    return loong_device_event_record(t->device, t->inputs.copied[index],
                                     loong_device_stream(t->device));
}
