/* SPDX-License-Identifier: Apache-2.0
 *
 * LLaVA's shape against transformers (llava.py): an image encoder, a projector
 * and a decoder in one step, of three micro-batches with no picture, one and
 * two. The loss and every gradient of all three to 1e-9 in f64; also where the
 * decoder is tensor parallel, with and without sequence parallelism, and the
 * encoder has a replica on each of its ranks. */
#include "test.h"

#include <math.h>

#include "decoder.h"
#include "decoder_config.h"
#include "edges.h"
#include "loong/register.h"
#include "projector.h"
#include "safetensors.h"
#include "vision.h"

enum {
    COMPONENTS = 3,
    MICRO_BATCHES = 3, /* a sample each, with as many pictures as its number */
    LENGTH = 32,
    IMAGE = 52, /* the token that stands for a row of a picture */
    ROWS = 10,  /* of a picture in the encoder */
    SENT = 9,   /* behind its class token */
    SIDE = 12,
    PATCH = 4,
    PIXELS = 3 * PATCH * PATCH
};

static const char *const roles[] = {"image_encoder", "image_projector",
                                    "foundation"};

typedef struct layout {
    const char *name;
    int tp; /* of the decoder; encoder and projector: 1, or the same */
    bool sequence_parallel;
    bool encoder_too;
    const char *join;
} layout_t;

typedef struct job {
    const layout_t *layout;
    loong_context_t *ctx;
    loong_safetensors_t *golden;
    int encoders; /* replicas of encoder and projector */
    int capacity; /* pictures of a micro-batch of one of them */
    loong_vision_config_t vision;
    loong_projector_config_t projector;
    loong_decoder_config_t decoder;
    loong_model_t *model;
    double loss;
    int64_t compared;
} job_t;

static const void *golden(const job_t *j, const char *name)
{
    const loong_safetensor_t *t = loongi_safetensors_find(j->golden, name);
    if (t == NULL) {
        fail_msg("llava.py has no %s", name);
    }
    return t->data;
}

/* ---- which picture is where ---------------------------------------------- */

/* Picture k of micro-batch m, of all; it is in slot k / encoders of replica k %
 * encoders. */
static int picture_of(int m, int k)
{
    return m * (m - 1) / 2 + k;
}

/* The row of the sample where picture k begins. */
static int place_of(const job_t *j, int m, int k)
{
    const int64_t *tokens = golden(j, "tokens");
    int at = 0;
    for (int seen = 0; seen <= k * SENT; at++) {
        seen += tokens[m * LENGTH + at] == IMAGE ? 1 : 0;
    }
    return at - 1;
}

/* Of one picture between two components. */
static loong_segment_t segment_of(const job_t *j, int edge, int m, int k)
{
    int slot = k / j->encoders;
    if (edge == 0) {
        return (loong_segment_t){slot * ROWS + 1, slot * SENT, SENT};
    }
    return (loong_segment_t){slot * SENT, place_of(j, m, k), SENT};
}

/* The rows of it that a rank of the decoder has. */
static loong_segment_t cut(const job_t *j, loong_segment_t s, int rank)
{
    int64_t own = LENGTH / j->layout->tp;
    int64_t begin = LOONG_MAX(s.to_row, own * rank);
    int64_t end = LOONG_MIN(s.to_row + s.rows, own * (rank + 1));
    return (loong_segment_t){s.from_row + begin - s.to_row, begin - own * rank,
                             LOONG_MAX(end - begin, 0)};
}

static int64_t most_rows(void *user, int edge)
{
    (void)user;
    (void)edge;
    return 4;
}

