/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the inputs of programs. Called by the training step and by
 * evaluations, before each forward. Read token_fields.h before. */
#include "inputs.h"

#include <string.h>

#include "loong/family.h"

enum { ALIGN = 64 };

loong_status_t loongi_inputs_open(loong_inputs_t *inputs,
                                  const loong_model_t *model,
                                  loong_device_t *device)
{
    void *memory = NULL;
    int64_t bytes = 0;
    for (int i = 0; i < model->num_chunks; i++) {
        for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
            const loong_model_chunk_t *c = model->chunks[k][i];
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

/* ---- lists ----------------------------------------------------------------
 */

/* The router replay fills it. */
static bool is_routing(const char *input)
{
    size_t length = strcspn(LOONG_ROUTING_PORT, "%");
    return strncmp(input, LOONG_ROUTING_PORT, length) == 0;
}

static loong_status_t list_chunk(const loong_component_t *c,
                                 const loong_model_chunk_t *chunk,
                                 const loong_processor_t *processor,
                                 const void *config, loong_input_list_t *list)
{
    size_t most = (size_t)chunk->num_inputs;
    LOONG_TRY(loongi_arena_alloc(c->arena, most * sizeof(*list->fields),
                                 &list->fields));
    LOONG_TRY(loongi_arena_alloc(c->arena, most * sizeof(*list->ports),
                                 &list->ports));
    for (int i = 0; i < chunk->num_inputs; i++) {
        const loong_port_t *port = &chunk->inputs[i];
        if (!loongi_port_is_data(port) || is_routing(port->name)) {
            continue;
        }
        LOONG_CHECK(c->ctx, processor != NULL, LOONG_ERR_CONFIG,
                    "model: %s reads an input '%s', but no data is read for it",
                    c->params.name, port->name);
        loong_field_t field = {port->name, port->dtype,
                               loongi_shape_elements(&port->shape), NULL, NULL};
        LOONG_TRY(processor->bind(c->ctx, config, &field));
        list->fields[list->count] = field;
        list->ports[list->count++] = port;
    }
    return LOONG_OK;
}

loong_status_t loongi_inputs_list(loong_inputs_t *inputs,
                                  const loong_component_t *component,
                                  const loong_processor_t *processor,
                                  const void *config)
{
    const loong_component_t *c = component;
    const loong_token_params_t prompt = {.seq_length = c->params.logits_rows,
                                         .rows = 1,
                                         .context_parallel_size = 1};
    const loong_model_t *m = c->model;
    int first = loongi_model_first(c);
    size_t count = (size_t)m->num_chunks * LOONG_VARIANT_COUNT;
    if (inputs->lists == NULL) {
        LOONG_TRY(loongi_arena_alloc(c->arena, count * sizeof(*inputs->lists),
                                     &inputs->lists));
    }
    for (int n = 0; n < c->num_stages * (int)LOONG_VARIANT_COUNT; n++) {
        int k = n % (int)LOONG_VARIANT_COUNT;
        const loong_model_chunk_t *chunk =
            m->chunks[k][first + n / (int)LOONG_VARIANT_COUNT];
        if (chunk != NULL) {
            bool sampled = k == LOONG_VARIANT_LOGITS;
            LOONG_TRY(list_chunk(
                c, chunk, sampled ? &loong_token_processor : processor,
                sampled ? &prompt : config,
                &inputs->lists[first * (int)LOONG_VARIANT_COUNT + n]));
        }
    }
    return LOONG_OK;
}

const loong_input_list_t *loongi_inputs_of(const loong_inputs_t *inputs, int i,
                                           loong_variant_t variant)
{
    return &inputs->lists[i * (int)LOONG_VARIANT_COUNT + (int)variant];
}

/* ---- a micro-batch ------------------------------------------------------- */

loong_status_t loongi_inputs_fill(loong_inputs_t *inputs,
                                  const loong_input_list_t *list,
                                  const loong_binding_t *run,
                                  const loong_input_source_t *source,
                                  int64_t consumed, int64_t k)
{
    if (list->count == 0) {
        return LOONG_OK;
    }
    int64_t index = inputs->filled++ % LOONG_INPUT_AREAS;
    char *area = inputs->memory + index * inputs->bytes;
    for (int n = 0; n < list->count; n++) {
        list->fields[n].to = area + list->ports[n]->operand.offset;
    }
    LOONG_TRY(loong_device_event_await(inputs->device, inputs->copied[index],
                                       "inputs to be copied"));
    LOONG_TRY(source->fill(source->user, source->component, consumed, k, list));
    for (int n = 0; n < list->count; n++) {
        const loong_field_t *field = &list->fields[n];
        loong_operand_t to = list->ports[n]->operand;
        LOONG_TRY(loong_device_copy(
            inputs->device, run->base[to.base] + to.offset, field->to,
            (size_t)field->count * loong_dtype_size(field->dtype)));
    }
    return loong_device_event_record(inputs->device, inputs->copied[index],
                                     loong_device_stream(inputs->device));
}
