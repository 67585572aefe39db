/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of texts, from the batch plan to the image encoder's loader and to
 * the rows of edges. Called by the step and by evaluations. Read
 * src/data/batch_plan.h and src/component/edges.h before. */
#include "upstream_step.h"

#include <string.h>

#include "loong/image.h"
#include "loong/packing.h"
#include "picture_rows.h"
#include "upstream.h"

/* ---- who reads which picture --------------------------------------------- */

static loong_status_t locate(void *user, int64_t consumed, int64_t micro_batch,
                             int64_t row, int64_t *draw_p, int *picture_p)
{
    const loong_images_t *m = user;
    const loong_planned_image_t *images = NULL;
    int64_t count = 0;
    LOONG_TRY(loongi_batch_plan_images(m->plan, consumed, true, micro_batch,
                                       &images, &count));
    int64_t at =
        row + loongi_planned_first(images, count, m->encoder, m->replica);
    bool mine = at < count && images[at].at[m->encoder].replica == m->replica;
    *draw_p = mine ? images[at].draw : -1;
    *picture_p = mine ? images[at].number : 1;
    return LOONG_OK;
}

static const loong_component_t *component_at(const loong_plan_t *plan, int i)
{
    return plan->component->model->components[i];
}

static const loong_component_place_t *place_of(const loong_component_t *c)
{
    return &c->model->ranks.component[c->index];
}

/* The replica of a component that a rank of the cell is of, and which of those
 * that share its rows (CP), and of these its layers (TP). */
static int replica_of(const loong_component_t *c, int rank, int *cp_rank_p,
                      int *tp_rank_p)
{
    const int *size = c->params.mesh.size;
    int pipeline =
        loongi_place_pipeline(place_of(c), size[LOONG_AXIS_PP], rank);
    *tp_rank_p = pipeline % size[LOONG_AXIS_TP];
    *cp_rank_p = pipeline / size[LOONG_AXIS_TP] % size[LOONG_AXIS_CP];
    return pipeline / loongi_replica_ranks(&c->params);
}

/* Of each micro-batch of a step the data-parallel replica that reads it first,
 * where lists of entries stand on that. */
static loong_status_t find_first(const loong_plan_t *plan, int component,
                                 const int32_t **first_p)
{
    const loong_component_t *c = component_at(plan, component);
    const loong_cell_t *cell = c->model->training;
    int32_t *first = NULL;
    if (cell == NULL || !cell->join->apart || cell->reader[component] == NULL) {
        return LOONG_OK;
    }
    int count = cell->params.components[component].params.micro_batches;
    LOONG_TRY(loongi_arena_alloc(plan->component->arena,
                                 (size_t)count * sizeof(*first), &first));
    for (int m = 0; m < count; m++) {
        first[m] =
            cell->reader[component][m] / loongi_replica_ranks(&c->params);
    }
    *first_p = first;
    return LOONG_OK;
}

/* What there is room for in a micro-batch of one replica of a component. */
static int64_t most_images(const loong_plan_t *plan, int encoder, int component)
{
    const loong_picture_plan_t *p = &plan->pictures[encoder];
    int64_t replicas = place_of(plan->component)->replicas;
    return component == 2 * encoder ? p->encoder
           : component < 2 * plan->num_encoders
               ? p->text_most * p->texts * replicas
               : p->most;
}

