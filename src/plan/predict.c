/* SPDX-License-Identifier: Apache-2.0
 *
 * The step time that --dry-run tells: kernels timed at the shapes of the plan,
 * added up to programs, and the schedule of all ranks of a pipeline simulated
 * with them. Called by trainer_run.c. Read predict.h and timeline.h before. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "devices.h"
#include "inputs.h"
#include "memory_check.h"
#include "predict.h"
#include "predict_joins.h"
#include "rates.h"
#include "stage_plans.h"
#include "timeline.h"

/* What a prediction may take, whatever the model would: seconds of measuring,
 * bytes and flops of a launch. Of a model that cannot run here a rough figure
 * does. */
typedef struct limits {
    double seconds;
    int64_t bytes;
    double flops;
} limits_t;
static const limits_t FULL = {15.0, 1 << 30, 2.5e11};
static const limits_t ROUGH = {0.8, 128 << 20, 2.5e10};
static const int64_t INPUT_BYTES = 64 << 20; /* of a micro-batch */

static void free_rows(const loong_plan_t *plan, int64_t count, void **rows)
{
    for (int64_t i = 0; i < count && rows != NULL; i++) {
        loongi_free(plan->ctx, rows[i]);
    }
    loongi_free(plan->ctx, rows);
}

/* What the processor keeps of made-up samples: reader->rows of them. */
static loong_status_t make_rows(const loong_plan_t *plan,
                                const loong_reader_t *reader, void ***rows_p)
{
    const loong_processor_t *p = reader->processor;
    double sums[LOONG_MAX_NORMALISERS] = {0};
    loong_items_t items = {.ctx = plan->ctx};
    void **rows = NULL;
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)reader->rows, sizeof(*rows),
                            "samples of a prediction", &rows));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < reader->rows && status == LOONG_OK; i++) {
        status = p->example(reader->config, i, &items);
        if (status == LOONG_OK) {
            status =
                loongi_alloc(plan->ctx, p->row_size(reader->config, &items),
                             "sample of a prediction", &rows[i]);
        }
        if (status == LOONG_OK) {
            status = p->keep(reader->config, i, &items, rows[i], sums);
        }
    }
    loong_items_free(&items);
    if (status != LOONG_OK) {
        free_rows(plan, reader->rows, rows);
        return status;
    }
    *rows_p = rows;
    return LOONG_OK;
}

static loong_status_t fill_inputs(const loong_plan_t *plan,
                                  const loong_reader_t *reader,
                                  const loong_input_list_t *list, char *inputs)
{
    void **rows = NULL;
    if (list->count == 0 || inputs == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(make_rows(plan, reader, &rows));
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < list->count && status == LOONG_OK; i++) {
        loong_field_t field = list->fields[i];
        field.to = inputs + list->ports[i]->operand.offset;
        status =
            reader->processor->fill(plan->ctx, reader->config, rows, &field);
    }
    free_rows(plan, reader->rows, rows);
    return status;
}

/* Lists the inputs of a rank of the pipeline. */
static loong_status_t list_inputs(const loong_plan_t *plan, int rank,
                                  loong_inputs_t *list)
{
    const loong_model_t *m = plan->stage_plans[rank]->model;
    for (int i = 0; i < m->num_components; i++) {
        LOONG_TRY(loongi_inputs_list(list, m->components[i],
                                     plan->readers[i].processor,
                                     plan->readers[i].config));
    }
    return LOONG_OK;
}

/* ---- costs --------------------------------------------------------------- */

static loong_status_t add_frame(loong_predict_source_t *source,
                                const loong_program_t *program,
                                const loong_frame_t *frame, int times,
                                double *sum_p)
{
    return source->calibration != NULL
               ? loongi_calibration_program(source->calibration, program, frame,
                                            times, sum_p)
               : loongi_rates_program(&source->rates, program, frame, times,
                                      sum_p);
}

/* Adds the mean seconds of a program over the micro-batches: the first and the
 * last one do more or less than those between them. */
