/* SPDX-License-Identifier: Apache-2.0
 *
 * Labelled pictures: where they are, their sizes, their pixels, and the rows of
 * patches that a vision transformer reads. Sample i is a pure function of i. A
 * source and a processor do not change once they are created, so several
 * threads may read them, each with a context of its own. Not collective.
 */
#ifndef LOONG_IMAGE_H
#define LOONG_IMAGE_H

#include <stdbool.h>

#include "loong/context.h"
#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_image_format {
    LOONG_IMAGE_JPEG,
    LOONG_IMAGE_PNG,
    LOONG_IMAGE_WEBP
} loong_image_format_t;

/* What is known before the pixels: sizes are those of the upright picture. */
typedef struct loong_image_info {
    loong_image_format_t format;
    int64_t width, height; /* pixels */
} loong_image_info_t;

/* Owned pixels, RGB, row after row from the top: u8 [height,width,3]. */
typedef struct loong_image {
    int64_t width, height;
    uint8_t *pixels;
    uint8_t clear[4]; /* the RGB of transparent pixels, and 1; 0: none */
    bool several;     /* it stands among others, which a processor may mind */
} loong_image_t;

typedef struct loong_image_decode_params {
    /* More are refused before memory is taken; 0: 89478485, PIL's bound. */
    int64_t max_pixels;
    /* (optional) Where the pixels go, the caller's memory. */
    uint8_t *to;
} loong_image_decode_params_t;

/* Format and size from the head of a file. `name` is for messages. Errors:
 * LOONG_ERR_FORMAT with the reason, also where more than `length` bytes were
 * needed; LOONG_ERR_UNSUPPORTED: no JPEG, PNG or WebP, too many pixels. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_get_info(
    loong_context_t *ctx, const char *name, const uint8_t *bytes, size_t length,
    loong_image_info_t *info);
/* Of a file that is a picture; reads no more than its head. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_get_file_info(
    loong_context_t *ctx, const char *path, loong_image_info_t *info);

/* The pixels of a whole file in memory, as transformers' load_image has them:
 * turned and mirrored as Exif or XMP says (PIL.ImageOps.exif_transpose), then
 * PIL's convert("RGB"): alpha is dropped, grey is repeated, of 16 bits the
 * upper 8 are taken (grey without alpha: clipped to 255), CMYK is taken as
 * Adobe's inverted one; the first frame of an animation. A colour that a PNG
 * names as transparent is told in `clear`. params may be NULL: the defaults.
 * *image is the caller's, free it with loong_image_free. Errors:
 * LOONG_ERR_FORMAT (broken or cut off, with the library's own words),
 * LOONG_ERR_UNSUPPORTED (other formats, too many pixels; a PNG whose
 * orientation stands behind its pixels). */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_decode(
    loong_context_t *ctx, const char *name, const uint8_t *bytes, size_t length,
    const loong_image_decode_params_t *params, loong_image_t *image);
LOONG_API void loong_image_free(loong_context_t *ctx, loong_image_t *image);

/* Resampling filters, with PIL's numbers. */
typedef enum loong_image_filter {
    LOONG_IMAGE_BILINEAR = 2,
    LOONG_IMAGE_BICUBIC = 3
} loong_image_filter_t;

/* `image` at width x height pixels, with antialias: PIL's Image.resize, bit by
 * bit, since Pillow 13. *resized is the caller's. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_resize(
    loong_context_t *ctx, const loong_image_t *image, int64_t width,
    int64_t height, loong_image_filter_t filter, loong_image_t *resized);

/* ---- processor: from pixels to rows of patches ----------------------------*/

typedef struct loong_image_processor loong_image_processor_t;

