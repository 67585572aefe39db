/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a chat template: refused with a place and a reason, or a text
 * of UTF-8 with spans inside of it, within its bounds, the same every time. */
#include <string.h>

#include "fuzz.h"
#include "jinja.h"
#include "utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char chat[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},{\"role\":"
    "\"user\",\"content\":\" \xc3\xa9 \xe4\xb8\x96 \"},{\"role\":"
    "\"assistant\",\"content\":\"it's\",\"tool_calls\":[{\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"a\":1,\"b\":[2.5,null,true]}}}]}],"
    "\"numbers\":[3,1,2],\"flag\":true,\"nothing\":null,\"d\":{\"b\":1,"
    "\"a\":[1,2],\"items\":\"key\"},\"s\":\"The quick\",\"people\":[{"
    "\"name\":\"Z\",\"age\":30},{\"name\":\"a\",\"age\":25}]}";

static void render(loong_context_t *ctx, const loong_jinja_t *jinja,
                   loong_jinja_value_t variables, loong_jinja_output_t *out)
{
    const loong_jinja_limits_t limits = {.max_steps = 20000,
                                         .max_bytes = 4 << 20,
                                         .max_depth = 40,
                                         .now = 1768480496};
    loong_context_clear_error(ctx);
    if (loongi_jinja_render(ctx, jinja, variables, &limits, out) == LOONG_OK) {
        size_t at = 0;
        require(strlen(out->text) <= out->length);
        require(loongi_utf8_valid(out->text, out->length));
        for (int64_t i = 0; i < out->num_spans; i++) {
            require(at <= out->spans[i].begin);
            require(out->spans[i].begin <= out->spans[i].end);
            at = out->spans[i].end;
            require(at <= out->length);
        }
    } else {
        require(strstr(loong_context_error(ctx), "fuzz:") != NULL ||
                strstr(loong_context_error(ctx), "limit") != NULL);
        out->length = 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    loong_context_t *ctx = NULL;
    loong_json_t *json = NULL;
    loong_jinja_t *jinja = NULL;
    loong_jinja_values_t *values = NULL;
    loong_jinja_value_t variables;
    loong_jinja_output_t out = {0};
    loong_jinja_output_t again = {0};
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    require(loongi_json_parse(ctx, chat, sizeof(chat) - 1, "chat", &json) ==
            LOONG_OK);
    require(loongi_jinja_values_create(ctx, &values) == LOONG_OK);
    require(loongi_jinja_from_json(values, json, &variables) == LOONG_OK);
    if (loongi_jinja_parse(ctx, (const char *)bytes, size, "fuzz", &jinja) ==
        LOONG_OK) {
        render(ctx, jinja, variables, &out);
        render(ctx, jinja, variables, &again);
        require(out.length == again.length);
        require(out.length == 0 ||
                memcmp(out.text, again.text, out.length) == 0);
    } else {
        require(jinja == NULL);
        require(strstr(loong_context_error(ctx), "fuzz:") != NULL);
    }
    loongi_jinja_destroy(&jinja);
    loongi_jinja_output_free(&out);
    loongi_jinja_output_free(&again);
    loongi_jinja_values_destroy(&values);
    loongi_json_destroy(&json);
    loong_context_clear_error(ctx);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    return 0;
}
