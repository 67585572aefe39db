/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange that opens a training step: what every rank knows of the step
 * goes in, what all agree on comes out, equal on every rank. So a bad sample,
 * an I/O error or a signal on one rank is everybody's knowledge before the
 * first kernel, and never a hang.
 */
#ifndef LOONG_COMM_STEP_HEADER_H
#define LOONG_COMM_STEP_HEADER_H

#include "base.h"
#include "exact_sum.h"
#include "loong/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_STEP_SUMS = 8, LOONG_STEP_MESSAGE = 160 };

enum {
    LOONG_STEP_STOP = 1,   /* save what is done and exit */
    LOONG_STEP_SAVE = 2,   /* save what is done and go on */
    LOONG_STEP_WRITING = 4, /* this rank still writes its part of a save */
    LOONG_STEP_IMAGES = 8,  /* this rank's texts have pictures */
    LOONG_STEP_VIDEOS = 16  /* likewise, of a second encoder */
};

/* One rank's part. */
typedef struct loong_step_report {
    int64_t step;
    uint64_t recipe_hash; /* also of data and layout: whatever must be equal */
    int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS]; /* of losses' weights */
    unsigned flags;
    loong_status_t status; /* what went wrong on this rank, or LOONG_OK */
    char message[LOONG_STEP_MESSAGE];
} loong_step_report_t;

/* What all ranks agree on. */
typedef struct loong_step_header {
    int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS]; /* over the ranks */
    unsigned flags;                    /* any rank's */
    int error_rank; /* the lowest rank with a status, -1: none */
    int error_count;
    loong_status_t status;
    char message[LOONG_STEP_MESSAGE]; /* that rank's */
} loong_step_header_t;

typedef struct loong_step_exchange loong_step_exchange_t;

/* comm is borrowed; so many of the sums are used. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_step_exchange_create(loong_context_t *ctx, loong_comm_t *comm,
                            int num_sums, loong_step_exchange_t **exchange_p);
void loongi_step_exchange_destroy(loong_step_exchange_t **exchange_p);

/* Two all-reduces, of 12 words and of 1 + 11 for each sum, no allocation; only
 * where a rank differs or failed it is asked for more. LOONG_ERR_MISMATCH, on
 * every rank and naming the first rank that differs from rank 0, when step or
 * recipe hash differ or the ranks did not make the same collectives before. An
 * error that a rank reports is not a failure of this call. Collective on: comm.
 */
LOONG_NODISCARD loong_status_t loongi_step_exchange_run(
    loong_step_exchange_t *exchange, const loong_step_report_t *mine,
    loong_step_header_t *agreed_p);

#ifdef __cplusplus
}
#endif

#endif
