/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of the page: the encoder's patches put together again, bytes in
 * place of normalised values, with the squares that become rows. Called by
 * show.c. Read page.h and loong/image.h before. */
#include <inttypes.h>
#include <string.h>

#include "page.h"
#include "patch_fields.h"
#include "processor.h"

/* A grid of a picture: all of it, or a tile. */
typedef struct grid {
    const loong_shown_encoder_t *encoder;
    const loong_image_processor_t *by;
    int64_t number;        /* of the picture's */
    int64_t first;         /* row of the encoder with its first patch */
    int64_t width, height; /* patches */
    int64_t place;         /* of its first row in the text; -1: in none */
    int64_t skip;          /* rows of the text before those of its patches */
} grid_t;

static uint8_t byte_of(const loong_image_processor_t *p, int channel,
                       float value)
{
    const float *of = p->values[channel]; /* ascending */
    float share = (value - of[0]) / (of[255] - of[0]);
    return (uint8_t)LOONG_MIN(LOONG_MAX(lroundf(255.0f * share), 0), 255);
}

/* Frame f of a patch. */
static void put_patch(const grid_t *grid, const float *patch, int64_t f,
                      int64_t row, int64_t column, loong_image_t *image)
{
    const loong_patch_params_t *p = grid->encoder->cut;
    int64_t side = p->cut.patch;
    int64_t frames = LOONG_MAX(p->cut.frames, 1);
    for (int c = 0; c < CHANNELS; c++) {
        bool last = p->cut.channels_last;
        const float *from = patch + (last ? c : (c * frames + f) * side * side);
        for (int64_t i = 0; i < side * side; i++) {
            int64_t y = row * side + i / side;
            int64_t x = column * side + i % side;
            image->pixels[(y * image->width + x) * CHANNELS + c] =
                byte_of(grid->by, c, from[last ? i * CHANNELS : i]);
        }
    }
}

static void fill_frame(const grid_t *grid, int64_t f, loong_image_t *image)
{
    const loong_shown_encoder_t *e = grid->encoder;
    int64_t elements = loongi_patch_elements(e->cut);
    for (int64_t i = 0; i < grid->width * grid->height; i++) {
        int64_t at = grid->first + i;
        put_patch(grid, e->patches + at * elements, f, e->places[at],
                  e->places[e->cut->rows + at], image);
    }
}

/* ---- squares ------------------------------------------------------------- */

/* Lines between squares of so many pixels. */
static void put_lines(loong_show_t *s, const loong_image_t *image,
                      const char *kind, int64_t side)
{
    loongi_text_printf(&s->html, "<path class=\"%s\" d=\"", kind);
    for (int64_t x = side; x < image->width; x += side) {
        loongi_text_printf(&s->html, "M%" PRId64 " 0V%" PRId64, x,
                           image->height);
    }
    for (int64_t y = side; y < image->height; y += side) {
        loongi_text_printf(&s->html, "M0 %" PRId64 "H%" PRId64, y,
                           image->width);
    }
    loongi_text_printf(&s->html, "\"/>");
}

static void begin_square(loong_show_t *s, const char *kind, int64_t x,
                         int64_t y, int64_t side)
{
    loongi_text_printf(&s->html,
                       "<rect class=\"%s\" x=\"%" PRId64 "\" y=\"%" PRId64
                       "\" width=\"%" PRId64 "\" height=\"%" PRId64 "\">",
                       kind, x * side, y * side, side, side);
}

/* Each of what becomes a row of the text, with its place there. */
static void put_merged(loong_show_t *s, const loong_shown_row_t *row,
                       const grid_t *grid)
{
    int64_t merge = loongi_patch_merge(grid->encoder->cut);
    int64_t columns = grid->width / merge;
    int64_t count = columns * (grid->height / merge);
    for (int64_t i = 0; i < count && grid->place >= 0; i++) {
        begin_square(s, "m", i % columns, i / columns,
                     merge * grid->encoder->cut->cut.patch);
        loongi_text_printf(&s->html, "<title>");
        loongi_show_place(s, row, grid->place + grid->skip + i);
        loongi_text_printf(&s->html, "</title></rect>");
    }
}