static loong_status_t open_plan(const loong_plan_t *plan, int encoder,
                                bool train, loong_loader_t *loader,
                                const loong_loader_params_t *texts,
                                loong_images_t *images)
{
    const loong_component_place_t *place = place_of(plan->component);
    const loong_picture_plan_t *p = &plan->pictures[encoder];
    const loong_room_t room = loongi_settings_room(plan->set, encoder);
    loong_batch_plan_params_t params = {.loader = loader,
                                        .texts = *texts,
                                        .replicas = place->replicas,
                                        .replica = place->replica,
                                        .seq_length = plan->set->seq_length,
                                        .samples = p->samples,
                                        .max_images = p->most,
                                        .pictures = plan->picture_reader,
                                        .encoder = encoder,
                                        .images_key = room.images_key,
                                        .patches_key = room.patches_key,
                                        .num_readers = 2 * encoder + 2};
    params.max_rows = plan->set->max_image_patches > 0 ? p->longest : 0;
    for (int i = 2 * encoder; i < params.num_readers; i++) {
        const loong_component_t *c = component_at(plan, i);
        int64_t count = p->texts * place->replicas;
        params.reader[i] = (loong_picture_room_t){
            .replicas = place_of(c)->replicas,
            .whole = p->whole,
            .images = most_images(plan, encoder, i),
            .rows = i % 2 == 0 ? loongi_component_rows(c)
                               : p->text_rows * count};
        LOONG_TRY(train ? find_first(plan, i, &params.reader[i].first)
                        : LOONG_OK);
    }
    return loongi_batch_plan_create(plan->ctx, &params, &images->plan);
}

static loong_status_t open_images(const loong_plan_t *plan, int number,
                                  bool train, loong_loader_t *loader,
                                  const loong_loader_params_t *texts,
                                  loong_images_t *images)
{
    const loong_component_t *encoder = component_at(plan, 2 * number);
    const loong_reader_t *reader = &plan->readers[encoder->index];
    int cp_rank, tp_rank;
    LOONG_TRY(open_plan(plan, number, train, loader, texts, images));
    if (encoder->params.absent) {
        return LOONG_OK;
    }
    images->encoder = encoder->index;
    images->replica =
        replica_of(encoder, encoder->model->ranks.cell_rank, &cp_rank,
                   &tp_rank);
    images->rows = (loong_row_plan_t){plan->pictures[number].samples,
                                      reader->rows, images, locate};
    loong_loader_params_t p = *texts;
    p.processor = reader->processor;
    p.config = reader->config;
    p.row_plan = &images->rows;
    p.costs = NULL; /* the plan follows the texts' */
    return loong_loader_create(plan->ctx, &p, &images->loader);
}

loong_status_t loongi_images_open(const loong_plan_t *plan, bool train,
                                  loong_loader_t *loader,
                                  const loong_loader_params_t *texts,
                                  loong_images_t *images)
{
    for (int e = 0; e < plan->num_encoders; e++) {
        LOONG_TRY(open_images(plan, e, train, loader, texts, &images[e]));
    }
    return LOONG_OK;
}

void loongi_images_close(loong_images_t *images)
{
    for (int e = 0; e < LOONG_MAX_ENCODERS; e++) {
        loong_loader_destroy(&images[e].loader);
        loongi_batch_plan_destroy(&images[e].plan);
    }
}

/* ---- rows of edges ------------------------------------------------------- */

static loong_picture_end_t end_of(const loong_upstream_step_t *s, int component,
                                  bool sends, int rank)
{
    const loong_component_t *c = s->model->components[component];
    const loong_model_request_t *request = &c->params.request;
    int64_t merge = c->facts.merge_size * c->facts.merge_size;
    bool texts = !loongi_plan_is_upstream(s->plan, component);
    bool encoder = !texts && component % 2 == 0;
    int tp = c->params.mesh.size[LOONG_AXIS_TP];
    int tp_rank = 0;
    loong_picture_end_t end = {.place = encoder ? LOONG_IN_ENCODER
                                        : texts ? LOONG_IN_TEXTS
                                        : sends ? LOONG_BEHIND
                                                : LOONG_IN_FRONT,
                               .component = component,
                               .cp_size = c->params.mesh.size[LOONG_AXIS_CP]};
    end.replica = replica_of(c, rank, &end.cp_rank, &tp_rank);
    bool makes = end.place == LOONG_IN_ENCODER || end.place == LOONG_BEHIND;
    end.rows = makes && request->packed_rows > 0 ? request->packed_rows
               : makes && merge > 1               ? request->rows / merge
                                                  : request->rows;
    bool split = tp > 1 && request->sequence_parallel;
    end.begin = split ? end.rows / tp * tp_rank : 0;
    end.limit = split ? end.rows / tp * (tp_rank + 1) : end.rows;
    end.length = texts && end.cp_size > 1 ? s->plan->set->seq_length : 0;
    return end;
}

