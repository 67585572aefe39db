/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the tokenizer_config.json beside a tokenizer.json: refused with
 * a reason, or roles whose tokens are in the vocabulary. */
#include <stdio.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "loong/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char vocabulary[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2,"
    "\"</s>\":3,\"<pad>\":4,\"ab\":5},\"merges\":[\"a b\"]}}";

static void load(loong_context_t *ctx, const char *dir)
{
    loong_tokenizer_t *t = NULL;
    if (loong_tokenizer_load(ctx, dir, &t) == LOONG_OK) {
        for (int role = 0; role < LOONG_TOKEN_ROLES; role++) {
            int32_t id = loong_tokenizer_get_role(t, (loong_token_role_t)role);
            require(id < 0 || loong_tokenizer_id_to_token(t, id) != NULL);
        }
    } else {
        require(t == NULL && loong_context_error(ctx)[0] != '\0');
    }
    loong_tokenizer_destroy(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char dir[64];
    char tokenizer[96];
    char config[96];
    loong_context_t *ctx = NULL;
    snprintf(dir, sizeof(dir), "fuzz_tokenizer_config.%d", (int)getpid());
    snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer.json", dir);
    snprintf(config, sizeof(config), "%s/tokenizer_config.json", dir);
    mkdir(dir, 0777);
    put_file(tokenizer, (const uint8_t *)vocabulary, sizeof(vocabulary) - 1);
    put_file(config, bytes, size);
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    load(ctx, dir);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    unlink(config);
    unlink(tokenizer);
    rmdir(dir);
    return 0;
}
