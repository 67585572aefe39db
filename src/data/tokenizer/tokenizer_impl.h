/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer inside. A text goes through: repair.c of UTF-8 -> added tokens
 * cut out (added.c) -> normalizer (encode.c) -> stages of the pre-tokenizer
 * (stage.c, scan.c, regex.c) -> merges (bpe.c) -> template (encode.c).
 */
#ifndef LOONG_TOKENIZER_IMPL_H
#define LOONG_TOKENIZER_IMPL_H

#include "json.h"
#include "loong/tokenizer.h"
#include "unicode.h"
#include "vocab.h"

enum { LOONG_MAX_TOKEN_ID = (1 << 24) - 1, LOONG_MAX_STAGES = 12 };

typedef struct added_token {
    const char *text; /* what is looked for: normalised if the token says so */
    size_t length;
    int32_t id;
    bool single_word;
    bool lstrip;
    bool rstrip;
} added_token_t;

/* Added tokens that are looked for together, sorted by text. */
typedef struct added_set {
    added_token_t *tokens;
    int64_t count;
    int64_t capacity;
    int64_t first[257]; /* tokens that begin with byte b: first[b] .. [b+1] */
} added_set_t;

typedef struct normalizer {
    enum { NORMALIZE_NFC, NORMALIZE_PREPEND, NORMALIZE_REPLACE } kind;
    const char *from; /* of replace */
    size_t from_length;
    const char *to; /* of replace and prepend */
    size_t to_length;
} normalizer_t;

typedef struct stage stage_t;

/* The next match at or after `from`; span[0] == length: there is none. */
typedef loong_status_t (*find_fn)(const stage_t *stage,
                                  loong_text_encoder_t *encoder,
                                  const char *text, size_t length, size_t from,
                                  size_t span[2]);

typedef enum { KEEP_ALL, KEEP_MATCHES, KEEP_GAPS, WITH_PREVIOUS } behavior_t;

/* One step of cutting text into words. */
struct stage {
    enum { STAGE_SPLIT, STAGE_PREFIX_SPACE, STAGE_METASPACE } kind;
    find_fn find; /* of split */
    behavior_t behavior;
    const uint8_t *chars;
    struct loong_regex *regex;
    const char *literal; /* of split by a string; the mark of metaspace */
    size_t literal_length;
    enum { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } prepend;
    bool split; /* of metaspace */
};

/* Characters below U+10000 that words begin with as one token (whole.c). */
enum { LOONG_WHOLE_POINTS = 1 << 16 };

typedef struct whole_char {
    int32_t id;    /* -1: none, or not always */
    uint32_t rank; /* of its merges the highest */
} whole_char_t;

typedef struct whole {
    whole_char_t *chars; /* NULL: words begin with bytes */
    /* The lowest rank of a merge that tears a character apart, by the last
     * byte before << 8 | its first byte, and by its last byte << 8 | the first
     * byte behind it. NULL: words are made of characters. */
    uint32_t *before;
    uint32_t *behind;
} whole_t;

struct loong_tokenizer {
    loong_context_t *ctx;
    loong_arena_t *arena; /* texts of tokens and settings */
    char *source;         /* tokenizer.json, for saving; NULL: none */
    size_t source_length;
    vocab_t vocab;
    merges_t merges;
    whole_t whole;
    bool bytes; /* the byte tokenizer: no rule but one id a byte */
    bool byte_level;
    bool ignore_merges;
    bool byte_fallback;
    bool fuse_unk;
    int32_t unk_id;
    int32_t byte_ids[256]; /* byte level: of the byte; fallback: of <0xXX> */
    added_set_t added_raw; /* looked for before normalising */
    added_set_t added_normalized;
    normalizer_t normalizers[LOONG_MAX_STAGES];
    int num_normalizers;
    stage_t stages[LOONG_MAX_STAGES];
    int num_stages;
    int32_t *template_before; /* ids of the post-processor */
    int64_t num_before;
    int32_t *template_after;
    int64_t num_after;
    int strip_left; /* of the decoder: blanks taken from the beginning */
    uint8_t *chars; /* LOONG_CHAR_... of every code point */
    uint8_t *nfc;   /* NULL: not needed */
    size_t longest; /* bytes of the longest token */
    int32_t roles[LOONG_TOKEN_ROLES];
    uint64_t hash;    /* of all that ids follow from, but roles */
    int32_t image[3]; /* that stands for a picture, and around it; -1: none */
};

