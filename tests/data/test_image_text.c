/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts with pictures: ids, weights and places by hand, pixels by the decoder,
 * what is refused with file and line, and several threads. */
#include <pthread.h>

#include "image_text_fixture.h"
#include "loong/image.h"

static const char lines[] =
    "{\"images\": [\"p/turn.jpg\", \"rgb.png\"], "
    "\"text\": \"a<image>bb<image>\"}\n"
    "\n"
    "{\"id\": 7, \"image\": \"rgb.png\", \"prompt\": \"<image>ab\", "
    "\"completion\": \"c</s>\"}\n"
    "{\"text\": \"cab\"}\n";

/* The same records as one array. */
static const char array[] =
    "[{\"images\": [\"p/turn.jpg\", \"rgb.png\"],\n"
    "  \"text\": \"a<image>bb<image>\"},\n"
    " {\"id\": 7, \"image\": \"rgb.png\", \"prompt\": \"<image>ab\",\n"
    "  \"completion\": \"c</s>\"},\n"
    " {\"text\": \"cab\"}]\n";

typedef struct wanted {
    int line, array_line;
    int64_t tokens;
    int32_t ids[8];
    uint8_t weight[8];
    int pictures;
    int64_t at[2];
    const char *path[2];
} wanted_t;

static const wanted_t wanted[] = {
    {1,
     1,
     7,
     {BOS, A, IMAGE, B, B, IMAGE, EOS},
     {0, 1, 1, 1, 1, 1, 1},
     2,
     {2, 5},
     {"p/turn.jpg", "rgb.png"}},
    {3,
     3,
     6,
     {BOS, IMAGE, A, B, C, EOS},
     {0, 0, 0, 0, 1, 1},
     1,
     {1},
     {"rgb.png"}},
    {4, 5, 5, {BOS, C, A, B, EOS}, {0, 1, 1, 1, 1}, 0, {0}, {NULL}},
};

typedef struct opened {
    const loong_source_class_t *source_class;
    void *source;
} opened_t;

static loong_status_t try_open(loong_context_t *ctx, const char *name,
                               opened_t *o)
{
    const loong_source_params_t params = {.data = "train",
                                          .path = in_dir(name),
                                          .tokenizer = in_dir("tokenizer.json"),
                                          .image_token = "<image>"};
    assert_ok(ctx, loong_find_source(ctx, "image_text", &o->source_class));
    return o->source_class->open(ctx, &params, &o->source);
}

/* Pixels of an item are those of the file. Of several threads at once, whom
 * in_dir has no paths for. */
static void check_pixels(const loong_item_t *item, const char *path)
{
    char file[512];
    loong_context_t *ctx = test_context();
    loong_image_t image = {0};
    char *bytes = NULL;
    size_t length = 0;
    snprintf(file, sizeof(file), "%s/%s", dir, path);
    assert_ok(ctx, loongi_file_read(ctx, file, &bytes, &length));
    assert_ok(ctx, loong_image_decode(ctx, path, (uint8_t *)bytes, length, NULL,
                                      &image));
    assert_int_equal(item->size[0], image.width);
    assert_int_equal(item->size[1], image.height);
    assert_memory_equal(item->pixels, image.pixels,
                        (size_t)(image.width * image.height * 3));
    loong_image_free(ctx, &image);
    loongi_free(ctx, bytes);
    test_context_end(&ctx);
}

/* picture: as in loong_items_t; -2: after peek. */
static void check_items(const wanted_t *w, int line, int picture,
                        const loong_items_t *items)
{
    char place[32];
    const loong_item_t *text = &items->item[0];
    snprintf(place, sizeof(place), ":%d", line);
    assert_int_equal(items->count, 1 + w->pictures);
    assert_int_equal(text->type, LOONG_ITEM_TOKENS);
    assert_int_equal(text->size[0], w->tokens);
    assert_string_equal(strrchr(text->name, ':'), place);
    assert_int_equal(text->ids != NULL, picture == 0 || picture == -1);
    if (text->ids != NULL) {
        size_t n = (size_t)w->tokens;
        assert_memory_equal(text->ids, w->ids, n * sizeof(*w->ids));
        assert_memory_equal(text->weight, w->weight, n);
        assert_true(text->starts[0] == 1 && text->starts[1] == 0);
    }
    for (int k = 0; k < w->pictures; k++) {
        const loong_item_t *item = &items->item[1 + k];
        assert_int_equal(item->type, LOONG_ITEM_IMAGE);
        assert_int_equal(item->at, w->at[k]);
        if (picture == 0 || picture == k + 1) {
            assert_string_equal(item->name, w->path[k]);
            check_pixels(item, w->path[k]);
        } else {
            assert_null(item->pixels);
        }
    }
}