static loong_status_t add_program(loong_predict_source_t *c,
                                  const loong_program_t *program,
                                  int micro_batches, double *seconds_p)
{
    double sum = 0.0;
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    frame.loss_scale[0] = frame.grad_scale = 1.0;
    frame.lr[0] = 1e-3;
    for (int m = 0; m < LOONG_MIN(micro_batches, 3); m++) {
        frame.first = m == 0;
        frame.last = m + 1 == LOONG_MIN(micro_batches, 3);
        int times = m == 1 && !frame.last ? micro_batches - 2 : 1;
        LOONG_TRY(add_frame(c, program, &frame, times, &sum));
    }
    *seconds_p += sum / micro_batches;
    return LOONG_OK;
}

/* One stage; the optimizer of all stages of a rank runs at once, and is
 * counted where the schedule has it. */
static loong_status_t add_stage(loong_predict_source_t *c,
                                const loong_stage_t *s, int micro_batches,
                                loong_stage_cost_t *cost, double *update_p)
{
    const loong_model_chunk_t *chunk = s->chunk[LOONG_VARIANT_TRAIN];
    const loong_optimizer_t *o = s->optimizer;
    static const loong_program_kind_t kinds[] = {
        LOONG_PROGRAM_F, LOONG_PROGRAM_B, LOONG_PROGRAM_W};
    for (int64_t i = 0; i < LOONG_COUNT_OF(kinds); i++) {
        LOONG_TRY(add_program(c, &chunk->programs[kinds[i]], micro_batches,
                              &cost->seconds[kinds[i]]));
    }
    LOONG_TRY(add_program(c, &o->norm, 1, update_p));
    return add_program(c, &o->update, 1, update_p);
}

/* What runs the forward of a component ahead of it. */
static void cost_double(loong_plan_t *plan, const loong_component_t *c)
{
    const loong_cell_t *cell = c->model->training;
    for (int d = cell->num_own; d < cell->params.num_components; d++) {
        for (int i = 0; i < c->num_stages && cell->forward_of[d] == c->index;
             i++) {
            int stage = loongi_component_stage(c, i);
            loong_stage_cost_t *costs = plan->timeline.costs;
            costs[loongi_cell_stage(cell, d, stage)].seconds[LOONG_ENTRY_E] =
                costs[loongi_timeline_stage(plan, c, i)].seconds[LOONG_ENTRY_F];
        }
    }
}

/* All stages of a component on a rank; of one that is not trained the forward.
 * All that is planned for a micro-batch is counted. */
static loong_status_t add_component(loong_plan_t *plan,
                                    loong_predict_source_t *source,
                                    const loong_component_t *c,
                                    const loong_inputs_t *list,
                                    double *update_p)
{
    int micro_batches = c->schedule->params.micro_batches;
    for (int i = 0; i < c->num_stages; i++) {
        int at = loongi_model_first(c) + i;
        loong_stage_cost_t *cost =
            &plan->timeline.costs[loongi_timeline_stage(plan, c, i)];
        memset(cost, 0, sizeof(*cost)); /* it may have been another rank's */
        LOONG_TRY(fill_inputs(plan, &plan->readers[c->index],
                              loongi_inputs_of(list, at, LOONG_VARIANT_TRAIN),
                              source->inputs));
        LOONG_TRY(
            c->params.train
                ? add_stage(source, c->stages[i], micro_batches, cost, update_p)
                : add_program(source,
                              &c->model->chunks[LOONG_VARIANT_TRAIN][at]
                                   ->programs[LOONG_PROGRAM_E],
                              micro_batches, &cost->seconds[LOONG_ENTRY_E]));
    }
    if (c->num_stages == 0) {
        return LOONG_OK;
    }
    cost_double(plan, c);
    int last = loongi_timeline_stage(plan, c, c->num_stages - 1);
    return add_program(source, &c->tie, 1,
                       &plan->timeline.costs[last].seconds[LOONG_ENTRY_REDUCE]);
}

loong_status_t loongi_predict_rank(loong_plan_t *plan,
                                   loong_predict_source_t *source, int rank)
{
    const loong_model_t *m = plan->stage_plans[rank]->model;
    double update = 0.0;
    loong_inputs_t list = {0};
    LOONG_TRY(list_inputs(plan, rank, &list));
    for (int i = 0; i < m->num_components; i++) {
        LOONG_TRY(
            add_component(plan, source, m->components[i], &list, &update));
    }
    int last = m->num_components - 1; /* of those that are here */
    while (m->components[last]->num_stages == 0) {
        last--;
    }
    int stage = loongi_timeline_stage(plan, m->components[last], 0);
    plan->timeline.costs[stage].seconds[LOONG_ENTRY_U] = update;
    return LOONG_OK;
}

