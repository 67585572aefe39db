/* SPDX-License-Identifier: Apache-2.0
 *
 * Processors (Hugging Face's word): from the items of samples to the arrays
 * that a program takes (its DATA ports). A processor is pure; it is called on
 * several threads.
 */
#ifndef LOONG_PROCESSOR_H
#define LOONG_PROCESSOR_H

#include "loong/dtype.h"
#include "loong/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array that a program takes, by the name of the graph's input. */
typedef struct loong_field {
    const char *name;
    loong_dtype_t dtype;
    int64_t count;    /* elements */
    void *to;         /* the caller's memory */
    const void *kind; /* the processor's, by bind; NULL: fill looks it up */
} loong_field_t;

enum { LOONG_MAX_NORMALISERS = 4 };

typedef struct loong_processor {
    size_t struct_size;
    const char *name; /* of what it reads, for messages: "token" */
    /* The types of items that it reads, as 1 << loong_item_type_t: a source has
     * no others. */
    uint32_t reads;
    /* The sums over samples that losses may be divided by; NULL at the end. */
    const char *const *normalisers;
    /* Of `data`, a name for messages. Errors: LOONG_ERR_CONFIG. */
    loong_status_t (*check)(loong_context_t *ctx, const void *config,
                            const char *data);
    /* Begins items: vocab_size, unmarked, and memory for samples whose size is
     * known. */
    loong_status_t (*begin)(const void *config, loong_items_t *items);
    /* Bytes that are kept of a sample from when it is read to when the arrays
     * are filled; items: NULL for padding behind the last one. */
    size_t (*row_size)(const void *config, const loong_items_t *items);
    /* Fills a row, and what it adds to the normalisers. `draw` numbers the
     * sample of the run; items: NULL for padding behind the last one. */
    loong_status_t (*keep)(const void *config, int64_t draw,
                           const loong_items_t *items, void *row,
                           double sums[LOONG_MAX_NORMALISERS]);
    /* Fills the items of made-up sample i, for predictions of a step's time. */
    loong_status_t (*example)(const void *config, int64_t i,
                              loong_items_t *items);
    /* Looks an array up, and checks its type and elements for the rows of a
     * micro-batch. Errors: LOONG_ERR_CONFIG, with the names there are. */
    loong_status_t (*bind)(loong_context_t *ctx, const void *config,
                           loong_field_t *field);
    /* Fills it from the rows of a micro-batch. Allocates nothing. */
    loong_status_t (*fill)(loong_context_t *ctx, const void *config,
                           void *const *rows, const loong_field_t *field);
    /* (optional) What `keep` would refuse, of items as a source's peek has
     * them: told before the first step. Errors: LOONG_ERR_CONFIG. */
    loong_status_t (*judge)(const void *config, const loong_items_t *items);
} loong_processor_t;

/* How the rows that a picture sends become those of a text, where they are not
 * blocks of them (LLaVA-OneVision's packing; Li et al. 2024): the first grid as
 * it is, then a sheet of tiles x tiles grids, of which a window is taken and
 * resampled as torch's bilinear interpolate does; a learned row ends each line
 * of the sheet. Of a video each grid is resampled, and one learned row ends
 * all. Pairs are rows and columns. */
typedef struct loong_picture_packing {
    bool packed; /* false: blocks */
    bool video;  /* without a sheet: size is that of each grid */
    int64_t tiles[2];
    int64_t from[2], window[2]; /* patches of the sheet */
    int64_t size[2]; /* behind that; without tiles a line of no patches */
} loong_picture_packing_t;

/* That one component reads, each by way of a projector. */
enum { LOONG_MAX_ENCODERS = 2 };