/* Reads a Hugging Face preprocessor_config.json of a ViT, CLIP, SigLIP, SigLIP
 * 2 (NaFlex), GOT-OCR2, LLaVA-OneVision, Qwen2-VL, GLM-4.1V, MiniCPM-V 4.6 or
 * Kimi-K2.5 image processor ("...Fast" and "...FeatureExtractor" are the slow
 * one), or the config.json of an internvl_chat, which has none; with its
 * class's defaults. Errors: LOONG_ERR_UNSUPPORTED names another processor, or a
 * field not known and not off; LOONG_ERR_FORMAT a value not allowed. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_image_processor_create(loong_context_t *ctx, const char *path,
                             loong_image_processor_t **processor_p);
/* That of a class, "ViT", "GotOcr2" (InternVL's, without tiles), "Qwen2VL" ...,
 * by transformers' defaults, for pictures of image_size pixels a side where
 * they have no sizes of their own. Errors: LOONG_ERR_ARG. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_processor_create_default(
    loong_context_t *ctx, const char *class_name, int64_t image_size,
    loong_image_processor_t **processor_p);
LOONG_API void
loong_image_processor_destroy(loong_image_processor_t **processor);

/* The size in pixels that it gives a picture; 0: it is too long and narrow. */
LOONG_API void loong_image_processor_size(
    const loong_image_processor_t *processor, int64_t width, int64_t height,
    int64_t *width_p, int64_t *height_p);

/* Tiles of a picture: columns x rows of them, row by row; each has the size
 * above. Of InternVL (crop_to_patches, dynamic_image_size) the picture fills
 * them, and the whole one stands behind several, if use_thumbnail does not deny
 * it. Of LLaVA-OneVision (image_grid_pinpoints) it keeps its proportions in
 * their middle, behind the whole picture; a picture among others has no tiles,
 * but a margin that makes it square. */
typedef struct loong_image_tiles {
    int64_t columns, rows;
    int64_t count; /* with the whole picture */
    bool whole_first;
} loong_image_tiles_t;
LOONG_API loong_image_tiles_t
loong_image_processor_tiles(const loong_image_processor_t *processor,
                            int64_t width, int64_t height, bool several);
/* At most so many beside the whole picture, 1: none; 0: as the file says. */
LOONG_API void loong_image_processor_limit_tiles(
    loong_image_processor_t *processor, int64_t most);
/* Its tiles are slices, of proportions of their own (MiniCPM-V 4.6), behind the
 * whole picture; each has a token of its own in a text. And of a class'
 * defaults. */
LOONG_API bool
loong_image_processor_is_sliced(const loong_image_processor_t *processor);
LOONG_API bool loong_image_class_is_sliced(const char *class_name);
/* The most that any picture has. */
LOONG_API int64_t
loong_image_processor_max_tiles(const loong_image_processor_t *processor);

/* How a picture is cut into squares. */
typedef struct loong_patch_cut {
    int64_t patch;  /* pixels of a side, p; 0: the picture as one */
    int64_t merge;  /* m; 0: 1 */
    int64_t frames; /* of a patch, F, each of them the picture; 0: 1 */
    int64_t window; /* blocks of m x m of a side of a window, w; 0: none */
    bool channels_last; /* of each pixel; F is 1 */
    int64_t inner;  /* n: those of a block stand in blocks of n x n; 0: 1 */
    int64_t chunk;  /* frames of a video, of whose patches means are; 0: 1 */
} loong_patch_cut_t;

/* Makes transparent pixels white (do_convert_rgb), resizes, crops, rescales and
 * normalises `image` and cuts it into patches, tile after tile: f32
 * [tiles*(H/p)*(W/p), 3*F*p*p], H and W as loong_image_processor_size says.
 * Patches go row by row from the top left, blocks of m x m of them and then
 * those of a block, in blocks of n x n; with windows those of w x w blocks,
 * smaller ones on the right and below, and then the blocks of each. Pixels
 * behind the last whole patch are left out, as a convolution of stride p does.
 * Within a patch the order is channel, frame, row, column: that of a
 * convolution's weight [D,3,F,p,p], of a linear layer's [D,3*F*p*p] over these
 * rows. Of a picture as one: f32 [tiles,3,H,W]. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_process(
    loong_context_t *ctx, const loong_image_processor_t *processor,
    const loong_image_t *image, const loong_patch_cut_t *cut, float *patches);

/* ---- source: samples with labels ------------------------------------------*/

