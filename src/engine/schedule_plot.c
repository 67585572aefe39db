/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws panels of spans: a lane for each rank, a rectangle for each entry that
 * takes time. Called by src/plan/timeline.c. Read schedule_plot.h before. */
#include "schedule_plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pixels. */
enum {
    LEFT = 72,
    RIGHT = 88,
    WIDTH = 1200, /* of the time */
    TOP = 56,
    LANE = 24,
    GAP = 4,
    HEAD = 26, /* of a panel */
    AXIS = 34,
    DIGIT = 7, /* width of one */
};

/* How the entries look that take time on a rank. */
typedef struct look {
    loong_entry_kind_t kind;
    int colour; /* 0xrrggbb */
    const char *about;
} look_t;

static const look_t looks[] = {
    {LOONG_ENTRY_F, 0x5b8fd1, "forward"},
    {LOONG_ENTRY_B, 0xe8a33d, "backward"},
    {LOONG_ENTRY_W, 0x67a95b, "gradients of weights"},
    {LOONG_ENTRY_E, 0x5b8fd1, "evaluation"},
    {LOONG_ENTRY_U, 0xa97bb0, "optimizer"},
    {LOONG_ENTRY_REDUCE, 0xd9605a, "sum of gradients"},
};

static const look_t *look_of(loong_entry_kind_t kind)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(looks); i++) {
        if (looks[i].kind == kind) {
            return &looks[i];
        }
    }
    return NULL;
}

static bool computes(loong_entry_kind_t kind)
{
    return look_of(kind) != NULL && kind != LOONG_ENTRY_REDUCE;
}

static void put_escaped(loong_text_t *text, const char *words)
{
    for (const char *c = words; *c != '\0'; c++) {
        switch (*c) {
        case '<':
            loongi_text_printf(text, "&lt;");
            break;
        case '>':
            loongi_text_printf(text, "&gt;");
            break;
        case '&':
            loongi_text_printf(text, "&amp;");
            break;
        default: /* control characters are none of XML */
            loongi_text_append(text, (unsigned char)*c < ' ' ? " " : c, 1);
            break;
        }
    }
}

/* ---- sums ---------------------------------------------------------------- */

static double busy_of(const loong_cell_t *cell, int rank,
                      const loong_span_t *spans)
{
    const loong_rank_schedule_t *list = &cell->ranks[rank];
    double busy = 0.0;
    spans += loongi_schedule_spans(cell->ranks, rank);
    for (int64_t i = 0; i < list->num_entries; i++) {
        if (computes(list->entries[i].kind)) {
            busy += spans[i].end - spans[i].begin;
        }
    }
    return busy;
}

loong_simulation_t loongi_spans_total(const loong_cell_t *cell,
                                      const loong_span_t *spans)
{
    loong_simulation_t total = {0.0, 0.0, 0.0};
    int ranks = cell->params.ranks;
    int64_t count = loongi_schedule_spans(cell->ranks, ranks);
    for (int64_t i = 0; i < count; i++) {
        total.seconds = LOONG_MAX(total.seconds, spans[i].end);
    }
    for (int r = 0; r < ranks; r++) {
        total.busy += busy_of(cell, r, spans);
    }
    if (total.seconds > 0.0) {
        total.bubble = 1.0 - total.busy / (ranks * total.seconds);
    }
    return total;
}

/* ---- parts of the picture ------------------------------------------------ */

typedef struct canvas {
    const loong_cell_t *cell;
    const char *const *names;
    loong_text_t *text;
    double scale; /* pixels a second */
    int y;
} canvas_t;

/* Components are the darker the further they are before the last one. */
static int shade(const canvas_t *c, int colour, int component)
{
    int before =
        component < 0 ? 0
                      : c->cell->num_own - 1 - c->cell->forward_of[component];
    for (; before > 0; before--) {
        colour = (colour >> 16) * 2 / 3 << 16 |
                 (colour >> 8 & 0xff) * 2 / 3 << 8 | (colour & 0xff) * 2 / 3;
    }
    return colour;
}

