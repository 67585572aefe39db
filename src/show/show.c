/* SPDX-License-Identifier: Apache-2.0
 *
 * Goes through the first micro-batches of a training, by its own loaders, and
 * writes what they give the programs as a page. Called by trainer_show.c. Read
 * page.h before. */
#include "show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "page.h"
#include "patch_fields.h"
#include "sample.h"
#include "source_pack.h"

static const loong_component_t *texts_of(const loong_show_t *s)
{
    return s->data->plan->component;
}

/* ---- a micro-batch ------------------------------------------------------- */

static bool reads(const loong_component_t *c, const char *input)
{
    const loong_model_chunk_t *chunk = c->stages[0]->layout;
    for (int i = 0; i < chunk->num_inputs; i++) {
        if (strcmp(chunk->inputs[i].name, input) == 0) {
            return true;
        }
    }
    return false;
}

static loong_status_t open_texts(loong_show_t *s)
{
    const loong_token_params_t *p = loongi_plan_reader(s->data->plan)->config;
    s->R = p->rows;
    s->T = p->seq_length;
    s->axes = reads(texts_of(s), "axis_positions");
    size_t count = (size_t)(s->R * s->T);
    LOONG_TRY(
        loongi_calloc(s->ctx, count, sizeof(*s->tokens), "a page", &s->tokens));
    LOONG_TRY(
        loongi_calloc(s->ctx, count, sizeof(*s->labels), "a page", &s->labels));
    LOONG_TRY(loongi_calloc(s->ctx, count, sizeof(*s->feature), "a page",
                            &s->feature));
    LOONG_TRY(
        loongi_calloc(s->ctx, count, sizeof(*s->video), "a page", &s->video));
    LOONG_TRY(loongi_calloc(s->ctx, 3 * count, sizeof(*s->positions), "a page",
                            &s->positions));
    LOONG_TRY(loongi_calloc(s->ctx, count + 1, sizeof(*s->bounds), "a page",
                            &s->bounds));
    LOONG_TRY(
        loongi_calloc(s->ctx, count, sizeof(*s->weight), "a page", &s->weight));
    LOONG_TRY(
        loongi_recipe_tokenizer(s->ctx, s->data->plan->recipe, &s->tokenizer));
    return s->tokenizer == NULL
               ? LOONG_OK
               : loongi_alloc(s->ctx, loong_text_stream_size(s->tokenizer) + 1,
                              "a page", &s->token);
}

static loong_status_t add_encoder(loong_show_t *s, const char *name,
                                  const void *cut, loong_loader_t *loader)
{
    loong_shown_encoder_t *e = &s->encoder[s->num_encoders++];
    e->name = name;
    e->cut = cut;
    e->loader = loader;
    size_t rows = (size_t)e->cut->rows;
    LOONG_TRY(loongi_calloc(s->ctx, rows,
                            (size_t)loongi_patch_elements(e->cut) *
                                sizeof(*e->patches),
                            "a page", &e->patches));
    LOONG_TRY(loongi_calloc(s->ctx, 2 * rows, sizeof(*e->places), "a page",
                            &e->places));
    return loongi_calloc(s->ctx, rows, sizeof(*e->masked), "a page",
                         &e->masked);
}

/* What the model's components read. */
static loong_status_t open_show(loong_show_t *s)
{
    const loong_reader_t *reader = loongi_plan_reader(s->data->plan);
    const loong_processor_t *processor = reader->processor;
    bool texts = processor == &loong_token_processor;
    LOONG_CHECK(s->ctx, texts || processor == &loong_patch_processor,
                LOONG_ERR_UNSUPPORTED,
                "family %s reads its data by a processor of its own ('%s'), "
                "tokens and pictures can be shown",
                texts_of(s)->params.family->name, processor->name);
    LOONG_TRY(texts ? open_texts(s)
                    : add_encoder(s, texts_of(s)->params.name, reader->config,
                                  s->data->loader));
    const loong_plan_t *plan = s->data->plan;
    for (int e = 0; texts && e < plan->num_encoders; e++) {
        const loong_images_t *images = &s->data->images[e];
        LOONG_TRY(add_encoder(s, loong_recipe_component(plan->recipe, 2 * e),
                              plan->readers[images->encoder].config,
                              images->loader));
    }
    s->items.ctx = s->ctx;
    LOONG_TRY(processor->begin(reader->config, &s->items));
    s->items.unmarked = false;
    s->items.picture = -1;
    return LOONG_OK;
}

