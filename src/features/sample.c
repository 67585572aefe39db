/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampled text at an evaluation: the prompts of the recipe, continued. Every
 * new token runs the whole window again: plain, and seldom. The ranks of the
 * first replica draw together, rank 0 tells. Called by trainer_create.c and by
 * evaluations. Read sample.h before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "loong/tokenizer.h"
#include "rng.h"
#include "sample.h"
#include "token_fields.h"
#include "top_k.h"

typedef struct sampler {
    const loong_sampling_t *from;
    int64_t step;
    int64_t window; /* tokens the logits chunk takes */
    int64_t vocab;
    int64_t all; /* with padding */
    double temperature;
    int64_t top_k;
    int64_t fresh; /* tokens to draw, at most */
    int32_t *ids; /* prompt and what was drawn */
    int64_t count;
    int64_t *counts; /* logits of each rank of TP */
    double *logits;  /* of the next token, those of all of them */
    int32_t *order;
    void *row; /* logits as they come */
    char *inputs;
    int32_t *prompt; /* [window] */
    uint8_t *zeros;  /* [window + 1] one document */
    uint8_t *learned; /* [window] the first token that was drawn */
    int64_t asked;    /* tokens before that */
} sampler_t;

/* ---- one token ----------------------------------------------------------- */

static double element(const void *p, loong_dtype_t dtype, int64_t i)
{
    if (dtype == LOONG_F64) {
        return ((const double *)p)[i];
    }
    return dtype == LOONG_F32
               ? (double)((const float *)p)[i]
               : (double)loongi_bf16_to_f32(((const uint16_t *)p)[i]);
}

/* The prompt ends at the last of `used` ids; zeros follow it. */
static loong_status_t fill_stage(const sampler_t *s, int number, int64_t used)
{
    const loong_plan_t *plan = s->from->plan;
    const loong_stage_t *stage = plan->component->stages[number];
    const loong_input_list_t *list = loongi_inputs_of(
        s->from->inputs, loongi_model_first(plan->component) + number,
        LOONG_VARIANT_LOGITS);
    loong_token_row_t row = {
        .ids = s->prompt, .weight = s->learned, .starts = s->zeros};
    void *const rows[] = {&row};
    loong_token_params_t layout =
        *(const loong_token_params_t *)loongi_plan_reader(plan)->config;
    layout.seq_length = s->window;
    layout.rows = layout.context_parallel_size = 1;
    layout.context_parallel_rank = layout.context_parallel_a2a = 0;
    memset(s->prompt, 0, (size_t)s->window * sizeof(*s->prompt));
    memcpy(s->prompt, s->ids + s->count - used,
           (size_t)used * sizeof(*s->prompt));
    memset(s->learned, 0, (size_t)s->window);
    s->learned[LOONG_MAX(s->asked - 1 - (s->count - used), 0)] = 1;
    for (int i = 0; i < list->count; i++) {
        loong_field_t field = list->fields[i];
        field.to = s->inputs + list->ports[i]->operand.offset;
        LOONG_TRY(loongi_token_fill(plan->ctx, &layout, rows, &field));
        LOONG_TRY(loongi_binding_write(
            &stage->run, list->ports[i]->operand, field.to,
            (size_t)field.count * loong_dtype_size(field.dtype)));
    }
    return LOONG_OK;
}

/* The output "logits" of the last stage; NULL on other ranks. */
static const loong_port_t *find_logits(const loong_stage_t *head)
{
    return head != NULL ? loongi_model_chunk_output(
                              head->chunk[LOONG_VARIANT_LOGITS], "logits")
                        : NULL;
}

