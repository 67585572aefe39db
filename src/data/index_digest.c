/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest beside an index. Called by dataset.c. Read index_digest.h
 * before. */
#include "index_digest.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

enum { LINE = 640, YOUNG_SECONDS = 1 };

bool loongi_digest_same_file(const loong_index_digest_t *a,
                             const loong_index_digest_t *b)
{
    return a->size == b->size && a->changed_s == b->changed_s &&
           a->changed_ns == b->changed_ns;
}

static int body_of(const loong_index_digest_t *d, char *line)
{
    int n = snprintf(line, LINE,
                     "loong index 2: %" PRIu64 " bytes, changed %" PRId64
                     ".%09" PRId64 ", %" PRId64 " tokens, hash %016" PRIx64
                     ", starts",
                     d->size, d->changed_s, d->changed_ns, d->tokens, d->hash);
    for (int k = 0; k < LOONG_INDEX_WINDOWS; k++) {
        n += snprintf(line + n, (size_t)(LINE - n), " %" PRId64, d->starts[k]);
    }
    return n + snprintf(line + n, (size_t)(LINE - n), ", check ");
}

static bool parse(const char *line, loong_index_digest_t *d)
{
    int at = 0;
    if (sscanf(line,
               "loong index 2: %" SCNu64 " bytes, changed %" SCNd64 ".%" SCNd64
               ", %" SCNd64 " tokens, hash %" SCNx64 ", starts%n",
               &d->size, &d->changed_s, &d->changed_ns, &d->tokens, &d->hash,
               &at) != 5 || at == 0) {
        return false;
    }
    for (int k = 0; k < LOONG_INDEX_WINDOWS; k++) {
        int read = 0;
        if (sscanf(line + at, " %" SCNd64 "%n", &d->starts[k], &read) != 1) {
            return false;
        }
        at += read;
    }
    return true;
}

/* The whole line. */
static int line_of(const loong_index_digest_t *d, char *line)
{
    int n = body_of(d, line);
    uint64_t check = XXH3_64bits(line, (size_t)n);
    return n +
           snprintf(line + n, (size_t)(LINE - n), "%016" PRIx64 "\n", check);
}

bool loongi_digest_read(const char *idx_path, loong_index_digest_t *digest_p)
{
    char path[PATH_MAX];
    char line[LINE] = "";
    char again[LINE];
    loong_index_digest_t d;
    int n = snprintf(path, sizeof(path), "%s.digest", idx_path);
    FILE *file = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return false;
    }
    bool read = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    if (!read || !parse(line, &d)) {
        return false;
    }
    line_of(&d, again);
    if (strcmp(line, again) != 0) {
        return false;
    }
    *digest_p = d;
    return true;
}

void loongi_digest_write(const char *idx_path,
                         const loong_index_digest_t *digest)
{
    char path[PATH_MAX];
    char made[PATH_MAX];
    char line[LINE];
    int n = line_of(digest, line);
    if (digest->changed_s + YOUNG_SECONDS >= (int64_t)time(NULL) ||
        snprintf(path, sizeof(path), "%s.digest", idx_path) >= PATH_MAX ||
        snprintf(made, sizeof(made), "%s.digest.%ld", idx_path,
                 (long)getpid()) >= PATH_MAX) {
        return;
    }
    FILE *file = fopen(made, "wxe");
    if (file == NULL) {
        return;
    }
    bool written = fwrite(line, 1, (size_t)n, file) == (size_t)n;
    written = fclose(file) == 0 && written;
    if (!written || rename(made, path) != 0) {
        (void)unlink(made);
    }
}