static void check_file(loong_context_t *ctx, const opened_t *o, bool is_array)
{
    loong_items_t items = {.ctx = ctx, .vocab_size = VOCAB};
    for (int i = 0; i < LOONG_COUNT_OF(wanted); i++) {
        const wanted_t *w = &wanted[i];
        int line = is_array ? w->array_line : w->line;
        assert_ok(ctx, o->source_class->peek(o->source, i, &items));
        check_items(w, line, -2, &items);
        for (items.picture = -1; items.picture <= w->pictures;
             items.picture++) {
            assert_ok(ctx, o->source_class->read(o->source, i, &items));
            check_items(w, line, items.picture, &items);
        }
        items.picture = 0;
    }
    loong_items_free(&items);
}

static void *check_in_thread(void *opened)
{
    loong_context_t *ctx = test_context();
    for (int round = 0; round < 20; round++) {
        check_file(ctx, opened, false);
    }
    test_context_end(&ctx);
    return NULL;
}

static void test_records(void **state)
{
    (void)state;
    loong_context_t *ctx = begin_files();
    opened_t o;
    loong_source_info_t info;
    pthread_t threads[4];
    put_text(ctx, "a.json", array);
    assert_ok(ctx, try_open(ctx, "a.json", &o));
    check_file(ctx, &o, true);
    o.source_class->close(o.source);
    put_text(ctx, "l.jsonl", lines);
    assert_ok(ctx, try_open(ctx, "l.jsonl", &o));
    o.source_class->get_info(o.source, &info);
    assert_int_equal(info.samples, 3);
    check_file(ctx, &o, false);
    for (int t = 0; t < 4; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, check_in_thread, &o),
                         0);
    }
    for (int t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    }
    o.source_class->close(o.source);
    test_context_end(&ctx);
}