/* ---- what is told -------------------------------------------------------- */

/* Seconds of a kind on a rank in a step. */
static double seconds_of(const loong_plan_t *plan, int rank,
                         loong_entry_kind_t kind)
{
    const loong_model_t *m = plan->stage_plans[rank]->model;
    const loong_cell_t *cell = m->training;
    double seconds = 0.0;
    for (int c = 0; c < cell->params.num_components; c++) {
        const loong_component_t *of = m->components[cell->forward_of[c]];
        const loong_cell_component_t *place = &cell->params.components[c];
        double times = kind == LOONG_ENTRY_U ? 1 : place->params.micro_batches;
        if (kind != LOONG_ENTRY_U && cell->reader[c] != NULL) {
            times *= (double)place->turn / place->replicas;
        }
        for (int i = 0; i < of->num_stages; i++) {
            int stage =
                loongi_cell_stage(cell, c, loongi_component_stage(of, i));
            seconds += plan->timeline.costs[stage].seconds[kind] * times;
        }
    }
    return seconds;
}

static void tell_rank(const loong_plan_t *plan, int rank, loong_text_t *text)
{
    double weights = seconds_of(plan, rank, LOONG_ENTRY_W);
    loongi_text_printf(text, "forward %.1f, backward %.1f",
                       1e3 * (seconds_of(plan, rank, LOONG_ENTRY_F) +
                              seconds_of(plan, rank, LOONG_ENTRY_E)),
                       1e3 * seconds_of(plan, rank, LOONG_ENTRY_B));
    if (weights > 0.0) {
        loongi_text_printf(text, ", gradients of weights %.1f", 1e3 * weights);
    }
    loongi_text_printf(text, ", optimizer %.1f\n",
                       1e3 * seconds_of(plan, rank, LOONG_ENTRY_U));
}

void loongi_predict_tell(loong_plan_t *plan, loong_simulation_t total)
{
    double tokens =
        (double)(plan->set->global_batch_size * plan->set->seq_length);
    loongi_text_printf(&plan->text, "predicted step: %.1f ms (%.*f tokens/s)",
                       1e3 * total.seconds,
                       tokens < 100.0 * total.seconds ? 3 : 0,
                       tokens / total.seconds);
}

void loongi_predict_tell_ranks(const loong_plan_t *plan, int first, int end,
                               loong_text_t *text)
{
    bool mixed = loongi_devices_are_mixed(plan);
    for (int r = first; r < end; r++) {
        if (end - first > 1) {
            loongi_text_printf(text, "%s  rank %d", r > first ? "" : "\n",
                               loongi_model_rank(plan->stage_plans[r]->model));
        }
        if (end - first > 1 && mixed) {
            loongi_text_printf(text, " (%s)", loongi_stage_plans_kind(plan, r));
        }
        loongi_text_printf(text, ": ");
        tell_rank(plan, r, text);
    }
}

static void tell(loong_plan_t *plan, loong_simulation_t total, int neighbours,
                 loong_calibration_counts_t figures)
{
    int ranks = plan->component->schedule->params.ranks;
    loongi_predict_tell(plan, total);
    if (loongi_stage_plans_own(plan) > 1) {
        loongi_text_printf(&plan->text, ", idle %.1f %%", 100.0 * total.bubble);
    }
    loongi_predict_tell_ranks(plan, 0, loongi_stage_plans_own(plan),
                              &plan->text);
    loongi_text_printf(&plan->text, "  from %lld launches timed in %.1f s",
                       (long long)figures.measured, figures.seconds);
    if (neighbours > 0) {
        loongi_text_printf(&plan->text, ", beside %d of the same", neighbours);
    }
    if (figures.shrunk > 0) {
        loongi_text_printf(&plan->text, ", %lld of them on fewer rows",
                           (long long)figures.shrunk);
    }
    if (figures.scaled > 0) {
        loongi_text_printf(&plan->text, ", %lld scaled from others",
                           (long long)figures.scaled);
    }
    if (plan->parallel.ranks > 1) {
        loongi_text_printf(&plan->text, "; %lld collectives%s are not in it",
                           (long long)figures.collectives,
                           ranks > 1 ? ", and the messages of stages," : "");
    }
    loongi_text_printf(&plan->text, "\n");
}