/* A word that was merged before: 64 bytes. */
enum { LOONG_CACHE_TEXT = 30, LOONG_CACHE_IDS = 8, LOONG_CACHE_BITS = 15 };
typedef struct cache_entry {
    int32_t ids[LOONG_CACHE_IDS];
    char text[LOONG_CACHE_TEXT];
    uint8_t length; /* 0: empty */
    uint8_t count;
} cache_entry_t;

typedef struct symbol {
    int32_t id;
    int32_t prev;
    int32_t next;
    uint32_t rank;  /* of the merge with the next one, UINT32_MAX: none */
    int32_t merged; /* what that gives */
} symbol_t;

struct loong_text_encoder {
    loong_context_t *ctx;
    const loong_tokenizer_t *tokenizer;
    int32_t *ids;
    int64_t count;
    int64_t capacity;
    cache_entry_t *cache;
    symbol_t *symbols;
    int64_t symbol_capacity;
    uint64_t *heap;
    int64_t heap_capacity;
    loong_buffer_t repaired;
    loong_buffer_t normal[2];
    loong_buffer_t spelled; /* a word in the alphabet of the vocabulary */
    loong_buffer_t stage_text[LOONG_MAX_STAGES];
    struct regex_scratch *regex; /* regex.c */
    /* spans.c */
    const char *following;       /* the text */
    size_t copied;               /* of it into: */
    loong_buffer_t followed;     /* the text as it is after normalising */
    nfc_runs_t runs;             /* of the whole text */
    const added_token_t **added; /* by id; NULL: none of them */
    loong_token_span_t *spans;
    int64_t spans_room;
};

/* peek.c: the file that path means: itself, or of a directory tokenizer.json
 * or, where that is not there, the one of ranks. */
#define LOONG_TIKTOKEN_FILE "tiktoken.model"
void loongi_tokenizer_file(const char *path, loong_text_t *file);
/* And the tokenizer_config.json beside that file. */
void loongi_tokenizer_config(const char *file, loong_text_t *config);
bool loongi_tokenizer_has_ranks(const loong_text_t *file);

/* tokenizer.c: an empty one, to be filled. */
LOONG_NODISCARD loong_status_t loongi_tokenizer_begin(loong_context_t *ctx,
                                                      loong_tokenizer_t **t_p);

/* vocab.c: the text is copied into the arena. Refuses a used id and a used
 * text. */
LOONG_NODISCARD loong_status_t loongi_vocab_add(loong_tokenizer_t *t,
                                                int64_t id, const char *text,
                                                size_t length);

/* added.c */
LOONG_NODISCARD loong_status_t loongi_added_add(loong_tokenizer_t *t,
                                                added_set_t *set,
                                                const added_token_t *token);
LOONG_NODISCARD loong_status_t loongi_added_finish(loong_tokenizer_t *t,
                                                   added_set_t *set);
/* Gives the text between tokens to `between`, and appends the tokens' ids. */
typedef loong_status_t (*between_fn)(loong_text_encoder_t *encoder,
                                     const char *text, size_t length,
                                     bool first);
LOONG_NODISCARD loong_status_t loongi_added_split(loong_text_encoder_t *encoder,
                                                  const added_set_t *set,
                                                  const char *text,
                                                  size_t length, bool first,
                                                  between_fn between);

/* load_*.c: each reads one part of the file. */
LOONG_NODISCARD loong_status_t loongi_load_model(loong_tokenizer_t *t,
                                                 const loong_json_t *model);
