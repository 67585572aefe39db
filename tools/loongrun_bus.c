/* SPDX-License-Identifier: Apache-2.0
 *
 * The name of a file that was truncated while it was mapped: the handler looks
 * the address up in /proc/self/maps, with nothing but system calls. Called by
 * loongrun. Read loongrun_bus.h before. */
#define _GNU_SOURCE
#include "loongrun_bus.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LINE = PATH_MAX + 128 };

/* In one write: other ranks may say the same. */
static void say(const char *path)
{
    static const char before[] = "loongrun: '";
    static const char behind[] =
        "' could not be read where it is mapped (bus error): it was truncated "
        "while in use, or its disk fails\n";
    static char text[LINE + sizeof(before) + sizeof(behind)];
    size_t length = strlen(path);
    memcpy(text, before, sizeof(before) - 1);
    memcpy(text + sizeof(before) - 1, path, length);
    memcpy(text + sizeof(before) - 1 + length, behind, sizeof(behind) - 1);
    ssize_t written = write(STDERR_FILENO, text,
                            length + sizeof(before) + sizeof(behind) - 2);
    (void)written; /* there is nobody left to tell */
}

/* The hexadecimal number at *text, which is moved behind it. */
static uintptr_t number(const char **text)
{
    uintptr_t value = 0;
    for (;; (*text)++) {
        char c = **text;
        if (c >= '0' && c <= '9') {
            value = value * 16 + (uintptr_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        } else {
            return value;
        }
    }
}

/* "begin-end rights offset device inode   /path": true when the mapping holds
 * the address; what follows the last of the five fields is its file. */
static int is_of_line(const char *line, uintptr_t address)
{
    uintptr_t begin = number(&line);
    line++;
    uintptr_t end = number(&line);
    return address >= begin && address < end;
}

static int read_line(int fd, char *line, size_t size)
{
    size_t length = 0;
    char c = 0;
    while (c != '\n' && read(fd, &c, 1) == 1) {
        if (c != '\n' && length + 1 < size) {
            line[length++] = c;
        }
    }
    line[length] = '\0';
    return c == '\n';
}

static void on_bus_error(int number_, siginfo_t *info, void *context)
{
    static char line[LINE];
    uintptr_t address = (uintptr_t)info->si_addr;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    (void)number_;
    (void)context;
    while (fd >= 0 && read_line(fd, line, sizeof(line))) {
        const char *path = strchr(line, '/');
        if (path != NULL && is_of_line(line, address)) {
            say(path);
        }
    }
    signal(SIGBUS, SIG_DFL); /* and the instruction is met once more */
}

void bus_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
