/* SPDX-License-Identifier: Apache-2.0
 *
 * The map that is printed for a model, given back as a map of its own: the
 * same parameters from the same places, and the same files written. */
#include <dirent.h>

#include "hf_composite.h"
#include "hf_map_file.h"
#include "loong/checkpoint.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

typedef struct places {
    char from[512];
    char map[64], other[64], native[64], back[64];
} places_t;

static void append_line(void *user, const char *line)
{
    loongi_text_printf(user, "%s\n", line);
}

static void print_map(loong_context_t *ctx, const char *from, const char *map,
                      const char *to)
{
    loong_checkpoint_names_t names = {.map = map};
    loong_text_t text = loongi_text_begin(ctx);
    assert_ok(ctx,
              loong_checkpoint_map(ctx, from, &names, append_line, &text));
    assert_ok(ctx, loongi_file_write(ctx, to, text.data, text.length));
    loongi_text_free(&text);
}

static void same_files(loong_context_t *ctx, const char *a, const char *b)
{
    char *x = NULL;
    char *y = NULL;
    size_t n = 0;
    size_t m = 0;
    assert_ok(ctx, loongi_file_read(ctx, a, &x, &n));
    assert_ok(ctx, loongi_file_read(ctx, b, &y, &m));
    if (n != m || memcmp(x, y, n) != 0) {
        fail_msg("%s is another file than %s", a, b);
    }
    loongi_free(ctx, x);
    loongi_free(ctx, y);
}

/* Places in the files, and every bit. */
static void same_params(loong_context_t *ctx, const loong_hf_t *a,
                        const loong_hf_t *b)
{
    const loong_hf_map_t *map = loongi_hf_get_map(a);
    const loong_hf_map_t *other = loongi_hf_get_map(b);
    assert_int_equal(loongi_hf_map_count(map), loongi_hf_map_count(other));
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        const loong_hf_param_t *q = loongi_hf_map_find(other, p->name);
        loong_dtype_t dtype = loongi_hf_dtype(a, p->name);
        size_t bytes =
            (size_t)(p->shape[0] * p->shape[1]) * loong_dtype_size(dtype);
        char *x = malloc(bytes);
        char *y = malloc(bytes);
        assert_non_null(q);
        assert_int_equal(loongi_hf_dtype(b, p->name), dtype);
        assert_int_equal(p->exact, q->exact);
        assert_ok(ctx,
                  loongi_hf_read(a, p->name, 0, p->shape[0], dtype, x));
        assert_ok(ctx,
                  loongi_hf_read(b, p->name, 0, p->shape[0], dtype, y));
        if (memcmp(x, y, bytes) != 0) {
            fail_msg("%s differs", p->name);
        }
        free(x);
        free(y);
    }
}

/* Out of a native checkpoint by the map, the files that it came from. */
static void same_tensors(loong_context_t *ctx, const char *a, const char *b)
{
    loong_safetensors_set_t *x = NULL;
    loong_safetensors_set_t *y = NULL;
    assert_ok(ctx, loongi_safetensors_set_open(ctx, a, &x));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, b, &y));
    assert_true(loongi_safetensors_set_count(y) > 0);
    for (int64_t i = 0; i < loongi_safetensors_set_count(y); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(y, i);
        const loong_safetensor_t *s = loongi_safetensors_set_find(x, t->name);
        if (s == NULL || s->dtype != t->dtype || s->ndim != t->ndim ||
            s->bytes != t->bytes ||
            memcmp(s->data, t->data, (size_t)t->bytes) != 0) {
            fail_msg("%s: tensor %s differs", a, t->name);
        }
    }
    loongi_safetensors_set_close(&y);
    loongi_safetensors_set_close(&x);
}

static void try_one(loong_context_t *ctx, const places_t *p)
{
    loong_hf_open_params_t params = {.dir = p->from, .map = p->map};
    loong_checkpoint_import_params_t in = {p->from, p->native,
                                           {.map = p->map}, NULL, NULL, 0};
    loong_checkpoint_export_params_t out;
    loong_hf_t *plain = NULL;
    loong_hf_t *other = NULL;
    print_map(ctx, p->from, NULL, p->map);
    print_map(ctx, p->from, p->map, p->other);
    same_files(ctx, p->map, p->other);
    assert_ok(ctx, loongi_hf_open(ctx, p->from, &plain));
    assert_ok(ctx, loongi_hf_open_as(ctx, &params, &other));
    same_params(ctx, plain, other);
    loongi_hf_close(&other);
    loongi_hf_close(&plain);
    memset(&out, 0, sizeof(out));
    out.checkpoint = p->native;
    out.out_dir = p->back;
    out.map = p->map;
    out.bos_token_id = out.eos_token_id = out.pad_token_id = -1;
    assert_ok(ctx, loong_checkpoint_import(ctx, &in));
    assert_ok(ctx, loong_checkpoint_export(ctx, &out));
    same_tensors(ctx, p->from, p->back);
    assert_ok(ctx, loongi_dir_remove(ctx, p->native));
    assert_ok(ctx, loongi_dir_remove(ctx, p->back));
}

static void printed_maps_are_maps(void **state)
{
    (void)state;
    loong_context_params_t quiet = {NULL, NULL, LOONG_LOG_ERROR};
    struct dirent *entry = NULL;
    places_t p;
    int count = 0, seen = 0, whole_models = 0;
    DIR *fixtures = opendir(FIXTURES);
    assert_non_null(fixtures);
    snprintf(p.map, sizeof(p.map), "%s/map.yaml", dir);
    snprintf(p.other, sizeof(p.other), "%s/other.yaml", dir);
    snprintf(p.native, sizeof(p.native), "%s/native", dir);
    snprintf(p.back, sizeof(p.back), "%s/back", dir);
    while ((entry = readdir(fixtures)) != NULL) {
        loong_context_t *ctx = NULL;
        if (entry->d_name[0] == '.') {
            continue;
        }
        const loong_hf_composite_t *whole = NULL;
        snprintf(p.from, sizeof(p.from), FIXTURES "/%s", entry->d_name);
        assert_int_equal(loong_context_create(&quiet, &ctx), LOONG_OK);
        assert_ok(ctx, loongi_hf_composite_of(ctx, p.from, &whole));
        if (whole == NULL) { /* a map is of one component */
            try_one(ctx, &p);
            count++;
        }
        whole_models += whole != NULL;
        seen++;
        test_context_end(&ctx);
    }
    closedir(fixtures);
    assert_int_equal(whole_models, 2); /* of ERNIE 4.5 VL */
    assert_true(count == seen - whole_models && count >= 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_maps_are_maps),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
