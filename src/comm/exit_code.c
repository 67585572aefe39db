/* SPDX-License-Identifier: Apache-2.0
 *
 * Exit codes. Called by the tools and by src/launch/parent.c. Read
 * loong/exit_code.h before. */
#include "loong/exit_code.h"
#include "base.h"
#include "comm_impl.h"

typedef struct exit_entry {
    int code;
    const char *text;
} exit_entry_t;

static const exit_entry_t entries[] = {
#define LOONG_EXIT_ENTRY(name_, code_, text_) {code_, text_},
    LOONG_EXIT_LIST(LOONG_EXIT_ENTRY)
#undef LOONG_EXIT_ENTRY
};

/* The place in the list; one past its end for an unknown code. */
static int64_t severity(int code)
{
    int64_t i = 0;
    while (i < LOONG_COUNT_OF(entries) && entries[i].code != code) {
        i++;
    }
    return i;
}

const char *loong_exit_code_text(int code)
{
    int64_t i = severity(code);
    return i < LOONG_COUNT_OF(entries) ? entries[i].text : "unknown exit code";
}

loong_exit_code_t loong_exit_code_from_status(loong_status_t status)
{
    switch (status) {
    case LOONG_OK:
        return LOONG_EXIT_OK;
    case LOONG_ERR_CONFIG:
    case LOONG_ERR_ARG:
    case LOONG_ERR_MISMATCH:
        return LOONG_EXIT_USAGE;
    case LOONG_ERR_NOT_FOUND:
        return LOONG_EXIT_NO_INPUT;
    case LOONG_ERR_IO:
        return LOONG_EXIT_IO;
    case LOONG_ERR_CANNOT_WRITE:
        return LOONG_EXIT_CANNOT_WRITE;
    case LOONG_ERR_NUMERIC:
        return LOONG_EXIT_DIVERGED;
    case LOONG_ERR_INTERRUPTED:
        return LOONG_EXIT_STOPPED;
    case LOONG_ERR_COMM:
        return LOONG_EXIT_LOST;
    default:
        return LOONG_EXIT_FAILED;
    }
}

void loong_exit_code_agree(loong_comm_t *comm, int code, int *agreed_p,
                           int *rank_p)
{
    enum { RANKS = 1 << 24 };
    int rank = loong_comm_rank(comm);
    int64_t mine = severity(code);
    /* The greatest severity, and of these the lowest rank. */
    int64_t word = mine * RANKS + (RANKS - 1 - rank);
    loong_status_t status = LOONG_ERR_COMM;
    if (!comm->failed) { /* else the message of that failure stays the last */
        status = loong_comm_all_reduce(comm, &word, 1, LOONG_I64,
                                       LOONG_REDUCE_MAX, "exit code");
    }
    *agreed_p = code;
    *rank_p = rank;
    if (status != LOONG_OK) {
        *agreed_p = mine > severity(LOONG_EXIT_LOST) ? code : LOONG_EXIT_LOST;
        return;
    }
    int64_t worst = word / RANKS;
    if (worst != mine) {
        *agreed_p = worst < LOONG_COUNT_OF(entries) ? entries[worst].code
                                                    : LOONG_EXIT_FAILED;
    }
    *rank_p = RANKS - 1 - (int)(word % RANKS);
}