static int draw_key(canvas_t *c, int x, int colour, const char *about)
{
    loongi_text_printf(c->text,
                       "<rect class=\"key\" x=\"%d\" y=\"32\" width=\"12\" "
                       "height=\"12\" fill=\"#%06x\"/><text x=\"%d\" "
                       "y=\"42\">",
                       x, (unsigned)colour, x + 16);
    put_escaped(c->text, about);
    loongi_text_printf(c->text, "</text>\n");
    return x + 32 + DIGIT * (int)strlen(about);
}

static void draw_legend(canvas_t *c, const loong_schedule_plot_t *plot)
{
    bool used[LOONG_ENTRY_COUNT] = {false};
    int x = LEFT;
    for (int r = 0; r < c->cell->params.ranks; r++) {
        const loong_rank_schedule_t *list = &c->cell->ranks[r];
        for (int64_t i = 0; i < list->num_entries; i++) {
            used[list->entries[i].kind] = true;
        }
    }
    loongi_text_printf(c->text, "<text class=\"title\" x=\"%d\" y=\"20\">",
                       LEFT);
    put_escaped(c->text, plot->title);
    loongi_text_printf(c->text, "</text>\n");
    for (int64_t i = 0; i < LOONG_COUNT_OF(looks); i++) {
        if (used[looks[i].kind]) {
            x = draw_key(c, x, looks[i].colour, looks[i].about);
        }
    }
    for (int i = 0; i < c->cell->num_own - 1; i++) {
        x = draw_key(c, x, shade(c, looks[0].colour, i), c->names[i]);
    }
}

/* Of several chunks of a rank the later ones are lighter. */
static void draw_entry(canvas_t *c, const loong_entry_t *e, loong_span_t span)
{
    const look_t *look = look_of(e->kind);
    char name[16] = "";
    if (look == NULL || span.end <= span.begin) {
        return;
    }
    double x = LEFT + c->scale * span.begin;
    double width = c->scale * (span.end - span.begin);
    int colour = shade(c, look->colour, e->component);
    int chunk = LOONG_MAX(e->chunk, 0);
    int chunks =
        e->component < 0 ? 1 : c->cell->schedules[e->component]->params.chunks;
    loongi_text_printf(
        c->text,
        "<rect class=\"entry\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
        "height=\"%d\" fill=\"#%06x\" fill-opacity=\"%.2f\"><title>",
        x, c->y, width, LANE, (unsigned)colour, 1.0 - 0.6 * chunk / chunks);
    if (c->cell->params.num_components > 1 && e->component >= 0) {
        put_escaped(c->text, c->names[c->cell->forward_of[e->component]]);
        loongi_text_printf(c->text, ", ");
    }
    loongi_text_printf(c->text, "%s", loongi_entry_name(e->kind));
    if (chunks > 1) {
        loongi_text_printf(c->text, ", chunk %d", (int)e->chunk);
    }
    if (e->micro_batch >= 0) {
        snprintf(name, sizeof(name), "%d", (int)e->micro_batch);
        loongi_text_printf(c->text, ", micro-batch %s", name);
    }
    loongi_text_printf(c->text, ": %.3f to %.3f ms</title></rect>\n",
                       1e3 * span.begin, 1e3 * span.end);
    if (name[0] != '\0' && width >= DIGIT * (double)strlen(name) + 2) {
        loongi_text_printf(
            c->text, "<text class=\"number%s\" x=\"%.2f\" y=\"%d\">%s</text>\n",
            colour != look->colour ? " light" : "", x + width / 2,
            c->y + LANE - 8, name);
    }
}

