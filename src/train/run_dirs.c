/* SPDX-License-Identifier: Apache-2.0
 *
 * The directories a run writes into: made and tried at the start, not when the
 * first checkpoint is due, and held by a lock, so that a second run of the same
 * recipe does not mix its files with these. The lock is the open file's and
 * ends with the process, however it ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "trainer_impl.h"

enum { PATH_SIZE = 1024, OWNER_SIZE = 320 };

static loong_status_t locked_by_other(loong_trainer_t *t, const char *key,
                                      const char *dir, int fd)
{
    char owner[OWNER_SIZE] = "";
    ssize_t n = pread(fd, owner, sizeof(owner) - 1, 0);
    owner[n > 0 ? strcspn(owner, "\n") : 0] = '\0';
    return LOONG_FAIL(t->ctx, LOONG_ERR_CONFIG,
                      "%s: another run writes into %s (%s); stop it or choose "
                      "another directory",
                      key, dir, owner[0] != '\0' ? owner : "unknown process");
}

static loong_status_t write_owner(loong_trainer_t *t, const char *path, int fd)
{
    char owner[OWNER_SIZE];
    char host[256] = "unknown";
    (void)gethostname(host, sizeof(host) - 1);
    int n = snprintf(owner, sizeof(owner), "process %ld on %s\n",
                     (long)getpid(), host);
    LOONG_CHECK(t->ctx, ftruncate(fd, 0) == 0 && pwrite(fd, owner, (size_t)n,
                                                        0) == n,
                LOONG_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    return LOONG_OK;
}

static bool same_file(int a, int b)
{
    struct stat x;
    struct stat y;
    return a >= 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static loong_status_t hold(loong_trainer_t *t, const char *key, int *fd_p)
{
    char path[PATH_SIZE];
    const char *dir = loong_recipe_text(t->recipe, key);
    if (dir == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = loongi_dir_make(t->ctx, dir);
    if (status != LOONG_OK) {
        loongi_error_note(t->ctx, "%s: %s cannot be made", key, dir);
        return status;
    }
    snprintf(path, sizeof(path), "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    LOONG_CHECK(t->ctx, fd >= 0, LOONG_ERR_CANNOT_WRITE,
                "%s: cannot write into %s: %s", key, dir, strerror(errno));
    if (same_file(t->locks[0], fd)) {
        close(fd); /* one directory for both */
        return LOONG_OK;
    }
    *fd_p = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return write_owner(t, path, fd);
    }
    if (errno == EWOULDBLOCK) {
        return locked_by_other(t, key, dir, fd);
    }
    loongi_log(t->ctx, LOONG_LOG_WARN,
               "%s: the file system of %s has no locks (%s): a second run in "
               "it would not be noticed",
               key, dir, strerror(errno));
    return LOONG_OK;
}

loong_status_t loongi_run_dirs_open(loong_trainer_t *t)
{
    if (loong_comm_rank(t->comm) != 0 || t->plan.evaluate_only) {
        return LOONG_OK;
    }
    LOONG_TRY(hold(t, "checkpoint.save", &t->locks[0]));
    return hold(t, "log.dir", &t->locks[1]);
}

void loongi_run_dirs_close(loong_trainer_t *t)
{
    for (int i = 0; i < 2; i++) {
        if (t->locks[i] >= 0) {
            close(t->locks[i]);
            t->locks[i] = -1;
        }
    }
}
