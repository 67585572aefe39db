/* SPDX-License-Identifier: Apache-2.0
 *
 * A blend: weighted sources cut into samples, in an order that is a pure
 * function. Training data is one blend, every validation set is another.
 *
 * A source has n samples (loong/source.h). One of tokens holds N of them, in
 * the documents of its split: with T = seq_length, n = floor((N - 1) / T), and
 * sample i is the T + 1 tokens from i * T on, so neighbours share one token. Of
 * one whose texts are laid into rows a sample is a row (loong_packing_t).
 *
 * Which source. Weights become integers p_s with the smallest common sum
 * P <= 65536 that gives them exactly; where there is none, P = 65536 and p_s
 * is rounded (at least 1). Draw g = 0, 1, 2 ... goes to the source that
 *
 *     has  c_s * P < (g + 1) * p_s            (c_s: its draws before g)
 *     and the smallest  (c_s + 1) / p_s       (the first one on a tie).
 *
 * This earliest-deadline rule keeps |c_s - g * p_s / P| < 1 for every source
 * and every g, and repeats every P draws. So a table of one period answers
 * for every g in O(1):
 *
 *     (s, k) = (source[g mod P], floor(g / P) * p_s + rank[g mod P]).
 *
 * Which sample. Draw k of source s belongs to its epoch e = floor(k / n), and
 * takes sample perm(key(seed, s, e), n)(k mod n), where perm is a Feistel
 * network on ceil(log2 n) bits that walks its cycle until the value is below
 * n: a bijection of 0 .. n-1, new in every epoch, nothing stored. Without
 * shuffling it is the identity.
 *
 * Nothing depends on ranks, layout or batch sizes.
 */
#ifndef LOONG_BLEND_H
#define LOONG_BLEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_blend loong_blend_t;

typedef struct loong_blend_source {
    const char *path;   /* of the source: a data set's prefix */
    double weight;      /* > 0; 0 for all sources: in proportion to samples */
    double split_begin; /* share of the documents, floor(share * documents): */
    double split_end;   /* [begin, end); both 0: all documents */
    int64_t max_epochs; /* 0: no bound */
    /* (optional) What another rank found when it checked the index. */
    const loong_index_digest_t *known;
    const char *class_name; /* of the source; NULL: "tokens" */
    const char *part;       /* as loong_source_params_t has it */
    /* Without weights: its samples count so many times; 0: once. */
    double repetitions;
} loong_blend_source_t;

typedef struct loong_blend_params {
    const char *name; /* "train", "valid.wiki": for messages; copied */
    const loong_blend_source_t *sources;
    int64_t num_sources; /* 1 .. 4096 */
    int64_t seq_length;  /* T */
    uint64_t seed;
    bool shuffle; /* false: file order, for validation */
    const char *tokenizer; /* of sources of text (loong_source_params_t) */
    const char *image_token;
    const char *image_root;
    const struct loong_image_processor *image_processor;
    const char *video_token;
    const struct loong_image_processor *video_processor;
    loong_packing_t packing; /* of texts of lengths of their own */
    /* How pictures of texts are had, which share rows with packing then; rows
     * NULL: they do not. What a row has room for: rows of the image encoder,
     * and pictures. */
    loong_picture_reader_t pictures;
    int32_t row_patches, row_images;
    loong_truncation_t truncation;
    const struct loong_chat_options *chat; /* of conversations; or NULL */
} loong_blend_params_t;

/* Opens and checks every source. Not collective.
 * Errors: those of the sources, LOONG_ERR_CONFIG (weights, splits, bounds). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_blend_create(loong_context_t *ctx, const loong_blend_params_t *params,
                   loong_blend_t **blend_p);

LOONG_API void loong_blend_destroy(loong_blend_t **blend);

typedef struct loong_blend_info {
    const char *name; /* borrowed */
    int64_t num_sources;
    int64_t seq_length;
    int64_t period;        /* P */
    int64_t epoch_samples; /* one pass over all sources */
    int64_t max_samples;   /* draws until the first source is used up by its
                              max_epochs; INT64_MAX: no bound */
} loong_blend_info_t;

LOONG_API void loong_blend_get_info(const loong_blend_t *blend,
                                    loong_blend_info_t *info);

typedef struct loong_blend_source_info {
    const loong_source_class_t *source_class;
    const void *source; /* borrowed */
    loong_source_info_t info;
    int64_t share;      /* p_s of P */
    int64_t max_epochs; /* 0: no bound */
} loong_blend_source_info_t;

/* 0 <= source < num_sources. */
LOONG_API void loong_blend_get_source(const loong_blend_t *blend,
                                      int64_t source,
                                      loong_blend_source_info_t *info);

typedef struct loong_sample {
    int64_t source;
    int64_t draw;   /* k: the how manieth sample of this source */
    int64_t epoch;  /* of the source */
    int64_t number; /* of the sample within the source */
} loong_sample_t;

/* Sample of draw g >= 0. Errors: LOONG_ERR_ARG (at or past max_samples). */
LOONG_API LOONG_NODISCARD loong_status_t loong_blend_locate(
    const loong_blend_t *blend, int64_t g, loong_sample_t *sample);

/* Draws of a source among the first g of the blend. */
LOONG_API int64_t loong_blend_count(const loong_blend_t *blend, int64_t source,
                                    int64_t g);

/* Fails with LOONG_ERR_CONFIG, naming the source that runs out, when the
 * blend has no `samples` samples. For the start of a run. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_blend_require(const loong_blend_t *blend, int64_t samples);

/* What the order of samples depends on, for checkpoints: a 64-bit value and
 * the text behind it, one "key: value" a line (borrowed). Paths are no part
 * of it: data may be moved. */
LOONG_API uint64_t loong_blend_fingerprint(const loong_blend_t *blend);
LOONG_API const char *loong_blend_describe(const loong_blend_t *blend);

/* Compares with the text of an earlier run: LOONG_OK, or LOONG_ERR_MISMATCH
 * with one line for each value that was changed, removed or added. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_blend_compare(const loong_blend_t *blend, const char *earlier);

#ifdef __cplusplus
}
#endif

#endif
