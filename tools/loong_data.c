/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data: data sets, from text to what a recipe names. One command a
 * file; this one only chooses. Read loong_data.h before. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loong/nearest.h"
#include "loong/progress.h"
#include "loong_data.h"

static const data_command_t commands[] = {
    {"chat", "what a run would learn of conversations", data_chat},
    {"index", "text or JSON lines to an indexed data set (.bin, .idx)",
     data_index},
    {"inspect", "what is in an indexed data set, and whether it is sound",
     data_inspect},
    {"merge", "data sets as one, documents shuffled, or a part of them",
     data_merge},
    {"show", "a page of what a recipe's run would read", data_show},
    {"tokenizer", "train a tokenizer; text to ids and back", data_tokenizer},
    {"webdataset", "records with pictures and videos as tar shards",
     data_webdataset},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* A bar may stand there. */
static void print_line(void *user, loong_log_level_t level, const char *line)
{
    fprintf(stderr, "%s%s%s\n", loong_progress_wipe(user),
            level == LOONG_LOG_WARN ? "warning: " : "", line);
}

int data_fail(const loong_context_t *ctx, loong_status_t status)
{
    fprintf(stderr, "loong-data: %s\n%s\n", loong_status_text(status),
            loong_context_error(ctx));
    return (int)loong_exit_code_from_status(status);
}

int data_usage(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "loong-data %s: ", command);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nloong-data %s --help lists the options\n", command);
    va_end(args);
    return LOONG_EXIT_USAGE;
}

/* mkdir -p of everything in front of the last slash. */
static bool make_parents(char *path)
{
    for (char *c = path + 1; *path != '\0' && *c != '\0'; c++) {
        if (*c != '/') {
            continue;
        }
        *c = '\0';
        bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *c = '/';
        if (!made) {
            return false;
        }
    }
    return true;
}

bool data_can_write(const char *command, const char *path)
{
    char *copy = strdup(path);
    bool can = copy != NULL && make_parents(copy) &&
               access(dirname(copy), W_OK | X_OK) == 0;
    if (!can) {
        fprintf(stderr, "loong-data %s: cannot write '%s': %s\n", command,
                path, strerror(errno));
    }
    free(copy);
    return can;
}

bool data_integer(const char *command, const char *option, const char *text,
                  const int64_t range[2], int64_t *value_p)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < range[0] ||
        value > range[1]) {
        data_usage(command,
                   "--%s '%s': must be a whole number from %" PRId64
                   " to %" PRId64,
                   option, text, range[0], range[1]);
        return false;
    }
    *value_p = value;
    return true;
}

static int help(FILE *out, int code)
{
    fprintf(out, "usage: loong-data COMMAND [OPTION]...\n\n");
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out, "\nloong-data COMMAND --help lists the options.\n");
    return code;
}

int main(int argc, char **argv)
{
    loong_progress_t screen;
    loong_context_params_t params = {print_line, &screen, LOONG_LOG_INFO};
    loong_context_t *ctx = NULL;
    loong_progress_detect(STDERR_FILENO, &screen);
    if (argc < 2) {
        return help(stderr, LOONG_EXIT_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return help(stdout, LOONG_EXIT_OK);
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            loong_status_t status = loong_context_create(&params, &ctx);
            if (status != LOONG_OK) {
                fprintf(stderr, "loong-data: %s\n", loong_status_text(status));
                return (int)loong_exit_code_from_status(status);
            }
            char name[64]; /* for what getopt says */
            snprintf(name, sizeof(name), "loong-data %s", argv[1]);
            argv[1] = name;
            int code = commands[i].run(ctx, argc - 1, argv + 1);
            loong_context_destroy(&ctx);
            return code;
        }
    }
    const char *near =
        loong_nearest(argv[1], commands, COMMANDS, sizeof(commands[0]));
    fprintf(stderr, "loong-data: no command '%s'%s%s%s\n", argv[1],
            near != NULL ? "; did you mean " : "", near != NULL ? near : "",
            near != NULL ? "?" : "");
    return help(stderr, LOONG_EXIT_USAGE);
}