static void put_masked(loong_show_t *s, const grid_t *grid)
{
    const loong_shown_encoder_t *e = grid->encoder;
    for (int64_t i = 0; i < grid->width * grid->height; i++) {
        int64_t at = grid->first + i;
        if (e->masked[at]) {
            begin_square(s, "k", e->places[e->cut->rows + at], e->places[at],
                         grid->encoder->cut->cut.patch);
            loongi_text_printf(&s->html, "<title>masked</title></rect>");
        }
    }
}

static loong_status_t put_frame(loong_show_t *s, const loong_shown_row_t *row,
                                const grid_t *grid, const loong_image_t *image)
{
    enum { LEAST = 280 }; /* pixels of the page, so that squares can be seen */
    const loong_patch_cut_t *cut = &grid->encoder->cut->cut;
    loongi_text_printf(&s->html,
                       "<div class=\"seen\" style=\"width:min(100%%,%" PRId64
                       "px)\">",
                       LOONG_MAX(image->width, LEAST));
    LOONG_TRY(loongi_html_image(&s->html, image));
    loongi_text_printf(&s->html,
                       "<svg viewBox=\"0 0 %" PRId64 " %" PRId64
                       "\" preserveAspectRatio=\"none\">",
                       image->width, image->height);
    put_lines(s, image, "patch", cut->patch);
    if (cut->window > 0) {
        put_lines(s, image, "window", cut->window * cut->merge * cut->patch);
    }
    put_merged(s, row, grid);
    put_masked(s, grid);
    loongi_text_printf(&s->html, "</svg></div>\n");
    return LOONG_OK;
}

/* Frames of a picture are the same: those alone that differ are shown. */
static loong_status_t put_grid(loong_show_t *s, const loong_shown_row_t *row,
                               const grid_t *grid)
{
    loong_image_t image = {.width = grid->width * grid->encoder->cut->cut.patch,
                           .height =
                               grid->height * grid->encoder->cut->cut.patch};
    size_t bytes = (size_t)(image.width * image.height) * CHANNELS;
    uint8_t *both = NULL; /* this frame, and the one before */
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_calloc(s->ctx, 2, bytes, "pixels of a page", &both));
    for (int64_t f = 0; f < LOONG_MAX(grid->encoder->cut->cut.frames, 1); f++) {
        image.pixels = both + (size_t)(f % 2) * bytes;
        fill_frame(grid, f, &image);
        bool same = f > 0 && memcmp(both, both + bytes, bytes) == 0;
        if (status == LOONG_OK && !same) {
            status = put_frame(s, row, grid, &image);
        }
    }
    loongi_free(s->ctx, both);
    return status;
}

/* ---- pictures ------------------------------------------------------------ */

/* The picture's rows in the encoder from `first` on, in the text from `place`
 * on. */
typedef struct picture {
    const loong_shown_encoder_t *encoder;
    int64_t number; /* in the row, from 1 on */
    loong_picture_rows_t rows;
    int64_t first, place;
    const int32_t *part_at; /* as loong_item_t has it */
} picture_t;

int64_t loongi_show_grid_at(const loong_picture_rows_t *rows,
                            const int32_t *part_at, int64_t g)
{
    int64_t between = part_at != NULL ? part_at[g] - g : 0;
    int64_t part[2];
    loong_picture_part(rows, true, rows->grids, g, part);
    return part[0] + between;
}

static int64_t place_of(const picture_t *p, int64_t g)
{
    return p->place + loongi_show_grid_at(&p->rows, p->part_at, g);
}