/* ---- neighbours ---------------------------------------------------------- */

/* The other ranks that a machine like this one has in a run. */
typedef struct company {
    int count;
    loong_neighbour_t *neighbours;
    loong_comm_t **comms; /* of one rank; the groups of each neighbour */
} company_t;

static int neighbours_of(const loong_plan_t *plan)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int ranks = cores / plan->component->params.compile.threads;
    return LOONG_MAX(LOONG_MIN(ranks, plan->parallel.ranks), 1) - 1;
}

static void end_company(loong_plan_t *plan, company_t *company)
{
    for (int i = 0; i < company->count; i++) {
        loong_context_t *ctx = company->neighbours[i].ctx;
        loong_comm_destroy(&company->comms[i * LOONG_GROUP_COUNT]);
        loong_context_destroy(&ctx);
    }
    loongi_free(plan->ctx, company->neighbours);
    loongi_free(plan->ctx, company->comms);
}

static loong_status_t add_neighbour(loong_plan_t *plan, company_t *company)
{
    loong_context_t *ctx = NULL;
    loong_comm_t **comms = company->comms + company->count * LOONG_GROUP_COUNT;
    LOONG_CHECK(plan->ctx, loong_context_create(NULL, &ctx) == LOONG_OK,
                LOONG_ERR_MEMORY, "no memory to time kernels side by side");
    loong_status_t status = loong_comm_create_self(ctx, NULL, &comms[0]);
    if (status != LOONG_OK) {
        status =
            LOONG_FAIL(plan->ctx, status, "timing kernels side by side: %s",
                       loong_context_error(ctx));
        loong_context_destroy(&ctx);
        return status;
    }
    for (int g = 1; g < LOONG_GROUP_COUNT; g++) {
        comms[g] = comms[0];
    }
    company->neighbours[company->count].ctx = ctx;
    company->neighbours[company->count++].group = comms;
    return LOONG_OK;
}

static loong_status_t begin_company(loong_plan_t *plan, company_t *company)
{
    size_t count = (size_t)neighbours_of(plan);
    LOONG_TRY(loongi_calloc(plan->ctx, count + 1, sizeof(*company->neighbours),
                            "neighbours", &company->neighbours));
    LOONG_TRY(loongi_calloc(plan->ctx, (count + 1) * LOONG_GROUP_COUNT,
                            sizeof(loong_comm_t *), "neighbours",
                            &company->comms));
    while ((size_t)company->count < count) {
        LOONG_TRY(add_neighbour(plan, company));
    }
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

/* Would all ranks that are planned, were they as large as this one? */
static bool fits_here(const loong_plan_t *plan)
{
    double planned = (double)plan->memory.rank * plan->parallel.ranks;
    return loongi_memory_suffices(plan) &&
           planned <= (double)plan->memory.available.bytes;
}

static loong_status_t predict(loong_plan_t *plan, loong_device_t *device,
                              loong_comm_t *self, const company_t *company,
                              char *inputs)
{
    loong_comm_t *group[LOONG_GROUP_COUNT];
    limits_t most = fits_here(plan) ? FULL : ROUGH;
    loong_calibration_params_t params = {.device = device,
                                         .inputs = inputs,
                                         .budget = most.seconds,
                                         .memory = most.bytes,
                                         .work = most.flops,
                                         .precision =
                                             plan->component->params.precision,
                                         .group = group,
                                         .num_neighbours = company->count,
                                         .neighbours = company->neighbours};
    loong_predict_source_t source;
    loong_calibration_t *c = NULL;
    loong_simulation_t total;
    loong_status_t status = LOONG_OK;
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        group[g] = self;
    }
    LOONG_TRY(loongi_timeline_costs(plan));
    LOONG_TRY(loongi_calibration_create(plan->ctx, &params, &c));
    memset(&source, 0, sizeof(source));
    source.calibration = c;
    source.inputs = inputs;
    for (int r = 0; r < loongi_stage_plans_own(plan) && status == LOONG_OK;
         r++) {
        status = loongi_predict_rank(plan, &source, r);
    }
    if (status == LOONG_OK) {
        status = loongi_cell_simulate(plan->component->model->training,
                                      plan->timeline.costs, NULL, &total);
    }
    if (status == LOONG_OK) {
        tell(plan, total, company->count, loongi_calibration_get(c));
        status = loongi_predict_joins(plan);
    }
    loongi_calibration_destroy(&c);
    return status;
}

