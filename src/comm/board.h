/* SPDX-License-Identifier: Apache-2.0
 *
 * The status board: what every rank of a machine is doing, in memory that all
 * of them (and their parents, src/launch/) see. Zero bytes are a valid empty
 * board, so nobody has to be first. Writers own their slot; readers use the
 * texts for messages only.
 */
#ifndef LOONG_COMM_BOARD_H
#define LOONG_COMM_BOARD_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LOONG_BOARD_TEXT = 256,
    LOONG_GROUP_NAME = 32,
    LOONG_EVENT_LABEL = 32,
    LOONG_SOURCE_TEXT = 40,
    LOONG_BOARD_WAITS = 4 /* at one time, of a rank */
};

/* X(name, text). FAILED: the rank said so itself; ENDED: its process or
 * thread is over. */
#define LOONG_RANK_STATE_LIST(X)  \
    X(EMPTY, "not there")         \
    X(STARTING, "starting")       \
    X(JOINING, "joining the job") \
    X(RUNNING, "running")         \
    X(FINISHED, "finished")       \
    X(FAILED, "failed")           \
    X(ENDED, "ended")

typedef enum loong_rank_state {
#define LOONG_RANK_STATE_ENUM(name_, text_) LOONG_RANK_##name_,
    LOONG_RANK_STATE_LIST(LOONG_RANK_STATE_ENUM)
#undef LOONG_RANK_STATE_ENUM
        LOONG_RANK_STATE_COUNT
} loong_rank_state_t;

typedef struct loong_board loong_board_t;
typedef struct loong_board_slot loong_board_slot_t;

/* Copies what fits; the end of a longer text gives way to " ..." behind a whole
 * word, so that no number is half there. */
void loongi_board_text(char *to, size_t size, const char *from);

size_t loongi_board_bytes(int slots);
/* Gives zeroed memory of loongi_board_bytes(slots) its size; every process
 * that maps it calls this with the same number. */
loong_board_t *loongi_board_init(void *memory, int slots);
int loongi_board_slots(const loong_board_t *board);

/* loong_comm_params_t.heartbeat_timeout of the job. */
void loongi_board_set_heartbeat(loong_board_t *board, double seconds);
double loongi_board_heartbeat(const loong_board_t *board);

/* NULL when the index is outside. */
loong_board_slot_t *loongi_board_slot(loong_board_t *board, int index);
/* The slot claimed for a world rank, NULL when it is not on this machine. */
loong_board_slot_t *loongi_board_find(loong_board_t *board, int world_rank);

void loongi_slot_claim(loong_board_slot_t *slot, int world_rank, int pid);
void loongi_slot_set_pid(loong_board_slot_t *slot, int pid);
/* The process that will say how this rank ended; 0: none. */
void loongi_slot_set_parent(loong_board_slot_t *slot, int pid);
int loongi_slot_parent(const loong_board_slot_t *slot);
int loongi_slot_world_rank(const loong_board_slot_t *slot);
int loongi_slot_pid(const loong_board_slot_t *slot);
loong_rank_state_t loongi_slot_state(const loong_board_slot_t *slot);
/* Has ever been RUNNING. */
bool loongi_slot_joined(const loong_board_slot_t *slot);
/* text says why; NULL keeps the old one. */
void loongi_slot_set_state(loong_board_slot_t *slot, loong_rank_state_t state,
                           const char *text);
void loongi_slot_set_step(loong_board_slot_t *slot, int64_t step);

/* The cores that the calling thread may run on, for the other ranks to see. */
void loongi_slot_set_cores(loong_board_slot_t *slot);
/* More ranks of this machine than cores run on those of this one. */
bool loongi_board_is_crowded(loong_board_t *board,
                             const loong_board_slot_t *slot);

typedef struct loong_board_event {
    const char *what; /* a static string */
    const char *group;
    const char *label;
    const char *file; /* NULL: unknown */
    int line;
    uint64_t sequence;
    int64_t bytes;
} loong_board_event_t;

