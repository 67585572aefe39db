/* SPDX-License-Identifier: Apache-2.0
 *
 * The file: a first line, then lines of
 *
 *     CRC32 of the rest, eight words, key
 *
 * all numbers in hexadecimal, with one space behind each. Called by
 * choose_cuda.c. Read algorithms.h before. */
#include "algorithms.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "crc.h"
#include "file.h"

static const char head[] = "algorithms of matrix products 1\n";

enum { CRC_DIGITS = 8, WORD_DIGITS = 16, WORDS = 8,
       KEY_AT = CRC_DIGITS + 1 + WORDS * (WORD_DIGITS + 1) };

/* The text of a file, cut into lines. */
typedef struct lines {
    char *text; /* "" where there is no file */
    char *next;
    bool foreign; /* it is of another kind */
} lines_t;

static loong_status_t open_lines(loong_context_t *ctx, const char *path,
                                 lines_t *l)
{
    size_t length = 0;
    size_t first = sizeof(head) - 1;
    memset(l, 0, sizeof(*l));
    if (!loongi_file_exists(path)) { /* a device would be replaced */
        LOONG_CHECK(ctx, path[0] != '\0' && access(path, F_OK) != 0,
                    LOONG_ERR_IO,
                    "gemm.algorithms_file: '%s' is not a regular file", path);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_file_read(ctx, path, &l->text, &length));
    l->foreign = length > 0 && (length < first ||
                                memcmp(l->text, head, first) != 0);
    l->next = l->foreign || length == 0 ? NULL : l->text + first;
    return LOONG_OK;
}

/* The next line without its end, which is a string then; NULL: no more. */
static char *next_line(lines_t *l)
{
    char *line = l->next;
    if (line == NULL || line[0] == '\0') {
        return NULL;
    }
    char *end = strchr(line, '\n');
    l->next = end != NULL ? end + 1 : NULL;
    if (end != NULL) {
        *end = '\0';
    }
    return line;
}

static bool read_hex(const char *text, int digits, uint64_t *value_p)
{
    uint64_t value = 0;
    for (int i = 0; i < digits; i++) {
        static const char all[] = "0123456789abcdef";
        const char *at = text[i] != '\0' ? strchr(all, text[i]) : NULL;
        if (at == NULL) {
            return false;
        }
        value = value << 4 | (uint64_t)(at - all);
    }
    *value_p = value;
    return text[digits] == ' ';
}

/* The key of a line, NULL: it is damaged. */
static const char *read_line(const char *line, loong_algorithm_t *a)
{
    uint64_t crc = 0;
    if (strlen(line) <= KEY_AT || !read_hex(line, CRC_DIGITS, &crc)) {
        return NULL;
    }
    const char *rest = line + CRC_DIGITS + 1;
    if (loongi_crc(LOONG_CRC32, rest, strlen(rest)) != (uint32_t)crc) {
        return NULL;
    }
    for (int i = 0; i < WORDS; i++) {
        if (!read_hex(rest + i * (WORD_DIGITS + 1), WORD_DIGITS,
                      &a->word[i])) {
            return NULL;
        }
    }
    return line + KEY_AT;
}

loong_status_t loongi_algorithms_find(loong_context_t *ctx, const char *path,
                                      const char *key,
                                      loong_algorithm_t *algorithm_p,
                                      bool *found_p)
{
    lines_t lines;
    bool found = false;
    LOONG_TRY(open_lines(ctx, path, &lines));
    for (char *line = next_line(&lines); line != NULL && !found;
         line = next_line(&lines)) {
        loong_algorithm_t a;
        const char *of = read_line(line, &a);
        found = of != NULL && strcmp(of, key) == 0;
        if (found) {
            *algorithm_p = a;
        }
    }
    loongi_free(ctx, lines.text);
    *found_p = found;
    return LOONG_OK;
}

static loong_status_t name_beside(loong_context_t *ctx, const char *path,
                                  const char *suffix, loong_text_t *name)
{
    *name = loongi_text_begin(ctx);
    loongi_text_printf(name, "%s%s", path, suffix);
    return name->status;
}

