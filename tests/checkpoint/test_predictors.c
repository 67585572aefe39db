/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that predict further tokens are left out of imports, and it is said;
 * exports say that there are none. */
#include "json.h"
#include "loong/checkpoint.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

enum { MAX_TENSORS = 256, MAX_BYTES = 1 << 16 };

/* A file that is put together: tensors of the fixture and others. */
typedef struct made {
    loong_safetensor_t tensor[MAX_TENSORS];
    char name[MAX_TENSORS][200];
    int64_t count;
} made_t;

static const char zeros[MAX_BYTES];

static loong_status_t give(void *user, int64_t index, int64_t row,
                           int64_t rows, void *buffer, const void **data_p)
{
    const loong_safetensor_t *t = &((const made_t *)user)->tensor[index];
    size_t size = (size_t)loongi_safetensors_row(t->ndim, t->shape) *
                  loong_dtype_size(t->dtype);
    (void)data_p;
    memcpy(buffer, (const char *)t->data + (size_t)row * size,
           (size_t)rows * size);
    return LOONG_OK;
}

static void add(made_t *m, const char *name, const loong_safetensor_t *like)
{
    assert_true(m->count < MAX_TENSORS);
    m->tensor[m->count] = *like;
    snprintf(m->name[m->count], sizeof(m->name[0]), "%s", name);
    m->count++;
}

static void add_zeros(made_t *m, const char *name, loong_dtype_t dtype,
                      int64_t rows, int64_t columns)
{
    loong_safetensor_t t = {.dtype = dtype, .ndim = columns > 0 ? 2 : 1,
                            .shape = {rows, columns}, .data = zeros};
    t.bytes = (size_t)(rows * LOONG_MAX(columns, 1)) * loong_dtype_size(dtype);
    assert_true(t.bytes <= sizeof(zeros));
    add(m, name, &t);
}

typedef struct predictor {
    const char *fixture;
    const char *layer;  /* of the fixture, whose tensors the new one has */
    const char *place;  /* of these tensors in the new one */
    const char *names[8]; /* of others: [H, 2H], or norms */
    bool fp8;           /* one matrix, and its scales */
    const char *config; /* what config.json says of them */
    const char *field;  /* of these the number, which an export has as 0, */
    bool exported;      /* or not at all */
} predictor_t;

#define NEXT "\"num_nextn_predict_layers\": 1", "num_nextn_predict_layers"


static const predictor_t predictors[] = {
    {"deepseek_v3_groups", "model.layers.1.", "model.layers.2.",
     {"model.layers.2.eh_proj.weight", "model.layers.2.enorm.weight",
      "model.layers.2.hnorm.weight", "model.layers.2.embed_tokens.weight",
      "model.layers.2.shared_head.norm.weight",
      "model.layers.2.shared_head.head.weight", NULL},
     true, NEXT, true},
    {"kimi_k2", "model.layers.1.", "model.layers.2.",
     {"model.layers.2.eh_proj.weight", "model.layers.2.enorm.weight",
      "model.layers.2.hnorm.weight", NULL},
     true, NEXT, true},
    {"ernie4_5_moe", "model.layers.1.", "model.mtp_block.0.",
     {"model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight",
      "model.mtp_linear_proj.0.weight", NULL},
     false, NEXT, true},
    {"minimax_m2", "model.layers.1.", "model.layers.2.",
     {"model.layers.2.eh_proj.weight", "model.layers.2.enorm.weight",
      "model.layers.2.hnorm.weight", NULL},
     true,
     "\"use_mtp\": true, \"mtp_transformer_layers\": 1, "
     "\"num_mtp_modules\": 1",
     "num_mtp_modules", false},
};

