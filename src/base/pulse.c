/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads from /proc what the threads of another process do. Called by the parent
 * that watches over a worker (src/launch/parent.c). Read pulse.h before. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pulse.h"

enum { TEXT = 4096 };

/* False when there is no such file. */
static bool read_proc(const char *path, char text[TEXT])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    ssize_t n = read(file, text, TEXT - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* 'R', 'S', 'D', 'T', ... of a process or thread; 0: unknown. */
static char state_of(const char *folder)
{
    char path[128];
    char text[TEXT];
    snprintf(path, sizeof(path), "%s/stat", folder);
    /* The name stands in brackets and may hold brackets itself. */
    char *end = read_proc(path, text) ? strrchr(text, ')') : NULL;
    return end != NULL && end[1] == ' ' ? end[2] : '\0';
}

/* How often the first thread has given up its processor, or lost it. */
static long long turns_of(int pid)
{
    static const char *const keys[] = {"\nvoluntary_ctxt_switches:",
                                       "\nnonvoluntary_ctxt_switches:"};
    char path[64];
    char text[TEXT];
    long long turns = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    if (!read_proc(path, text)) {
        return 0;
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        const char *at = strstr(text, keys[i]);
        turns += at != NULL ? strtoll(at + strlen(keys[i]), NULL, 10) : 0;
    }
    return turns;
}

/* Calls in which a thread waits for somebody else. All others may be waiting
 * for a file: a file system in user space lets sleep as a lock does. */
static const long waiting_calls[] = {
#ifdef SYS_poll /* older ones, which not every processor has */
    SYS_poll, SYS_select, SYS_epoll_wait, SYS_pause,
#endif
    SYS_futex, SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_nanosleep,
    SYS_clock_nanosleep, SYS_rt_sigtimedwait, SYS_rt_sigsuspend, SYS_wait4,
    SYS_waitid, SYS_recvfrom, SYS_recvmsg, SYS_accept4};

/* Sleeps in one of these; false when that cannot be seen. */
static bool waits(const char *folder)
{
    char path[128];
    char text[TEXT];
    char *end = NULL;
    snprintf(path, sizeof(path), "%s/syscall", folder);
    if (state_of(folder) != 'S' || !read_proc(path, text)) {
        return false;
    }
    long number = strtol(text, &end, 10); /* or "running" */
    bool found = false;
    for (int64_t i = 0; i < LOONG_COUNT_OF(waiting_calls); i++) {
        found = found || (end != text && number == waiting_calls[i]);
    }
    return found;
}

/* One that answers for the process, whatever the process does. */
static bool is_apart(const char *folder)
{
    char path[128];
    char text[TEXT];
    snprintf(path, sizeof(path), "%s/comm", folder);
    return read_proc(path, text) &&
           strcmp(text, LOONG_PULSE_APART "\n") == 0;
}

/* Every thread of it waits. */
static bool all_wait(int pid)
{
    char path[96];
    bool wait = true;
    const struct dirent *entry = NULL;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    while (folder != NULL && wait && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s", pid,
                 entry->d_name);
        wait = entry->d_name[0] == '.' || is_apart(path) || waits(path);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return wait && folder != NULL;
}

bool loongi_pulse_is_stopped(int pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d", pid);
    return state_of(path) == 'T';
}

void loongi_pulse_look(loong_pulse_t *pulse, int pid, double now)
{
    char path[64];
    long long turns = turns_of(pid);
    loong_pulse_state_t state = LOONG_PULSE_BEATS;
    snprintf(path, sizeof(path), "/proc/%d", pid);
    switch (state_of(path)) {
    case 'T':
        state = LOONG_PULSE_STOPPED;
        break;
    case 'S':
        if (turns > 0 && turns == pulse->turns && all_wait(pid)) {
            state = LOONG_PULSE_STILL;
        }
        break;
    case '\0':
        state = LOONG_PULSE_UNKNOWN;
        break;
    default:
        break;
    }
    if (state != pulse->state) {
        pulse->since = now;
    }
    pulse->state = state;
    pulse->turns = turns;
}
