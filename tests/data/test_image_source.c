/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of labelled pictures: directories of classes, tar files written by
 * Python (tests/oracle/images.py), and what is refused. */
#include <inttypes.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc.h"
#include "file.h"
#include "loong/image.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/fixtures/images/"

TEST_DIR(dir)

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), FIXTURES "%s", name);
    return path;
}

/* A file of a new directory `to` ("root/class"). */
static void put(loong_context_t *ctx, const char *from, const char *to,
                const char *name)
{
    char path[512];
    assert_ok(ctx, loongi_dir_make(ctx, in_dir(to)));
    snprintf(path, sizeof(path), "%s/%s", in_dir(to), name);
    assert_ok(ctx, loongi_file_copy(ctx, path_of(from), path));
}

static void test_folder(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t label;
    } wanted[] = {{"apple/b.PNG", 0},     {"apple/x/1.jpg", 0},
                  {"apple/x-y/1.jpg", 0}, {"zebra/Z.webp", 1},
                  {"zebra/a.jpeg", 1},    {"zebra/b/a.png", 1}};
    loong_context_t *ctx = test_context();
    loong_image_source_t *source = NULL;
    loong_image_sample_t sample;
    put(ctx, "turn1.jpg", "f/zebra", "a.jpeg");
    put(ctx, "lossy.webp", "f/zebra", "Z.webp");
    put(ctx, "rgb.png", "f/zebra/b", "a.png");
    put(ctx, "rgb.png", "f/apple", "b.PNG");
    put(ctx, "long_head.jpg", "f/apple/x", "1.jpg");
    put(ctx, "turn1.jpg", "f/apple/x-y", "1.jpg");
    put(ctx, "index.txt", "f/apple", "notes.txt");
    put(ctx, "index.txt", "f", "notes.txt");
    assert_ok(ctx, loong_image_source_create(ctx, in_dir("f"), &source));
    assert_int_equal(loong_image_source_samples(source), 6);
    for (int64_t i = 0; i < 6; i++) {
        assert_ok(ctx, loong_image_source_peek(ctx, source, i, &sample));
        assert_string_equal(strstr(sample.name, "/f/") + 3, wanted[i].name);
        assert_int_equal(sample.label, wanted[i].label);
        assert_null(sample.bytes);
        loong_image_sample_free(ctx, &sample);
    }
    assert_ok(ctx, loong_image_source_peek(ctx, source, 1, &sample));
    assert_true(sample.info.width == 40 && sample.info.height == 30);
    assert_fails(ctx, loong_image_source_read(ctx, source, 6, &sample),
                 LOONG_ERR_ARG, "no sample 6 of 6");
    loong_image_source_destroy(&source);
    test_context_end(&ctx);
}

static void test_folder_errors(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_source_t *source = NULL;
    loong_image_sample_t sample;
    assert_fails(ctx, loong_image_source_create(ctx, in_dir("none"), &source),
                 LOONG_ERR_NOT_FOUND, "none: there is no such");
    put(ctx, "index.txt", "e", "x.txt");
    assert_fails(ctx, loong_image_source_create(ctx, in_dir("e"), &source),
                 LOONG_ERR_FORMAT, "has no samples");
    put(ctx, "index.txt", "e/k", "x.txt");
    assert_fails(ctx, loong_image_source_create(ctx, in_dir("e"), &source),
                 LOONG_ERR_FORMAT, "e/k: a class without a picture");
    put(ctx, "index.txt", "e/k", "x.png");
    assert_ok(ctx, loong_image_source_create(ctx, in_dir("e"), &source));
    assert_fails(ctx, loong_image_source_peek(ctx, source, 0, &sample),
                 LOONG_ERR_UNSUPPORTED, "e/k/x.png: is no JPEG");
    loong_image_source_destroy(&source);
    assert_int_equal(unlink(in_dir("e/k/x.png")), 0);
    assert_int_equal(mkfifo(in_dir("e/k/x.png"), 0600), 0);
    assert_ok(ctx, loong_image_source_create(ctx, in_dir("e"), &source));
    assert_fails(ctx, loong_image_source_read(ctx, source, 0, &sample),
                 LOONG_ERR_FORMAT, "e/k/x.png: is no regular file");
    loong_image_source_destroy(&source);
    put(ctx, "rgb.png", "e/k", "x.bmp");
    assert_fails(ctx, loong_image_source_create(ctx, in_dir("e"), &source),
                 LOONG_ERR_UNSUPPORTED, "e/k/x.bmp: only .jpg");
    test_context_end(&ctx);
}

/* All members of the shards, in the index's words. */
static void check_members(loong_context_t *ctx,
                          const loong_image_source_t *source)
{
    char *text = NULL;
    size_t length = 0;
    int64_t i = 0;
    assert_ok(ctx, loongi_file_read(ctx, FIXTURES "index.txt", &text, &length));
    char *line = strstr(text, "\nmember ");
    for (; line != NULL; line = strstr(line + 1, "\nmember "), i++) {
        loong_image_sample_t sample;
        loong_image_t image;
        int64_t label;
        uint32_t crc;
        assert_int_equal(
            sscanf(line, "\nmember %" SCNd64 " %" SCNu32, &label, &crc), 2);
        assert_ok(ctx, loong_image_source_read(ctx, source, i, &sample));
        assert_int_equal(
            loongi_crc(LOONG_CRC32, sample.bytes, sample.length), crc);
        assert_int_equal(sample.label, label);
        assert_ok(ctx, loong_image_decode(ctx, sample.name, sample.bytes,
                                          sample.length, NULL, &image));
        assert_true(image.width == sample.info.width &&
                    image.height == sample.info.height);
        loong_image_free(ctx, &image);
        loong_image_sample_free(ctx, &sample);
    }
    assert_int_equal(i, loong_image_source_samples(source));
    loongi_free(ctx, text);
}

