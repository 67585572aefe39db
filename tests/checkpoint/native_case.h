/* SPDX-License-Identifier: Apache-2.0
 *
 * A small model whose values are a function of (tensor, element, step), saved
 * by ranks that are threads. */
#ifndef LOONG_NATIVE_CASE_H
#define LOONG_NATIVE_CASE_H

#include <pthread.h>

#include "native.h"

enum { ROWS = 23, COLUMNS = 40, TENSORS = 4 };

typedef struct team {
    pthread_barrier_t barrier;
    int size;
    char *buffer;
} team_t;

typedef struct member {
    team_t *team;
    int rank;
} member_t;

typedef struct native_job {
    member_t member;
    const char *dir;
    int64_t step;
    int keep_last;
    bool async;
    bool skip_rank_1;   /* its pieces are left out */
    bool double_rank_1; /* and here they are there twice */
    loong_status_t status;
    char error[4096];
    pthread_t thread;
} native_job_t;

/* The elements of rows [row, row + rows) of tensor t. */
void native_fill(int t, int64_t step, int64_t row, int64_t rows, char *dst);
/* Saves with `size` ranks from a pattern of settings; the status is equal on
 * all ranks. Returns rank 0's error in *pattern. */
loong_status_t native_save(native_job_t *pattern, int size);
/* The same, which must succeed. */
void native_save_ok(const char *path, int64_t step, int size, bool async);
/* Asserts that the newest of a save directory is this step, as it was. */
void native_check(loong_context_t *ctx, const char *path, int64_t step);
int native_count_entries(const char *path);

#endif