static void close_show(loong_show_t *s)
{
    void *const memory[] = {s->token,   s->tokens,    s->labels,
                            s->feature, s->video,     s->bounds,
                            s->weight,  s->positions, s->images};
    for (int i = 0; i < LOONG_COUNT_OF(memory); i++) {
        loongi_free(s->ctx, memory[i]);
    }
    for (int e = 0; e < s->num_encoders; e++) {
        loongi_free(s->ctx, s->encoder[e].patches);
        loongi_free(s->ctx, s->encoder[e].places);
        loongi_free(s->ctx, s->encoder[e].masked);
    }
    loong_tokenizer_destroy(&s->tokenizer);
    loong_items_free(&s->items);
    loongi_text_free(&s->html);
}

static loong_status_t fill_texts(const loong_show_t *s)
{
    int64_t n = s->R * s->T;
    const loong_field_t fields[] = {
        {"tokens", LOONG_I32, n, s->tokens, NULL},
        {"labels", LOONG_I32, n, s->labels, NULL},
        {loong_feature_inputs[0], LOONG_I32, n, s->feature, NULL},
        {loong_feature_inputs[1], LOONG_I32, n, s->video, NULL},
        {s->axes ? "axis_positions" : "positions", LOONG_I32,
         s->axes ? 3 * n : n, s->positions, NULL},
        {"cu_seqlens", LOONG_I32, n + 1, s->bounds, NULL},
        {"loss_weight", LOONG_F64, n, s->weight, NULL}};
    LOONG_TRY(loong_loader_fill(s->data->loader, s->consumed, s->micro_batch,
                                LOONG_COUNT_OF(fields), fields));
    for (int64_t i = 0; i < n; i++) {
        s->feature[i] |= s->video[i];
    }
    return LOONG_OK;
}

static loong_status_t add_images(loong_show_t *s, loong_batch_plan_t *plan)
{
    const loong_planned_image_t *images = NULL;
    int64_t count = 0;
    LOONG_TRY(loongi_batch_plan_images(plan, s->consumed, false, s->micro_batch,
                                       &images, &count));
    LOONG_TRY(loongi_grow(s->ctx, &s->images, &s->room, s->num_images + count,
                          sizeof(*s->images), "a page"));
    for (int64_t i = 0; i < count; i++) {
        s->images[s->num_images++] = images[i];
    }
    return LOONG_OK;
}

static int in_text(const void *one, const void *other)
{
    const loong_planned_image_t *a = one;
    const loong_planned_image_t *b = other;
    return a->draw != b->draw ? (a->draw > b->draw) - (a->draw < b->draw)
                              : a->number - b->number;
}

static loong_status_t fill_pictures(loong_show_t *s, int encoder)
{
    const loong_plan_t *plan = s->data->plan;
    const loong_picture_plan_t *p = &plan->pictures[encoder];
    const loong_shown_encoder_t *e = &s->encoder[encoder];
    int64_t n = e->cut->rows;
    const loong_field_t fields[] = {
        {"patches", LOONG_F32, n * loongi_patch_elements(e->cut), e->patches,
         NULL},
        {"patch_positions", LOONG_I32, 2 * n, e->places, NULL},
        {"is_masked", LOONG_I32, n, e->masked, NULL}};
    if (s->T > 0) {
        LOONG_CHECK(s->ctx, p->samples >= plan->set->micro_batch_size,
                    LOONG_ERR_UNSUPPORTED,
                    "model.%s.train.micro_batch_size: %lld is a part of a "
                    "micro-batch of texts, which is shown as a whole; leave "
                    "it out",
                    e->name, (long long)p->samples);
        LOONG_TRY(add_images(s, s->data->images[encoder].plan));
    }
    return loong_loader_fill(e->loader, s->consumed,
                             s->micro_batch / LOONG_MAX(p->texts, 1),
                             e->cut->mask_ratio > 0.0 ? 3 : 2, fields);
}

static loong_status_t fill(loong_show_t *s)
{
    s->num_images = 0;
    if (s->T > 0) {
        LOONG_TRY(fill_texts(s));
    }
    for (int e = 0; e < s->num_encoders; e++) {
        LOONG_TRY(fill_pictures(s, e));
    }
    if (s->num_images > 0) {
        qsort(s->images, (size_t)s->num_images, sizeof(*s->images), in_text);
    }
    return LOONG_OK;
}

/* ---- where a row is from ------------------------------------------------- */

/* Where token t of its text stands in a row, in which pictures take as many
 * places as they have rows. */
