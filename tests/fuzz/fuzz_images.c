/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a picture, as a tar file of labelled pictures and as a
 * preprocessor_config.json: refused with a reason, or all of it can be used. */
#include <stdio.h>

#include "fuzz.h"
#include "loong/image.h"

enum { MAX_PIXELS = 1 << 20, WIDTH = 5, HEIGHT = 3, LARGEST = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void expect_reason(loong_context_t *ctx, loong_status_t status)
{
    require((status != LOONG_OK) == (loong_context_error(ctx)[0] != '\0'));
    loong_context_clear_error(ctx);
}

static void try_picture(loong_context_t *ctx, const uint8_t *bytes, size_t size)
{
    const loong_image_decode_params_t params = {.max_pixels = MAX_PIXELS};
    loong_image_t image = {0};
    expect_reason(
        ctx, loong_image_decode(ctx, "picture", bytes, size, &params, &image));
    require(image.width * image.height <= MAX_PIXELS);
    loong_image_free(ctx, &image);
}

static void try_source(loong_context_t *ctx, const char *path)
{
    loong_image_source_t *source = NULL;
    loong_status_t status = loong_image_source_create(ctx, path, &source);
    require((status == LOONG_OK) == (source != NULL));
    expect_reason(ctx, status);
    int64_t count = source != NULL ? loong_image_source_samples(source) : 0;
    for (int64_t i = 0; i < count; i++) {
        loong_image_sample_t peeked = {0}, read = {0};
        status = loong_image_source_peek(ctx, source, i, &peeked);
        expect_reason(ctx, status);
        require(loong_image_source_read(ctx, source, i, &read) == status);
        expect_reason(ctx, status);
        require(read.label == peeked.label);
        require(read.info.width == peeked.info.width);
        require(read.info.height == peeked.info.height);
        if (status == LOONG_OK) {
            try_picture(ctx, read.bytes, read.length);
        }
        loong_image_sample_free(ctx, &peeked);
        loong_image_sample_free(ctx, &read);
    }
    loong_image_source_destroy(&source);
}

static void try_processor(loong_context_t *ctx, const char *path)
{
    static float values[3 * LARGEST * LARGEST];
    uint8_t pixels[WIDTH * HEIGHT * 3] = {1, 2, 3, 250};
    const loong_image_t image = {.width = WIDTH,
                                 .height = HEIGHT,
                                 .pixels = pixels,
                                 .clear = {1, 2, 3, 1}};
    loong_image_processor_t *processor = NULL;
    int64_t width, height;
    expect_reason(ctx, loong_image_processor_create(ctx, path, &processor));
    if (processor == NULL) {
        return;
    }
    loong_image_processor_size(processor, WIDTH, HEIGHT, &width, &height);
    int64_t tiles =
        loong_image_processor_tiles(processor, WIDTH, HEIGHT, false).count;
    if (width <= LARGEST && height <= LARGEST &&
        tiles * width * height <= LARGEST * LARGEST) {
        expect_reason(ctx,
                      loong_image_process(ctx, processor, &image,
                                          &(loong_patch_cut_t){0}, values));
    }
    loong_image_processor_destroy(&processor);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[64];
    loong_context_t *ctx = NULL;
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    try_picture(ctx, bytes, size);
    snprintf(path, sizeof(path), "fuzz_images.%d.tar", (int)getpid());
    put_file(path, bytes, size);
    try_source(ctx, path);
    try_processor(ctx, path);
    unlink(path);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    return 0;
}