/* Logits of the token behind ids: made by the last stage, known to all. */
static loong_status_t forward(sampler_t *s)
{
    const loong_plan_t *plan = s->from->plan;
    const loong_stage_t *head = loongi_component_head(plan->component);
    const loong_port_t *out = find_logits(head);
    loong_comm_t *stages = plan->component->comms.host.comm[LOONG_GROUP_PP];
    int64_t used = LOONG_MIN(s->count, s->window);
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    for (int i = 0; i < plan->component->num_stages; i++) {
        LOONG_TRY(fill_stage(s, i, used));
    }
    LOONG_TRY(loongi_model_forward(plan->component->model, LOONG_VARIANT_LOGITS,
                                   &frame, NULL, NULL));
    if (out != NULL) {
        int64_t columns = out->shape.dim[1];
        size_t bytes = (size_t)columns * loong_dtype_size(out->dtype);
        loong_operand_t from = out->operand;
        from.offset += (used - 1) * (int64_t)bytes;
        LOONG_TRY(
            loongi_binding_read(&head->run, from, s->row, bytes, "logits"));
        double *own = s->logits;
        for (int r = 0; r < plan->mesh.coord[LOONG_AXIS_TP]; r++) {
            own += s->counts[r];
        }
        for (int64_t v = 0; v < columns; v++) {
            own[v] = element(s->row, out->dtype, v);
        }
        LOONG_TRY(loong_comm_all_gather(
            plan->component->comms.host.comm[LOONG_GROUP_TP], s->logits,
            s->counts, LOONG_F64, "logits"));
    }
    return loong_comm_broadcast(
        stages, s->logits, (size_t)s->all * sizeof(*s->logits),
        loongi_component_head_rank(plan->component), "logits");
}

/* How the ranks of TP share the vocabulary. */
static loong_status_t exchange_counts(sampler_t *s)
{
    const loong_plan_t *plan = s->from->plan;
    loong_comm_t *tp = plan->component->comms.host.comm[LOONG_GROUP_TP];
    int size = loong_comm_size(tp);
    LOONG_TRY(loongi_calloc(plan->ctx, 2 * (size_t)size, sizeof(*s->counts),
                            "parts of the vocabulary", &s->counts));
    int64_t *ones = s->counts + size;
    for (int r = 0; r < size; r++) {
        ones[r] = 1;
    }
    const loong_port_t *out =
        find_logits(loongi_component_head(plan->component));
    loong_comm_t *stages = plan->component->comms.host.comm[LOONG_GROUP_PP];
    s->counts[loong_comm_rank(tp)] = out != NULL ? out->shape.dim[1] : 0;
    LOONG_TRY(loong_comm_all_gather(tp, s->counts, ones, LOONG_I64,
                                    "parts of the vocabulary"));
    LOONG_TRY(loong_comm_broadcast(stages, s->counts,
                                   (size_t)size * sizeof(*s->counts),
                                   loongi_component_head_rank(plan->component),
                                   "parts of the vocabulary"));
    for (int r = 0; r < size; r++) {
        s->all += s->counts[r];
    }
    return LOONG_OK;
}

static int32_t draw(sampler_t *s, uint64_t index)
{
    int64_t k = s->top_k > 0 ? LOONG_MIN(s->top_k, s->vocab) : s->vocab;
    k = s->temperature > 0.0 ? k : 1;
    loongi_top_k(s->logits, s->vocab, k, s->order);
    double top = s->logits[s->order[0]];
    double temperature = s->temperature > 0.0 ? s->temperature : 1.0;
    double sum = 0.0;
    for (int64_t i = 0; i < k; i++) {
        sum += exp((s->logits[s->order[i]] - top) / temperature);
    }
    double at = sum * loongi_rng_uniform(s->from->plan->set->seed,
                                         loongi_rng_name("sample"), index);
    for (int64_t i = 0; i < k; i++) {
        at -= exp((s->logits[s->order[i]] - top) / temperature);
        if (at <= 0.0) {
            return s->order[i];
        }
    }
    return s->order[k - 1];
}

/* ---- prompts ------------------------------------------------------------- */

static const char prompts_key[] = "eval.sample.prompts";

int64_t loongi_sample_count(const loong_recipe_t *recipe)
{
    return loong_recipe_count(recipe, prompts_key) +
           loong_recipe_int(recipe, "eval.sample.conversations");
}

/* The ids in front of a row's first learned token: what a conversation has
 * before the answer, with the request for it. None, where all is learned. */
static int64_t question_length(const loong_items_t *items)
{
    const loong_item_t *text = &items->item[0];
    bool tells = items->count == 1 && text->type == LOONG_ITEM_TOKENS;
    int64_t count = 0;
    while (tells && count < text->size[0] && text->weight[count] == 0) {
        count++;
    }
    return count;
}

static loong_status_t read_asked(const loong_blend_t *asked, int64_t number,
                                 loong_items_t *items)
{
    loong_sample_t sample;
    loong_blend_source_info_t source;
    LOONG_TRY(loong_blend_locate(asked, number, &sample));
    loong_blend_get_source(asked, sample.source, &source);
    items->epoch = sample.epoch;
    return source.source_class->read(source.source, sample.number, items);
}

