/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor of projectors that make other rows of a picture than blocks of
 * patches. Its configuration is the encoder's (loong_patch_params_t), rows
 * that of the projector; it is pure, several threads may call it. Not
 * collective.
 */
#ifndef LOONG_PACKING_H
#define LOONG_PACKING_H

#include "loong/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a projector packs its rows by, from loong_picture_rows_t or NULL: of
 * P = packed_rows pack_taps i32 [4 P], the rows before whose sum each has,
 * pack_weights f32 or f64 [P,4], 0 in learned rows and padding, is_line_end i32
 * [P], 1 in learned rows, and tap_order i32 [n], n <= 4 P: 0, 1, 2 ...; or
 * frame_rows i32 [merge_frames P], the blocks of m x m patches of each.
 * With latents, of K = R + P rows, of each grid those that arrive and those
 * that go, R = rows: context_rows and latent_rows i32 [K], which of either each
 * is, is_latent i32 [K], cu_latent_seqlens i32 [P / latents + R /
 * LOONG_PADDING_ROWS + 3] the starts of grids, latent_places i32 [P], where
 * those that go stand among the K, and latent_numbers i32 [P], which of its
 * grid's each is. */
LOONG_API extern const loong_processor_t loong_packing_processor;

#ifdef __cplusplus
}
#endif

#endif