/* "file.c:12", "" when the file is NULL. */
void loongi_source_text(const char *file, int line,
                        char text[LOONG_SOURCE_TEXT]);

/* One collective or message: begin, then end with the number that begin gave.
 * Two threads of a rank may be in one each. */
uint64_t loongi_slot_begin(loong_board_slot_t *slot,
                           const loong_board_event_t *event, double now);
void loongi_slot_end(loong_board_slot_t *slot, uint64_t number, double now);

/* A call of a group that a rank's device has come to and that is not over. */
typedef struct loong_board_stand {
    uint64_t group;    /* the same number on its ranks; not 0 */
    uint64_t sequence; /* of the call; 0: in none */
    int ranks; /* that are known to stand in it: this one, and those behind it
                * in the group */
} loong_board_stand_t;
void loongi_slot_set_stand(loong_board_slot_t *slot,
                           const loong_board_stand_t *stand);
/* Also of a rank on another machine, as it said last; zero: in none. */
loong_board_stand_t loongi_board_stand(loong_board_t *board, int world_rank,
                                       uint64_t group);

/* Who waits for whom: -1 in *record_p takes a record, which is kept until
 * loongi_slot_wait_end. */
typedef struct loong_board_wait {
    int world_rank; /* that is missing */
    double since;
    double limit; /* seconds */
    bool beside;  /* the rank itself goes on meanwhile */
    uint64_t group; /* whose device is waited for; 0: the rank itself is */
} loong_board_wait_t;
void loongi_slot_wait_for(loong_board_slot_t *slot,
                          const loong_board_wait_t *wait, int *record_p);
void loongi_slot_wait_end(loong_board_slot_t *slot, int *record_p);
/* Record i below LOONG_BOARD_WAITS; false: it is free. */
bool loongi_slot_waits(const loong_board_slot_t *slot, int i,
                       loong_board_wait_t *wait_p);
/* What a rank of another machine said of itself, which record i waits for;
 * rank -1: nothing is known any more. */
void loongi_slot_hear(loong_board_slot_t *slot, int i, int world_rank,
                      const char *text, const loong_board_stand_t *stand);
/* The seconds by which the longest wait for the world rank has passed its
 * limit (negative: none has), and who waits. */
double loongi_board_overdue(loong_board_t *board, int world_rank, double now,
                            int *waiter_p);
/* A rank of the board that waits for the world rank; -1: none does. */
int loongi_board_waiter(loong_board_t *board, int world_rank);
/* Whom it waits for itself, doing nothing else, and since when; -1: nobody. */
int loongi_board_waits_for(loong_board_t *board, int world_rank,
                           double *since_p);

/* "rank 1 (pid 77, running, step 12) finished all_gather #41 'params' of dp
 * (4096 bytes, step 12, stage.c:7) 3.2 s ago"; of a rank on another machine
 * what it said last, if one of this machine has asked it. */
void loongi_board_describe(loong_board_t *board, int world_rank, double now,
                           char *text, size_t size);
/* The same, of what the slot knows itself. */
void loongi_slot_describe(const loong_board_slot_t *slot, double now,
                          char *text, size_t size);
/* The event before the last one (back = 1), the one before that, ...; false
 * when there is none. */
bool loongi_board_event(loong_board_t *board, int world_rank, int back,
                        double now, char *text, size_t size);

/* The end of the job: the first caller wins and its record stays. */
typedef struct loong_board_verdict {
    int code;       /* exit code, never 0 */
    int world_rank; /* whose fault, -1: unknown */
    char text[LOONG_BOARD_TEXT];
} loong_board_verdict_t;

/* True for the first caller. */
bool loongi_board_judge(loong_board_t *board,
                        const loong_board_verdict_t *verdict);
/* True for the first caller: who tells the verdict of this machine. */
bool loongi_board_claim_telling(loong_board_t *board);
/* False when there is none yet. */
bool loongi_board_verdict(loong_board_t *board,
                          loong_board_verdict_t *verdict_p);

#ifdef __cplusplus
}
#endif

#endif
