/* SPDX-License-Identifier: Apache-2.0
 *
 * What generators use. */
#ifndef LOONG_SCHEDULE_IMPL_H
#define LOONG_SCHEDULE_IMPL_H

#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends one computation to the list of a rank. */
LOONG_NODISCARD loong_status_t loongi_schedule_push(loong_schedule_t *s,
                                                    int rank,
                                                    loong_entry_kind_t kind,
                                                    int chunk,
                                                    int micro_batch);
/* Makes the last two computations a pair. */
void loongi_schedule_pair_last(loong_schedule_t *s, int rank);

/* Puts what a component computes on one rank of its pipeline into a list. */
typedef struct loong_entry_writer {
    const loong_schedule_t *schedule; /* of the component */
    int rank;                         /* of its pipeline */
    int component;
    loong_rank_schedule_t *list;
    /* Per micro-batch: it is hollow there, and has no slot; NULL: none is. */
    const bool *hollow;
} loong_entry_writer_t;

LOONG_NODISCARD loong_status_t loongi_entry_put(const loong_entry_writer_t *w,
                                                loong_entry_t entry);
/* The pipeline's receive for a forward, if its stage has one. */
LOONG_NODISCARD loong_status_t
loongi_entry_put_receive(const loong_entry_writer_t *w,
                         const loong_entry_t *work);
/* One computation, or a pair, with what must come before, unless it is there
 * already, and after. */
LOONG_NODISCARD loong_status_t
loongi_entry_put_unit(const loong_entry_writer_t *w, int count,
                      const loong_entry_t *work, bool received);
/* REDUCE of each chunk. */
LOONG_NODISCARD loong_status_t
loongi_entry_put_reduce(const loong_entry_writer_t *w);

/* Gives every entry of the component its slot and areas; how many there are to
 * chunks[], per chunk of the component. */
LOONG_NODISCARD loong_status_t loongi_schedule_colour(
    const loong_entry_writer_t *w, loong_chunk_slots_t *chunks);

/* Proves the component's part of a list as loongi_schedule_check does. alone:
 * the list has no other component, and keeps the generator's promise. */
LOONG_NODISCARD loong_status_t
loongi_schedule_check_part(const loong_entry_writer_t *w,
                           const loong_chunk_slots_t *chunks, bool alone);

/* Positions of a list, both inclusive, during which something holds a place
 * with this index. */
typedef struct loong_entry_span {
    int64_t begin;
    int64_t end;
    int32_t index;
} loong_entry_span_t;

/* Sorts the spans; the most that are alive at one time. *clash_p: the first one
 * with the index of another that is alive, or -1. */
int64_t loongi_spans_alive(int64_t count, loong_entry_span_t *spans,
                           int64_t *clash_p);

extern const loong_schedule_kind_t loongi_schedule_one_stage;
extern const loong_schedule_kind_t loongi_schedule_1f1b;
extern const loong_schedule_kind_t loongi_schedule_interleaved;
extern const loong_schedule_kind_t loongi_schedule_zero_bubble_h1;
extern const loong_schedule_kind_t loongi_schedule_zero_bubble_v;
extern const loong_schedule_kind_t loongi_schedule_evaluate;
extern const loong_schedule_kind_t loongi_schedule_gpipe;

#ifdef __cplusplus
}
#endif

#endif
