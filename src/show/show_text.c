/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of the page: tokens with what is known of each, rows of pictures
 * among them, where samples begin that share a row. Called by show.c. Read
 * page.h before. */
#include <inttypes.h>
#include <string.h>

#include "page.h"

/* A run of places of a row that are told together: equal steps of text, or the
 * rows of a picture, of a video those of each moment that has a token. */
typedef struct run {
    int64_t begin, end;
    const loong_planned_image_t *picture; /* NULL: it is text */
    int64_t moment;                       /* from 1 on; 0: it is all of it */
} run_t;

static int32_t position(const loong_show_t *s, const loong_shown_row_t *row,
                        int64_t t, int axis)
{
    return s->positions[(axis * s->R + row->number) * s->T + t];
}

static void put_position(loong_show_t *s, const loong_shown_row_t *row,
                         int64_t t)
{
    if (!s->axes) {
        loongi_text_printf(&s->html, "%d", position(s, row, t, 0));
        return;
    }
    loongi_text_printf(&s->html, "(%d, %d, %d)", position(s, row, t, 0),
                       position(s, row, t, 1), position(s, row, t, 2));
}

void loongi_show_place(loong_show_t *s, const loong_shown_row_t *row, int64_t t)
{
    loongi_text_printf(&s->html, "place %" PRId64 ", position ", t);
    put_position(s, row, t);
}

/* ---- runs ---------------------------------------------------------------- */

static bool is_feature(const loong_show_t *s, const loong_shown_row_t *row,
                       int64_t t)
{
    return s->feature[row->number * s->T + t] != 0;
}

/* One picture may stand right behind another: the plan knows where they end. */
static void find_picture(const loong_show_t *s, const loong_shown_row_t *row,
                         run_t *run)
{
    int64_t at = row->number * s->T + run->begin;
    for (int64_t i = 0; i < s->num_images; i++) {
        const loong_planned_image_t *image = &s->images[i];
        const loong_picture_rows_t *rows = &image->rows;
        bool parts = image->part_at != NULL;
        int64_t count = parts ? rows->grids : 1;
        for (int64_t k = 0; k < count; k++) {
            if (image->row + loongi_show_grid_at(rows, image->part_at, k) ==
                at) {
                run->picture = image;
                run->moment = parts ? k + 1 : 0;
                int64_t part[2];
                loong_picture_part(rows, true, count, k, part);
                run->end = run->begin + part[1];
                return;
            }
        }
    }
}

