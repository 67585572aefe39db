/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file: refused, or every tensor lies inside. */
#include <assert.h>
#include <string.h>

#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    loong_context_t *ctx = NULL;
    loong_safetensors_t *file = NULL;
    if (loong_context_create(NULL, &ctx) != LOONG_OK) {
        return 0;
    }
    if (loongi_safetensors_parse(ctx, bytes, size, "fuzz", &file) == LOONG_OK) {
        for (int64_t i = 0; i < loongi_safetensors_count(file); i++) {
            const loong_safetensor_t *t = loongi_safetensors_get(file, i);
            const uint8_t *data = t->data;
            assert(data >= bytes && t->bytes <= (size_t)(bytes + size - data));
            assert(loongi_safetensors_find(file, t->name) == t);
        }
        loongi_safetensors_close(&file);
    }
    loong_context_destroy(&ctx);
    return 0;
}