static loong_status_t list_rows(void *user, const loong_message_t *message,
                                loong_segment_list_t *list)
{
    const job_t *j = user;
    bool back = message->backward;
    int from = back ? message->to_rank : message->from_rank;
    int to = back ? message->from_rank : message->to_rank;
    int m = message->from_micro_batch;
    int replica = j->layout->encoder_too ? 0 : from;
    for (int k = 0; k < m; k++) {
        loong_segment_t s = segment_of(j, message->edge, m, k);
        if (k % j->encoders != replica || (message->edge == 0 && to != from)) {
            continue;
        }
        if (message->edge == 1 && j->layout->sequence_parallel) {
            s = cut(j, s, to);
        }
        if (back) {
            s = (loong_segment_t){s.to_row, s.from_row, s.rows};
        }
        LOONG_TRY(s.rows > 0 ? loongi_segment_add(j->ctx, list, s) : LOONG_OK);
    }
    return LOONG_OK;
}

/* ---- inputs -------------------------------------------------------------- */

static void put_picture(const job_t *j, int picture, double *patches)
{
    const double *pixels = golden(j, "pixel_values");
    for (int p = 0; p < SENT; p++) {
        for (int i = 0; i < PIXELS; i++) {
            int row = p / (SIDE / PATCH) * PATCH + i / PATCH % PATCH;
            int col = p % (SIDE / PATCH) * PATCH + i % PATCH;
            int channel = i / (PATCH * PATCH);
            patches[(p + 1) * PIXELS + i] =
                pixels[((picture * 3 + channel) * SIDE + row) * SIDE + col];
        }
    }
}

static void fill_encoder(const job_t *j, const char *name, int m, int replica,
                         void *to)
{
    double *patches = to;
    int32_t *numbers = to;
    for (int slot = 0; slot < j->capacity; slot++) {
        int k = slot * j->encoders + replica;
        if (strcmp(name, "patches") == 0) {
            memset(patches + slot * ROWS * PIXELS, 0,
                   ROWS * PIXELS * sizeof(*patches));
            if (k < m) {
                put_picture(j, picture_of(m, k),
                            patches + slot * ROWS * PIXELS);
            }
        }
        for (int r = 0; r < ROWS; r++) {
            if (strcmp(name, "positions") == 0) {
                numbers[slot * ROWS + r] = r;
            } else if (strcmp(name, "is_class") == 0) {
                numbers[slot * ROWS + r] = r == 0;
            }
        }
        if (strcmp(name, "cu_seqlens") == 0) {
            numbers[slot] = slot * ROWS;
            numbers[slot + 1] = (slot + 1) * ROWS;
        }
    }
}

static void fill_decoder(const job_t *j, const char *name, int m, void *to)
{
    const int64_t *tokens = golden(j, "tokens");
    const int64_t *labels = golden(j, "labels");
    int32_t *numbers = to;
    double *weights = to;
    for (int i = 0; i < LENGTH; i++) {
        int64_t token = tokens[m * LENGTH + i];
        int64_t label = labels[m * LENGTH + i];
        if (strcmp(name, "loss_weight") == 0) {
            weights[i] = label != LOONG_IGNORE_LABEL;
        } else if (strcmp(name, "cu_seqlens") == 0) {
            numbers[0] = 0;
            numbers[1] = LENGTH;
        } else {
            numbers[i] = strcmp(name, "tokens") == 0       ? (int32_t)token
                         : strcmp(name, "labels") == 0     ? (int32_t)label
                         : strcmp(name, "is_feature") == 0 ? token == IMAGE
                                                           : i;
        }
    }
}

static void fill(const job_t *j, const loong_entry_t *e)
{
    const loong_model_t *m = j->model;
    const loong_model_chunk_t *c = m->chunks[LOONG_VARIANT_TRAIN][e->component];
    loong_binding_t run = loongi_model_bind(m, LOONG_VARIANT_TRAIN, e);
    for (int i = 0; i < c->num_inputs; i++) {
        const loong_port_t *p = &c->inputs[i];
        void *to = run.base[p->operand.base] + p->operand.offset;
        if (!loongi_port_is_data(p)) {
            continue;
        }
        if (e->component == 0) {
            int replica = m->components[0]->params.mesh.coord[LOONG_AXIS_DP];
            fill_encoder(j, p->name, e->micro_batch, replica, to);
        } else {
            fill_decoder(j, p->name, e->micro_batch, to);
        }
    }
}

