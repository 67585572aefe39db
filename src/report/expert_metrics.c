/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the states that nn/moe.c adds to, brings them together over the ranks
 * of a stage, then over the stages, and says what they mean. Called by
 * report.c. Read src/nn/moe_metrics.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "moe_metrics.h"
#include "report.h"

enum {
    KINDS = LOONG_MOE_METRIC_COUNT,
    KNOWN = KINDS, /* column of the kinds that the layer has, one bit each */
    COLUMNS
};

/* A layer of the model. */
typedef struct layer {
    const loong_stage_t *stage; /* of this rank; NULL: it has no such layer */
    const loong_port_t *port[KINDS]; /* NULL: the layer does not count it */
    int64_t first[KINDS];            /* of its numbers in `sums` */
} layer_t;

struct loong_expert_metrics {
    int64_t num_layers;
    layer_t *layers;
    int64_t num_sums;
    double *sums;              /* of all layers of this rank */
    double (*columns)[COLUMNS]; /* per layer of the model: what is told */
    char *states;              /* of one stage, as they were read */
};

/* ---- opening ------------------------------------------------------------- */

static int64_t bytes_of(const loong_port_t *port)
{
    return loongi_shape_elements(&port->shape) *
           (int64_t)loong_dtype_size(port->dtype);
}

static void find_ports(loong_expert_metrics_t *e, const loong_stage_t *stage,
                       int index)
{
    layer_t *layer = &e->layers[index];
    for (int k = 0; k < KINDS; k++) {
        char name[48];
        snprintf(name, sizeof(name), LOONG_MOE_METRIC_PORT,
                 loongi_moe_metric_name((loong_moe_metric_t)k), index);
        const loong_port_t *port =
            loongi_model_chunk_output(stage->chunk[LOONG_VARIANT_TRAIN], name);
        if (port != NULL) {
            layer->stage = stage;
            layer->port[k] = port;
            layer->first[k] = e->num_sums;
            e->num_sums += loongi_shape_elements(&port->shape);
        }
    }
}

/* Bytes [*begin_p, *end_p) of STATE that the layers of a stage count in: they
 * follow one another. */
static void find_range(const loong_expert_metrics_t *e,
                       const loong_stage_t *stage, int64_t *begin_p,
                       int64_t *end_p)
{
    *begin_p = INT64_MAX;
    *end_p = 0;
    for (int64_t i = 0; i < e->num_layers; i++) {
        for (int k = 0; k < KINDS && e->layers[i].stage == stage; k++) {
            const loong_port_t *port = e->layers[i].port[k];
            if (port != NULL) {
                int64_t at = port->operand.offset;
                *begin_p = LOONG_MIN(*begin_p, at);
                *end_p = LOONG_MAX(*end_p, at + bytes_of(port));
            }
        }
    }
}

static loong_status_t clear(loong_report_t *r, const loong_stage_t *stage,
                            int64_t begin, int64_t end)
{
    return loong_device_fill(r->device,
                             stage->run.base[LOONG_BASE_STATE] + begin, 0,
                             (size_t)(end - begin));
}

loong_status_t loongi_expert_metrics_open(loong_report_t *r)
{
    const loong_component_t *c = r->component;
    loong_expert_metrics_t *e = NULL;
    int64_t most = 0;
    if (c->facts.num_experts == 0 || r->plan->evaluate_only) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(r->ctx, 1, sizeof(*e), "metrics of experts", &e));
    r->experts = e;
    e->num_layers = c->facts.num_layers;
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)e->num_layers, sizeof(*e->layers),
                            "metrics of experts", &e->layers));
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)e->num_layers, sizeof(*e->columns),
                            "metrics of experts", &e->columns));
    for (int s = 0; s < c->num_stages; s++) {
        int64_t begin, end;
        for (int i = 0; i < (int)e->num_layers; i++) {
            find_ports(e, c->stages[s], i);
        }
        find_range(e, c->stages[s], &begin, &end);
        if (begin < end) {
            most = LOONG_MAX(most, end - begin);
            LOONG_TRY(clear(r, c->stages[s], begin, end));
        }
    }
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)e->num_sums + 1, sizeof(*e->sums),
                            "metrics of experts", &e->sums));
    return loongi_calloc(r->ctx, (size_t)most + 1, 1, "metrics of experts",
                         &e->states);
}