/* The pictures of an encoder in a component's micro-batch. */
static loong_status_t images_of(const loong_upstream_step_t *s, int encoder,
                                int component, int micro_batch,
                                const loong_planned_image_t **images_p,
                                int64_t *count_p)
{
    return loongi_batch_plan_images(
        s->images[encoder].plan, s->consumed,
        loongi_plan_is_upstream(s->plan, component), micro_batch, images_p,
        count_p);
}

/* Pictures that both ends have, in all their parts, of each of which ranks of
 * CP have two pieces. */
static int64_t most_rows(void *user, int edge)
{
    const loong_upstream_step_t *s = user;
    const loong_edge_t *e = &s->model->edges[edge];
    const int *size = s->model->components[e->to]->params.mesh.size;
    int64_t runs = size[LOONG_AXIS_CP] > 1 ? 2 : 1;
    int encoder = e->from / 2;
    if (!loongi_plan_is_upstream(s->plan, e->from)) {
        return 1;
    }
    int64_t tiles = LOONG_MAX(s->plan->pictures[encoder].tiles, 1);
    int64_t images = LOONG_MIN(most_images(s->plan, encoder, e->from),
                               most_images(s->plan, encoder, e->to));
    return LOONG_MAX(images * runs * tiles, 1);
}

/* Components that both read texts have the same rows on the same ranks. */
static loong_status_t list_rows(void *user, const loong_message_t *message,
                                loong_segment_list_t *list)
{
    const loong_upstream_step_t *s = user;
    loong_context_t *ctx = s->model->ctx;
    const loong_edge_t *edge = &s->model->edges[message->edge];
    bool back = message->backward;
    loong_picture_end_t from =
        end_of(s, back ? edge->to : edge->from, !back, message->from_rank);
    loong_picture_end_t to =
        end_of(s, back ? edge->from : edge->to, back, message->to_rank);
    const loong_planned_image_t *images = NULL, *read = NULL;
    int64_t count = 0, num_read = 0;
    if (from.place == LOONG_IN_TEXTS && to.place == LOONG_IN_TEXTS) {
        const loong_segment_t all = {
            0, 0, s->model->components[edge->to]->params.request.rows};
        return message->from_rank == message->to_rank
                   ? loongi_segment_add(ctx, list, all)
                   : LOONG_OK;
    }
    int encoder = edge->from / 2;
    LOONG_TRY(images_of(s, encoder, from.component, message->from_micro_batch,
                        &images, &count));
    LOONG_TRY(images_of(s, encoder, to.component, message->to_micro_batch,
                        &read, &num_read));
    const loong_planned_image_t *end = LOONG_MIN(images + count,
                                                 read + num_read);
    for (const loong_planned_image_t *i = LOONG_MAX(images, read); i < end;
         i++) {
        LOONG_TRY(loongi_picture_segments(ctx, i, &from, &to, list));
    }
    return LOONG_OK;
}

/* The pictures of a micro-batch are dealt, and none to this rank. */
static loong_status_t is_hollow(void *user, int component, int micro_batch,
                                bool *hollow_p)
{
    const loong_upstream_step_t *s = user;
    const loong_planned_image_t *images = NULL;
    int64_t count = 0;
    if (!loongi_plan_is_upstream(s->plan, component)) {
        return LOONG_OK;
    }
    loong_picture_end_t own =
        end_of(s, component, false, s->model->ranks.cell_rank);
    LOONG_TRY(images_of(s, component / 2, component, micro_batch, &images,
                        &count));
    int64_t first = loongi_planned_first(images, count, component, own.replica);
    *hollow_p =
        first == count || images[first].at[component].replica != own.replica;
    return LOONG_OK;
}

