/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the inputs of programs. Called by the training step and by
 * evaluations, before each forward. Read token_fields.h before. */
#include "inputs.h"

#include <string.h>

#include "router_replay.h"

enum { ALIGN = 64 };

loong_status_t loongi_inputs_open(loong_inputs_t *inputs,
                                  const loong_component_t *component,
                                  loong_device_t *device)
{
    void *memory = NULL;
    int64_t bytes = 0;
    for (int i = 0; i < component->num_stages; i++) {
        for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
            const loong_chunk_t *c = component->stages[i]->chunk[k];
            bytes = LOONG_MAX(bytes, c != NULL ? c->input_bytes : 0);
        }
    }
    inputs->device = device;
    inputs->bytes = loongi_round_up(bytes, ALIGN);
    LOONG_TRY(loong_device_host_alloc(
        device, (size_t)(LOONG_INPUT_AREAS * inputs->bytes), "inputs",
        &memory));
    inputs->memory = memory;
    for (int i = 0; i < LOONG_INPUT_AREAS; i++) {
        LOONG_TRY(loong_device_event_create(device, &inputs->copied[i]));
    }
    return LOONG_OK;
}

void loongi_inputs_close(loong_inputs_t *inputs)
{
    if (inputs->device == NULL) {
        return;
    }
    loong_device_host_free(inputs->device, inputs->memory);
    for (int i = 0; i < LOONG_INPUT_AREAS; i++) {
        loong_device_event_destroy(inputs->device, inputs->copied[i]);
    }
}

int loongi_inputs_list(const loong_chunk_t *chunk, char *area,
                       loong_field_t fields[LOONG_MAX_INPUTS])
{
    int count = 0;
    for (int i = 0; i < chunk->num_inputs; i++) {
        const loong_port_t *port = &chunk->inputs[i];
        if (loongi_port_is_data(port) &&
            !loongi_router_replay_fills(port->name)) {
            loong_field_t field = {
                port->name, port->dtype, loongi_shape_elements(&port->shape),
                area != NULL ? area + port->operand.offset : NULL};
            fields[count++] = field;
        }
    }
    return count;
}

static loong_status_t check_chunk(const loong_component_t *component,
                                  const loong_chunk_t *chunk,
                                  const loong_token_layout_t *layout)
{
    loong_field_t fields[LOONG_MAX_INPUTS];
    int count = chunk != NULL ? loongi_inputs_list(chunk, NULL, fields) : 0;
    for (int i = 0; i < count; i++) {
        LOONG_TRY(loongi_token_field_check(component->ctx, layout, &fields[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_inputs_check(const loong_component_t *component,
                                   const loong_token_layout_t *layout)
{
    loong_token_layout_t prompt = {.seq_length =
                                       component->params.logits_tokens,
                                   .rows = 1,
                                   .context_parallel_size = 1};
    for (int i = 0; i < component->num_stages; i++) {
        for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
            LOONG_TRY(check_chunk(component, component->stages[i]->chunk[k],
                                  k == LOONG_STAGE_LOGITS ? &prompt : layout));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_inputs_fill(loong_inputs_t *inputs,
                                  const loong_run_t *run,
                                  const loong_chunk_t *chunk,
                                  loong_loader_t *loader, int64_t consumed,
                                  int64_t k)
{
    loong_field_t fields[LOONG_MAX_INPUTS];
    int64_t index = inputs->filled++ % LOONG_INPUT_AREAS;
    char *area = inputs->memory + index * inputs->bytes;
    int count = loongi_inputs_list(chunk, area, fields);
    LOONG_TRY(loong_device_event_await(inputs->device, inputs->copied[index],
                                       "inputs to be copied"));
    LOONG_TRY(loong_loader_fill(loader, consumed, k, count, fields));
    for (int i = 0; i < count; i++) {
        loong_operand_t to = loongi_chunk_input(chunk, fields[i].name)->operand;
        LOONG_TRY(loong_device_copy(
            inputs->device, run->base[to.base] + to.offset, fields[i].to,
            (size_t)fields[i].count * loong_dtype_size(fields[i].dtype)));
    }
    return loong_device_event_record(inputs->device, inputs->copied[index],
                                     loong_device_stream(inputs->device));
}