void loongi_expert_metrics_close(loong_report_t *r)
{
    loong_expert_metrics_t *e = r->experts;
    if (e != NULL) {
        loongi_free(r->ctx, e->layers);
        loongi_free(r->ctx, e->columns);
        loongi_free(r->ctx, e->sums);
        loongi_free(r->ctx, e->states);
        loongi_free(r->ctx, e);
        r->experts = NULL;
    }
}

/* ---- a log line ---------------------------------------------------------- */

static void unpack(loong_expert_metrics_t *e, const layer_t *layer, int64_t at)
{
    for (int k = 0; k < KINDS; k++) {
        const loong_port_t *port = layer->port[k];
        int64_t n = port != NULL ? loongi_shape_elements(&port->shape) : 0;
        for (int64_t i = 0; i < n; i++) {
            const char *from = e->states + port->operand.offset - at;
            e->sums[layer->first[k] + i] =
                port->dtype == LOONG_F64
                    ? ((const double *)(const void *)from)[i]
                    : (double)((const float *)(const void *)from)[i];
        }
    }
}

/* All ranks that hold the experts of a layer together run as many rounds: the
 * first of them counts. */
static void take_rounds(const loong_report_t *r, const layer_t *layer)
{
    if (layer->port[LOONG_MOE_METRIC_ROUNDS] != NULL &&
        loong_mesh_group_rank(&r->plan->mesh, LOONG_GROUP_ETP_EP) > 0) {
        r->experts->sums[layer->first[LOONG_MOE_METRIC_ROUNDS]] = 0.0;
    }
}

static loong_status_t take_own(loong_report_t *r)
{
    loong_expert_metrics_t *e = r->experts;
    for (int s = 0; s < r->component->num_stages; s++) {
        const loong_stage_t *stage = r->component->stages[s];
        int64_t begin, end;
        find_range(e, stage, &begin, &end);
        if (begin >= end) {
            continue;
        }
        loong_operand_t from = {LOONG_BASE_STATE, begin};
        LOONG_TRY(loongi_binding_read(&stage->run, from, e->states,
                                      (size_t)(end - begin),
                                      "metrics of experts"));
        LOONG_TRY(clear(r, stage, begin, end));
        for (int64_t i = 0; i < e->num_layers; i++) {
            if (e->layers[i].stage == stage) {
                unpack(e, &e->layers[i], begin);
                take_rounds(r, &e->layers[i]);
            }
        }
    }
    return LOONG_OK;
}

static double sum_of(const loong_expert_metrics_t *e, const layer_t *layer,
                     loong_moe_metric_t kind)
{
    const loong_port_t *port = layer->port[kind];
    int64_t n = port != NULL ? loongi_shape_elements(&port->shape) : 0;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += e->sums[layer->first[kind] + i];
    }
    return sum;
}

/* The busiest expert over the mean of its set; of the worst set. */
static double load_of(const loong_expert_metrics_t *e, const layer_t *layer)
{
    const loong_shape_t *shape = &layer->port[LOONG_MOE_METRIC_LOAD]->shape;
    const double *count = e->sums + layer->first[LOONG_MOE_METRIC_LOAD];
    double worst = 0.0;
    for (int64_t s = 0; s < shape->dim[0]; s++) {
        double most = 0.0;
        double sum = 0.0;
        for (int64_t i = 0; i < shape->dim[1]; i++, count++) {
            most = fmax(most, *count);
            sum += *count;
        }
        double load = sum > 0.0 ? most * (double)shape->dim[1] / sum : 0.0;
        worst = fmax(worst, load);
    }
    return worst;
}

static void judge(const loong_report_t *r, int64_t index)
{
    const loong_expert_metrics_t *e = r->experts;
    const layer_t *layer = &e->layers[index];
    double *column = e->columns[index];
    double choices = sum_of(e, layer, LOONG_MOE_METRIC_LOAD);
    double tokens = choices / r->component->facts.router_topk;
    int known = 0;
    for (int k = 0; k < KINDS; k++) {
        known |= (layer->port[k] != NULL) << k;
        column[k] = sum_of(e, layer, (loong_moe_metric_t)k);
    }
    column[LOONG_MOE_METRIC_LOAD] = load_of(e, layer);
    column[LOONG_MOE_METRIC_KEPT] = choices - column[LOONG_MOE_METRIC_KEPT];
    column[LOONG_MOE_METRIC_Z_LOSS] /= fmax(tokens, 1.0);
    column[KNOWN] = known;
}

