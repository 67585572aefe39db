/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to token ids and back: byte-pair encoding as Hugging Face's
 * tokenizer.json describes it, with the ids of the `tokenizers` library.
 *
 * A tokenizer is constant once it is made and may be used by many threads;
 * each thread encodes through a loong_text_encoder_t of its own. Not
 * collective.
 *
 * Text is UTF-8. Bytes that are not UTF-8 are read as U+FFFD, as Python's
 * bytes.decode("utf-8", errors="replace") does; only the byte tokenizer takes
 * them as they are.
 */
#ifndef LOONG_TOKENIZER_H
#define LOONG_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_tokenizer loong_tokenizer_t;

/* Reads a tokenizer.json, or that of a directory, or, where it has none, a
 * tiktoken.model of Kimi's (tokenizer_class TikTokenTokenizer); a
 * tokenizer_config.json beside it names the special tokens. What the file asks
 * for and would change ids is either done or refused by name.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO, LOONG_ERR_FORMAT,
 * LOONG_ERR_UNSUPPORTED. */
LOONG_API LOONG_NODISCARD loong_status_t loong_tokenizer_load(
    loong_context_t *ctx, const char *path, loong_tokenizer_t **tokenizer_p);

/* Reads the text of a tokenizer.json; `where` names it in errors. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_tokenizer_parse(loong_context_t *ctx, const char *json, size_t length,
                      const char *where, loong_tokenizer_t **tokenizer_p);

/* Ids 0 .. 255 are the bytes of the text, 256 is "<|endoftext|>", which is
 * not looked for in text. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_tokenizer_bytes(loong_context_t *ctx, loong_tokenizer_t **tokenizer_p);

LOONG_API void loong_tokenizer_destroy(loong_tokenizer_t **tokenizer);

/* Writes the tokenizer.json, as it was read or trained. ctx gets the errors:
 * LOONG_ERR_IO, LOONG_ERR_UNSUPPORTED (the byte tokenizer). */
LOONG_API LOONG_NODISCARD loong_status_t loong_tokenizer_save(
    loong_context_t *ctx, const loong_tokenizer_t *tokenizer, const char *path);

/* Of the file, and of all else that ids of texts follow from but the roles of
 * tokens; 0: bytes. */
LOONG_API uint64_t loong_tokenizer_hash(const loong_tokenizer_t *tokenizer);

/* The highest id plus one: added tokens included. */
LOONG_API int64_t
loong_tokenizer_get_vocab_size(const loong_tokenizer_t *tokenizer);

/* The id of a token as the file spells it; -1: there is none. */
LOONG_API int32_t loong_tokenizer_token_to_id(
    const loong_tokenizer_t *tokenizer, const char *token);

/* A token as the file spells it (bytes above 127 and blanks in byte-level
 * vocabularies are spelled with other characters). Borrowed; NULL: no token
 * has this id. */
LOONG_API const char *
loong_tokenizer_id_to_token(const loong_tokenizer_t *tokenizer, int32_t id);

/* The same of an added token of the file or directory at `path`, of which no
 * more is read than these: into token[room]; "" where the id is none of theirs.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO, LOONG_ERR_FORMAT. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_tokenizer_peek(loong_context_t *ctx, const char *path, int32_t id,
                     size_t room, char *token);
/* Its id; -1: the name is none of theirs. */
LOONG_API LOONG_NODISCARD loong_status_t loong_tokenizer_peek_id(
    loong_context_t *ctx, const char *path, const char *token, int32_t *id_p);

typedef enum loong_token_role {
    LOONG_TOKEN_BOS,
    LOONG_TOKEN_EOS,
    LOONG_TOKEN_PAD,
    LOONG_TOKEN_EOD, /* ends a document of pretraining data */
    LOONG_TOKEN_ROLES
} loong_token_role_t;

/* The id of a role: from tokenizer_config.json, else by the usual names;
 * -1: there is none. */
LOONG_API int32_t loong_tokenizer_get_role(const loong_tokenizer_t *tokenizer,
                                           loong_token_role_t role);

/* The tokens that a processor of pictures and texts puts around the one that
 * stands for a picture; false: it puts none. InternVL's are named in
 * tokenizer_config.json: context_image_token, start_image_token,
 * end_image_token; without these they are <IMG_CONTEXT>, <img> and </img>. */
LOONG_API bool loong_tokenizer_image_bounds(const loong_tokenizer_t *tokenizer,
                                            int32_t image, int32_t bounds[2]);

/* What one thread needs to encode: buffers, and a bounded cache of words. */
typedef struct loong_text_encoder loong_text_encoder_t;

/* ctx is the thread's own. The tokenizer must live longer. */
LOONG_API LOONG_NODISCARD loong_status_t loong_text_encoder_create(
    loong_context_t *ctx, const loong_tokenizer_t *tokenizer,
    loong_text_encoder_t **encoder_p);
LOONG_API void loong_text_encoder_destroy(loong_text_encoder_t **encoder);

