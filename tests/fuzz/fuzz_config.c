/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the config.json of a model directory: refused with a reason, or
 * model keys, each with the field that says it, which a config.json can say
 * again or which are refused with a reason. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_config(loong_context_t *ctx, const char *dir)
{
    loong_pairs_t *origins = NULL;
    loong_pairs_t *model = NULL;
    require(loongi_pairs_create(ctx, &origins) == LOONG_OK);
    if (loongi_hf_config_trace(ctx, dir, NULL, origins, &model) == LOONG_OK) {
        for (int64_t i = 0; i < model->count; i++) {
            require(loongi_pairs_get(origins, model->items[i].key) != NULL);
        }
        require(loongi_hf_config_check(ctx, model) == LOONG_OK ||
                loong_context_error(ctx)[0] != '\0');
    } else {
        require(model == NULL && loong_context_error(ctx)[0] != '\0');
    }
    loongi_pairs_destroy(&model);
    loongi_pairs_destroy(&origins);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char dir[64];
    char path[96];
    loong_context_t *ctx = NULL;
    snprintf(dir, sizeof(dir), "fuzz_config.%d", (int)getpid());
    snprintf(path, sizeof(path), "%s/config.json", dir);
    mkdir(dir, 0777);
    put_file(path, bytes, size);
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    read_config(ctx, dir);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    unlink(path);
    rmdir(dir);
    return 0;
}