static loong_status_t gather(loong_report_t *r)
{
    loong_expert_metrics_t *e = r->experts;
    LOONG_TRY(take_own(r));
    if (e->num_sums > 0) { /* on all ranks of the stage */
        LOONG_TRY(loong_comm_all_reduce(
            r->component->comms.host.comm[LOONG_GROUP_ETP_EP], e->sums,
            e->num_sums, LOONG_F64, LOONG_REDUCE_SUM, "metrics of experts"));
        LOONG_TRY(loong_comm_all_reduce(
            r->component->comms.host.comm[LOONG_GROUP_EDP], e->sums,
            e->num_sums, LOONG_F64, LOONG_REDUCE_SUM, "metrics of experts"));
    }
    for (int64_t i = 0; i < e->num_layers; i++) {
        memset(e->columns[i], 0, sizeof(e->columns[i]));
        if (e->layers[i].stage != NULL) {
            judge(r, i);
        }
    }
    if (!r->component->params.absent) {
        LOONG_TRY(loong_comm_all_reduce(
            r->component->comms.host.comm[LOONG_GROUP_PP], (double *)e->columns,
            COLUMNS * e->num_layers, LOONG_F64, LOONG_REDUCE_SUM,
            "metrics of experts"));
    }
    return r->component->params.ranks == NULL
               ? LOONG_OK
               : loong_comm_broadcast(
                     r->plan->comm, e->columns,
                     (size_t)e->num_layers * sizeof(*e->columns),
                     r->component->params.ranks[0], "metrics of experts");
}

/* What a layer is told with; false: it has no experts. */
static bool layer_of(const loong_expert_metrics_t *e, int64_t index,
                     loong_metrics_layer_t *l)
{
    const double *column = e->columns[index];
    int known = (int)column[KNOWN];
    double value[KINDS];
    for (int k = 0; k < KINDS; k++) {
        value[k] = known >> k & 1 ? column[k] : NAN;
    }
    l->layer = (int)index;
    l->expert_load = value[LOONG_MOE_METRIC_LOAD];
    l->dropped_tokens = value[LOONG_MOE_METRIC_KEPT];
    l->overflow_rounds = value[LOONG_MOE_METRIC_ROUNDS];
    l->router_z_loss = value[LOONG_MOE_METRIC_Z_LOSS];
    return known != 0;
}

/* NAN is unknown. */
static void add(double *sum, double x)
{
    *sum = isnan(*sum) ? x : isnan(x) ? *sum : *sum + x;
}

loong_status_t loongi_expert_metrics_measure(loong_report_t *r,
                                             loong_metrics_t *m)
{
    loong_expert_metrics_t *e = r->experts;
    if (e == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(gather(r));
    for (int64_t i = 0; i < e->num_layers; i++) {
        loong_metrics_layer_t l;
        if (layer_of(e, i, &l)) {
            m->expert_load = fmax(m->expert_load, l.expert_load);
            add(&m->dropped_tokens, l.dropped_tokens);
            add(&m->overflow_rounds, l.overflow_rounds);
            add(&m->router_z_loss, l.router_z_loss);
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_expert_metrics_tell(loong_report_t *r,
                                          const loong_metrics_t *m)
{
    const loong_expert_metrics_t *e = r->experts;
    int64_t layers = e != NULL && r->jsonl != NULL ? e->num_layers : 0;
    for (int64_t i = 0; i < layers; i++) {
        char line[LOONG_METRICS_LINE];
        loong_metrics_layer_t l = {.step = m->step, .unix_time = m->unix_time};
        if (!layer_of(e, i, &l)) {
            continue;
        }
        loongi_metrics_layer_json(&l, line);
        LOONG_TRY(loongi_jsonl_add(r->jsonl, line));
        LOONG_TRY(r->board != NULL ? loongi_tensorboard_layer(r->board, &l)
                                   : LOONG_OK);
    }
    return LOONG_OK;
}