static bool begins(const loong_show_t *s, const loong_shown_row_t *row,
                   int64_t t)
{
    int64_t at = row->number * s->T + t;
    int64_t low = 0;
    int64_t high = s->R * s->T;
    while (low < high) { /* bounds ascend */
        int64_t middle = (low + high) / 2;
        bool before = s->bounds[middle] < at;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return s->bounds[low] == at;
}

static run_t next_run(const loong_show_t *s, const loong_shown_row_t *row,
                      const run_t *before)
{
    run_t run = {before->end, before->end + 1, NULL, 0};
    if (is_feature(s, row, run.begin)) {
        find_picture(s, row, &run);
        return run;
    }
    while (run.end < row->end && !is_feature(s, row, run.end) &&
           !begins(s, row, run.end)) {
        run.end++;
    }
    return run;
}

/* ---- tokens -------------------------------------------------------------- */

/* The label of a place stands at the one before it. */
static double weight_of(const loong_show_t *s, const loong_shown_row_t *row,
                        int64_t t)
{
    return t > 0 ? s->weight[row->number * s->T + t - 1] : 0.0;
}

static void put_token(loong_show_t *s, const loong_shown_row_t *row, int64_t t,
                      int32_t id, loong_text_stream_t *stream)
{
    double weight = weight_of(s, row, t);
    size_t length = 0;
    loongi_text_printf(&s->html, "<span class=\"t%s\" title=\"id %d, ",
                       weight > 0.0 ? " l" : "", id);
    if (t < s->T) {
        loongi_show_place(s, row, t);
    } else {
        loongi_text_printf(&s->html, "the label behind the last place");
    }
    loongi_text_printf(&s->html, ", weight %g\">", weight);
    if (s->tokenizer != NULL) {
        length = loong_text_stream_put(stream, s->tokenizer, id, s->token);
        loongi_html_escape(&s->html, s->token, length);
        loongi_text_printf(&s->html, "%s", length > 0 ? "" : "\xE2\x97\x8C");
    } else {
        loongi_text_printf(&s->html, "%d ", id);
    }
    bool ends = length > 0 && memchr(s->token, '\n', length) != NULL;
    loongi_text_printf(&s->html, "</span>%s", ends ? "\n" : "");
}

static void put_name(loong_show_t *s, const loong_shown_row_t *row,
                     const run_t *run)
{
    int number = run->picture->number;
    loongi_text_printf(&s->html, "%s %d", row->kind[number - 1], number);
    if (run->moment > 0) {
        loongi_text_printf(&s->html, ", moment %" PRId64, run->moment);
    }
}

static void put_picture(loong_show_t *s, const loong_shown_row_t *row,
                        const run_t *run)
{
    loongi_text_printf(&s->html,
                       "<a class=\"p\" href=\"#picture-%" PRId64
                       "-%d\" title=\"id %d, from ",
                       row->draw, run->picture->number,
                       s->tokens[row->number * s->T + run->begin]);
    loongi_show_place(s, row, run->begin);
    loongi_text_printf(&s->html, " to ");
    loongi_show_place(s, row, run->end - 1);
    loongi_text_printf(&s->html, "\">");
    put_name(s, row, run);
    loongi_text_printf(&s->html, ": %" PRId64 " places</a>",
                       run->end - run->begin);
}

static void put_run(loong_show_t *s, const loong_shown_row_t *row,
                    const run_t *run, loong_text_stream_t *stream)
{
    if (run->picture != NULL) {
        put_picture(s, row, run);
        return;
    }
    for (int64_t t = run->begin; t < run->end; t++) {
        int32_t id = s->tokens[row->number * s->T + t];
        put_token(s, row, t, id, stream);
    }
}

/* ---- segments ------------------------------------------------------------ */

static void end_segment(loong_show_t *s)
{
    loongi_text_printf(&s->html, "</div></div>\n");
}

static void begin_segment(loong_show_t *s, const loong_shown_row_t *row,
                          int64_t t)
{
    if (t > 0) {
        end_segment(s);
    }
    loongi_text_printf(&s->html, "<div class=\"segment\"><h3>");
    for (int i = 0; i < row->num_parts; i++) {
        if (row->parts[i].begin == t) {
            loongi_html_text(&s->html, row->parts[i].from);
            loongi_text_printf(&s->html, ", ");
        }
    }
    loongi_text_printf(&s->html,
                       "from place %" PRId64 " on</h3><div class=\"text\">", t);
}

static void put_padding(loong_show_t *s, const loong_shown_row_t *row)
{
    int64_t places = s->T - row->end;
    if (places > 0) {
        loongi_text_printf(&s->html,
                           "<div class=\"segment padding\"><h3>%" PRId64
                           " places of padding</h3></div>\n",
                           places);
    }
}

/* ---- positions ----------------------------------------------------------- */

static void put_positions(loong_show_t *s, const loong_shown_row_t *row)
{
    run_t run = {.end = 0};
    loongi_text_printf(&s->html,
                       "<details><summary>positions%s</summary><table>"
                       "<tr><th>places</th><th></th><th>first</th>"
                       "<th>last</th></tr>\n",
                       s->axes ? " (time, height, width)" : "");
    while (run.end < row->end) {
        run = next_run(s, row, &run);
        loongi_text_printf(&s->html,
                           "<tr><td>%" PRId64 " to %" PRId64 "</td><td>",
                           run.begin, run.end - 1);
        if (run.picture != NULL) {
            put_name(s, row, &run);
        } else {
            loongi_text_printf(&s->html, "text");
        }
        loongi_text_printf(&s->html, "</td><td>");
        put_position(s, row, run.begin);
        loongi_text_printf(&s->html, "</td><td>");
        put_position(s, row, run.end - 1);
        loongi_text_printf(&s->html, "</td></tr>\n");
    }
    loongi_text_printf(&s->html, "</table></details>\n");
}

void loongi_show_tokens(loong_show_t *s, const loong_shown_row_t *row)
{
    run_t run = {.end = 0};
    loong_text_stream_t stream = {.num_held = 0};
    while (run.end < row->end) {
        run = next_run(s, row, &run);
        if (run.begin == 0 || begins(s, row, run.begin)) {
            begin_segment(s, row, run.begin);
            stream = (loong_text_stream_t){.num_held = 0};
        }
        put_run(s, row, &run, &stream);
    }
    if (row->end == s->T && weight_of(s, row, s->T) > 0.0) {
        int32_t id = s->labels[row->number * s->T + s->T - 1];
        put_token(s, row, s->T, id, &stream);
    }
    if (row->end > 0) {
        end_segment(s);
    }
    put_padding(s, row);
    put_positions(s, row);
}