/* Shares of the records, and a hash of all that is in them. */
static void test_info(void **state)
{
    (void)state;
    loong_context_t *ctx = begin_files();
    opened_t o;
    loong_source_info_t all;
    loong_source_info_t part;
    loong_items_t items = {.ctx = ctx, .vocab_size = VOCAB};
    loong_source_params_t params = {.data = "train",
                                    .path = in_dir("l.jsonl"),
                                    .split_begin = 0.4,
                                    .split_end = 1.0,
                                    .tokenizer = in_dir("tokenizer.json"),
                                    .image_token = "<image>"};
    put_text(ctx, "l.jsonl", lines);
    assert_ok(ctx, try_open(ctx, "l.jsonl", &o));
    o.source_class->get_info(o.source, &all);
    o.source_class->close(o.source);
    assert_ok(ctx, o.source_class->open(ctx, &params, &o.source));
    o.source_class->get_info(o.source, &part);
    assert_int_equal(part.samples, 2);
    assert_true(part.hash == all.hash);
    assert_ok(ctx, o.source_class->read(o.source, 1, &items));
    check_items(&wanted[2], wanted[2].line, 0, &items);
    items.vocab_size = C;
    assert_fails(ctx, o.source_class->read(o.source, 1, &items),
                 LOONG_ERR_CONFIG,
                 "l.jsonl:4: token 5 ('c'), the model knows ids below 5");
    o.source_class->close(o.source);
    put_text(ctx, "l.jsonl", "{\"text\": \"cab\"}\n{\"text\": \"cac\"}\n");
    assert_ok(ctx, o.source_class->open(ctx, &params, &o.source));
    o.source_class->get_info(o.source, &part);
    assert_true(part.hash != all.hash);
    FILE *file = fopen(in_dir("l.jsonl"), "r+");
    assert_non_null(file);
    assert_true(fputs("{\"text\": \"cab\"}\n{\"text\": \"<s>\"}\n", file) > 0);
    assert_int_equal(fclose(file), 0);
    items.vocab_size = VOCAB;
    assert_int_equal(part.samples, 2);
    assert_fails(ctx, o.source_class->read(o.source, 1, &items),
                 LOONG_ERR_MISMATCH, "l.jsonl:2: is another record than");
    o.source_class->close(o.source);
    loong_items_free(&items);
    test_context_end(&ctx);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        loong_status_t status;
        const char *says;
    } cases[] = {
        {"e.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a<image>\"}\n",
         LOONG_ERR_FORMAT,
         "e.jsonl:2: '<image>' stands 1 times in the text, pictures: 0"},
        {"e.jsonl", "{\"image\": \"rgb.png\", \"text\": \"a\"}",
         LOONG_ERR_FORMAT, "e.jsonl:1: '<image>' stands 0 times in the text"},
        {"e.jsonl", "{\"image\": \"no.png\", \"text\": \"<image>\"}",
         LOONG_ERR_NOT_FOUND, "e.jsonl:1: there is no picture '"},
        {"e.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \n", LOONG_ERR_FORMAT,
         "e.jsonl:3: "},
        {"e.jsonl", "{\"conversations\": [], \"id\": 1}", LOONG_ERR_FORMAT,
         "e.jsonl:1: a record has either 'text' or 'prompt' and 'completion'; "
         "keys are: 'conversations' 'id'"},
        {"e.jsonl", "{\"text\": \"a\", \"prompt\": \"a\"}", LOONG_ERR_FORMAT,
         "a record has either"},
        {"e.jsonl", "{\"prompt\": \"a\", \"completion\": 3}", LOONG_ERR_FORMAT,
         "e.jsonl:1: 'completion' is an integer, not a string"},
        {"e.jsonl", "{\"image\": \"a\", \"images\": [], \"text\": \"a\"}",
         LOONG_ERR_FORMAT, "has both 'image' and 'images'"},
        {"e.jsonl", "{\"images\": \"a\", \"text\": \"a\"}", LOONG_ERR_FORMAT,
         "'images' is a string, must be a list"},
        {"e.jsonl", "{\"images\": [3], \"text\": \"a\"}", LOONG_ERR_FORMAT,
         "the path of a picture is an integer"},
        {"e.jsonl", "", LOONG_ERR_FORMAT, "has no records"},
        {"e.jsonl", "\x1f\x8b\x08\x01", LOONG_ERR_UNSUPPORTED,
         "e.jsonl: is compressed"},
        {"e.txt", "{\"text\": \"a\"}", LOONG_ERR_UNSUPPORTED,
         "e.txt: texts with pictures are .jsonl"},
        {"e.json", "[{\"text\": \"a\"},\n 3]", LOONG_ERR_FORMAT, "e.json:2: "},
    };
    loong_context_t *ctx = begin_files();
    opened_t o;
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        put_text(ctx, cases[i].name, cases[i].text);
        assert_fails(ctx, try_open(ctx, cases[i].name, &o), cases[i].status,
                     cases[i].says);
    }
    assert_fails(ctx, try_open(ctx, "none.jsonl", &o), LOONG_ERR_NOT_FOUND,
                 "none.jsonl: there is no such file");
    loong_source_params_t params = {.data = "train", .path = in_dir("l.jsonl")};
    put_text(ctx, "l.jsonl", lines);
    assert_fails(ctx, o.source_class->open(ctx, &params, &o.source),
                 LOONG_ERR_CONFIG, "need data.tokenizer");
    params.tokenizer = "bytes";
    params.image_token = "<image>";
    assert_fails(ctx, o.source_class->open(ctx, &params, &o.source),
                 LOONG_ERR_CONFIG, "has no token '<image>', by which data.im");
    test_context_end(&ctx);
}

/* A picture that is broken is named when it is read, with its record. */
static void test_broken_picture(void **state)
{
    (void)state;
    loong_context_t *ctx = begin_files();
    loong_items_t items = {.ctx = ctx, .vocab_size = VOCAB};
    opened_t o;
    put_text(ctx, "broken.png", "no picture");
    put_text(ctx, "b.jsonl",
             "\n{\"image\": \"broken.png\", \"text\": \"<image>\"}\n");
    assert_ok(ctx, try_open(ctx, "b.jsonl", &o));
    assert_fails(ctx, o.source_class->read(o.source, 0, &items),
                 LOONG_ERR_UNSUPPORTED, "broken.png: ");
    (void)o.source_class->read(o.source, 0, &items);
    assert_non_null(strstr(loong_context_error(ctx), "b.jsonl:2"));
    loong_context_clear_error(ctx);
    items.picture = -1;
    assert_ok(ctx, o.source_class->read(o.source, 0, &items));
    o.source_class->close(o.source);
    loong_items_free(&items);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_broken_picture),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
