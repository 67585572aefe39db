/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <dirent.h>

#include "convert.h"
#include "decoder_config.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "loong/register.h"
#include "test.h"

int fixture_each(void (*function)(const char *name, const void *user),
                 const void *user)
{
    struct dirent **names = NULL;
    const char *only = getenv("LOONG_FIXTURE");
    int count = scandir(FIXTURES, &names, NULL, alphasort);
    int seen = 0;
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        if (name[0] != '.' && (only == NULL || strcmp(only, name) == 0)) {
            function(name, user);
            seen++;
        }
        free(names[i]);
    }
    free(names);
    return seen;
}

const void *fixture_find(const fixture_t *f, const char *name,
                         int64_t *count_p)
{
    const loong_safetensor_t *t = loongi_safetensors_find(f->golden, name);
    if (t == NULL) {
        return NULL;
    }
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) {
        n *= t->shape[d];
    }
    *count_p = n;
    return t->data;
}

static void plan(fixture_t *f, const fixture_params_t *q,
                 loong_component_params_t *p)
{
    memset(p, 0, sizeof(*p));
    assert_ok(f->ctx, loongi_decoder_configure(
                          f->ctx, loongi_hf_model(f->hf), &f->config));
    if (q->change != NULL) {
        q->change(&f->config);
    }
    p->family = loong_find_family(f->ctx, "llama");
    p->config = &f->config;
    int64_t segments = f->batch;
    int64_t cu = 0;
    if (fixture_find(f, "cu_seqlens", &cu) != NULL) {
        segments = cu - 1;
    }
    p->request.rows = f->batch * f->tokens;
    p->request.seq_length = p->request.max_seqlen = f->tokens;
    p->request.max_segments = segments + 2; /* padding is legal */
    p->request.routing =
        q->routing != NULL ? LOONG_ROUTING_REPLAY : LOONG_ROUTING_LIVE;
    p->logits_rows = p->request.rows;
    p->logits_routing = p->request.routing;
    f->precision.compute = q->dtype;
    f->precision.wide = q->dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    p->precision = f->precision;
    p->compile.device = FIXTURE_DEVICE;
    p->compile.threads = q->threads ? 2 : 1;
    p->compile.fuse = q->fuse;
    p->compile.in_place = q->in_place;
    p->compile.num_recompute = q->recompute != NULL ? 1 : 0;
    p->compile.recompute = &q->recompute;
    p->shards.device = FIXTURE_DEVICE;
    p->shards.threads = p->compile.threads;
    p->optimizer.group[0].beta1 = 0.9;
    p->optimizer.group[0].beta2 = 0.95;
    p->optimizer.group[0].eps = 1e-8;
    p->optimizer.group[0].weight_decay = 0.1;
    p->shards.bucket_bytes = 1 << 16;
    p->train = true;
}

bool fixture_open(fixture_t *f, const char *name,
                  const fixture_params_t *params)
{
    char dir[512];
    char path[600];
    loong_component_params_t p;
    memset(f, 0, sizeof(*f));
    snprintf(dir, sizeof(dir), "%s/%s", FIXTURES, name);
    f->ctx = test_context();
    assert_ok(f->ctx, loong_register_builtin(f->ctx));
    assert_ok(f->ctx, loong_comm_create_self(f->ctx, NULL, &f->comm));
    assert_ok(f->ctx, loong_device_create(f->ctx, FIXTURE_DEVICE, 0,
                                          &f->device));
    snprintf(path, sizeof(path), "%s/golden.safetensors", dir);
    assert_ok(f->ctx, loongi_safetensors_open(f->ctx, path, &f->golden));
    assert_ok(f->ctx, loongi_hf_open(f->ctx, dir, &f->hf));
    const loong_safetensor_t *ids =
        loongi_safetensors_find(f->golden, "input_ids");
    f->batch = ids->shape[0];
    f->tokens = ids->shape[1];
    f->routing = params->routing;
    plan(f, params, &p);
    p.mesh = loong_mesh_single();
    p.schedule = "auto";
    p.micro_batches = 1;
    loong_status_t status = loongi_model_create(f->ctx, 1, &p, &f->model);
    if (status == LOONG_ERR_UNSUPPORTED &&
        strcmp(FIXTURE_DEVICE, "cpu") != 0) {
        fixture_close(f);
        return false;
    }
    assert_ok(f->ctx, status);
    f->component = f->model->components[0];
    f->stage = f->component->stages[0];
    assert_ok(f->ctx, loongi_resources_create(f->ctx, f->device, f->comm,
                                              &p.resources, &f->resources));
    assert_ok(f->ctx, loongi_model_allocate(f->model, f->resources));
    assert_ok(f->ctx, loongi_component_load_hf(f->component, f->hf, 0));
    f->inputs = calloc(1, (size_t)f->component->model->bytes[LOONG_BASE_INPUT]);
    assert_non_null(f->inputs);
    return true;
}