/* What a picture takes up; all 0 for one that is refused. */
typedef struct loong_picture_rows {
    int64_t grids;         /* tiles, or groups of a video's frames, which do not
                              see each other */
    int64_t height, width; /* patches of each, of a frame */
    /* Above 1: of so many grids the first is the whole picture or frame, of
     * other sides, and the others are its slices. */
    int64_t tiles;
    struct {
        int64_t height, width, text, columns; /* as below */
    } whole;
    int64_t frames;        /* that see each other, of each but the last grid */
    int64_t all_frames;    /* of all of them */
    int64_t encoder;       /* rows of the encoder */
    int64_t made;          /* that become as many of those which it makes */
    int64_t stride, lead;  /* of these, from one grid to the next, and of each
                              in front of those that others read */
    int64_t sent;          /* which these are, of all grids together */
    int64_t text;          /* rows of a text: blocks of m x m of those */
    int64_t columns;       /* of them: so many stand side by side */
    int64_t moments;       /* of a video, a grid each; else 1, or 0 */
    float step; /* from one moment to the next, on the axis of time */
    int encoder_number; /* of the one that reads it */
    loong_picture_packing_t pack;
} loong_picture_rows_t;

static inline bool loong_picture_is_whole(const loong_picture_rows_t *rows,
                                          int64_t grid)
{
    return rows->tiles > 1 && grid % rows->tiles == 0;
}
/* Of the largest grid, in the encoder. */
static inline int64_t loong_picture_longest(const loong_picture_rows_t *rows)
{
    int64_t whole = rows->whole.height * rows->whole.width;
    int64_t slice = rows->height * rows->width;
    return rows->tiles > 1   ? (whole > slice ? whole : slice)
           : rows->grids > 0 ? rows->encoder / rows->grids
                             : 0;
}
/* Part k of a picture, which is all of it or each of its grids: its first row
 * and how many it has, in a text, or of those that are sent. */
static inline void loong_picture_part(const loong_picture_rows_t *rows,
                                      bool text, int64_t parts, int64_t k,
                                      int64_t part[2])
{
    int64_t all = text ? rows->text : rows->sent;
    part[0] = k * all / parts;
    part[1] = all / parts;
    if (parts > 1 && rows->tiles > 1) {
        int64_t each = all / (rows->grids / rows->tiles);
        int64_t whole = text ? rows->whole.text
                             : rows->whole.height * rows->whole.width *
                                   rows->sent / rows->encoder;
        int64_t slice = (each - whole) / (rows->tiles - 1);
        int64_t i = k % rows->tiles;
        part[0] = k / rows->tiles * each +
                  (i > 0 ? whole + (i - 1) * slice : 0);
        part[1] = i > 0 ? slice : whole;
    }
}

/* How a table is resampled, as torch's interpolate does it; nearest: the row
 * and column in which a patch's upper left corner is. */
typedef enum loong_interpolation {
    LOONG_BILINEAR,
    LOONG_BICUBIC,
    LOONG_NEAREST
} loong_interpolation_t;

/* A square table of learned positions, resampled to the patches of each
 * picture: each has the weighted sum of k x k rows of the table, of all with
 * `antialias`, which is bilinear. */
typedef struct loong_position_table {
    int64_t side; /* positions of a side; 0: there is none */
    loong_interpolation_t interpolation;
    bool align_corners; /* the outermost patches are those of the table */
    bool antialias; /* a smaller picture's patches have shares of more rows */
} loong_position_table_t;
/* k */
static inline int loong_position_side_taps(const loong_position_table_t *table)
{
    static const int taps[] = {2, 4, 1};
    return table->antialias ? (int)table->side : taps[table->interpolation];
}
static inline int loong_position_taps(const loong_position_table_t *table)
{
    return loong_position_side_taps(table) * loong_position_side_taps(table);
}

/* Rows of padding that see each other, where pictures have sizes of their
 * own. */
enum { LOONG_PADDING_ROWS = 256 };

/* How the encoder of a model has pictures. */
typedef struct loong_picture_reader {
    const void *config; /* borrowed */
    /* Of an item of type IMAGE, whose size must be known where pictures do not
     * all become one size. */
    loong_picture_rows_t (*rows)(const void *config,
                                 const loong_item_t *picture);
    bool sizes;
} loong_picture_reader_t;