static void *check_in_thread(void *source)
{
    loong_context_t *ctx = test_context();
    for (int round = 0; round < 20; round++) {
        check_members(ctx, source);
    }
    test_context_end(&ctx);
    return NULL;
}

static void test_tar(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_source_t *source = NULL;
    pthread_t threads[4];
    assert_ok(ctx, loong_image_source_create(ctx, path_of("shards"), &source));
    assert_int_equal(loong_image_source_samples(source), 9);
    for (int t = 0; t < 4; t++) {
        assert_int_equal(
            pthread_create(&threads[t], NULL, check_in_thread, source), 0);
    }
    for (int t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    }
    loong_image_source_destroy(&source);
    test_context_end(&ctx);
}

static void try_tar(loong_context_t *ctx, const char *bytes, size_t length,
                    loong_status_t status, const char *says)
{
    loong_image_source_t *source = NULL;
    print_message("%zu bytes: %s\n", length, says);
    assert_ok(ctx, loongi_file_write(ctx, in_dir("t.tar"), bytes, length));
    assert_fails(ctx, loong_image_source_create(ctx, in_dir("t.tar"), &source),
                 status, says);
}

/* The first blocks of a tar file, and the block that ends one. */
static void try_ended(loong_context_t *ctx, const char *bytes, size_t blocks,
                      const char *says)
{
    char ended[512 * 8] = {0};
    memcpy(ended, bytes, 512 * blocks);
    try_tar(ctx, ended, 512 * (blocks + 1), LOONG_ERR_FORMAT, says);
}

static char *find(char *bytes, size_t length, const char *text)
{
    for (size_t i = 0; i + strlen(text) <= length; i++) {
        if (memcmp(bytes + i, text, strlen(text)) == 0) {
            return bytes + i;
        }
    }
    return NULL;
}

static void test_tar_errors(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_source_t *source = NULL;
    loong_image_sample_t sample;
    char *bytes = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, path_of("shards/part0.tar"), &bytes,
                                    &length));
    try_tar(ctx, "\x1f\x8b\x08 packed", 10, LOONG_ERR_FORMAT,
            "t.tar: Unrecognized archive format; tar files are read that are");
    try_tar(ctx, "no tar at all", 13, LOONG_ERR_FORMAT, "t.tar: ");
    try_tar(ctx, bytes, 0, LOONG_ERR_FORMAT, "t.tar: ");
    try_tar(ctx, bytes, 1024, LOONG_ERR_FORMAT,
            "t.tar: ends without its end-of-archive block: it was cut off");
    try_ended(ctx, bytes, 2, "has no samples");
    /* README (2 blocks), mask (2), then the label's header (1) and text (1). */
    try_ended(ctx, bytes, 6, "sample ./a/0001 has no picture");
    try_tar(ctx, bytes, 512 * 7 + 100, LOONG_ERR_FORMAT, "t.tar: ");
    bytes[512 * 4] = 'x'; /* the label's header: a checksum */
    try_tar(ctx, bytes, length, LOONG_ERR_FORMAT, "t.tar: ");
    bytes[512 * 4] = '.';
    bytes[512 * 5] = 'x'; /* its text */
    try_tar(ctx, bytes, length, LOONG_ERR_FORMAT,
            "0001.CLS: is \"x\n\", not the number");
    bytes[512 * 5] = '0';
    /* The label as a symbolic link: the kind, and the checksum, of a header. */
    bytes[512 * 4 + 156] += 2;
    bytes[512 * 4 + 153] += 2;
    try_tar(ctx, bytes, length, LOONG_ERR_UNSUPPORTED,
            "0001.CLS: is a link, a file is wanted");
    bytes[512 * 4 + 156] -= 2;
    bytes[512 * 4 + 153] -= 2;
    char *label = find(bytes, length, "\"label\"");
    assert_non_null(label);
    label[1] = 'L';
    try_tar(ctx, bytes, length, LOONG_ERR_FORMAT,
            "sample d.d/2 has no label (.cls, or .json with \"label\")");
    label[1] = 'l';
    assert_ok(ctx, loongi_file_write(ctx, in_dir("t.tar"), bytes, length));
    assert_ok(ctx, loong_image_source_create(ctx, in_dir("t.tar"), &source));
    assert_ok(ctx, loongi_file_write(ctx, in_dir("t.tar"), bytes, 512 * 9));
    assert_fails(ctx, loong_image_source_read(ctx, source, 0, &sample),
                 LOONG_ERR_MISMATCH, "when it was opened");
    loong_image_source_destroy(&source);
    loongi_free(ctx, bytes);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_folder_errors),
        cmocka_unit_test(test_tar),
        cmocka_unit_test(test_tar_errors),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