static void draw_rank(canvas_t *c, int rank, const loong_span_t *spans,
                      double seconds)
{
    const loong_rank_schedule_t *list = &c->cell->ranks[rank];
    const loong_span_t *own =
        spans + loongi_schedule_spans(c->cell->ranks, rank);
    loongi_text_printf(c->text,
                       "<text x=\"8\" y=\"%d\">rank %d</text>\n"
                       "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%.2f\" "
                       "height=\"%d\"/>\n", c->y + LANE - 8, rank, LEFT, c->y,
                       c->scale * seconds, LANE);
    for (int64_t i = 0; i < list->num_entries; i++) {
        draw_entry(c, &list->entries[i], own[i]);
    }
    double idle =
        seconds > 0.0 ? 1.0 - busy_of(c->cell, rank, spans) / seconds : 0.0;
    loongi_text_printf(c->text,
                       "<text x=\"%d\" y=\"%d\">idle %.1f %%</text>\n",
                       LEFT + WIDTH + 8, c->y + LANE - 8, 100.0 * idle);
    c->y += LANE + GAP;
}

static void draw_panel(canvas_t *c, const loong_plot_panel_t *panel)
{
    loong_simulation_t total = loongi_spans_total(c->cell, panel->spans);
    loongi_text_printf(c->text, "<text class=\"head\" x=\"%d\" y=\"%d\">",
                       LEFT, c->y + HEAD - 8);
    put_escaped(c->text, panel->title);
    loongi_text_printf(c->text, ": %.2f ms, idle %.1f %%</text>\n",
                       1e3 * total.seconds, 100.0 * total.bubble);
    c->y += HEAD;
    for (int r = 0; r < c->cell->params.ranks; r++) {
        draw_rank(c, r, panel->spans, total.seconds);
    }
}

/* A mark every 1, 2 or 5 times a power of ten, 10 to 25 of them. */
static void draw_axis(canvas_t *c, double seconds, int bottom)
{
    double step = pow(10.0, floor(log10(seconds)) - 1.0);
    step *= seconds / step > 50.0 ? 5.0 : seconds / step > 20.0 ? 2.0 : 1.0;
    for (int i = 0; i * step <= seconds; i++) {
        double x = LEFT + c->scale * i * step;
        loongi_text_printf(
            c->text,
            "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\"/>"
            "<text class=\"tick\" x=\"%.2f\" y=\"%d\">%g</text>\n",
            x, TOP, x, bottom, x, bottom + 14, 1e3 * i * step);
    }
    loongi_text_printf(c->text, "<text x=\"%d\" y=\"%d\">ms</text>\n",
                       LEFT + WIDTH + 8, bottom + 14);
}

/* ---- the whole ----------------------------------------------------------- */

static const char style[] =
    "<style>text{font:12px sans-serif;fill:#222}"
    ".title,.head{font-weight:bold}"
    ".number{text-anchor:middle;font-size:11px}.light{fill:#fff}"
    ".tick{text-anchor:middle;fill:#666}"
    ".idle{fill:#f1f1f1}.entry{stroke:#fff;stroke-width:0.5}"
    "line{stroke:#ddd;stroke-width:0.5}</style>\n";

void loongi_schedule_plot(const loong_schedule_plot_t *plot,
                          loong_text_t *text)
{
    const loong_cell_t *cell = plot->cell;
    double seconds = 0.0;
    for (int i = 0; i < plot->num_panels; i++) {
        loong_simulation_t total =
            loongi_spans_total(cell, plot->panels[i].spans);
        seconds = LOONG_MAX(seconds, total.seconds);
    }
    canvas_t c = {cell, plot->names, text,
                  seconds > 0.0 ? WIDTH / seconds : 0.0, TOP};
    int height = TOP + AXIS +
                 plot->num_panels * (HEAD + cell->params.ranks * (LANE + GAP));
    loongi_text_printf(text,
                       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                       "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                       "width=\"%d\" height=\"%d\">\n%s"
                       "<rect width=\"100%%\" height=\"100%%\" "
                       "fill=\"#fff\"/>\n",
                       LEFT + WIDTH + RIGHT, height, style);
    draw_legend(&c, plot);
    if (seconds > 0.0) {
        draw_axis(&c, seconds, height - AXIS + GAP);
    }
    for (int i = 0; i < plot->num_panels; i++) {
        draw_panel(&c, &plot->panels[i]);
    }
    loongi_text_printf(text, "</svg>\n");
}