static int64_t place_of(const loong_show_t *s, const loong_shown_row_t *row,
                        const loong_item_t *picture, int64_t pictures,
                        int64_t t)
{
    int64_t place = t;
    for (int64_t i = 0; i < s->num_images; i++) {
        const loong_planned_image_t *image = &s->images[i];
        bool before = image->draw == row->draw && image->number <= pictures &&
                      picture[image->number - 1].at < t;
        place += before ? image->rows.text -
                              loong_item_parts(&picture[image->number - 1])
                        : 0;
    }
    return place;
}

static loong_status_t add_part(loong_show_t *s, const char *path,
                               const loong_sample_t *sample,
                               const loong_items_t *items, int64_t begin,
                               loong_shown_row_t *row)
{
    char *from = NULL;
    const char *name = items->item[0].name;
    LOONG_TRY(name != NULL
                  ? loongi_arena_strdup(s->arena, name, &from)
                  : loongi_arena_printf(s->arena, &from, "%s, sample %" PRId64,
                                        path, sample->number));
    row->parts[row->num_parts++] = (loong_part_t){begin, from};
    for (int k = 0; k < items->count; k++) {
        const loong_item_t *item = &items->item[k];
        row->label = item->type == LOONG_ITEM_LABEL ? item->label : row->label;
        if (item->type != LOONG_ITEM_IMAGE ||
            row->num_pictures == LOONG_MAX_ITEMS) {
            continue;
        }
        char *picture = NULL;
        LOONG_TRY(loongi_arena_strdup(
            s->arena, item->name != NULL ? item->name : "", &picture));
        row->kind[row->num_pictures] = item->frames > 0 ? "video" : "picture";
        row->picture[row->num_pictures++] = picture;
    }
    return LOONG_OK;
}

/* The samples of a row, in their order; s->items has the row. */
static loong_status_t list_parts(loong_show_t *s, const loong_sample_t *sample,
                                 const loong_blend_source_info_t *source,
                                 loong_shown_row_t *row)
{
    const loong_item_t *text = &s->items.item[0];
    bool is_text = text->type == LOONG_ITEM_TOKENS;
    int64_t ids = is_text ? text->size[0] : 0;
    loong_items_t inner = {.ctx = s->ctx,
                           .vocab_size = s->items.vocab_size,
                           .picture = -1,
                           .epoch = sample->epoch,
                           .sizes = s->items.sizes};
    loong_status_t status = LOONG_OK;
    for (int64_t t = 0; t < ids && status == LOONG_OK; t++) {
        if (t > 0 && (text->starts[t] & LOONG_START_SAMPLE) == 0) {
            continue;
        }
        status =
            loongi_pack_read_sample(source->source_class, source->source,
                                    sample->number, row->num_parts, &inner);
        const loong_items_t *own = inner.count > 0 ? &inner : &s->items;
        if (status == LOONG_OK) {
            status = add_part(s, source->info.path, sample, own,
                              place_of(s, row, text + 1, s->items.count - 1, t),
                              row);
        }
    }
    row->end =
        LOONG_MIN(place_of(s, row, text + 1, s->items.count - 1, ids), s->T);
    if (!is_text && status == LOONG_OK) {
        status = add_part(s, source->info.path, sample, &s->items, 0, row);
    }
    loong_items_free(&inner);
    return status;
}

/* ---- the page ------------------------------------------------------------ */

static void put_heading(loong_show_t *s, const loong_shown_row_t *row,
                        const loong_sample_t *sample, const char *path)
{
    int64_t learned = 0;
    int64_t of_pictures = 0;
    for (int64_t t = row->number * s->T; t < (row->number + 1) * s->T; t++) {
        learned += s->weight[t] > 0.0;
        of_pictures += s->feature[t];
    }
    loongi_text_printf(
        &s->html, "<section id=\"sample-%" PRId64 "\"><h2>sample %" PRId64 ": ",
        row->draw, row->draw);
    loongi_html_text(&s->html, row->num_parts > 0 ? row->parts[0].from : path);
    if (row->num_parts > 1) {
        loongi_text_printf(&s->html, " and %d more", row->num_parts - 1);
    }
    loongi_text_printf(&s->html,
                       "</h2><p>row %" PRId64 " of micro-batch %" PRId64
                       "; number %" PRId64 " of ",
                       row->number, row->micro_batch, sample->number);
    loongi_html_text(&s->html, path);
    loongi_text_printf(&s->html, ", epoch %" PRId64, sample->epoch);
    if (s->T > 0) {
        loongi_text_printf(&s->html,
                           "; %" PRId64 " places, %" PRId64
                           " of them of pictures and videos, %" PRId64
                           " of padding; %" PRId64 " tokens learned",
                           s->T, of_pictures, s->T - row->end, learned);
    }
    loongi_text_printf(&s->html, "</p>\n");
}

