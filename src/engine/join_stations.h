/* SPDX-License-Identifier: Apache-2.0
 *
 * What the join that fills gaps fills, and with what. Read cell_impl.h
 * before. */
#ifndef LOONG_JOIN_STATIONS_H
#define LOONG_JOIN_STATIONS_H

#include "cell_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct interval {
    int64_t begin, end;
} interval_t;

/* What a rank computes. */
typedef struct line {
    int64_t own, end; /* of the last component: intervals, its end */
    int64_t count;
    interval_t *busy; /* ascending */
} line_t;

/* A stage of a component. */
typedef struct station {
    int component, stage;
    int64_t work[2]; /* forward and backward, of one micro-batch of the head */
    int64_t floor;   /* where the micro-batch before is, */
    bool behind;     /* or that its backward is behind the pipeline */
} station_t;

/* The ranks of a station that a reader has. */
typedef struct crew {
    int count;
    int32_t *rank;
} crew_t;

/* A group of the widest component, with those that it goes through with. */
typedef struct reader {
    int taken; /* micro-batches */
    int hops;  /* from ranks to others */
} reader_t;

typedef struct filling {
    const loong_join_t *join;
    int head;  /* the component that the last one reads */
    int total; /* its micro-batches */
    int num_stations;
    station_t *stations;    /* in the order of forwards */
    int64_t *wanted, *made; /* when it is read, and its gradient made */
    int widest;             /* the component with the most groups */
    int num_readers;
    reader_t *readers;
    bool hops;        /* some reader has */
    crew_t *crews;    /* [reader][station] */
    line_t *lines;    /* per rank of the cell */
    interval_t **own; /* likewise: what the last component computes */
    int64_t length;   /* of the last component */
} filling_t;

/* For the components up to the head. */
LOONG_NODISCARD loong_status_t loongi_filling_begin(loong_join_t *join,
                                                    int head,
                                                    filling_t *filling_p);

/* The first replica of a group: of those that have a micro-batch together. */
int loongi_group_first(const loong_cell_t *cell, int component, int group);

/* The group of a component that a reader has: of those that share a rank with
 * its group of the widest component, the first; of none, any. */
int loongi_filling_group(const filling_t *filling, int component, int reader);

/* The head's micro-batch with which one of another component is read first,
 * with which its last gradient is made. */
int64_t loongi_filling_first(const filling_t *filling, int component,
                             int64_t micro_batch);
int64_t loongi_filling_last(const filling_t *filling, int component,
                            int64_t micro_batch);

#ifdef __cplusplus
}
#endif

#endif
