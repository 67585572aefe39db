/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that write the page share: a micro-batch as the programs get
 * it. Letters: R rows of a micro-batch, T their places. */
#ifndef LOONG_SHOW_PAGE_H
#define LOONG_SHOW_PAGE_H

#include "loong/image.h"
#include "loong/tokenizer.h"
#include "run_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sample of a row: where its first token stands, and where it is from. */
typedef struct loong_part {
    int64_t begin;
    const char *from;
} loong_part_t;

/* A row of a micro-batch, as its source has it. */
typedef struct loong_shown_row {
    int64_t draw, micro_batch, number; /* number: in the micro-batch */
    int num_parts;
    loong_part_t *parts;
    int64_t end; /* of its samples; what follows is padding */
    int num_pictures;
    const char *picture[LOONG_MAX_ITEMS]; /* their files; NULL: not known */
    const char *kind[LOONG_MAX_ITEMS];    /* "picture" or "video" */
    int64_t label;                        /* of a picture alone; -1: none */
} loong_shown_row_t;

/* What an encoder is given of a micro-batch. */
typedef struct loong_shown_encoder {
    const char *name;
    const loong_patch_params_t *cut;
    loong_loader_t *loader;
    float *patches;  /* [rows, 3 frames patch^2] */
    int32_t *places; /* [2,rows] row and column of each patch */
    int32_t *masked; /* [rows] */
} loong_shown_encoder_t;

typedef struct loong_show {
    loong_context_t *ctx;
    const loong_run_data_t *data;
    loong_text_t html;
    loong_tokenizer_t *tokenizer; /* NULL: ids are shown in place of texts */
    char *token;                  /* room for the text of one */
    loong_items_t items;
    loong_arena_t *arena; /* of the row that is shown */
    int64_t consumed, micro_batch;
    /* Texts; T = 0: the model reads pictures alone. */
    int64_t R, T;
    bool axes;          /* positions have three axes */
    int32_t *tokens;    /* [R,T] */
    int32_t *labels;    /* [R,T] */
    int32_t *feature;   /* [R,T] */
    int32_t *video;     /* [R,T] likewise, of the second encoder */
    int32_t *positions; /* [R,T], or [3,R,T] with axes */
    int32_t *bounds;    /* [R*T + 1] cu_seqlens */
    double *weight;     /* [R,T] */
    int num_encoders;   /* that read pictures */
    loong_shown_encoder_t encoder[LOONG_MAX_ENCODERS];
    loong_planned_image_t *images; /* of all of them, as texts have them */
    int64_t num_images, room;
} loong_show_t;

/* ---- html.c ---- */
/* Any bytes as the text of an element or of an attribute: markup is escaped,
 * control characters have their pictures, what is no UTF-8 is U+FFFD. */
void loongi_html_escape(loong_text_t *html, const char *bytes, size_t length);
void loongi_html_text(loong_text_t *html, const char *text);
/* <img> with the pixels in it, as PNG. */
LOONG_NODISCARD loong_status_t loongi_html_image(loong_text_t *html,
                                                 const loong_image_t *image);
void loongi_html_begin(loong_text_t *html, const char *title);
void loongi_html_end(loong_text_t *html);

/* ---- show_text.c ---- */
/* The tokens of a row, and their positions. */
void loongi_show_tokens(loong_show_t *s, const loong_shown_row_t *row);
/* "place 3", and the position of place t of a row. */
void loongi_show_place(loong_show_t *s, const loong_shown_row_t *row,
                       int64_t t);

/* ---- show_pictures.c ---- */
/* Where grid g of a picture begins in its row, behind the place of the first:
 * texts may stand between the moments of a video, whose tokens are `part_at`,
 * as loong_item_t has it. */
int64_t loongi_show_grid_at(const loong_picture_rows_t *rows,
                            const int32_t *part_at, int64_t g);
/* What the encoder gets of each picture of a row. */
LOONG_NODISCARD loong_status_t
loongi_show_pictures(loong_show_t *s, const loong_shown_row_t *row);

#ifdef __cplusplus
}
#endif

#endif
