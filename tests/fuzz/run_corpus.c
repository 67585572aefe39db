/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without libFuzzer: each file of the corpus, then a fixed
 * number of mutations, shared among the files, the same in every run.
 *
 *   fuzz_NAME CORPUS_DIR RUNS
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static uint64_t next(uint64_t *state) /* xorshift64 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Changes a few bytes, cuts, or repeats a part. */
static size_t mutate(uint8_t *bytes, size_t size, size_t room, uint64_t *state)
{
    for (uint64_t n = 1 + next(state) % 4; n > 0 && size > 0; n--) {
        size_t at = next(state) % size;
        switch (next(state) % 5) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << (next(state) % 8));
            break;
        case 1:
            bytes[at] = (uint8_t)next(state);
            break;
        case 2: /* the characters that structure text */
            bytes[at] = (uint8_t)("{}[]\":,0-9\\\n"[next(state) % 12]);
            break;
        case 3:
            size = at;
            break;
        default:
            if (size < room) {
                memmove(bytes + at + 1, bytes + at, size - at);
                size++;
            }
        }
    }
    return size;
}

/* Exact size on the heap, so that a sanitizer sees reads behind the end. */
static void run_exact(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy != NULL) {
        memcpy(copy, bytes, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
}

static int run_file(const char *path, long runs)
{
    static uint8_t original[1 << 20], changed[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    size_t size = fread(original, 1, sizeof(original), file);
    uint64_t state = 88172645463325252u + size;
    fclose(file);
    run_exact(original, size);
    for (long i = 0; i < runs; i++) {
        memcpy(changed, original, size);
        size_t length = mutate(changed, size, sizeof(changed), &state);
        run_exact(changed, length);
    }
    return 1;
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int found = argc == 3 ? scandir(argv[1], &entries, is_shown, alphasort) : 0;
    int files = 0;
    if (found <= 0) {
        fprintf(stderr, "usage: %s CORPUS_DIR RUNS\n", argv[0]);
        return 2;
    }
    long runs = strtol(argv[2], NULL, 10) / found;
    for (int i = 0; i < found; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", argv[1], entries[i]->d_name);
        files += run_file(path, runs);
        free(entries[i]);
    }
    free(entries);
    printf("%d files, %ld mutations of each\n", files, runs);
    return files == found ? 0 : 1;
}
