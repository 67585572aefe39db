/* SPDX-License-Identifier: Apache-2.0
 *
 * The save object, shared by native_save.c (this rank's file) and
 * native_commit.c (what the ranks do together). Both stages, writing and
 * assembling, are work that a helper thread can do. */
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
    uint64_t key; /* of kind and name */
} loong_save_source_t;

typedef enum loong_save_stage {
    LOONG_SAVE_OPEN,       /* pieces are added */
    LOONG_SAVE_WRITING,    /* every rank writes its file */
    LOONG_SAVE_ASSEMBLING, /* rank 0 makes a checkpoint of them */
    LOONG_SAVE_OVER
} loong_save_stage_t;

/* What a stage does; ctx is the thread's own. */
typedef loong_status_t (*loong_save_work_fn)(loong_checkpoint_save_t *save,
                                             loong_context_t *ctx);

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
    const char *list_path;  /* rank_00000.json: the file's pieces, for rank 0 */
    loong_layout_t *layout; /* this rank's pieces in its one file */
    int64_t source_capacity;
    loong_save_source_t *sources;
    loong_save_stage_t stage;
    loong_save_work_fn work; /* of the stage */
    bool threaded;           /* there is a thread to join */
    pthread_t thread;
    /* set by the worker under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool data_done; /* live memory is no longer read */
    bool work_done;
    /* results, valid when work_done */
    loong_status_t status;
    char error[LOONG_SAVE_ERROR_TEXT];
    char warning[LOONG_SAVE_ERROR_TEXT]; /* "": none */
    double seconds;                      /* of all stages so far */
    double cpu_seconds;
};

/* The files of a step, each complete with its list of pieces beside it. */
typedef struct loong_native_files {
    const char *dir;      /* SAVE */
    const char *tmp_dir;  /* SAVE/.tmp_step_00000100 */
    const char *tmp_name; /* .tmp_step_00000100 */
    const char *name;     /* step_00000100 */
    int64_t step;
    int64_t count;
    const loong_pairs_t *metadata;
    const loong_file_set_t *files; /* or NULL */
} loong_native_files_t;

#define LOONG_RANK_FORMAT "rank_%05d.h5"
#define LOONG_LIST_FORMAT "rank_%05d.json"

/* Makes a checkpoint of the files: the check that nothing is left out, the
 * index, checkpoint.json, and when all is on the disk, the name. Can be called
 * again after an interruption. */
LOONG_NODISCARD loong_status_t
loongi_native_assemble(loong_context_t *ctx, const loong_native_files_t *files);

/* Begins the work of a stage, or does it when the save is not asynchronous.
 * Its status is for the next agreement. */
void loongi_save_work(loong_checkpoint_save_t *save, loong_save_work_fn work);

/* Agrees on one status: rank 0's or the first failed rank's. All ranks
 * return it, with that rank's error text in the trail. */
LOONG_NODISCARD loong_status_t loongi_save_agree(loong_checkpoint_save_t *save,
                                                 loong_status_t status,
                                                 const char *error);

#ifdef __cplusplus
}
#endif

#endif
