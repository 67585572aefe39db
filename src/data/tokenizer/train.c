/* SPDX-License-Identifier: Apache-2.0
 *
 * Training: documents in, a tokenizer.json out, which is read like any other.
 * Called by tools/loong_data_train.c. Read train.h before. */
#include "train.h"

#include <string.h>

bool loong_pretokenizer_from_name(const char *name,
                                  loong_pretokenizer_t *kind_p)
{
    static const char *const names[] = {
#define PRETOKENIZER_NAME(name_, text_) text_,
        LOONG_PRETOKENIZER_LIST(PRETOKENIZER_NAME)
#undef PRETOKENIZER_NAME
    };
    for (int i = 0; i < LOONG_PRETOKENIZER_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *kind_p = (loong_pretokenizer_t)i;
            return true;
        }
    }
    return false;
}

/* Cuts every document into words. */
static loong_status_t read_words(loong_context_t *ctx,
                                 const loong_tokenizer_train_params_t *params,
                                 const uint8_t *chars, words_t *words)
{
    loong_buffer_t repaired = {0};
    loong_status_t status = LOONG_OK;
    stage_t stage = {0};
    stage.chars = chars;
    stage.find = loongi_scan_find(loongi_scan_pattern(params->pretokenizer));
    for (;;) {
        const char *text = NULL;
        size_t length = 0;
        size_t span[2] = {0, 0};
        LOONG_TRY_GOTO(params->next(params->user, &text, &length), status, out);
        if (text == NULL) {
            break;
        }
        if (!loongi_utf8_valid(text, length)) {
            LOONG_TRY_GOTO(loongi_utf8_repair(ctx, text, length, &repaired),
                           status, out);
            text = repaired.data;
            length = repaired.length;
        }
        for (size_t at = 0; at < length; at = span[1]) {
            /* these scanners need no encoder, and leave no gaps */
            (void)stage.find(&stage, NULL, text, length, at, span);
            LOONG_TRY_GOTO(
                loongi_words_add(ctx, words, text + at, span[1] - at), status,
                out);
        }
    }
    if (words->count == 0) {
        status = LOONG_FAIL(ctx, LOONG_ERR_FORMAT,
                            "there is no text to train a tokenizer on");
    }
out:
    loongi_free(ctx, repaired.data);
    return status;
}

/* Special tokens, then the bytes in the order of the characters that stand
 * for them. */
static loong_status_t begin_vocab(const loong_tokenizer_train_params_t *params,
                                  loong_tokenizer_t *known,
                                  int32_t byte_ids[256])
{
    char text[8];
    for (int64_t i = 0; i < params->num_special; i++) {
        LOONG_TRY(loongi_vocab_add(known, i, params->special[i],
                                   strlen(params->special[i])));
    }
    for (uint32_t point = 0; point <= 0x143; point++) {
        int byte = loongi_point_to_byte(point);
        if (byte < 0) {
            continue;
        }
        int length = loongi_utf8_put(point, text);
        text[length] = '\0';
        byte_ids[byte] = (int32_t)known->vocab.size;
        LOONG_TRY(
            loongi_vocab_add(known, known->vocab.size, text, (size_t)length));
    }
    return LOONG_OK;
}

