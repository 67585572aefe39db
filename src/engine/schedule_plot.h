/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture of a step: what every rank of a cell ran when, as SVG. */
#ifndef LOONG_SCHEDULE_PLOT_H
#define LOONG_SCHEDULE_PLOT_H

#include "cell.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run of the lists, simulated or measured: a lane for each rank. Programs
 * of an entry that did not run have an empty span. */
typedef struct loong_plot_panel {
    const char *title;         /* "simulated" */
    const loong_span_t *spans; /* of all entries: loongi_schedule_spans */
} loong_plot_panel_t;

/* Panels stand below each other and share the axis of time. */
typedef struct loong_schedule_plot {
    const loong_cell_t *cell;
    const char *const *names; /* of its components */
    const char *title;
    int num_panels;
    const loong_plot_panel_t *panels;
} loong_schedule_plot_t;

/* Seconds and idle share, as the simulation counts them, of any spans. */
loong_simulation_t loongi_spans_total(const loong_cell_t *cell,
                                      const loong_span_t *spans);

/* Appends a whole SVG document. */
void loongi_schedule_plot(const loong_schedule_plot_t *plot,
                          loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