static loong_status_t take_question(sampler_t *s, const loong_items_t *items)
{
    const loong_item_t *text = &items->item[0];
    s->count = question_length(items);
    LOONG_TRY(loongi_calloc(s->from->plan->ctx, (size_t)(s->count + s->fresh),
                            sizeof(*s->ids), "sampled tokens", &s->ids));
    memcpy(s->ids, text->ids, (size_t)s->count * sizeof(*s->ids));
    return LOONG_OK;
}

static loong_status_t read_question(sampler_t *s, int64_t number)
{
    loong_items_t items = {.ctx = s->from->plan->ctx, .vocab_size = s->vocab};
    loong_status_t status = read_asked(s->from->asked, number, &items);
    if (status == LOONG_OK) {
        status = take_question(s, &items);
    }
    loong_items_free(&items);
    return status;
}

static loong_status_t read_prompt(sampler_t *s, int64_t number)
{
    const loong_plan_t *plan = s->from->plan;
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    char path[64];
    snprintf(path, sizeof(path), "%s[%lld]", prompts_key, (long long)number);
    const char *prompt = loong_recipe_text(plan->recipe, path);
    LOONG_TRY(
        loong_text_encoder_create(plan->ctx, s->from->tokenizer, &encoder));
    loong_status_t status = loong_text_encode(encoder, prompt, strlen(prompt),
                                              true, &ids, &s->count);
    if (status == LOONG_OK) {
        status =
            loongi_calloc(plan->ctx, (size_t)(s->count + s->fresh),
                          sizeof(*s->ids), "sampled tokens", &s->ids);
    }
    if (status == LOONG_OK) {
        memcpy(s->ids, ids, (size_t)s->count * sizeof(*ids));
    }
    loong_text_encoder_destroy(&encoder);
    return status;
}

static loong_status_t read_number(sampler_t *s, int64_t number)
{
    int64_t prompts = loong_recipe_count(s->from->plan->recipe, prompts_key);
    return number < prompts ? read_prompt(s, number)
                            : read_question(s, number - prompts);
}

/* ---- one prompt ---------------------------------------------------------- */

enum { SAMPLE_TAG = 1 };

/* The rank of the job that draws for rank 0, which tells. */
static int teller(const loong_plan_t *plan)
{
    return loongi_job_rank(&plan->component->params, 0);
}

static loong_status_t tell(const loong_plan_t *plan, char *text)
{
    int64_t size = (int64_t)strlen(text) + 1;
    if (loong_comm_rank(plan->comm) != teller(plan)) {
        return LOONG_OK;
    }
    if (teller(plan) == 0) {
        loongi_log(plan->ctx, LOONG_LOG_INFO, "sample | %s", text);
        return LOONG_OK;
    }
    LOONG_TRY(
        loong_comm_send(plan->comm, &size, sizeof(size), 0, SAMPLE_TAG));
    return loong_comm_send(plan->comm, text, (size_t)size, 0, SAMPLE_TAG);
}

/* On rank 0, where others have the component. */
static loong_status_t hear(const loong_plan_t *plan)
{
    int64_t size = 0;
    char *text = NULL;
    LOONG_TRY(loong_comm_recv(plan->comm, &size, sizeof(size), teller(plan),
                              SAMPLE_TAG));
    LOONG_TRY(
        loongi_calloc(plan->ctx, (size_t)size, 1, "a sampled text", &text));
    loong_status_t status = loong_comm_recv(plan->comm, text, (size_t)size,
                                            teller(plan), SAMPLE_TAG);
    if (status == LOONG_OK) {
        loongi_log(plan->ctx, LOONG_LOG_INFO, "sample | %s", text);
    }
    loongi_free(plan->ctx, text);
    return status;
}

/* Of a text, or of a turn: often the tokenizer's eos_token alone ends these. */
static bool is_end(const sampler_t *s, int32_t id)
{
    const loong_tokenizer_t *t = s->from->tokenizer;
    return id == loong_tokenizer_get_role(t, LOONG_TOKEN_EOD) ||
           id == loong_tokenizer_get_role(t, LOONG_TOKEN_EOS);
}