/* ---- parameters ---------------------------------------------------------- */

static const double *whole(const job_t *j, const char *kind, int component,
                           const char *name)
{
    char full[256];
    snprintf(full, sizeof(full), "%s.%s.%s", kind, roles[component], name);
    return golden(j, full);
}

static loong_status_t set_params(const job_t *j, int component)
{
    loong_stage_t *s = j->model->stages[component];
    double zeros[64] = {0};
    LOONG_TRY(loongi_stage_upload(s));
    for (int64_t i = 0; i < s->layout->num_params; i++) {
        const loong_chunk_param_t *p = &s->layout->params[i];
        const double *from = whole(j, "param", component, p->name);
        loong_param_slice_t part = loongi_param_slice_of(p);
        for (int64_t row = 0; row < p->elements / part.cols; row++) {
            int64_t n = 1;
            const double *values = zeros;
            if (row < part.rows) {
                values =
                    from +
                    loongi_param_slice_row(&part, row, &n) * part.all_cols +
                    part.col;
            }
            LOONG_TRY(loongi_stage_set_param(s, p, row * part.cols, part.cols,
                                             values));
        }
    }
    return loongi_stage_uploaded(s, LOONG_OK);
}

static void compare(job_t *j, int component)
{
    const loong_stage_t *s = j->model->stages[component];
    for (int64_t i = 0; i < s->layout->num_params; i++) {
        const loong_chunk_param_t *p = &s->layout->params[i];
        const loong_flat_t *flat = &s->layout->flats[p->flat];
        const double *wanted = whole(j, "grad", component, p->name);
        const double *found =
            (void *)(s->run.base[LOONG_BASE_GRAD] + flat->grad_offset +
                     p->flat_offset * (int64_t)sizeof(double));
        loong_param_slice_t part = loongi_param_slice_of(p);
        for (int64_t e = 0; e < part.rows * part.cols; e++) {
            int64_t n = 1;
            int64_t at = loongi_param_slice_row(&part, e / part.cols, &n) *
                             part.all_cols +
                         part.col + e % part.cols;
            if (!(fabs(found[e] - wanted[at]) <= 1e-9)) {
                fail_msg("%s: gradient %d of %s.%s is %.12g, not %.12g",
                         j->layout->name, (int)at, roles[component], p->name,
                         found[e], wanted[at]);
            }
            j->compared++;
        }
    }
}

/* ---- a step -------------------------------------------------------------- */

static int64_t learned(const job_t *j)
{
    const int64_t *labels = golden(j, "labels");
    int64_t count = 0;
    for (int i = 0; i < MICRO_BATCHES * LENGTH; i++) {
        count += labels[i] != LOONG_IGNORE_LABEL;
    }
    return count;
}

static void add_loss(job_t *j, const loong_entry_t *e)
{
    const loong_model_chunk_t *c =
        j->model->chunks[LOONG_VARIANT_TRAIN][e->component];
    loong_binding_t run = loongi_model_bind(j->model, LOONG_VARIANT_TRAIN, e);
    for (int i = 0; i < c->num_losses; i++) {
        loong_operand_t at = c->losses[i].port.operand;
        const double *rows = (void *)(run.base[at.base] + at.offset);
        for (int k = 0; k < LENGTH; k++) {
            j->loss += rows[k];
        }
    }
}

