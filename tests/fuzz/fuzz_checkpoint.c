/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes, with a right checksum behind them, as checkpoint.json, and as a
 * line of pieces.json: refused with a reason, or pieces that lie inside of
 * their tensors, whose files are named, and that cover each tensor. */
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "native_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void look_at_pieces(const loong_layout_t *layout)
{
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        const loong_layout_tensor_t *whole = &layout->tensors[t];
        const loong_checkpoint_tensor_t *tensor = &whole->tensor;
        uint64_t elements = 1, covered = 0;
        for (int d = 0; d < tensor->ndim; d++) {
            elements *= (uint64_t)tensor->shape[d];
        }
        for (int64_t i = 0; i < whole->count; i++) {
            const loong_layout_piece_t *p = &whole->pieces[i];
            uint64_t part = 1;
            require(0 <= p->file && p->file < layout->file_count);
            require(p->tensor.ndim == tensor->ndim);
            for (int d = 0; d < tensor->ndim; d++) {
                require(p->begin[d] >= 0 && p->count[d] >= 0 &&
                        p->begin[d] <= tensor->shape[d] - p->count[d]);
                part *= (uint64_t)p->count[d];
            }
            covered += part;
        }
        require(covered == elements);
    }
}

static void read_layout(loong_context_t *ctx, const char *path)
{
    int64_t step = 0;
    loong_layout_t *layout = NULL;
    loong_pairs_t *metadata = NULL;
    require(loongi_layout_create(ctx, &layout) == LOONG_OK);
    require(loongi_pairs_create(ctx, &metadata) == LOONG_OK);
    if (loongi_layout_read(layout, path, &step, metadata) == LOONG_OK &&
        loongi_layout_check(layout, 0, 1, path) == LOONG_OK) {
        look_at_pieces(layout);
    } else {
        require(loong_context_error(ctx)[0] != '\0');
    }
    loongi_pairs_destroy(&metadata);
    loongi_layout_destroy(&layout);
}

/* Of a tensor of 4 x 6 in two files. */
static void read_line(loong_context_t *ctx, const uint8_t *bytes, size_t size)
{
    loong_layout_tensor_t tensor = {
        {"param", "w", LOONG_F32, 2, {4, 6}}, 2, NULL, false, 0, 0, 0};
    loong_layout_t *layout = NULL;
    require(loongi_layout_create(ctx, &layout) == LOONG_OK);
    require(loongi_layout_add_file(layout, "rank_00000.h5", 96, 0) == LOONG_OK);
    require(loongi_layout_add_file(layout, "rank_00001.h5", 96, 0) == LOONG_OK);
    require(loongi_grow(ctx, &layout->tensors, &layout->tensor_capacity, 1,
                        sizeof(tensor), "tensor") == LOONG_OK);
    layout->tensors[layout->tensor_count++] = tensor;
    layout->lists = "pieces.json";
    if (loongi_pieces_parse(layout, 0, (const char *)bytes, size) ==
            LOONG_OK &&
        loongi_layout_check(layout, 0, 1, "line") == LOONG_OK) {
        look_at_pieces(layout);
    } else {
        require(loong_context_error(ctx)[0] != '\0');
    }
    loongi_layout_destroy(&layout);
    loong_context_clear_error(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[64];
    char tail[64];
    loong_context_t *ctx = NULL;
    int length = snprintf(tail, sizeof(tail), ",\n\"checksum\":\"%016llx\"}\n",
                          (unsigned long long)loongi_checksum(bytes, size));
    uint8_t *text = malloc(size + (size_t)length);
    require(text != NULL);
    memcpy(text, bytes, size);
    memcpy(text + size, tail, (size_t)length);
    snprintf(path, sizeof(path), "fuzz_checkpoint.%d", (int)getpid());
    put_file(path, text, size + (size_t)length);
    free(text);
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    read_line(ctx, bytes, size);
    read_layout(ctx, path);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    unlink(path);
    return 0;
}
