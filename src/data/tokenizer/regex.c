/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns without a scanner of their own, by PCRE2. Its Unicode tables are
 * older than those of `tokenizers`, so \p{..}, \s and \S are written out as
 * ranges from our table before the pattern is compiled. Called through the
 * patterns of load_text.c. Read tokenizer_impl.h before. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "tokenizer_impl.h"

typedef struct loong_regex {
    pcre2_code *code;
} regex_t;

struct regex_scratch {
    loong_context_t *ctx;
    pcre2_match_data *data;
    pcre2_match_context *match;
    pcre2_jit_stack *stack;
};

/* Is a character of this kind in the property? NULL name: white space. */
static bool in_property(uint8_t kind, const char *name, size_t length)
{
    static const char names[][3] = {
#define CATEGORY_NAME(name_) #name_,
        LOONG_CATEGORY_LIST(CATEGORY_NAME)
#undef CATEGORY_NAME
    };
    if (name == NULL) {
        return kind & LOONG_KIND_SPACE;
    }
    return memcmp(names[kind & LOONG_KIND_CATEGORY], name, length) == 0;
}

/* The property's ranges as they stand between [ and ]. Negated: all others.
 * Surrogates are no characters and stay out. */
static int64_t write_ranges(loong_text_t *out, bool negate, const char *name,
                            size_t length)
{
    int64_t ranges = 0;
    uint32_t begin = UINT32_MAX;
    for (int i = 0; i <= loongi_unicode_num_runs; i++) {
        bool last = i == loongi_unicode_num_runs;
        uint32_t run =
            last ? (LOONG_MAX_POINT + 1u) << 8 : loongi_unicode_runs[i];
        bool in = !last && run >> 8 != 0xD800 &&
                  in_property((uint8_t)run, name, length) != negate;
        if (in && begin == UINT32_MAX) {
            begin = run >> 8;
        } else if (!in && begin != UINT32_MAX) {
            loongi_text_printf(out, "\\x{%x}-\\x{%x}", begin, (run >> 8) - 1);
            begin = UINT32_MAX;
            ranges++;
        }
    }
    return ranges;
}

/* The property at p ("\p{L}", "\PL", "\s", "\S"); its length in the pattern,
 * 0 when there is none. */
static size_t read_property(const char *p, bool *negate, const char **name_p,
                            size_t *length_p)
{
    *name_p = NULL;
    *negate = p[1] == 'S' || p[1] == 'P';
    if (p[0] != '\\' || p[1] == '\0') {
        return 0;
    }
    if (p[1] == 's' || p[1] == 'S') {
        return 2;
    }
    if (p[1] != 'p' && p[1] != 'P') {
        return 0;
    }
    if (p[2] != '{') {
        *name_p = p + 2;
        *length_p = 1;
        return p[2] == '\0' ? 0 : 3;
    }
    size_t begin = 3;
    if (p[begin] == '^') {
        *negate = !*negate;
        begin++;
    }
    const char *end = strchr(p, '}');
    if (end == NULL) {
        return 0;
    }
    *name_p = p + begin;
    *length_p = (size_t)(end - p) - begin;
    return (size_t)(end - p) + 1;
}

static loong_status_t write_out(loong_context_t *ctx, const char *pattern,
                                loong_text_t *out)
{
    bool in_class = false;
    for (const char *p = pattern; *p != '\0';) {
        bool negate = false;
        const char *name = NULL;
        size_t length = 0;
        size_t size = read_property(p, &negate, &name, &length);
        if (size > 0) {
            LOONG_CHECK(ctx, name == NULL || length <= 2, LOONG_ERR_UNSUPPORTED,
                        "pattern '%s': property '%.*s' is not supported, "
                        "only general categories are",
                        pattern, (int)length, name);
            loongi_text_printf(out, in_class ? "" : "[");
            LOONG_CHECK(ctx, write_ranges(out, negate, name, length) > 0,
                        LOONG_ERR_FORMAT,
                        "pattern '%s': there is no category '%.*s'", pattern,
                        (int)length, name);
            loongi_text_printf(out, in_class ? "" : "]");
            p += size;
            continue;
        }
        if (*p == '\\' && p[1] != '\0') {
            /* of these, libraries think differently; \C would cut characters */
            LOONG_CHECK(ctx, strchr("wWdDbBhHRXkgGCEKLNQUVlv", p[1]) == NULL,
                        LOONG_ERR_UNSUPPORTED,
                        "pattern '%s': '\\%c' is not supported", pattern, p[1]);
            loongi_text_append(out, p, 2);
            p += 2;
            continue;
        }
        LOONG_CHECK(ctx, !(in_class && (*p == '[' || strncmp(p, "&&", 2) == 0)),
                    LOONG_ERR_UNSUPPORTED,
                    "pattern '%s': '%c' in a character class is not supported",
                    pattern, *p);
        in_class = in_class ? *p != ']' : *p == '[';
        loongi_text_append(out, p++, 1);
    }
    return out->status;
}

