/* SPDX-License-Identifier: Apache-2.0
 *
 * The save object, shared by native_save.c (this rank's file) and
 * native_commit.c (what the ranks do together). */
#ifndef LOONG_NATIVE_SAVE_H
#define LOONG_NATIVE_SAVE_H

#include <pthread.h>

#include "native_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the elements of a piece come from. */
typedef struct loong_save_source {
    const void *data;
    loong_checkpoint_fetch_fn fetch;
    void *user;
} loong_save_source_t;

enum { LOONG_SAVE_ERROR_TEXT = 1000 };

struct loong_checkpoint_save {
    loong_context_t *ctx;
    loong_checkpoint_save_params_t params;
    loong_checkpoint_comm_t comm; /* one rank when none was given */
    loong_arena_t *arena;
    const char *dir;      /* SAVE */
    const char *name;     /* step_00000100 */
    const char *tmp_name; /* .tmp_step_00000100 */
    const char *tmp_dir;  /* SAVE/.tmp_step_00000100 */
    char file_name[32];   /* rank_00000.h5 */
    const char *file_path;
    loong_layout_t *layout; /* this rank's pieces; on rank 0 later all */
    int64_t source_capacity;
    loong_save_source_t *sources;
    bool started;
    bool threaded; /* there is a thread to join */
    pthread_t thread;
    /* set by the writer under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool data_done; /* live memory is no longer read */
    bool file_done;
    /* results, valid when file_done */
    loong_status_t status;
    char error[LOONG_SAVE_ERROR_TEXT];
    int64_t bytes;
    uint64_t xxh3;
    double seconds;
    double cpu_seconds;
};

/* Agrees on one status: rank 0's or the first failed rank's. All ranks
 * return it, with that rank's error text in the trail. */
LOONG_NODISCARD loong_status_t loongi_save_agree(loong_checkpoint_save_t *save,
                                                 loong_status_t status,
                                                 const char *error);

#ifdef __cplusplus
}
#endif

#endif