void fixture_close(fixture_t *f)
{
    free(f->inputs);
    loongi_model_destroy(&f->model);
    loongi_resources_destroy(&f->resources);
    loongi_hf_close(&f->hf);
    loongi_safetensors_close(&f->golden);
    loong_device_destroy(&f->device);
    loong_comm_destroy(&f->comm);
    test_context_end(&f->ctx);
}

void fixture_drop(fixture_t *f, const char *name)
{
    const loong_model_chunk_t *c = f->stage->layout;
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_chunk_param_t *p = &c->params[i];
        if (strcmp(p->name, name) == 0) {
            double *zeros = calloc((size_t)p->elements, sizeof(*zeros));
            assert_non_null(zeros);
            assert_ok(f->ctx, loongi_stage_upload(f->stage));
            loong_status_t status = loongi_stage_set_param(
                f->stage, p, 0, p->elements, zeros);
            assert_ok(f->ctx, loongi_stage_uploaded(f->stage, status));
            free(zeros);
            return;
        }
    }
    fail_msg("no parameter %s", name);
}

static void *port(fixture_t *f, loong_variant_t variant, const char *name)
{
    const loong_port_t *p =
        loongi_model_chunk_input(f->stage->chunk[variant], name);
    return p != NULL ? f->inputs + p->operand.offset : NULL;
}

static void copy_i32(const fixture_t *f, int32_t *to, const char *name)
{
    int64_t n = 0;
    const void *from = fixture_find(f, name, &n);
    for (int64_t i = 0; i < n && to != NULL; i++) {
        to[i] = (int32_t)((const int64_t *)from)[i];
    }
}

static void fill_routing(fixture_t *f, loong_variant_t variant)
{
    const loong_json_member_t *layer =
        f->routing != NULL ? loongi_json_first(f->routing) : NULL;
    for (; layer != NULL; layer = loongi_json_next(f->routing, layer)) {
        char name[64];
        const loong_json_t *tokens = loongi_json_member_value(layer);
        snprintf(name, sizeof(name), "routing.%s",
                 loongi_json_member_key(layer));
        int32_t *to = port(f, variant, name);
        for (int64_t i = 0; to != NULL && i < loongi_json_count(tokens); i++) {
            const loong_json_t *choices = loongi_json_at(tokens, i);
            for (int64_t j = 0; j < loongi_json_count(choices); j++) {
                *to++ = (int32_t)loongi_json_int(loongi_json_at(choices, j));
            }
        }
    }
}

static double fill_inputs(fixture_t *f, loong_variant_t variant)
{
    int64_t n = 0;
    int64_t cu_count = 0;
    const loong_model_request_t *b = &f->stage->params->request;
    copy_i32(f, port(f, variant, "tokens"), "input_ids");
    copy_i32(f, port(f, variant, "labels"), "labels");
    copy_i32(f, port(f, variant, "token_types"), "token_types");
    fill_routing(f, variant);
    int32_t *positions = port(f, variant, "positions");
    const void *given = fixture_find(f, "position_ids", &n);
    n = b->rows;
    for (int64_t i = 0; i < n && positions != NULL; i++) {
        positions[i] = given != NULL ? (int32_t)((const int64_t *)given)[i]
                                     : (int32_t)(i % f->tokens);
    }
    const int64_t *cu = fixture_find(f, "cu_seqlens", &cu_count);
    int32_t *bounds = port(f, variant, "cu_seqlens");
    for (int64_t i = 0; i <= b->max_segments; i++) {
        int64_t at = cu != NULL ? (i < cu_count ? cu[i] : n) : i * f->tokens;
        bounds[i] = (int32_t)LOONG_MIN(at, n);
    }
    const double *weights = fixture_find(f, "loss_weights", &n);
    void *mine = port(f, variant, "loss_weight");
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
        if (mine != NULL && f->precision.wide == LOONG_F64) {
            ((double *)mine)[i] = weights[i];
        } else if (mine != NULL) {
            ((float *)mine)[i] = (float)weights[i];
        }
    }
    loong_operand_t to = {LOONG_BASE_INPUT, 0};
    assert_ok(f->ctx, loongi_binding_write(
                          &f->stage->run, to, f->inputs,
                          (size_t)f->stage->chunk[variant]->input_bytes));
    return sum;
}