/* Returns how many tensors the new layer has. */
static int64_t make_file(loong_context_t *ctx, const predictor_t *p,
                         const loong_safetensors_set_t *set)
{
    made_t m = {.count = 0};
    int64_t fixture = loongi_safetensors_set_count(set);
    loong_safetensors_set_writer_t *out = NULL;
    loong_safetensors_set_params_t params = {in_dir("more"), 1 << 30, ""};
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t source = {give, &m, &meter};
    int64_t hidden = loongi_safetensors_set_find(set, "model.norm.weight")
                         ->shape[0];
    for (int64_t i = 0; i < fixture; i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        add(&m, t->name, t);
    }
    for (int64_t i = 0; i < fixture; i++) {
        char name[200];
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        size_t n = strlen(p->layer);
        if (strncmp(t->name, p->layer, n) == 0) {
            snprintf(name, sizeof(name), "%s%s", p->place, t->name + n);
            add(&m, name, t);
        }
    }
    for (const char *const *name = p->names; *name != NULL; name++) {
        bool vector = strstr(*name, "norm") != NULL;
        add_zeros(&m, *name, LOONG_F32, hidden, vector ? 0 : 2 * hidden);
    }
    if (p->fp8) {
        char name[200];
        snprintf(name, sizeof(name), "%sextra.weight", p->place);
        add_zeros(&m, name, LOONG_F8_E4M3, 4, 4);
        snprintf(name, sizeof(name), "%sextra.weight_scale_inv", p->place);
        add_zeros(&m, name, LOONG_F32, 1, 1);
    }
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &params, &out));
    for (int64_t i = 0; i < m.count; i++) {
        const loong_safetensor_t *t = &m.tensor[i];
        int64_t handle = 0;
        assert_ok(ctx, loongi_safetensors_set_declare(out, m.name[i], t->dtype,
                                                      t->ndim, t->shape,
                                                      &handle));
        assert_int_equal(handle, i);
    }
    assert_ok(ctx, loongi_safetensors_set_fill(out, &source));
    assert_ok(ctx, loongi_safetensors_set_commit(out));
    loongi_safetensors_set_destroy(&out);
    return m.count - fixture;
}

/* config.json of the fixture, in which the field says something else. */
static void make_config(loong_context_t *ctx, const predictor_t *p,
                        const char *fixture)
{
    char path[512];
    loong_json_t *config = NULL;
    loong_text_t text = loongi_text_begin(ctx);
    snprintf(path, sizeof(path), "%s/config.json", fixture);
    assert_ok(ctx, loongi_json_load(ctx, path, &config));
    loongi_text_printf(&text, "{%s", p->config);
    for (const loong_json_member_t *m = loongi_json_first(config); m != NULL;
         m = loongi_json_next(config, m)) {
        const char *key = loongi_json_member_key(m);
        if (strcmp(p->field, key) != 0) {
            loongi_text_printf(&text, ", \"%s\": ", key);
            loongi_text_json(&text, loongi_json_member_value(m));
        }
    }
    loongi_text_printf(&text, "}\n");
    assert_ok(ctx, loongi_file_write(ctx, in_dir("more/config.json"),
                                     text.data, text.length));
    loongi_text_free(&text);
    loongi_json_destroy(&config);
}

static void import(loong_context_t *ctx, const char *from, const char *to)
{
    loong_checkpoint_import_params_t in = {0};
    in.hf_dir = from;
    in.save_dir = to;
    assert_ok(ctx, loong_checkpoint_import(ctx, &in));
}

typedef struct said {
    char text[4096];
} said_t;

static void keep_line(void *user, const char *line)
{
    said_t *s = user;
    size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof(s->text) - used, "%s\n", line);
}

static void keep(void *user, loong_log_level_t level, const char *line)
{
    (void)level;
    keep_line(user, line);
}

static void assert_equal_models(loong_context_t *ctx, const char *a,
                                const char *b)
{
    said_t said = {""};
    loong_checkpoint_diff_params_t diff = {
        .a = a, .b = b, .line = keep_line, .user = &said};
    bool equal = false;
    assert_ok(ctx, loong_checkpoint_diff(ctx, &diff, &equal));
    if (!equal) {
        fail_msg("%s and %s: %s", a, b, said.text);
    }
}