loong_status_t loongi_regex_create(loong_context_t *ctx, const char *pattern,
                                   struct loong_regex **regex_p)
{
    loong_text_t text = loongi_text_begin(ctx);
    regex_t *regex = NULL;
    int code = 0;
    PCRE2_SIZE at = 0;
    loong_status_t status = write_out(ctx, pattern, &text);
    if (status == LOONG_OK) {
        status = loongi_alloc(ctx, sizeof(*regex), "pattern", &regex);
    }
    if (status == LOONG_OK) {
        regex->code = pcre2_compile((PCRE2_SPTR)loongi_text_get(&text),
                                    text.length, PCRE2_UTF, &code, &at, NULL);
        if (regex->code == NULL) {
            PCRE2_UCHAR message[128];
            pcre2_get_error_message(code, message, sizeof(message));
            status = LOONG_FAIL(ctx, LOONG_ERR_FORMAT, "pattern '%s': %s",
                                pattern, (const char *)message);
        } else {
            /* not there on every processor: matching works without */
            (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
        }
    }
    loongi_text_free(&text);
    if (status != LOONG_OK) {
        loongi_regex_destroy(ctx, &regex);
        return status;
    }
    *regex_p = regex;
    return LOONG_OK;
}

void loongi_regex_destroy(loong_context_t *ctx, struct loong_regex **regex)
{
    if (*regex != NULL) {
        pcre2_code_free((*regex)->code);
        loongi_free(ctx, *regex);
        *regex = NULL;
    }
}

static loong_status_t make_scratch(loong_text_encoder_t *e)
{
    enum { STACK_FIRST = 32 << 10, STACK_LAST = 8 << 20 };
    struct regex_scratch *s = NULL;
    LOONG_TRY(loongi_alloc(e->ctx, sizeof(*s), "pattern scratch", &s));
    s->ctx = e->ctx;
    e->regex = s;
    s->data = pcre2_match_data_create(1, NULL);
    s->match = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_LAST, NULL);
    LOONG_CHECK(e->ctx, s->data != NULL && s->match != NULL && s->stack != NULL,
                LOONG_ERR_MEMORY, "no memory for matching patterns");
    pcre2_jit_stack_assign(s->match, NULL, s->stack);
    return LOONG_OK;
}

void loongi_regex_scratch_destroy(struct regex_scratch **scratch)
{
    struct regex_scratch *s = *scratch;
    if (s != NULL) {
        pcre2_match_data_free(s->data);
        pcre2_match_context_free(s->match);
        pcre2_jit_stack_free(s->stack);
        loongi_free(s->ctx, s);
        *scratch = NULL;
    }
}

loong_status_t loongi_regex_find(const stage_t *stage, loong_text_encoder_t *e,
                                 const char *text, size_t length, size_t from,
                                 size_t span[2])
{
    if (e->regex == NULL) {
        LOONG_TRY(make_scratch(e));
    }
    span[0] = length;
    span[1] = length;
    while (from < length) {
        int code =
            pcre2_match(stage->regex->code, (PCRE2_SPTR)text, length, from,
                        PCRE2_NO_UTF_CHECK, e->regex->data, e->regex->match);
        if (code == PCRE2_ERROR_NOMATCH) {
            return LOONG_OK;
        }
        if (code < 0) {
            PCRE2_UCHAR message[128];
            pcre2_get_error_message(code, message, sizeof(message));
            return LOONG_FAIL(e->ctx, LOONG_ERR_UNSUPPORTED,
                              "cutting text by a pattern: %s",
                              (const char *)message);
        }
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(e->regex->data);
        if (match[1] > match[0]) {
            span[0] = match[0];
            span[1] = match[1];
            return LOONG_OK;
        }
        from = match[0]; /* an empty match cuts nothing */
        if (from < length) {
            (void)loongi_utf8_get(text + from, &from);
        }
    }
    return LOONG_OK;
}