static double *widened(const fixture_t *f, loong_dtype_t dtype,
                       loong_operand_t from, int64_t count)
{
    double *copy = malloc((size_t)count * sizeof(*copy));
    size_t bytes = (size_t)count * loong_dtype_size(dtype);
    void *values = malloc(bytes);
    assert_true(copy != NULL && values != NULL);
    assert_ok(f->ctx, loongi_binding_read(&f->stage->run, from, values, bytes,
                                          "results"));
    assert_ok(f->ctx, loongi_convert(f->ctx, dtype, values, LOONG_F64, copy,
                                     count));
    free(values);
    return copy;
}

static double *widened_port(const fixture_t *f, const loong_port_t *port,
                            int64_t *count_p)
{
    int64_t count = 1;
    for (int d = 0; d < port->shape.rank; d++) {
        count *= port->shape.dim[d];
    }
    *count_p = count;
    return widened(f, port->dtype, port->operand, count);
}

static void explain(fixture_t *f)
{
    loong_text_t text = loongi_text_begin(f->ctx);
    loongi_model_chunk_explain(f->stage->chunk[LOONG_VARIANT_LOGITS], &text);
    loongi_model_chunk_explain(f->stage->chunk[LOONG_VARIANT_TRAIN], &text);
    fprintf(stderr, "%s", loongi_text_get(&text));
    loongi_text_free(&text);
}

double *fixture_logits(fixture_t *f, int64_t *count_p)
{
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    if (getenv("LOONG_EXPLAIN") != NULL) {
        explain(f);
    }
    fill_inputs(f, LOONG_VARIANT_LOGITS);
    assert_ok(f->ctx, loongi_stage_execute(f->stage, LOONG_VARIANT_LOGITS,
                                           LOONG_PROGRAM_E, &frame));
    return widened_port(f,
                        loongi_model_chunk_output(
                            f->stage->chunk[LOONG_VARIANT_LOGITS], "logits"),
                        count_p);
}

static double *run_training(fixture_t *f, loong_frame_t *frame,
                            const loong_port_t *losses, int64_t *count_p)
{
    frame->first = frame->last = 1;
    assert_ok(f->ctx, loongi_stage_execute(f->stage, LOONG_VARIANT_TRAIN,
                                           LOONG_PROGRAM_F, frame));
    double *values = widened_port(f, losses, count_p);
    assert_ok(f->ctx, loongi_stage_execute(f->stage, LOONG_VARIANT_TRAIN,
                                           LOONG_PROGRAM_B, frame));
    return values;
}

double *fixture_losses(fixture_t *f, int64_t *count_p)
{
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    frame.loss_scale[0] = 1.0 / fill_inputs(f, LOONG_VARIANT_TRAIN);
    return run_training(f, &frame,
                        &f->stage->chunk[LOONG_VARIANT_TRAIN]->losses[0].port,
                        count_p);
}

double fixture_router_loss(fixture_t *f)
{
    const loong_model_chunk_t *c = f->stage->chunk[LOONG_VARIANT_TRAIN];
    loong_frame_t frame;
    int64_t count = 0;
    double sum = 0.0;
    memset(&frame, 0, sizeof(frame));
    assert_int_equal(c->num_losses, 2);
    assert_string_equal(c->losses[1].params.name, "router");
    fill_inputs(f, LOONG_VARIANT_TRAIN);
    frame.loss_scale[1] = 1.0 / (double)(f->batch * f->tokens);
    double *losses = run_training(f, &frame, &c->losses[1].port, &count);
    assert_int_equal(count, f->batch * f->tokens);
    for (int64_t i = 0; i < count; i++) {
        sum += losses[i];
    }
    free(losses);
    return sum / (double)count;
}