enum { LOONG_MAX_VISION_IDS = 16 };

/* What each learned label of a sample weighs, which has N of them. The loss of
 * a step is the weighted mean over all its labels. */
typedef enum loong_loss_normalization {
    LOONG_NORMALIZE_TOKEN,      /* 1: tokens count equally */
    LOONG_NORMALIZE_SAMPLE,     /* 1 / N: samples count equally */
    LOONG_NORMALIZE_SQUARE_ROOT /* 1 / sqrt(N): between the two */
} loong_loss_normalization_t;

/* The configuration of loong_token_processor. Context parallel ranks read the
 * same rows and give each its own two parts of every row (chunks r and 2 n - 1
 * - r of 2 n); labels, positions and bounds are made from the whole row
 * before. */
typedef struct loong_token_params {
    int64_t vocab_size; /* ids must be below */
    int64_t seq_length; /* T */
    int64_t rows;       /* of a micro-batch */
    int context_parallel_rank;
    int context_parallel_size; /* T is a multiple of twice this, when above 1 */
    int context_parallel_a2a;  /* neighbours that exchange heads; 0: 1 */
    /* Positions restart at each document. */
    bool reset_position_ids;
    /* Documents do not see each other. */
    bool reset_attention_mask;
    /* No loss where the label is the first token of another document. */
    bool eod_mask_loss;
    /* Ids that stand for parts of images; all others are text. */
    int num_vision_ids;
    int32_t vision_ids[LOONG_MAX_VISION_IDS];
    /* Pictures take their rows of a text in place of the token that stands for
     * one; texts with them are at most T long, and padded. rows NULL: texts
     * have no pictures and T + 1 ids. */
    loong_picture_reader_t pictures;
    loong_loss_normalization_t loss_normalization;
} loong_token_params_t;

/* Rows of T + 1 ids. Normalisers: loss_weight, the sum of that field; tokens,
 * the number of all. Of a micro-batch of A = rows * T tokens, row after row,
 * of which this rank has R = A / context_parallel_size, there are
 *
 *     tokens          i32 [R] in 0 .. vocab_size-1
 *     labels          i32 [R] the next token, LOONG_IGNORE_LABEL where
 *                     loss_weight is 0
 *     loss_weight     f32 or f64 [R] that of loss_normalization, or 0: by
 *                     mask column, eod_mask_loss and padding. The mask belongs
 *                     to the label: position t is learned if token t + 1 is,
 *                     and of the same sample
 *     token_types     i32 [R] 1: one of vision_ids, 0: text
 *     is_feature      i32 [R] 1: a row of a picture, whose token is the one
 *                     that stands for it; it is never a label. 0: text
 *     positions       i32 [R] from 0 in each row, or in each document
 *     axis_positions  i32 [3,R] time, height, width, as Qwen2-VL counts: all
 *                     three go on by 1 with a token of text; the rows of a
 *                     picture have the time it begins at, and from there on row
 *                     and column; those of a video have the time of their
 *                     moment, rounded down; what follows goes on behind the
 *                     largest row or column, as in transformers 5
 *     token_key       i64 [R] draw * T + t: names the token in all layouts
 *     all_token_keys  i64 [R x context_parallel_a2a] of the tokens that this
 *                     rank and such neighbours have
 *     places          i32 [A] neighbours after neighbours: where their tokens
 *                     stand among the A, ascending
 *     cu_seqlens      i32 [count] starts of the segments (rows, or documents in
 *                     rows) among the A tokens, then A in the rest; A + 1
 *                     elements always suffice
 *     key_ends        i32 [A], context_parallel_size 1: of each token, behind
 *                     the last one that it sees: those before the first learned
 *                     one of a segment all see one another, the others
 *                     themselves and what stands before
 *     row_crc         i32 [rows] the bits of the CRC-32 of the T ids of each
 *                     whole row */
LOONG_API extern const loong_processor_t loong_token_processor;

#ifdef __cplusplus
}
#endif

#endif
