/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer of single characters with the token <image>, and files of
 * records in the directory `dir` beside two pictures. */
#ifndef LOONG_TEST_IMAGE_TEXT_FIXTURE_H
#define LOONG_TEST_IMAGE_TEXT_FIXTURE_H

#include "loong/register.h"
#include "loong/source.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/fixtures/images/"

enum { BOS, EOS, IMAGE, A, B, C, VOCAB };

TEST_DIR(dir)

static const char tokenizer_json[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
    "\"added_tokens\":["
    "{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":1,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":2,\"content\":\"<image>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"normalizer\":null,\"pre_tokenizer\":null,"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":["
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{"
    "\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":null,\"model\":{\"type\":\"BPE\",\"dropout\":null,"
    "\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
    "\"vocab\":{\"<s>\":0,\"</s>\":1,\"<image>\":2,\"a\":3,\"b\":4,\"c\":5},"
    "\"merges\":[]}}";

static inline loong_context_t *begin_files(void)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("p")));
    assert_ok(
        ctx, loongi_file_copy(ctx, FIXTURES "turn1.jpg", in_dir("p/turn.jpg")));
    assert_ok(ctx,
              loongi_file_copy(ctx, FIXTURES "rgb.png", in_dir("rgb.png")));
    assert_ok(ctx,
              loongi_file_write(ctx, in_dir("tokenizer.json"), tokenizer_json,
                                sizeof(tokenizer_json) - 1));
    return ctx;
}

static inline void put_text(loong_context_t *ctx, const char *name,
                            const char *text)
{
    assert_ok(ctx, loongi_file_write(ctx, in_dir(name), text, strlen(text)));
}

#endif