/* The index-th parameter that has a gradient; NULL behind the last. */
static const loong_chunk_param_t *trained(const fixture_t *f, int64_t index)
{
    const loong_model_chunk_t *c = f->stage->chunk[LOONG_VARIANT_TRAIN];
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_param_params_t *p = &c->params[i].params;
        bool learns = !p->frozen && p->sign_rate == 0.0; /* by a loss */
        if (learns && index-- == 0) {
            return &c->params[i];
        }
    }
    return NULL;
}

int64_t fixture_num_grads(const fixture_t *f)
{
    int64_t count = 0;
    while (trained(f, count) != NULL) {
        count++;
    }
    return count;
}

/* The gradient of a parameter in the file, and what `g` says of it there. */
static const double *find_grad(const fixture_t *f,
                               const loong_chunk_param_t *place,
                               fixture_grad_t *g, bool *as_here)
{
    const loong_hf_map_t *map = loongi_hf_get_map(f->hf);
    const loong_hf_param_t *hf = loongi_hf_map_find(map, place->name);
    int64_t n = 0;
    g->name = place->name;
    g->part = hf->part;
    g->parts = hf->parts;
    g->count = place->elements;
    snprintf(g->golden, sizeof(g->golden), "grad.%s%s",
             hf->prefixed ? loongi_hf_map_prefix(map) : "", hf->hf_name);
    const double *file = fixture_find(f, g->golden, &n);
    *as_here = file == NULL;
    if (*as_here) { /* modules are named as here, files not */
        g->part = 0;
        g->parts = 1;
        snprintf(g->golden, sizeof(g->golden), "grad.%s%s",
                 loongi_hf_map_prefix(map), place->name);
        file = fixture_find(f, g->golden, &n);
    }
    if (file == NULL) {
        fail_msg("%s is not in the golden file", g->golden);
    }
    return file;
}

void fixture_grad_get(const fixture_t *f, int64_t index, fixture_grad_t *g)
{
    const loong_model_chunk_t *c = f->stage->chunk[LOONG_VARIANT_TRAIN];
    const loong_chunk_param_t *place = trained(f, index);
    const loong_hf_param_t *hf =
        loongi_hf_map_find(loongi_hf_get_map(f->hf), place->name);
    loong_dtype_t wide = f->precision.wide;
    bool as_here = false;
    const double *file = find_grad(f, place, g, &as_here);
    loong_operand_t grad = {
        LOONG_BASE_GRAD,
        c->flats[place->flat].grad_offset +
            place->flat_offset * (int64_t)loong_dtype_size(wide)};
    g->mine = widened(f, wide, grad, place->elements);
    g->theirs = malloc((size_t)place->elements * sizeof(*g->theirs));
    g->place = malloc((size_t)place->elements * sizeof(*g->place));
    assert_true(g->theirs != NULL && g->place != NULL);
    /* The file's layout: transposed, or a part of a fused tensor. */
    int64_t rows = place->params.shape.dim[0];
    int64_t cols = place->elements / rows;
    int64_t width = loongi_hf_file_rows(hf) * hf->pieces;
    for (int64_t i = 0; i < place->elements; i++) {
        int64_t row = as_here ? i / cols : loongi_hf_file_row(hf, i / cols);
        int64_t col = i % cols;
        g->place[i] = hf->transposed && !as_here ? col * width + row
                                                 : row * cols + col;
        g->theirs[i] = file[g->place[i]];
    }
}

void fixture_grad_free(fixture_grad_t *g)
{
    free(g->mine);
    free(g->theirs);
    free(g->place);
}

void fixture_all_grads(const fixture_t *f)
{
    for (int64_t i = 0; i < loongi_safetensors_count(f->golden); i++) {
        const char *name = loongi_safetensors_get(f->golden, i)->name;
        int64_t count = 0;
        int64_t asked = 0; /* parts belong to several parameters */
        (void)fixture_find(f, name, &count);
        for (int64_t k = 0; k < fixture_num_grads(f); k++) {
            fixture_grad_t g;
            bool as_here = false;
            (void)find_grad(f, trained(f, k), &g, &as_here);
            asked += strcmp(g.golden, name) == 0 ? g.count : 0;
        }
        if (strncmp(name, "grad.", 5) == 0 && asked != count) {
            fail_msg("%s has %lld numbers, the model asks for %lld", name,
                     (long long)count, (long long)asked);
        }
    }
}