/* The ids of a text, borrowed until the next call. add_special puts in what
 * the file's post-processor asks for (beginning or end of sequence). Added
 * tokens are recognised in the text. Errors: LOONG_ERR_MEMORY,
 * LOONG_ERR_UNSUPPORTED (a pattern too deep for the regular-expression
 * library). */
LOONG_API LOONG_NODISCARD loong_status_t loong_text_encode(
    loong_text_encoder_t *encoder, const char *text, size_t length,
    bool add_special, const int32_t **ids_p, int64_t *count_p);

/* Bytes [begin, end) of a text. */
typedef struct loong_token_span {
    int64_t begin, end;
} loong_token_span_t;

typedef struct loong_text_tokens {
    const int32_t *ids; /* [count] */
    const loong_token_span_t *spans; /* [count] */
    int64_t count;
} loong_text_tokens_t;

/* The ids, and where each stands in the text, borrowed until the next call. A
 * token that is a part of a character ends within it; a blank that the
 * tokenizer puts in front of a word stands where the word's first character
 * does; tokens of add_special are empty; one of a character that is written
 * otherwise by normalisation has all of what it is written for. Every id is
 * held against the bytes that it spells.
 * Errors: LOONG_ERR_ARG (the text is no UTF-8), LOONG_ERR_UNSUPPORTED (the
 * tokenizer changes or drops text in a way that cannot be followed), those of
 * loong_text_encode. */
LOONG_API LOONG_NODISCARD loong_status_t loong_text_encode_spans(
    loong_text_encoder_t *encoder, const char *text, size_t length,
    bool add_special, loong_text_tokens_t *tokens);

/* The text of ids as bytes, with a NUL behind; freed with
 * loong_tokenizer_free_text. Ids may cut a character in two, so the bytes
 * need not be UTF-8. skip_special leaves special tokens out.
 * Errors: LOONG_ERR_ARG (an id that is no token). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_tokenizer_decode(loong_context_t *ctx, const loong_tokenizer_t *tokenizer,
                       const int32_t *ids, int64_t count, bool skip_special,
                       char **text_p, size_t *length_p);
LOONG_API void loong_tokenizer_free_text(loong_context_t *ctx, char **text);

/* Decoding as tokens come, for printing: what comes out is whole UTF-8
 * characters, an incomplete one is held back. Zero-initialise. */
typedef struct loong_text_stream {
    unsigned char held[4];
    int num_held;
    bool started;
} loong_text_stream_t;

/* Bytes to give for a token in the stream: at most this, from the longest
 * token of the vocabulary. */
LOONG_API size_t loong_text_stream_size(const loong_tokenizer_t *tokenizer);

/* Writes the printable text of one more token and a NUL into text, which
 * holds loong_text_stream_size bytes; the length written. Broken UTF-8 comes
 * out as U+FFFD, an id that is no token as nothing. */
LOONG_API size_t loong_text_stream_put(loong_text_stream_t *stream,
                                       const loong_tokenizer_t *tokenizer,
                                       int32_t id, char *text);

/* X(name, text): how text is cut into words before merging. */
#define LOONG_PRETOKENIZER_LIST(X) \
    X(GPT2, "gpt2")                \
    X(QWEN2, "qwen2")              \
    X(LLAMA3, "llama3")

typedef enum loong_pretokenizer {
#define LOONG_PRETOKENIZER_ENUM(name_, text_) LOONG_PRETOKENIZER_##name_,
    LOONG_PRETOKENIZER_LIST(LOONG_PRETOKENIZER_ENUM)
#undef LOONG_PRETOKENIZER_ENUM
        LOONG_PRETOKENIZER_COUNT
} loong_pretokenizer_t;

/* False when there is no such name. */
LOONG_API bool loong_pretokenizer_from_name(const char *name,
                                            loong_pretokenizer_t *kind_p);

typedef struct loong_tokenizer_train_params {
    int64_t vocab_size;    /* special tokens and the 256 bytes included */
    int64_t min_frequency; /* of a pair that is merged; >= 1 */
    loong_pretokenizer_t pretokenizer;
    const char *const *special; /* get the first ids */
    int64_t num_special;
    /* The next document; *text_p NULL: there are no more. Borrowed until the
     * next call. */
    loong_status_t (*next)(void *user, const char **text_p, size_t *length_p);
    void *user;
} loong_tokenizer_train_params_t;

/* Learns a byte-level vocabulary: pairs are merged by count, equal counts by
 * the lower ids, as `tokenizers` does. The vocabulary is smaller than asked
 * for when no pair is left. Errors: LOONG_ERR_ARG, LOONG_ERR_FORMAT (no
 * text), those of next. */
LOONG_API LOONG_NODISCARD loong_status_t loong_tokenizer_train(
    loong_context_t *ctx, const loong_tokenizer_train_params_t *params,
    loong_tokenizer_t **tokenizer_p);

#ifdef __cplusplus
}
#endif

#endif