loong_status_t loongi_algorithms_lock(loong_context_t *ctx, const char *path,
                                      int *lock_p)
{
    loong_text_t name;
    loong_status_t status = name_beside(ctx, path, ".lock", &name);
    int fd = -1;
    if (status == LOONG_OK) {
        fd = open(loongi_text_get(&name), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        int locked = fd;
        while (locked >= 0 && (locked = flock(fd, LOCK_EX)) < 0 &&
               errno == EINTR) {
            locked = fd;
        }
        if (locked < 0) {
            status = LOONG_FAIL(ctx, LOONG_ERR_IO, "cannot lock '%s': %s",
                                loongi_text_get(&name), strerror(errno));
        }
    }
    loongi_text_free(&name);
    if (status != LOONG_OK) {
        loongi_algorithms_unlock(fd);
        return status;
    }
    *lock_p = fd;
    return LOONG_OK;
}

void loongi_algorithms_unlock(int lock)
{
    if (lock >= 0) {
        close(lock);
    }
}

static void print_line(loong_text_t *to, const char *key,
                       const loong_algorithm_t *a)
{
    char words[WORDS * (WORD_DIGITS + 1) + 1];
    loong_text_t rest = loongi_text_begin(to->ctx);
    for (int i = 0; i < WORDS; i++) {
        snprintf(words + i * (WORD_DIGITS + 1), WORD_DIGITS + 2,
                 "%016" PRIx64 " ", a->word[i]);
    }
    loongi_text_printf(&rest, "%s%s", words, key);
    if (rest.status == LOONG_OK) {
        loongi_text_printf(to, "%08" PRIx32 " %s\n",
                           loongi_crc(LOONG_CRC32, rest.data, rest.length),
                           rest.data);
    } else {
        to->status = rest.status;
    }
    loongi_text_free(&rest);
}

/* The lines that are kept: those of other keys. */
static void copy_lines(loong_context_t *ctx, const char *path, lines_t *lines,
                       const char *key, loong_text_t *to)
{
    int64_t number = 1;
    for (char *line = next_line(lines); line != NULL;
         line = next_line(lines)) {
        loong_algorithm_t a;
        const char *of = read_line(line, &a);
        number++;
        if (of == NULL) {
            loongi_log(ctx, LOONG_LOG_WARN,
                       "%s:%lld: damaged, the product is measured again",
                       path, (long long)number);
        } else if (strcmp(of, key) != 0) {
            loongi_text_printf(to, "%s\n", line);
        }
    }
}

static loong_status_t put_aside(loong_context_t *ctx, const char *path)
{
    loong_text_t name;
    loong_status_t status = name_beside(ctx, path, ".bad", &name);
    if (status == LOONG_OK) {
        loongi_log(ctx, LOONG_LOG_WARN,
                   "%s is no file of algorithms (its first line is not '%.*s'):"
                   " it becomes %s, products are measured again",
                   path, (int)sizeof(head) - 2, head, loongi_text_get(&name));
        status = loongi_file_rename(ctx, path, loongi_text_get(&name));
    }
    loongi_text_free(&name);
    return status;
}

loong_status_t loongi_algorithms_put(loong_context_t *ctx, const char *path,
                                     const char *key,
                                     const loong_algorithm_t *algorithm)
{
    lines_t lines;
    loong_text_t text = loongi_text_begin(ctx);
    LOONG_TRY(open_lines(ctx, path, &lines));
    loong_status_t status = LOONG_OK;
    if (lines.foreign) {
        status = put_aside(ctx, path);
    }
    loongi_text_printf(&text, "%s", head);
    copy_lines(ctx, path, &lines, key, &text);
    print_line(&text, key, algorithm);
    if (status == LOONG_OK) {
        status = text.status;
    }
    if (status == LOONG_OK) {
        status = loongi_file_write(ctx, path, text.data, text.length);
    }
    loongi_text_free(&text);
    loongi_free(ctx, lines.text);
    return status;
}