loong_status_t loongi_upstream_open(loong_upstream_step_t *step,
                                    const loong_plan_t *plan,
                                    loong_model_t *model)
{
    step->plan = plan;
    step->model = model;
    step->rows = (loong_edge_rows_t){step, most_rows, list_rows, is_hollow};
    loongi_model_set_rows(model, &step->rows);
    for (int i = 0; i < model->num_components; i++) {
        if (plan->readers[i].processor == &loong_packing_processor) {
            const loong_component_t *c = model->components[i];
            size_t count = (size_t)plan->readers[i].rows;
            LOONG_TRY(loongi_arena_alloc(
                c->arena, count * sizeof(*step->packed[i]), &step->packed[i]));
        }
    }
    return LOONG_OK;
}

/* ---- a step -------------------------------------------------------------- */

void loongi_upstream_begin(loong_upstream_step_t *step,
                           const loong_images_t *images, int64_t consumed)
{
    step->images = images;
    step->consumed = consumed;
}

/* The pictures that this rank's replica of a projector has. */
static loong_status_t fill_packing(void *user, int component, int64_t consumed,
                                   int64_t micro_batch,
                                   const loong_input_list_t *list)
{
    const loong_upstream_step_t *s = user;
    const loong_reader_t *reader = &s->plan->readers[component];
    const loong_planned_image_t *images = NULL;
    int64_t count = 0, own = 0;
    loong_picture_end_t end =
        end_of(s, component, false, s->model->ranks.cell_rank);
    (void)consumed; /* the step's */
    LOONG_TRY(images_of(s, component / 2, component, (int)micro_batch, &images,
                        &count));
    int64_t first = loongi_planned_first(images, count, component, end.replica);
    memset(s->packed[component], 0,
           (size_t)reader->rows * sizeof(*s->packed[component]));
    for (int64_t i = first; i < count && own < reader->rows &&
                            images[i].at[component].replica == end.replica;
         i++) {
        s->packed[component][own++] = (void *)&images[i].rows;
    }
    for (int i = 0; i < list->count; i++) {
        LOONG_TRY(reader->processor->fill(s->plan->ctx, reader->config,
                                          s->packed[component],
                                          &list->fields[i]));
    }
    return LOONG_OK;
}

static loong_status_t fill_loaded(void *user, int component, int64_t consumed,
                                  int64_t micro_batch,
                                  const loong_input_list_t *list)
{
    (void)component;
    return loong_loader_fill(user, consumed, micro_batch, list->count,
                             list->fields);
}

loong_input_source_t
loongi_upstream_source(const loong_upstream_step_t *step, int component,
                       loong_loader_t *texts)
{
    const loong_processor_t *p = step->plan->readers[component].processor;
    if (p == &loong_packing_processor) {
        return (loong_input_source_t){fill_packing, (void *)step, component};
    }
    bool pictures = loongi_plan_is_upstream(step->plan, component);
    return (loong_input_source_t){
        fill_loaded, pictures ? step->images[component / 2].loader : texts,
        component};
}

loong_status_t loongi_upstream_any(const loong_upstream_step_t *step,
                                   int encoder, int64_t micro_batches,
                                   bool *any_p)
{
    loong_batch_plan_t *plan = step->images[encoder].plan;
    const loong_planned_image_t *images = NULL;
    int64_t count = 0;
    *any_p = false;
    for (int64_t m = 0; m < micro_batches && plan != NULL; m++) {
        LOONG_TRY(loongi_batch_plan_images(plan, step->consumed, false, m,
                                           &images, &count));
        *any_p = *any_p || count > 0;
    }
    return LOONG_OK;
}