LOONG_NODISCARD loong_status_t loongi_load_added(loong_tokenizer_t *t,
                                                 const loong_json_t *list);
LOONG_NODISCARD loong_status_t loongi_load_normalizer(loong_tokenizer_t *t,
                                                      const loong_json_t *json);
LOONG_NODISCARD loong_status_t
loongi_load_pretokenizer(loong_tokenizer_t *t, const loong_json_t *json);
LOONG_NODISCARD loong_status_t
loongi_load_postprocessor(loong_tokenizer_t *t, const loong_json_t *json);
LOONG_NODISCARD loong_status_t loongi_load_decoder(loong_tokenizer_t *t,
                                                   const loong_json_t *json);
/* Members with checks; `where` is "pre_tokenizer" and such. */
LOONG_NODISCARD loong_status_t loongi_member_text(loong_context_t *ctx,
                                                  const loong_json_t *json,
                                                  const char *key,
                                                  const char *where,
                                                  const char **text_p);
LOONG_NODISCARD loong_status_t loongi_member_bool(loong_context_t *ctx,
                                                  const loong_json_t *json,
                                                  const char *key,
                                                  const char *where,
                                                  bool absent, bool *value_p);
/* A member that must be there and be an array. */
loong_status_t loongi_member_list(loong_context_t *ctx,
                                  const loong_json_t *json, const char *key,
                                  const char *where,
                                  const loong_json_t **list_p);

/* scan.c: the scanner of a pattern; NULL: it is not a known one. */
find_fn loongi_scan_find(const char *pattern);
find_fn loongi_scan_digits(bool individual);
find_fn loongi_scan_literal(void);
const char *loongi_scan_pattern(loong_pretokenizer_t kind);

/* regex.c */
LOONG_NODISCARD loong_status_t loongi_regex_create(loong_context_t *ctx,
                                                   const char *pattern,
                                                   struct loong_regex **regex);
void loongi_regex_destroy(loong_context_t *ctx, struct loong_regex **regex);
loong_status_t loongi_regex_find(const stage_t *stage,
                                 loong_text_encoder_t *encoder,
                                 const char *text, size_t length, size_t from,
                                 size_t span[2]);
void loongi_regex_scratch_destroy(struct regex_scratch **scratch);

/* tiktoken.c: vocabulary and merges of a file of ranks, and what else a
 * tokenizer.json would say (*rest_p), which is the caller's. */
LOONG_NODISCARD loong_status_t loongi_load_tiktoken(
    loong_tokenizer_t *t, const char *text, size_t size,
    const loong_json_t *config, loong_json_t **rest_p);

/* stage.c: cuts text by stages `index` and on, each word goes to
 * loongi_bpe_word. */
LOONG_NODISCARD loong_status_t loongi_stage_run(loong_text_encoder_t *encoder,
                                                int index, const char *text,
                                                size_t length, bool first);

/* whole.c: behind everything else of the model. */
LOONG_NODISCARD loong_status_t loongi_whole_create(loong_tokenizer_t *t);
void loongi_whole_destroy(loong_tokenizer_t *t);

/* bpe.c: appends the ids of a word. */
LOONG_NODISCARD loong_status_t loongi_bpe_word(loong_text_encoder_t *encoder,
                                               const char *text, size_t length);

/* spans.c */
void loongi_spans_free(loong_text_encoder_t *encoder);

/* encode.c */
LOONG_NODISCARD loong_status_t loongi_normalize(loong_text_encoder_t *encoder,
                                                const char **text_p,
                                                size_t *length_p);
static inline loong_status_t loongi_ids_room(loong_text_encoder_t *e,
                                             int64_t more)
{
    if (e->count + more <= e->capacity) {
        return LOONG_OK;
    }
    return loongi_grow(e->ctx, &e->ids, &e->capacity, e->count + more,
                       sizeof(*e->ids), "token ids");
}

#endif
