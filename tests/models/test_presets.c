/* SPDX-License-Identifier: Apache-2.0
 *
 * Every model under configs/models against the published one: as many
 * parameters as transformers' own class counts (published.py), in all and for
 * a token, and what the preset says is what published.py wrote down. */
#include "crc.h"
#include "decoder_config.h"
#include "file.h"
#include "graph_impl.h"
#include "hf_config.h"
#include "json.h"
#include "loong/register.h"
#include "preset.h"
#include "test.h"

static char root[] = "presets_test.XXXXXX";

typedef struct place {
    loong_context_t *ctx;
    loong_json_t *published;
} place_t;

/* ---- what config.json does not say, or says of training ----------------- */

static bool is_free(const char *key)
{
    static const char *const keys[] = {
        "hidden_dropout",    "attention_dropout",
        "embedding_dropout", "init_method_std",
        "use_scaled_init_method", "make_vocab_size_divisible_by",
        "embedding_init_method_std"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void compare_keys(const char *name, const loong_pairs_t *preset,
                         const loong_pairs_t *theirs)
{
    for (int64_t i = 0; i < preset->count; i++) {
        const loong_pair_t *p = &preset->items[i];
        const char *other = loongi_pairs_get(theirs, p->key);
        if (is_free(p->key)) {
            continue;
        }
        if (other == NULL || strcmp(p->value, other) != 0) {
            fail_msg("%s: %s is %s, %s in published.json", name,
                     p->key, p->value, other != NULL ? other : "absent");
        }
    }
    for (int64_t i = 0; i < theirs->count; i++) {
        if (!is_free(theirs->items[i].key) &&
            loongi_pairs_get(preset, theirs->items[i].key) == NULL) {
            fail_msg("%s: no %s, %s in published.json", name,
                     theirs->items[i].key, theirs->items[i].value);
        }
    }
}

/* The published config.json, read as one of a directory. */
static loong_pairs_t *read_published(const place_t *at,
                                     const loong_json_t *entry)
{
    char path[128];
    loong_pairs_t *pairs = NULL;
    loong_text_t text = loongi_text_begin(at->ctx);
    loongi_text_json(&text, loongi_json_get(entry, "config"));
    snprintf(path, sizeof(path), "%s/config.json", root);
    assert_ok(at->ctx, loongi_file_write(at->ctx, path, loongi_text_get(&text),
                                         text.length));
    loongi_text_free(&text);
    assert_ok(at->ctx, loongi_hf_config_read(at->ctx, root, &pairs));
    return pairs;
}

static void published_config(void *user, const char *name)
{
    const place_t *at = user;
    const loong_json_t *entry = loongi_json_get(at->published, name);
    loong_pairs_t *preset = preset_load(at->ctx, name);
    loong_pairs_t *theirs = read_published(at, entry);
    assert_ok(at->ctx, loongi_decoder_fill(at->ctx, preset));
    assert_ok(at->ctx, loongi_decoder_fill(at->ctx, theirs));
    compare_keys(name, preset, theirs);
    loongi_pairs_destroy(&preset);
    loongi_pairs_destroy(&theirs);
}

/* ---- parameters ---------------------------------------------------------- */

static void published_counts(void *user, const char *name)
{
    const place_t *at = user;
    const loong_json_t *entry = loongi_json_get(at->published, name);
    preset_size_t size;
    if (entry == NULL) {
        fail_msg("%s is not in published.json: published.py counts it", name);
    }
    loong_pairs_t *pairs = preset_load(at->ctx, name);
    preset_measure(at->ctx, pairs, &size);
    int64_t total = loongi_json_int(loongi_json_get(entry, "parameters"));
    int64_t active = loongi_json_int(loongi_json_get(entry, "active"));
    if (size.parameters != total || size.active != active) {
        fail_msg("%s: %lld parameters, %lld active; published %lld, %lld",
                 name, (long long)size.parameters, (long long)size.active,
                 (long long)total, (long long)active);
    }
    loongi_pairs_destroy(&pairs);
}

/* As Hugging Face's config.json and back: the same model. */
static void there_and_back(void *user, const char *name)
{
    const place_t *at = user;
    loong_decoder_config_t config;
    loong_decoder_config_t again;
    loong_pairs_t *back = NULL;
    loong_pairs_t *pairs = preset_load(at->ctx, name);
    loong_hf_config_params_t params = {
        .dir = root, .model = pairs, .dtype = LOONG_BF16};
    assert_ok(at->ctx, loongi_hf_config_write(at->ctx, &params));
    assert_ok(at->ctx, loongi_hf_config_read(at->ctx, root, &back));
    assert_ok(at->ctx, loongi_decoder_configure(at->ctx, pairs, &config));
    assert_ok(at->ctx, loongi_decoder_configure(at->ctx, back, &again));
    /* config.json does not say this one. */
    again.scaled_output_init = config.scaled_output_init;
    if (memcmp(&config, &again, sizeof(config)) != 0) {
        fail_msg("%s comes back from config.json as another model", name);
    }
    loongi_pairs_destroy(&pairs);
    loongi_pairs_destroy(&back);
}

/* ---- sources ------------------------------------------------------------- */

/* "litgpt" of "litgpt 0.5.13". */
static bool is_source(const loong_json_t *sources, const char *name)
{
    for (int64_t i = 0; i < loongi_json_count(sources); i++) {
        const char *full = loongi_json_string(loongi_json_at(sources, i));
        size_t length = strcspn(full, " ");
        if (strlen(name) == length && strncmp(full, name, length) == 0) {
            return true;
        }
    }
    return false;
}

static void check_settings(const loong_json_t *sources, const char *name,
                           const loong_json_t *settings)
{
    assert_true(loongi_json_count(settings) >= 10);
    for (const loong_json_member_t *m = loongi_json_first(settings); m != NULL;
         m = loongi_json_next(settings, m)) {
        const loong_json_t *who = loongi_json_member_value(m);
        for (int64_t i = 0; i < loongi_json_count(who); i++) {
            const char *source = loongi_json_string(loongi_json_at(who, i));
            if (!is_source(sources, source)) {
                fail_msg("%s: %s is confirmed by %s, which is no source", name,
                         loongi_json_member_key(m), source);
            }
        }
    }
}

/* What differs says who, what, and why, and confirms nothing there. */
static void check_differences(const loong_json_t *all)
{
    const loong_json_t *list = loongi_json_get(all, "otherwise");
    const loong_json_t *presets = loongi_json_get(all, "presets");
    for (int64_t i = 0; i < loongi_json_count(list); i++) {
        const loong_json_t *row = loongi_json_at(list, i);
        assert_int_equal(loongi_json_count(row), 6);
        const loong_json_t *settings = loongi_json_get(
            presets, loongi_json_string(loongi_json_at(row, 0)));
        assert_non_null(settings);
        assert_non_null(loongi_json_get(
            settings, loongi_json_string(loongi_json_at(row, 1))));
        assert_true(strlen(loongi_json_string(loongi_json_at(row, 5))) > 10);
    }
}

/* sources.json was made from this published.json. */
static void test_sources(void **state)
{
    const place_t *at = *state;
    loong_json_t *all = NULL;
    char *text = NULL;
    size_t length = 0;
    int64_t published = 0;
    assert_ok(at->ctx,
              loongi_file_read(at->ctx,
                               LOONG_SOURCE_DIR "/tests/models/published.json",
                               &text, &length));
    assert_ok(at->ctx,
              loongi_json_load(at->ctx,
                               LOONG_SOURCE_DIR "/tests/models/sources.json",
                               &all));
    if ((int64_t)loongi_crc(LOONG_CRC32, text, length) !=
        loongi_json_int(loongi_json_get(all, "published_crc32"))) {
        fail_msg("published.json has changed: sources.py compares anew");
    }
    const loong_json_t *presets = loongi_json_get(all, "presets");
    const loong_json_t *entries = at->published;
    for (const loong_json_member_t *m = loongi_json_first(entries); m != NULL;
         m = loongi_json_next(entries, m)) {
        const char *name = loongi_json_member_key(m);
        const loong_json_t *e = loongi_json_member_value(m);
        if (loongi_json_bool(loongi_json_get(e, "published"))) {
            const loong_json_t *settings = loongi_json_get(presets, name);
            assert_non_null(settings);
            check_settings(loongi_json_get(all, "sources"), name, settings);
            published++;
        }
    }
    assert_int_equal(loongi_json_count(presets), published);
    check_differences(all);
    loongi_json_destroy(&all);
    loongi_free(at->ctx, text);
}

/* ---- all presets --------------------------------------------------------- */

/* foundation.num_layers=4 and nothing more. */
static void fewer_layers(void *user, const char *name)
{
    const place_t *at = user;
    loong_decoder_config_t config;
    loong_pairs_t *pairs = preset_load(at->ctx, name);
    assert_ok(at->ctx, loongi_pairs_set(pairs, "num_layers", "4"));
    assert_ok(at->ctx, loongi_decoder_configure(at->ctx, pairs, &config));
    loongi_pairs_destroy(&pairs);
}

static void test_counts(void **state)
{
    place_t *at = *state;
    assert_int_equal(preset_each(published_counts, at),
                     loongi_json_count(at->published));
}

static void test_configs(void **state)
{
    assert_true(preset_each(published_config, *state) > 0);
}

static void test_fewer_layers(void **state)
{
    assert_true(preset_each(fewer_layers, *state) > 0);
}

static void test_hugging_face(void **state)
{
    assert_true(preset_each(there_and_back, *state) > 0);
}

static int set_up(void **state)
{
    static place_t place;
    *state = &place;
    place.ctx = test_context();
    assert_ok(place.ctx, loong_register_builtin(place.ctx));
    assert_ok(place.ctx,
              loongi_json_load(place.ctx,
                               LOONG_SOURCE_DIR "/tests/models/published.json",
                               &place.published));
    return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
    place_t *place = *state;
    loongi_json_destroy(&place->published);
    assert_ok(place->ctx, loongi_dir_remove(place->ctx, root));
    test_context_end(&place->ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_fewer_layers),
        cmocka_unit_test(test_hugging_face),
        cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