static loong_status_t continue_prompt(sampler_t *s, int64_t number)
{
    const loong_plan_t *plan = s->from->plan;
    loong_status_t status = read_number(s, number);
    if (status == LOONG_OK && s->count == 0) {
        char none[] = "the sample begins with an answer, and no question";
        loongi_free(plan->ctx, s->ids);
        s->ids = NULL;
        return tell(plan, none);
    }
    s->asked = s->count;
    for (int64_t i = 0; i < s->fresh && status == LOONG_OK; i++) {
        status = forward(s);
        if (status == LOONG_OK) {
            uint64_t index =
                (uint64_t)s->step << 32 | (uint64_t)number << 20 | (uint64_t)i;
            int32_t *id = &s->ids[s->count++];
            *id = draw(s, index);
            /* Ranks that share experts may have rounded otherwise. */
            status = loong_comm_broadcast(
                plan->component->comms.host.comm[LOONG_GROUP_ETP_EP], id,
                sizeof(*id), 0, "sampled token");
            if (is_end(s, *id)) {
                break;
            }
        }
    }
    char *text = NULL;
    size_t length = 0;
    if (status == LOONG_OK) {
        status = loong_tokenizer_decode(plan->ctx, s->from->tokenizer, s->ids,
                                        s->count, true, &text, &length);
    }
    if (status == LOONG_OK) {
        status = tell(plan, text);
        loong_tokenizer_free_text(plan->ctx, &text);
    }
    loongi_free(plan->ctx, s->ids);
    s->ids = NULL;
    return status;
}

/* Ranks that draw: all that hold a part of the first replica. Where replicas
 * share parameters or experts out, all of them draw the same. */
static bool draws(const loong_plan_t *plan)
{
    if (plan->absent) {
        return false;
    }
    return plan->component->params.shards.sharding == LOONG_SHARDING_PARAMS ||
           loong_mesh_group_size(&plan->mesh, LOONG_GROUP_ETP_EP) > 1 ||
           (plan->mesh.coord[LOONG_AXIS_DP] == 0 &&
            plan->mesh.coord[LOONG_AXIS_CP] == 0);
}

/* Tokens of questions, each with its answer; of prompts, and of what cannot be
 * read, that is not known: as many as there may be. */
static int64_t longest_sample(const loong_plan_t *plan,
                              const loong_blend_t *asked)
{
    const loong_recipe_t *r = plan->recipe;
    int64_t most =
        asked == NULL || loong_recipe_count(r, prompts_key) > 0 ? INT64_MAX : 0;
    loong_items_t items = {.ctx = plan->ctx, .vocab_size = INT32_MAX};
    for (int64_t i = 0; most < INT64_MAX &&
                        i < loong_recipe_int(r, "eval.sample.conversations");
         i++) {
        if (read_asked(asked, i, &items) != LOONG_OK) { /* told by a step */
            loong_context_clear_error(plan->ctx);
            most = INT64_MAX;
        } else {
            most = LOONG_MAX(most, question_length(&items) +
                                       plan->set->max_new_tokens);
        }
    }
    loong_items_free(&items);
    return most;
}

int64_t loongi_sample_window(const loong_plan_t *plan,
                             const loong_blend_t *asked)
{
    enum { MOST = 256, MULTIPLE = 64 };
    static const char *const limits[] = {
        "model.foundation.max_position_embeddings",
        "model.foundation.rope_scaling.original_max_position_embeddings"};
    const char *type =
        loong_recipe_text(plan->recipe, "model.foundation.rope_scaling.type");
    int64_t wanted = LOONG_MIN(longest_sample(plan, asked), MOST);
    int64_t window = LOONG_MIN(plan->set->seq_length,
                               (wanted + MULTIPLE - 1) / MULTIPLE * MULTIPLE);
    for (int i = 0; i < 2 && type != NULL && strcmp(type, "dynamic") == 0;
         i++) {
        int64_t limit = (int64_t)loong_recipe_real(plan->recipe, limits[i]);
        window = limit > 0 ? LOONG_MIN(window, limit) : window;
    }
    return window;
}

