/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions; formulas in kernels/rope/rope_ref.c. */
#ifndef LOONG_ROPE_H
#define LOONG_ROPE_H

#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_rope_scaling {
    LOONG_ROPE_DEFAULT,
    LOONG_ROPE_LINEAR,
    LOONG_ROPE_LLAMA3,
    LOONG_ROPE_YARN,
    LOONG_ROPE_DYNAMIC
} loong_rope_scaling_t;

enum { LOONG_MAX_ROPE_AXES = 3 };

/* By which axis of a position pair i of the R / 2 turns, of A axes with n_a
 * pairs each. */
typedef enum loong_rope_order {
    /* The first n_0 by axis 0, the next n_1 by axis 1 ... (Qwen2-VL) */
    LOONG_ROPE_BLOCKS,
    /* i % A says the axis, as long as that has pairs, else it is 0
     * (Qwen3-VL's) */
    LOONG_ROPE_INTERLEAVED,
    /* As blocks, and the pairs of an axis are counted from 0 on, R being 2 n_a:
     * an embedding of each axis' own (image encoders) */
    LOONG_ROPE_SEPARATE,
    /* The same, the last axis' pairs at i % A = 0, the one's before it at 1 and
     * so on; all axes have as many (MoonViT) */
    LOONG_ROPE_ALTERNATE,
    /* Axes 1 and 2 by turns, with as many pairs each, then axis 0 (ERNIE 4.5
     * VL) */
    LOONG_ROPE_SPACE_FIRST
} loong_rope_order_t;

/* rope_table: positions i32 [T], or [A,T] of A axes -> [T,R] wide: R/2 cosines,
 * then R/2 sines, both times the attention factor (YaRN). Frequencies in double
 * precision. The names are Hugging Face's (rope_scaling in config.json). */
typedef struct loong_rope_table_attr {
    int rotary_dim; /* R, even */
    int axes;       /* A; 0: positions are [T] */
    int sections[LOONG_MAX_ROPE_AXES]; /* n_a, R / 2 together */
    loong_rope_order_t order;
    loong_rope_scaling_t scaling;
    double base; /* rope_theta */
    double factor;
    double low_freq_factor;  /* llama3 */
    double high_freq_factor; /* llama3 */
    double original_max_position_embeddings; /* llama3, yarn, dynamic */
    double length; /* dynamic: of a sample */
    double beta_fast; /* yarn */
    double beta_slow; /* yarn */
    double attention_factor; /* yarn; 0: 0.1 ln(factor) + 1, or by mscale */
    double mscale;           /* yarn; 0: not given */
    double mscale_all_dim;   /* yarn; 0: not given */
    bool truncate; /* yarn: whole dimensions; Hugging Face's default */
} loong_rope_table_attr_t;
LOONG_API loong_val_t loong_rope_table(loong_graph_t *g, loong_val_t positions,
                                       const loong_rope_table_attr_t *attr);

/* rope: x [T,heads*head_dim], table [T,R] -> like x; R channels of each head
 * from `begin` on are rotated, the halves paired as in GPT-NeoX unless
 * `interleaved` (pairs 2i, 2i+1). `inverse`: the transposed rotation. A table
 * that follows from parameters has a gradient: rope_table_grad dy, x, table ->
 * like table, the sum over the heads. */
typedef struct loong_rope_attr {
    int head_dim;
    bool interleaved;
    bool inverse;
    int begin;
} loong_rope_attr_t;
LOONG_API loong_val_t loong_rope(loong_graph_t *g, loong_val_t x,
                                 loong_val_t table, int head_dim,
                                 bool interleaved);
LOONG_API loong_val_t loong_rope_partial(loong_graph_t *g, loong_val_t x,
                                         loong_val_t table,
                                         const loong_rope_attr_t *attr);

/* rope_angles: angles wide [T,R/2] -> [T,R] wide, their cosines, then their
 * sines: rows of a table whose angles are learned. */
LOONG_API loong_val_t loong_rope_angles(loong_graph_t *g, loong_val_t angles);

#ifdef __cplusplus
}
#endif

#endif
