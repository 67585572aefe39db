/* SPDX-License-Identifier: Apache-2.0
 *
 * What the join that fills gaps fills, and with what. The components that lead
 * to the last one are a line of stations; a micro-batch goes through all of
 * them on one of several routes, and at each a crew of ranks computes it when
 * their timelines have room. Read cell_impl.h before. */
#ifndef LOONG_JOIN_STATIONS_H
#define LOONG_JOIN_STATIONS_H

#include "cell_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct interval {
    int64_t begin, end;
} interval_t;

/* A timeline says when one rank of the cell is busy. */
typedef struct timeline {
    /* The last component has the first `own` intervals, until `end`. */
    int64_t own, end;
    int64_t count;
    interval_t *busy; /* ascending */
} timeline_t;

/* A station is one stage of one component before the last. Forwards go through
 * the stations in their order, backwards the other way. */
typedef struct station {
    int component, stage;
    int64_t work[2]; /* forward and backward, of one micro-batch of the head */
    /* Where the micro-batch before was placed, which the next one does not
     * overtake, and whether its backward came behind the pipeline. */
    int64_t floor;
    bool behind;
} station_t;

/* A crew is the ranks that compute one station of one route, all at once. */
typedef struct crew {
    int count;
    int32_t *rank;
} crew_t;

/* A route is what a micro-batch may take through the stations: a group of the
 * component with the most groups, and of each other component the group that
 * shares ranks with it. */
typedef struct route {
    int taken; /* by so many micro-batches of the trial */
    int hops;  /* stations on other ranks than the one before */
} route_t;

/* A filling is all that stays the same while trials place micro-batches. */
typedef struct filling {
    const loong_join_t *join;
    int head;  /* the component that the last one reads */
    int total; /* its micro-batches */
    int num_stations;
    station_t *stations; /* in the order of forwards */
    /* Per micro-batch: when the last component reads it, and has made its
     * gradient. */
    int64_t *wanted, *made;
    int widest; /* the component with the most groups */
    int num_routes;
    route_t *routes;
    bool hops;             /* some route has */
    crew_t *crews;         /* [route][station] */
    timeline_t *timelines; /* per rank of the cell */
    interval_t **own; /* likewise: when the last component computes there */
    int64_t length;   /* of the last component's step */
} filling_t;

/* For the components up to the head. */
LOONG_NODISCARD loong_status_t loongi_filling_begin(loong_join_t *join,
                                                    int head,
                                                    filling_t *filling_p);

/* The group of a component on a route: of those that share a rank with
 * its group of the widest component, the first; of none, any. */
int loongi_filling_group(const filling_t *filling, int component, int route);

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