typedef struct loong_image_source loong_image_source_t;
/* One sample. Bytes are the caller's (loong_image_sample_free). */
typedef struct loong_image_sample {
    const char *name; /* the picture's path, borrowed from the source */
    int64_t label;    /* its class, from 0 */
    uint8_t *bytes;   /* the picture's file; NULL after peek */
    size_t length;
    loong_image_info_t info;
} loong_image_sample_t;

/* Opens the samples at `path`:
 * a directory of directories: each is a class, numbered by name; samples are
 *     the pictures below, by class, then directory, then file name
 *     (torchvision's ImageFolder). A picture of a format that cannot be read,
 *     or a class without one, is an error;
 * a .tar file, or a directory of them (by name): members whose paths are equal
 *     up to the first dot of the file name are a sample (WebDataset): one
 *     picture (.jpg .jpeg .png .webp) and its label, the number in .cls, else
 *     "label" in .json; other members are passed over.
 * Pictures are not read here. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT
 * (also of a compressed tar file: members are read at random),
 * LOONG_ERR_UNSUPPORTED, LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_source_create(
    loong_context_t *ctx, const char *path, loong_image_source_t **source_p);
LOONG_API void loong_image_source_destroy(loong_image_source_t **source);

LOONG_API int64_t
loong_image_source_samples(const loong_image_source_t *source);

/* Sample i: peek has its label and sizes and reads no more than the head of the
 * picture, read also has the file. ctx is the calling thread's own. Errors:
 * LOONG_ERR_ARG (no such sample), LOONG_ERR_FORMAT (names file and reason),
 * LOONG_ERR_MISMATCH (a file changed since it was opened), LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_source_peek(
    loong_context_t *ctx, const loong_image_source_t *source, int64_t i,
    loong_image_sample_t *sample);
LOONG_API LOONG_NODISCARD loong_status_t loong_image_source_read(
    loong_context_t *ctx, const loong_image_source_t *source, int64_t i,
    loong_image_sample_t *sample);
LOONG_API void loong_image_sample_free(loong_context_t *ctx,
                                       loong_image_sample_t *sample);
/* A file that is a picture as a sample without a label; path is borrowed. */
LOONG_API LOONG_NODISCARD loong_status_t loong_image_load(
    loong_context_t *ctx, const char *path, loong_image_sample_t *sample);
/* The pixels of a sample into item->pixels, which has room for so many as its
 * info says; size and clear are filled. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_image_decode_item(loong_context_t *ctx,
                        const loong_image_sample_t *sample, loong_item_t *item);

/* ---- rows of patches for a program ----------------------------------------*/

/* The configuration of loong_patch_processor. */
typedef struct loong_patch_params {
    const loong_image_processor_t *processor; /* borrowed */
    /* Pixels of a side, of every picture or tile once processed; 0: each has
     * the size that the processor gives it. */
    int64_t image_size;
    int64_t max_tiles; /* of a picture, or moments of a video; 0: 1 */
    loong_patch_cut_t cut;
    const loong_image_processor_t *video; /* borrowed; NULL: there are none */
    /* On the axis of time, where it counts seconds; 0: it counts moments. */
    int64_t tokens_per_second;
    loong_position_table_t positions;
    int64_t packed_tiles;   /* of a sheet (loong_picture_packing_t); 0: none */
    int64_t latents; /* rows of a text that each grid takes; 0: its blocks */
    int64_t merge_frames;   /* of a video that become one row; 0: 1 */
    int64_t packed_rows;    /* of a micro-batch, behind either */
    bool class_token;       /* a row in front of the patches of a picture */
    bool sends_class_token; /* which others read as well */
    bool pool_class_token;  /* pooled_picture: that row; else the patches */
    int64_t num_classes;    /* labels lie below; 0: there are none */
    /* Of a picture's patches round(mask_ratio patches) are masked; 0: none. */
    double mask_ratio;
    uint64_t mask_seed;
    int64_t rows;     /* R of a micro-batch; padding fills it up */
    int64_t begin, count; /* rows whose pixels are wanted; count 0: all */
    int64_t pictures; /* of a micro-batch, at most */
} loong_patch_params_t;

