/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes, with a right checksum behind them, as checkpoint.json: refused
 * with a reason, or pieces that lie inside of their tensors, whose files are
 * named, and that cover each tensor. */
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "native_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void look_at_pieces(const loong_layout_t *layout)
{
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        const loong_checkpoint_tensor_t *tensor =
            &layout->pieces[layout->first[t]].tensor;
        uint64_t elements = 1, covered = 0;
        for (int d = 0; d < tensor->ndim; d++) {
            elements *= (uint64_t)tensor->shape[d];
        }
        for (int64_t i = layout->first[t]; i < layout->first[t + 1]; i++) {
            const loong_layout_piece_t *p = &layout->pieces[i];
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
        loongi_layout_check(layout, path) == LOONG_OK) {
        look_at_pieces(layout);
    } else {
        require(loong_context_error(ctx)[0] != '\0');
    }
    loongi_pairs_destroy(&metadata);
    loongi_layout_destroy(&layout);
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
    read_layout(ctx, path);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    unlink(path);
    return 0;
}
