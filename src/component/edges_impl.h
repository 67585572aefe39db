/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of edges share. */
#ifndef LOONG_EDGES_IMPL_H
#define LOONG_EDGES_IMPL_H

#include "comm_run.h"
#include "edges.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of the cell's messages, at the ends that this rank has. */
typedef struct loong_edge_state {
    loong_comm_t *comm;     /* it goes over */
    int from_rank, to_rank; /* of that */
    int32_t slot;           /* of the sender; -1: nothing is sent */
    const char *from;       /* the sender's port, where it is on this rank */
    char *to;               /* the receiver's, likewise */
    int64_t sent, received; /* segments under way */
    loong_segment_list_t list;
    loong_comm_request_t *send, *receive; /* of each segment */
} loong_edge_state_t;

struct loong_edges {
    loong_context_t *ctx;
    const loong_model_t *model;
    loong_variant_t variant;
    const loong_cell_t *cell;
    loong_edge_state_t *states; /* of the messages */
    /* Those with an end on this rank, ascending, which each entry of a step
     * looks through: a cell of many ranks has many more. */
    int32_t *own;
    int64_t num_own;
    bool grouping;              /* what begins next is of the same group */
    loong_segment_t *segments;
    loong_comm_request_t *requests;
    /* Of this rank's chunks, two directions and micro-batches, as many as any
     * component has: the area has been cleared. */
    bool *cleared;
    int micro_batches;
    void *landed; /* event: images have been copied; NULL: a processor */
};

/* The port of a message's entry, and where it is. */
LOONG_NODISCARD loong_status_t loongi_edges_port(const loong_edges_t *edges,
                                                 const loong_entry_t *entry,
                                                 bool send,
                                                 const loong_port_t **port_p);
char *loongi_edges_data(const loong_edges_t *edges, const loong_entry_t *entry,
                        const loong_port_t *port);

static inline size_t loongi_edges_port_bytes(const loong_port_t *port)
{
    return (size_t)loongi_shape_elements(&port->shape) *
           loong_dtype_size(port->dtype);
}

static inline const loong_message_t *
loongi_edges_message(const loong_edges_t *edges, const loong_entry_t *entry)
{
    return &edges->cell->params.messages[entry->message];
}

/* A communicator of devices takes their memory. */
static inline bool loongi_edges_is_direct(const loong_edges_t *edges,
                                          const loong_message_t *message)
{
    int edge = loongi_cell_edge(edges->cell, message->edge);
    return edges->model->edges[edge].direct;
}

/* Has the next entry of the list a message of the same maker? */
bool loongi_edges_goes_on(const loong_edges_t *edges,
                          const loong_entry_t *entry);

#ifdef __cplusplus
}
#endif

#endif