static void put_caption(loong_show_t *s, const loong_shown_row_t *row,
                        const picture_t *p)
{
    const char *name = row->picture[p->number - 1];
    int64_t side = p->encoder->cut->cut.patch;
    loongi_text_printf(&s->html, "<figcaption>%s %" PRId64,
                       row->kind[p->number - 1], p->number);
    if (name != NULL) {
        loongi_text_printf(&s->html, ", ");
        loongi_html_text(&s->html, name);
    }
    if (row->label >= 0) {
        loongi_text_printf(&s->html, ", class %" PRId64, row->label);
    }
    loongi_text_printf(
        &s->html,
        ": %" PRId64 " x (%" PRId64 " x %" PRId64 " pixels, %" PRId64
        " x %" PRId64 " patches), %" PRId64 " rows of %s",
        p->rows.grids, side * p->rows.width, side * p->rows.height,
        p->rows.width, p->rows.height, p->rows.encoder, p->encoder->name);
    if (p->place >= 0) {
        int64_t last[2];
        loong_picture_part(&p->rows, true, p->rows.grids, p->rows.grids - 1,
                           last);
        loongi_text_printf(
            &s->html, ", places %" PRId64 " to %" PRId64 " of the text",
            p->place,
            p->rows.pack.packed
                ? p->place + p->rows.text - 1
                : place_of(p, p->rows.grids - 1) + last[1] - 1);
    }
    loongi_text_printf(&s->html, "</figcaption>\n");
}

static loong_status_t put_picture(loong_show_t *s, const loong_shown_row_t *row,
                                  const picture_t *p)
{
    int64_t merge = loongi_patch_merge(p->encoder->cut);
    int64_t block = loongi_patch_block_rows(p->encoder->cut);
    bool sliced = p->rows.tiles > 1;
    int64_t before = sliced ? 0
                            : p->rows.encoder / p->rows.all_frames -
                                  p->rows.width * p->rows.height;
    const loong_picture_packing_t *pack = &p->rows.pack;
    const loong_patch_params_t *cut = p->encoder->cut;
    const loong_image_processor_t *by =
        strcmp(row->kind[p->number - 1], "video") == 0 ? cut->video
                                                       : cut->processor;
    loongi_text_printf(&s->html,
                       "<figure id=\"picture-%" PRId64 "-%" PRId64 "\">",
                       row->draw, p->number);
    put_caption(s, row, p);
    for (int64_t g = 0; g < p->rows.grids; g++) {
        bool whole = loong_picture_is_whole(&p->rows, g);
        int64_t width = whole ? p->rows.whole.width : p->rows.width;
        int64_t height = whole ? p->rows.whole.height : p->rows.height;
        int64_t text[2], sent[2];
        loong_picture_part(&p->rows, true, p->rows.grids, g, text);
        loong_picture_part(&p->rows, false, p->rows.grids, g, sent);
        int64_t rows = sliced ? sent[0] : g * p->rows.stride;
        grid_t grid = {p->encoder,
                       by,
                       g,
                       p->first + rows * block + before,
                       width,
                       height,
                       p->place >= 0 ? place_of(p, g) : -1,
                       text[1] - width * height / (merge * merge)};
        if (pack->packed && p->place >= 0) { /* the others share their places */
            grid.place = g == 0 ? p->place : -1;
            grid.skip = 0;
        }
        LOONG_TRY(put_grid(s, row, &grid));
    }
    loongi_text_printf(&s->html, "</figure>\n");
    return LOONG_OK;
}

loong_status_t loongi_show_pictures(loong_show_t *s,
                                    const loong_shown_row_t *row)
{
    if (s->T == 0) {
        loong_picture_rows_t each = loongi_picture_each(s->encoder->cut);
        picture_t p = {s->encoder, 1,   each, row->number * each.encoder,
                       -1,         NULL};
        return put_picture(s, row, &p);
    }
    for (int64_t i = 0; i < s->num_images; i++) {
        const loong_planned_image_t *image = &s->images[i];
        int encoder = image->rows.encoder_number;
        const loong_shown_encoder_t *e = &s->encoder[encoder];
        picture_t p = {e,
                       image->number,
                       image->rows,
                       image->at[s->data->images[encoder].encoder].row *
                           loongi_patch_block_rows(e->cut),
                       image->row - row->number * s->T,
                       image->part_at};
        if (image->draw == row->draw) {
            LOONG_TRY(put_picture(s, row, &p));
        }
    }
    return LOONG_OK;
}