static loong_status_t run_entry(job_t *j, int64_t index)
{
    const loong_model_t *m = j->model;
    const loong_entry_t *e =
        &loongi_model_entries(m, LOONG_VARIANT_TRAIN)->entries[index];
    loong_frame_t frame = {.micro_batch = e->micro_batch,
                           .first = e->micro_batch == 0,
                           .last = e->micro_batch + 1 == MICRO_BATCHES};
    const loong_frame_t *frames[2] = {&frame, NULL};
    frame.loss_scale[0] = 1.0 / (double)learned(j);
    if (e->kind == LOONG_ENTRY_U) {
        return LOONG_OK;
    }
    if (e->kind == LOONG_ENTRY_REDUCE) {
        return loongi_model_reduce(m, e, &frame);
    }
    if (e->kind >= (loong_entry_kind_t)LOONG_PROGRAM_COUNT) {
        return loongi_model_begin(m, LOONG_VARIANT_TRAIN, e);
    }
    LOONG_TRY(loongi_model_need(m, LOONG_VARIANT_TRAIN, e));
    if (e->kind == LOONG_ENTRY_F) {
        fill(j, e);
    }
    LOONG_TRY(loongi_model_run(m, LOONG_VARIANT_TRAIN, index, frames));
    if (e->kind == LOONG_ENTRY_F) {
        add_loss(j, e);
    }
    return LOONG_OK;
}

static void configure(job_t *j)
{
    static const char *const decoder[][2] = {{"family", "llama"},
                                             {"num_layers", "2"},
                                             {"hidden_size", "12"},
                                             {"ffn_hidden_size", "20"},
                                             {"num_attention_heads", "2"},
                                             {"vocab_size", "53"},
                                             {"max_position_embeddings", "64"}};
    /* The layer behind the one that is read is left out. */
    static const char *const vision[][2] = {{"family", "clip_vision_model"},
                                            {"num_layers", "2"},
                                            {"hidden_size", "8"},
                                            {"ffn_hidden_size", "12"},
                                            {"num_attention_heads", "2"},
                                            {"image_size", "12"},
                                            {"patch_size", "4"}};
    loong_pairs_t *pairs = NULL;
    assert_ok(j->ctx, loongi_pairs_create(j->ctx, &pairs));
    for (int64_t i = 0; i < LOONG_COUNT_OF(decoder); i++) {
        assert_ok(j->ctx,
                  loongi_pairs_set(pairs, decoder[i][0], decoder[i][1]));
    }
    assert_ok(j->ctx, loongi_decoder_configure(j->ctx, pairs, &j->decoder));
    loongi_pairs_destroy(&pairs);
    assert_ok(j->ctx, loongi_pairs_create(j->ctx, &pairs));
    for (int64_t i = 0; i < LOONG_COUNT_OF(vision); i++) {
        assert_ok(j->ctx, loongi_pairs_set(pairs, vision[i][0], vision[i][1]));
    }
    assert_ok(j->ctx, loongi_vision_configure(j->ctx, pairs, &j->vision));
    loongi_pairs_destroy(&pairs);
    j->projector = (loong_projector_config_t){.input_size = 8,
                                              .hidden_size = 12,
                                              .ffn_hidden_size = 12,
                                              .merge_size = 1,
                                              .init_std = 0.02};
}

