/* SPDX-License-Identifier: Apache-2.0
 *
 * The borders of a chunk: to the stages before and behind it, and to other
 * components. Called by src/nn/ and model families. Read graph_impl.h
 * before. */
#include <string.h>

#include "graph_impl.h"

/* Of integers there is no gradient. */
static bool is_float(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 || dtype == LOONG_F32 || dtype == LOONG_BF16;
}

loong_val_t loong_graph_boundary_input(loong_graph_t *graph, const char *name,
                                       loong_dtype_t dtype, loong_shape_t shape)
{
    loong_val_t v = loong_graph_input(graph, name, dtype, shape);
    if (v != LOONG_NONE) {
        graph->inputs[graph->values[v].index].boundary = is_float(dtype);
    }
    return v;
}

loong_val_t loong_graph_receive(loong_graph_t *graph, const char *name,
                                loong_dtype_t dtype, loong_shape_t shape)
{
    loong_val_t v = loong_graph_boundary_input(graph, name, dtype, shape);
    if (v != LOONG_NONE) {
        graph->inputs[graph->values[v].index].edge = true;
    }
    return v;
}

void loong_graph_boundary_output(loong_graph_t *graph, const char *name,
                                 loong_val_t value)
{
    loong_graph_output(graph, name, value);
    if (graph->status == LOONG_OK) {
        graph->outputs[graph->num_outputs - 1].boundary =
            is_float(loong_value_dtype(graph, value));
    }
}

void loong_graph_send(loong_graph_t *graph, const char *name, loong_val_t value)
{
    loong_graph_boundary_output(graph, name, value);
    if (graph->status == LOONG_OK) {
        graph->outputs[graph->num_outputs - 1].edge = true;
    }
}

void loong_graph_still_boundary(loong_graph_t *graph, const char *name)
{
    for (int i = 0; i < graph->num_inputs; i++) {
        loong_input_t *input = &graph->inputs[i];
        input->still = input->still || strcmp(input->name, name) == 0;
    }
    for (int i = 0; i < graph->num_outputs; i++) {
        loong_input_t *output = &graph->outputs[i];
        output->still = output->still || strcmp(output->name, name) == 0;
    }
}

void loongi_graph_stop_gradient(loong_graph_t *graph, const char *edge)
{
    for (int i = 0; i < graph->num_inputs; i++) {
        loong_input_t *input = &graph->inputs[i];
        if (input->edge && strcmp(input->name, edge) == 0) {
            input->boundary = false;
        }
    }
    for (int i = 0; i < graph->num_outputs; i++) {
        loong_input_t *output = &graph->outputs[i];
        if (output->edge && strcmp(output->name, edge) == 0) {
            output->boundary = false;
        }
    }
}
