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
    size_t row;             /* bytes of each of its rows */
    bool copied;            /* within this rank, to host memory */
    int64_t sent, received; /* segments under way */
    loong_segment_list_t list;
    loong_comm_request_t *send, *receive; /* of each segment */
} loong_edge_state_t;

/* Where programs of a device read an area of host memory. */
typedef struct loong_edge_window {
    int32_t micro_batch; /* that it has; -1: none of this list's */
    bool read;           /* by the last program */
    void *free;          /* event: by no program of before */
} loong_edge_window_t;

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
    /* Per chunk, two directions and LOONG_EDGE_WINDOWS; NULL: none. */
    loong_edge_window_t *windows;
    int64_t num_windows;
    void *made; /* event: rows that are copied to host memory; NULL: none are */
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

static inline bool loongi_edges_is_on_host(const loong_edges_t *edges,
                                           const loong_message_t *message)
{
    const loong_model_t *m = edges->model;
    int edge = loongi_cell_edge(edges->cell, message->edge);
    int reader = loongi_edge_reader(&m->edges[edge], message->backward);
    return m->on_host[reader][message->backward];
}

/* In areas that a device of this rank has in host memory? */
static inline bool loongi_edges_waits(const loong_edges_t *edges,
                                      const loong_message_t *message)
{
    return edges->made != NULL && loongi_edges_is_on_host(edges, message);
}

/* Windows of what a program reads, which has arrived, are filled before it
 * runs; programs of before read theirs no more. */
LOONG_NODISCARD loong_status_t loongi_windows_create(loong_edges_t *edges);
void loongi_windows_destroy(loong_edges_t *edges);
LOONG_NODISCARD loong_status_t
loongi_windows_fill(const loong_edges_t *edges, const loong_entry_t *entry);
/* The device's memory is another list's. */
void loongi_windows_forget(const loong_edges_t *edges);
/* Rows of a device go to host memory, behind what it computes. */
LOONG_NODISCARD loong_status_t
loongi_windows_save(const loong_edges_t *edges, char *to, const char *from,
                    size_t bytes);
/* What it computes from here on is behind them. */
LOONG_NODISCARD loong_status_t
loongi_windows_saved(const loong_edges_t *edges);

/* Is this rank's end of a message a chunk's entry? */
bool loongi_edges_is_end(const loong_edges_t *edges, const loong_entry_t *entry,
                         const loong_message_t *message, bool sender);

/* Has the next entry of the list a message of the same maker? */
bool loongi_edges_goes_on(const loong_edges_t *edges,
                          const loong_entry_t *entry);

#ifdef __cplusplus
}
#endif

#endif