static loong_status_t put_row(loong_show_t *s, loong_shown_row_t *row)
{
    const loong_blend_t *blend = s->data->blend;
    loong_sample_t sample;
    loong_blend_source_info_t source;
    LOONG_TRY(loong_blend_locate(blend, row->draw, &sample));
    loong_blend_get_source(blend, sample.source, &source);
    s->items.epoch = sample.epoch;
    LOONG_TRY(
        source.source_class->read(source.source, sample.number, &s->items));
    size_t most = (size_t)LOONG_MAX(s->items.item[0].size[0], 1);
    LOONG_TRY(
        loongi_arena_alloc(s->arena, most * sizeof(*row->parts), &row->parts));
    LOONG_TRY(list_parts(s, &sample, &source, row));
    put_heading(s, row, &sample, source.info.path);
    if (s->T > 0) {
        loongi_show_tokens(s, row);
    }
    LOONG_TRY(loongi_show_pictures(s, row));
    loongi_text_printf(&s->html, "</section>\n");
    return s->html.status;
}

/* Rows of the micro-batch that are among the first `samples` draws. */
static loong_status_t put_micro_batch(loong_show_t *s, int64_t samples)
{
    int64_t draw = 0;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loong_loader_get_draw(s->data->loader, s->consumed,
                                    s->micro_batch, 0, &draw));
    if (draw >= samples) {
        return LOONG_OK;
    }
    LOONG_TRY(fill(s));
    for (int64_t j = 0; j < s->data->plan->set->micro_batch_size &&
                        draw + j < samples && status == LOONG_OK;
         j++) {
        loong_shown_row_t row = {.draw = draw + j,
                                 .micro_batch = s->micro_batch,
                                 .number = j,
                                 .label = -1};
        LOONG_TRY(loongi_arena_create(s->ctx, "a row of a page", &s->arena));
        status = put_row(s, &row);
        loongi_arena_destroy(&s->arena);
    }
    return status;
}

static void put_summary(loong_show_t *s)
{
    loong_text_t text = loongi_text_begin(s->ctx);
    loongi_run_data_describe(s->data, &text);
    loongi_text_printf(&s->html, "<details><summary>data</summary><pre>");
    for (const char *line = loongi_text_get(&text); *line != '\0';) {
        size_t length = strcspn(line, "\n");
        loongi_html_escape(&s->html, line, length);
        loongi_text_printf(&s->html, "\n");
        line += line[length] == '\n' ? length + 1 : length;
    }
    loongi_text_printf(&s->html, "</pre></details>\n<p><span class=\"t l\">"
                                 "learned</span> <span class=\"t\">not "
                                 "learned</span>; what is known of a token or "
                                 "a square is told where the pointer stands.");
    if (s->num_encoders > 0) {
        loongi_text_printf(&s->html, " <label><input type=\"checkbox\" "
                                     "id=\"grid\" checked> patches, and those "
                                     "that become one row</label>");
    }
    loongi_text_printf(&s->html, "</p>\n");
    loongi_text_free(&text);
}

static loong_status_t put_samples(loong_show_t *s, int64_t samples)
{
    loong_loader_t *loader = s->data->loader;
    for (s->consumed = 0; s->consumed < samples;
         s->consumed += loong_loader_batch(loader, s->consumed)) {
        int64_t count = loong_loader_micro_batches(loader, s->consumed);
        for (s->micro_batch = 0; s->micro_batch < count; s->micro_batch++) {
            LOONG_TRY(put_micro_batch(s, samples));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_show_write(const loong_run_data_t *data, int64_t samples,
                                 const char *path)
{
    loong_show_t s = {.ctx = data->plan->ctx, .data = data};
    int64_t of_run = loongi_settings_samples(data->plan->set);
    s.html = loongi_text_begin(s.ctx);
    loong_status_t status = open_show(&s);
    if (status == LOONG_OK) {
        loongi_html_begin(&s.html,
                          loong_recipe_text(data->plan->recipe, "name"));
        put_summary(&s);
        status = put_samples(&s, LOONG_MIN(samples, of_run));
    }
    if (status == LOONG_OK) {
        loongi_html_end(&s.html);
        status = loongi_first_of(
            s.html.status,
            loongi_file_write(s.ctx, path, s.html.data, s.html.length));
    }
    close_show(&s);
    return status;
}