static void write_pretokenizer(loong_text_t *out, loong_pretokenizer_t kind)
{
    if (kind == LOONG_PRETOKENIZER_GPT2) {
        loongi_text_printf(out,
                           "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                           "\"trim_offsets\":false,\"use_regex\":true}");
        return;
    }
    loongi_text_printf(out, "{\"type\":\"Sequence\",\"pretokenizers\":[\n"
                            "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
    loongi_text_json_string(out, loongi_scan_pattern(kind));
    loongi_text_printf(out,
                       "},\"behavior\":\"Isolated\",\"invert\":false},\n"
                       "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                       "\"trim_offsets\":false,\"use_regex\":false}]}");
}

/* Of a pair that was merged twice the later rank counts. */
static loong_status_t drop_repeated(loong_context_t *ctx, learning_t *l)
{
    merges_t last = {0};
    int64_t kept = 0;
    LOONG_TRY(loongi_merges_create(ctx, l->num_merges, &last));
    for (int64_t i = 0; i < l->num_merges; i++) {
        const learned_t *m = &l->merges[i];
        merge_t merge = {(uint64_t)(uint32_t)m->left << 32 | (uint32_t)m->right,
                         (uint32_t)i, m->id};
        loongi_merges_put(&last, merge);
    }
    for (int64_t i = 0; i < l->num_merges; i++) {
        const learned_t m = l->merges[i];
        if (loongi_merges_find(&last, m.left, m.right)->rank == (uint32_t)i) {
            l->merges[kept++] = m;
        }
    }
    l->num_merges = kept;
    loongi_merges_destroy(ctx, &last);
    return LOONG_OK;
}

static void write_file(loong_text_t *out,
                       const loong_tokenizer_train_params_t *params,
                       const learning_t *l)
{
    const token_t *tokens = l->known->vocab.tokens;
    loongi_text_printf(out, "{\"version\":\"1.0\",\"truncation\":null,"
                            "\"padding\":null,\"added_tokens\":[");
    for (int64_t i = 0; i < params->num_special; i++) {
        loongi_text_printf(out,
                           "%s\n{\"id\":%lld,\"content\":", i > 0 ? "," : "",
                           (long long)i);
        loongi_text_json_string(out, params->special[i]);
        loongi_text_printf(out, ",\"single_word\":false,\"lstrip\":false,"
                                "\"rstrip\":false,\"normalized\":false,"
                                "\"special\":true}");
    }
    loongi_text_printf(out, "],\n\"normalizer\":null,\n\"pre_tokenizer\":");
    write_pretokenizer(out, params->pretokenizer);
    loongi_text_printf(
        out, ",\n\"post_processor\":null,\n\"decoder\":{\"type\":\"ByteLevel\","
             "\"add_prefix_space\":false,\"trim_offsets\":false,"
             "\"use_regex\":false},\n\"model\":{\"type\":\"BPE\","
             "\"dropout\":null,\"unk_token\":null,"
             "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
             "\"fuse_unk\":false,\"byte_fallback\":false,"
             "\"ignore_merges\":false,\"vocab\":{");
    for (int64_t id = 0; id < l->known->vocab.size; id++) {
        loongi_text_printf(out, id > 0 ? ",\n" : "\n");
        loongi_text_json_string(out, tokens[id].text);
        loongi_text_printf(out, ":%lld", (long long)id);
    }
    loongi_text_printf(out, "},\n\"merges\":[");
    for (int64_t i = 0; i < l->num_merges; i++) {
        loongi_text_printf(out, i > 0 ? ",\n[" : "\n[");
        loongi_text_json_string(out, tokens[l->merges[i].left].text);
        loongi_text_printf(out, ",");
        loongi_text_json_string(out, tokens[l->merges[i].right].text);
        loongi_text_printf(out, "]");
    }
    loongi_text_printf(out, "]}}\n");
}

static loong_status_t check_params(loong_context_t *ctx,
                                   const loong_tokenizer_train_params_t *p)
{
    int64_t least = 256 + p->num_special;
    LOONG_CHECK(
        ctx, p->vocab_size >= least && p->vocab_size <= LOONG_MAX_TOKEN_ID + 1,
        LOONG_ERR_ARG,
        "vocabulary size %lld, allowed is %lld (bytes and special "
        "tokens) to %d",
        (long long)p->vocab_size, (long long)least, LOONG_MAX_TOKEN_ID + 1);
    LOONG_CHECK(ctx, p->min_frequency >= 1, LOONG_ERR_ARG,
                "min_frequency %lld, must be at least 1",
                (long long)p->min_frequency);
    for (int64_t i = 0; i < p->num_special; i++) {
        LOONG_CHECK(ctx,
                    p->special[i][0] != '\0' &&
                        loongi_utf8_valid(p->special[i], strlen(p->special[i])),
                    LOONG_ERR_ARG,
                    "special token %lld is empty or no UTF-8 text",
                    (long long)i + 1);
    }
    return LOONG_OK;
}

loong_status_t
loong_tokenizer_train(loong_context_t *ctx,
                      const loong_tokenizer_train_params_t *params,
                      loong_tokenizer_t **tokenizer_p)
{
    int32_t byte_ids[256];
    words_t words = {0};
    loong_text_t file = loongi_text_begin(ctx);
    learning_t l = {0};
    loong_status_t status = LOONG_OK;
    LOONG_TRY(check_params(ctx, params));
    LOONG_TRY(loongi_tokenizer_begin(ctx, &l.known));
    l.words = &words;
    l.min_frequency = params->min_frequency;
    l.wanted = params->vocab_size;
    LOONG_TRY_GOTO(read_words(ctx, params, l.known->chars, &words), status,
                   out);
    LOONG_TRY_GOTO(begin_vocab(params, l.known, byte_ids), status, out);
    LOONG_TRY_GOTO(loongi_learn_merges(ctx, &l, byte_ids), status, out);
    LOONG_TRY_GOTO(drop_repeated(ctx, &l), status, out);
    write_file(&file, params, &l);
    LOONG_TRY_GOTO(file.status, status, out);
    status = loong_tokenizer_parse(ctx, loongi_text_get(&file), file.length,
                                   "the trained tokenizer", tokenizer_p);
out:
    loongi_text_free(&file);
    loongi_words_free(ctx, &words);
    loongi_free(ctx, l.merges);
    loong_tokenizer_destroy(&l.known);
    return status;
}