loong_status_t loongi_sample_check_prompts(const loong_sampling_t *sampling)
{
    const loong_plan_t *plan = sampling->plan;
    loong_text_encoder_t *encoder = NULL;
    int64_t prompts = loong_recipe_count(plan->recipe, prompts_key);
    int32_t image =
        plan->num_encoders > 0
            ? loong_tokenizer_token_to_id(
                  sampling->tokenizer,
                  loong_recipe_text(plan->recipe, "data.image_token"))
            : -1;
    LOONG_TRY(
        loong_text_encoder_create(plan->ctx, sampling->tokenizer, &encoder));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < prompts && status == LOONG_OK; i++) {
        char path[64];
        const int32_t *ids = NULL;
        int64_t count = 0;
        snprintf(path, sizeof(path), "%s[%lld]", prompts_key, (long long)i);
        const char *prompt = loong_recipe_text(plan->recipe, path);
        status = loong_text_encode(encoder, prompt, strlen(prompt), true, &ids,
                                   &count);
        bool pictures = false;
        for (int64_t k = 0; status == LOONG_OK && k < count; k++) {
            pictures = pictures || ids[k] == image;
        }
        if (status == LOONG_OK && (count == 0 || pictures)) {
            status = LOONG_FAIL(
                plan->ctx, LOONG_ERR_CONFIG, "%s: %s has %s",
                loong_recipe_where(plan->recipe, path), path,
                pictures ? "a picture's token, and samples no pictures"
                         : "no tokens");
        }
    }
    loong_text_encoder_destroy(&encoder);
    return status;
}

loong_status_t loongi_sample_open(loong_sampling_t *sampling)
{
    const loong_plan_t *plan = sampling->plan;
    if (loongi_sample_count(plan->recipe) == 0 || !draws(plan)) {
        loong_tokenizer_destroy(&sampling->tokenizer);
        return LOONG_OK;
    }
    if (sampling->tokenizer == NULL) {
        LOONG_TRY(loongi_recipe_tokenizer(plan->ctx, plan->recipe,
                                          &sampling->tokenizer));
    }
    LOONG_CHECK(plan->ctx, sampling->tokenizer != NULL, LOONG_ERR_CONFIG,
                "eval.sample wants data.tokenizer");
    return loongi_sample_check_prompts(sampling);
}

static loong_status_t run_sampler(sampler_t *s, int64_t prompts)
{
    const loong_plan_t *plan = s->from->plan;
    LOONG_TRY(exchange_counts(s));
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)s->all,
                            sizeof(*s->logits) + sizeof(*s->order), "logits",
                            &s->logits));
    s->order = (int32_t *)(void *)(s->logits + s->all);
    int64_t bytes = 0;
    for (int i = 0; i < plan->component->num_stages; i++) {
        const loong_stage_t *stage = plan->component->stages[i];
        bytes =
            LOONG_MAX(bytes, stage->chunk[LOONG_VARIANT_LOGITS]->input_bytes);
    }
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)s->all, sizeof(double), "logits",
                            &s->row));
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)bytes, 1, "inputs", &s->inputs));
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)s->window, sizeof(*s->prompt),
                            "prompt", &s->prompt));
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)s->window + 1, 1,
                            "starts of documents", &s->zeros));
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)s->window, 1, "learned tokens",
                            &s->learned));
    for (int64_t i = 0; i < prompts; i++) {
        LOONG_TRY(continue_prompt(s, i));
    }
    return LOONG_OK;
}

loong_status_t loongi_sample(const loong_sampling_t *sampling, int64_t step)
{
    const loong_plan_t *plan = sampling->plan;
    sampler_t s;
    int64_t prompts = loongi_sample_count(plan->recipe);
    for (int64_t i = 0; plan->absent && loong_comm_rank(plan->comm) == 0 &&
                        i < prompts;
         i++) {
        LOONG_TRY(hear(plan));
    }
    if (prompts == 0 || sampling->tokenizer == NULL || !draws(plan)) {
        return LOONG_OK;
    }
    memset(&s, 0, sizeof(s));
    s.from = sampling;
    s.step = step;
    s.window = plan->component->params.logits_rows;
    s.vocab = LOONG_MIN(plan->component->facts.vocab_size,
                        loong_tokenizer_get_vocab_size(sampling->tokenizer));
    s.temperature = plan->set->sample_temperature;
    s.top_k = plan->set->sample_top_k;
    s.fresh = plan->set->max_new_tokens;
    loong_status_t status = run_sampler(&s, prompts);
    loongi_free(plan->ctx, s.row);
    loongi_free(plan->ctx, s.inputs);
    loongi_free(plan->ctx, s.prompt);
    loongi_free(plan->ctx, s.zeros);
    loongi_free(plan->ctx, s.learned);
    loongi_free(plan->ctx, s.logits);
    loongi_free(plan->ctx, s.counts);
    return status;
}