/* An export knows nothing of them either. */
static void check_export(loong_context_t *ctx, const predictor_t *p,
                         const char *fixture, int64_t tensors)
{
    loong_checkpoint_export_params_t out = {0};
    loong_json_t *config = NULL;
    loong_safetensors_set_t *set = NULL;
    out.checkpoint = in_dir("native");
    out.out_dir = in_dir("back");
    out.bos_token_id = out.eos_token_id = out.pad_token_id = -1;
    out.as = strcmp(p->fixture, "kimi_k2") == 0 ? "deepseek_v3" : NULL;
    assert_ok(ctx, loong_checkpoint_export(ctx, &out));
    assert_ok(ctx, loongi_json_load(ctx, in_dir("back/config.json"), &config));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, in_dir("back"), &set));
    const loong_json_t *value = loongi_json_get(config, p->field);
    assert_int_equal(value != NULL, p->exported);
    assert_int_equal(value != NULL ? loongi_json_int(value) : 0, 0);
    assert_int_equal(loongi_safetensors_set_count(set), tensors);
    loongi_safetensors_set_close(&set);
    loongi_json_destroy(&config);
    if (out.as == NULL) { /* else it is of another family */
        assert_equal_models(ctx, fixture, in_dir("back"));
    }
}

static void layers_are_left_out(void **state)
{
    static const char *const made[] = {"more", "native", "back", NULL};
    const predictor_t *p = *state;
    said_t said = {""};
    loong_context_params_t quiet = {keep, &said, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    loong_safetensors_set_t *set = NULL;
    char fixture[300];
    char wanted[200];
    assert_int_equal(loong_context_create(&quiet, &ctx), LOONG_OK);
    snprintf(fixture, sizeof(fixture), FIXTURES "/%s", p->fixture);
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("more")));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, fixture, &set));
    int64_t count = make_file(ctx, p, set);
    int64_t tensors = loongi_safetensors_set_count(set);
    loongi_safetensors_set_close(&set);
    make_config(ctx, p, fixture);
    import(ctx, in_dir("more"), in_dir("native"));
    snprintf(wanted, sizeof(wanted),
             "%lld tensors of layers that predict further tokens are left out",
             (long long)count);
    if (count < 8 || strstr(said.text, wanted) == NULL) {
        fail_msg("'%s' is not in: %s", wanted, said.text);
    }
    assert_equal_models(ctx, fixture, in_dir("native"));
    check_export(ctx, p, fixture, tensors);
    remove_all(ctx, made);
    test_context_end(&ctx);
}

/* Of a family without such layers they belong to nothing; nor do those that
 * take no further token's embedding: config.json has too few layers. */
static void others_are_refused(void **state)
{
    static const predictor_t refused[] = {
        {.fixture = "qwen3_moe", .layer = "model.layers.1.",
         .place = "model.layers.2."},
        {.fixture = "deepseek_v3_groups", .layer = "model.layers.1.",
         .place = "model.layers.2."},
    };
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(refused); i++) {
        loong_context_t *ctx = test_context();
        loong_safetensors_set_t *set = NULL;
        loong_checkpoint_import_params_t in = {0};
        char fixture[300];
        char config[330];
        snprintf(fixture, sizeof(fixture), FIXTURES "/%s", refused[i].fixture);
        snprintf(config, sizeof(config), "%s/config.json", fixture);
        assert_ok(ctx, loongi_dir_make(ctx, in_dir("more")));
        assert_ok(ctx, loongi_safetensors_set_open(ctx, fixture, &set));
        (void)make_file(ctx, &refused[i], set);
        loongi_safetensors_set_close(&set);
        assert_ok(ctx, loongi_file_copy(ctx, config,
                                        in_dir("more/config.json")));
        in.hf_dir = in_dir("more");
        in.save_dir = in_dir("native");
        assert_fails(ctx, loong_checkpoint_import(ctx, &in),
                     LOONG_ERR_MISMATCH, "unexpected: model.layers.2.");
        assert_ok(ctx, loongi_dir_remove(ctx, in_dir("more")));
        test_context_end(&ctx);
    }
}

int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(predictors) + 1];
    const struct CMUnitTest others = cmocka_unit_test(others_are_refused);
    tests[0] = others;
    for (int64_t i = 0; i < LOONG_COUNT_OF(predictors); i++) {
        struct CMUnitTest test = {predictors[i].fixture, layers_are_left_out,
                                  NULL, NULL,
                                  (void *)(uintptr_t)&predictors[i]};
        tests[1 + i] = test;
    }
    return _cmocka_run_group_tests("predictors", tests, LOONG_COUNT_OF(tests),
                                   make_dir, remove_dir);
}
