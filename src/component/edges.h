/* SPDX-License-Identifier: Apache-2.0
 *
 * Edges between the components of a model: which there are, whether a gradient
 * crosses them, the messages of a cell, and these under way. Sends and receives
 * only begin; a program waits for what it reads, a slot is given to another
 * micro-batch when its sends are complete.
 */
#ifndef LOONG_EDGES_H
#define LOONG_EDGES_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of the ports at the two ends of a message. */
typedef struct loong_segment {
    int64_t from_row, to_row, rows;
} loong_segment_t;

/* Those of a message; there is room for so many. */
typedef struct loong_segment_list {
    loong_segment_t *segments;
    int64_t count, most;
} loong_segment_list_t;

/* What a message of an edge of the model carries in the step that runs, its
 * ranks those of the model's cell: the same at both ends. Rows of the receiver
 * that no message brings are zero. */
typedef struct loong_edge_rows {
    void *user;
    /* Segments of a message of an edge, in any step. */
    int64_t (*most)(void *user, int edge);
    /* The list is empty, and added to by loongi_segment_add. */
    loong_status_t (*list)(void *user, const loong_message_t *message,
                           loong_segment_list_t *list);
    /* Whether a component's micro-batch has no rows on this rank; NULL: all
     * have some. */
    loong_status_t (*hollow)(void *user, int component, int micro_batch,
                             bool *hollow_p);
} loong_edge_rows_t;

/* LOONG_ERR_INTERNAL where there is no room. */
LOONG_NODISCARD loong_status_t loongi_segment_add(loong_context_t *ctx,
                                                  loong_segment_list_t *list,
                                                  loong_segment_t segment);

typedef struct loong_edges loong_edges_t;

/* Binds ports by name, each to the nearest component before that sends one of
 * it, and derives who is trained: components that are not, and ports that no
 * gradient crosses, are marked in params. Errors: LOONG_ERR_CONFIG for a port
 * that nobody makes, and a trained component that no loss reaches. */
LOONG_NODISCARD loong_status_t loongi_edges_find(loong_model_t *model);

/* Edges and messages of a cell of so many micro-batches; free messages. */
LOONG_NODISCARD loong_status_t loongi_edges_messages(
    const loong_model_t *model, int micro_batches, bool train,
    loong_cell_edge_t *edges, loong_message_t **messages_p, int64_t *count_p);

/* Finds what goes through host memory, of a model with its cells. */
LOONG_NODISCARD loong_status_t loongi_edges_settle(loong_model_t *model);
/* Has this rank an end of an edge that does not, in messages between ranks? */
bool loongi_edges_has_link(const loong_model_t *model, int edge, bool backward);
/* Opens what they go over: resources->edges. Collective on: world. */
LOONG_NODISCARD loong_status_t loongi_edges_open(loong_model_t *model);

/* Of one of the model's lists. Without edges there is nothing to create: NULL,
 * which all that follow accept. Not collective. */
LOONG_NODISCARD loong_status_t loongi_edges_create(const loong_model_t *model,
                                                   loong_variant_t variant,
                                                   loong_edges_t **edges_p);
void loongi_edges_destroy(loong_edges_t **edges_p);

/* Pinned host memory through which a rank with a device sends and receives
 * rows, of a planned model. */
LOONG_NODISCARD loong_status_t loongi_edges_pinned(const loong_model_t *model,
                                                   int64_t *bytes_p);
/* Begins a send or receive entry of an edge, which is one of the model's list.
 * Where it goes through the host, a rank with a device waits for the rows that
 * it sends. */
LOONG_NODISCARD loong_status_t loongi_edges_begin(loong_edges_t *edges,
                                                  const loong_entry_t *entry);
/* Waits for what a program reads, and for what was sent from its slot. */
LOONG_NODISCARD loong_status_t loongi_edges_need(loong_edges_t *edges,
                                                 const loong_entry_t *entry);
/* Waits for all sends. */
LOONG_NODISCARD loong_status_t loongi_edges_finish(loong_edges_t *edges);
/* As loongi_transfer_cancel. */
bool loongi_edges_cancel(loong_edges_t *edges);

#ifdef __cplusplus
}
#endif

#endif