/* For loong_picture_reader_t; params: loong_patch_params_t. */
LOONG_API loong_picture_rows_t loong_picture_rows(const void *params,
                                                  const loong_item_t *picture);

/* Before any is read: what the processor makes is what the encoder takes. */
LOONG_API LOONG_NODISCARD loong_status_t loong_patch_check(
    loong_context_t *ctx, const loong_patch_params_t *params, const char *name);

/* Samples of one picture with pixels (LOONG_ITEM_IMAGE) and its class
 * (LOONG_ITEM_LABEL), which may be missing where num_classes is 0. Normalisers:
 * pictures, those with a label; masked_patches. Of N pictures of a micro-batch,
 * R / S where all have S rows, there are
 *
 *     patches         f32 or f64 [count, 3 F p^2] channel, frame, row, column;
 *                     zeros in rows of class tokens and padding
 *     positions       i32 [R] in the picture, row by row behind its class
 *                     token, or in the padding
 *     patch_positions i32 [2,R] row and column of the patch in the picture; 0
 *                     in rows of class tokens and padding
 *     position_taps   i32 [R k] the k rows of the table of positions whose sum
 *                     each patch has; 0 in rows of class tokens and padding
 *     position_weights f32 or f64 [R,k] their weights; 0 likewise
 *     tap_order       i32 [n], n <= R k: 0, 1, 2 ..., the source and dest
 *                     (loong_expert_rows_t) of rows of taps
 *     ones            f32 or f64 [n], n <= R, all 1
 *     is_class        i32 [R] 1 in rows of class tokens
 *     is_masked       i32 [R] 1 in rows of masked patches
 *     cu_seqlens      i32 [count] starts of the pictures and of the padding, in
 *                     parts of S or LOONG_PADDING_ROWS, then R in the rest; N +
 *                     2 elements suffice, or N x max_tiles + R /
 *                     LOONG_PADDING_ROWS + 2
 *     cu_merged_seqlens i32 [count] those over n^2, cu_block_seqlens i32 [R /
 *                     n^2 + 1] starts of blocks of n x n
 *     frame_numbers   i32 [R] in the chunk; is_moving, 1: it has several
 *     frame_taps      i32 [R chunk] of patches of first frames those of all,
 *                     frame_weights the share of each; frame_order as tap_order
 *     cu_window_seqlens i32 [count] likewise starts of the windows, and of
 *                     padding no longer than one; N x max_tiles + R / min(m w,
 *                     LOONG_PADDING_ROWS) + 2 elements suffice
 *     raster_index    i32 [R] which row has the patch that would be in this one
 *                     without windows; its own number elsewhere
 *     pooled_picture  i32 [R] the picture that the row is pooled for; N: none
 *     labels          i32 [N] LOONG_IGNORE_LABEL where there is no picture
 *     loss_weight     f32 or f64 [N] 1 or 0
 *
 * Masks are those of a selection in order (Knuth, TAOCP 3.4.2, algorithm S):
 * patch i of the P of draw d is masked if u (P - i) <= K, u being the uniform
 * number d P + i of (mask_seed, "masked patches") and K what is still to be
 * masked. */
LOONG_API extern const loong_processor_t loong_patch_processor;

#ifdef __cplusplus
}
#endif

#endif