/* Launches are timed. */
static loong_status_t predict_here(loong_plan_t *plan)
{
    loong_device_t *device = NULL;
    loong_comm_t *self = NULL;
    company_t company = {0, NULL, NULL};
    void *inputs = NULL;
    size_t bytes = 0;
    for (int r = 0; r < loongi_stage_plans_own(plan); r++) {
        size_t needs =
            (size_t)plan->stage_plans[r]->model->bytes[LOONG_BASE_INPUT];
        bytes = LOONG_MAX(bytes, needs);
    }
    LOONG_TRY(loong_device_create(plan->ctx, "cpu", 0, &device));
    loong_status_t status = loong_comm_create_self(plan->ctx, NULL, &self);
    if (status == LOONG_OK && bytes <= (size_t)INPUT_BYTES) {
        status = loong_device_alloc(device, bytes, "inputs", &inputs);
    }
    if (status == LOONG_OK) {
        status = begin_company(plan, &company);
    }
    if (status == LOONG_OK) {
        status = predict(plan, device, self, &company, inputs);
    }
    end_company(plan, &company);
    if (inputs != NULL) {
        loong_device_free(device, inputs, bytes);
    }
    loong_comm_destroy(&self);
    loong_device_destroy(&device);
    return status;
}

/* Have all ranks that hold the same layers of a component as a planned one
 * devices of its kind? Data-parallel ones count where a cell has them all. */
static bool is_component_alike(const loong_plan_t *plan, int index,
                               const loong_component_params_t *p)
{
    const int *size = p->mesh.size;
    bool alike = true;
    for (int i = 0; i < p->mesh.world && alike && !p->absent; i++) {
        int replica = i / (size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP]);
        int stage = replica / size[LOONG_AXIS_DP];
        bool beside =
            stage == p->mesh.coord[LOONG_AXIS_PP] &&
            (plan->component->index > 0 ||
             replica % size[LOONG_AXIS_DP] == p->mesh.coord[LOONG_AXIS_DP]);
        alike =
            !beside || strcmp(loongi_devices_kind(plan, loongi_job_rank(p, i)),
                              loongi_stage_plans_kind(plan, index)) == 0;
    }
    return alike;
}

static bool is_alike(const loong_plan_t *plan, int index)
{
    const loong_model_t *m = plan->stage_plans[index]->model;
    bool alike = true;
    for (int c = 0; c < m->num_components && alike; c++) {
        alike = is_component_alike(plan, index, &m->components[c]->params);
    }
    return alike;
}

/* Why no step is predicted by rates; "": it can be. */
static void refuse_rates(const loong_plan_t *plan, char *why, size_t size)
{
    why[0] = '\0';
    for (int r = 0; r < plan->num_stage_plans && why[0] == '\0'; r++) {
        const char *kind = loongi_stage_plans_kind(plan, r);
        if (loongi_predict_rates(plan, kind).name == NULL) {
            snprintf(why, size,
                     "no rates of device %s are known; predict.device names "
                     "others",
                     kind);
        } else if (!is_alike(plan, r)) {
            snprintf(why, size,
                     "ranks that hold the same layers as rank %d have devices "
                     "of several kinds",
                     loongi_model_rank(plan->stage_plans[r]->model));
        }
    }
}

loong_status_t loongi_predict(loong_plan_t *plan, const char **text_p)
{
    char why[256];
    LOONG_CHECK(plan->ctx, plan->component->schedule != NULL, LOONG_ERR_ARG,
                "no step is predicted of a trainer that only evaluates");
    LOONG_TRY(loongi_stage_plans_create(plan));
    loongi_text_free(&plan->text);
    plan->text = loongi_text_begin(plan->ctx);
    bool by_rates = loongi_predict_names_card(plan) ||
                    loongi_devices_are_mixed(plan) ||
                    !loong_device_is_host(plan->device);
    refuse_rates(plan, why, sizeof(why));
    if (by_rates && why[0] != '\0') {
        loongi_text_printf(&plan->text, "no time of a step is predicted: %s\n",
                           why);
    } else {
        LOONG_TRY(by_rates ? loongi_predict_by_rates(plan)
                           : predict_here(plan));
    }
    *text_p = loongi_text_get(&plan->text);
    return plan->text.status;
}