static loong_component_params_t params_of(const job_t *j, int component,
                                          int rank)
{
    const layout_t *l = j->layout;
    const void *const configs[] = {&j->vision, &j->projector, &j->decoder};
    const int64_t rows[] = {j->capacity * ROWS, j->capacity * SENT, LENGTH};
    loong_mesh_params_t mesh = {.world = l->tp,
                                .tp = component == 2 || l->encoder_too ? l->tp
                                                                       : 1,
                                .cp = 1,
                                .pp = 1,
                                .ep = 1,
                                .etp = 1,
                                .kv_heads = 2};
    loong_component_params_t p;
    memset(&p, 0, sizeof(p));
    p.name = roles[component];
    p.family = component == 0   ? loong_find_family(j->ctx, "clip_vision_model")
               : component == 1 ? loong_find_family(j->ctx, "mlp_projector")
                                : loong_find_family(j->ctx, "llama");
    p.config = configs[component];
    p.request.rows = p.request.seq_length = rows[component];
    p.request.max_segments = component == 0 ? j->capacity : 1;
    p.request.max_seqlen = component == 0 ? ROWS : LENGTH;
    p.request.features = component == 2;
    p.request.sequence_parallel = component == 2 && l->sequence_parallel;
    p.precision.compute = p.precision.wide = LOONG_F64;
    p.compile.device = p.shards.device = "cpu";
    p.compile.threads = p.shards.threads = 1;
    p.compile.fuse = p.compile.in_place = true;
    p.optimizer.group[0].eps = 1e-8;
    p.shards.bucket_bytes = 1 << 14;
    p.schedule = "auto";
    p.join = l->join;
    p.micro_batches = MICRO_BATCHES;
    p.train = true;
    assert_ok(j->ctx, loong_mesh_create(j->ctx, &mesh, rank, &p.mesh));
    return p;
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    job_t j = {.layout = user, .ctx = ctx};
    const loong_edge_rows_t rows = {&j, most_rows, list_rows, NULL};
    loong_component_params_t p[COMPONENTS];
    loong_device_t *device = NULL;
    loong_resources_t *resources = NULL;
    j.encoders = j.layout->encoder_too ? 1 : j.layout->tp;
    j.capacity = (2 + j.encoders - 1) / j.encoders;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cpu", 0, &device));
    LOONG_TRY(loongi_safetensors_open(
        ctx, LOONG_SOURCE_DIR "/tests/golden/llava/golden.safetensors",
        &j.golden));
    configure(&j);
    for (int c = 0; c < COMPONENTS; c++) {
        p[c] = params_of(&j, c, loong_comm_rank(comm));
    }
    LOONG_TRY(loongi_model_create(ctx, COMPONENTS, p, &j.model));
    loongi_model_set_rows(j.model, &rows);
    LOONG_TRY(loongi_resources_create(ctx, device, comm, &p[0].resources,
                                      &resources));
    LOONG_TRY(loongi_model_allocate(j.model, resources));
    for (int c = 0; c < COMPONENTS; c++) {
        LOONG_TRY(set_params(&j, c));
    }
    int64_t count =
        loongi_model_entries(j.model, LOONG_VARIANT_TRAIN)->num_entries;
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(run_entry(&j, i));
    }
    LOONG_TRY(loongi_model_finish(j.model, LOONG_VARIANT_TRAIN));
    double loss = j.loss / (double)learned(&j);
    double wanted = *(const double *)golden(&j, "loss");
    if (!(fabs(loss - wanted) <= 1e-9)) {
        fail_msg("%s: loss %.12g, not %.12g", j.layout->name, loss, wanted);
    }
    for (int c = 0; c < COMPONENTS; c++) {
        compare(&j, c);
    }
    assert_true(j.compared > 2000);
    loongi_model_destroy(&j.model);
    loongi_resources_destroy(&resources);
    loongi_safetensors_close(&j.golden);
    loong_device_destroy(&device);
    return LOONG_OK;
}

static void losses_and_gradients_are_those_of_transformers(void **state)
{
    (void)state;
    static layout_t layouts[] = {
        {"one rank", 1, false, false, "coupled"},
        {"phases", 1, false, false, "phases"},
        {"tensor parallel", 2, false, false, "coupled"},
        {"and sequence parallel", 2, true, false, "coupled"},
        {"phases, sequence parallel", 2, true, false, "phases"},
        {"the encoder too", 2, true, true, "coupled"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        loong_context_t *ctx = test_context();
        loong_threads_params_t params = {.size = layouts[i].tp};
        params.context.log = test_log;
        params.context.log_level = LOONG_LOG_WARN;
        assert_ok(ctx, loong_threads_run(ctx, &params, run_rank, &layouts[i]));
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_are_those_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
