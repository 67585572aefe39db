/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an indexed data set: map, validate, look up, copy out. Called by
 * source_tokens.c and dataset_merge.c. Read index_format.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base.h"
#include "index_digest.h"
#include "index_format.h"
#include "loong/dataset.h"

/* A file mapped read-only; bytes is NULL when size is 0. */
typedef struct mapped {
    char *path;
    const uint8_t *bytes;
    size_t size;
    struct timespec changed;
} mapped_t;

struct loong_dataset {
    loong_context_t *ctx;
    loong_dataset_info_t info;
    char *prefix;
    mapped_t bin;
    mapped_t idx;
    mapped_t mask;
    int64_t element;        /* bytes of one id in bin */
    const uint8_t *lengths; /* i32 [sequences], unaligned */
    const uint8_t *offsets; /* i64 [sequences] */
    const uint8_t *starts;  /* i64 [documents + 1] */
};

static int64_t length_of(const loong_dataset_t *ds, int64_t sequence)
{
    return (int32_t)index_get(ds->lengths + 4 * sequence, 4);
}

static int64_t offset_of(const loong_dataset_t *ds, int64_t sequence)
{
    return (int64_t)index_get(ds->offsets + 8 * sequence, 8);
}

static int64_t start_of(const loong_dataset_t *ds, int64_t document)
{
    return (int64_t)index_get(ds->starts + 8 * document, 8);
}

static loong_status_t map_bytes(loong_context_t *ctx, int fd, mapped_t *file)
{
    struct stat info;
    LOONG_CHECK(ctx, fstat(fd, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", file->path, strerror(errno));
    LOONG_CHECK(ctx, S_ISREG(info.st_mode), LOONG_ERR_IO,
                "'%s' is not a regular file", file->path);
    if (info.st_size == 0) {
        return LOONG_OK;
    }
    void *bytes =
        mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    LOONG_CHECK(ctx, bytes != MAP_FAILED, LOONG_ERR_IO, "cannot map '%s': %s",
                file->path, strerror(errno));
    file->bytes = bytes;
    file->size = (size_t)info.st_size;
    file->changed = info.st_ctim;
    return LOONG_OK;
}

static loong_status_t map_file(loong_context_t *ctx, const char *prefix,
                               const char *suffix, mapped_t *file)
{
    size_t size = strlen(prefix) + strlen(suffix) + 1;
    LOONG_TRY(loongi_alloc(ctx, size, "data set path", &file->path));
    memcpy(file->path, prefix, strlen(prefix));
    memcpy(file->path + strlen(prefix), suffix, strlen(suffix) + 1);
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int code = errno;
        return LOONG_FAIL(ctx,
                          code == ENOENT ? LOONG_ERR_NOT_FOUND : LOONG_ERR_IO,
                          "cannot open '%s': %s", file->path, strerror(code));
    }
    loong_status_t status = map_bytes(ctx, fd, file);
    close(fd);
    return status;
}

static void unmap_file(loong_context_t *ctx, mapped_t *file)
{
    if (file->bytes != NULL) {
        munmap((void *)(uintptr_t)file->bytes, file->size);
    }
    loongi_free(ctx, file->path);
}

static loong_status_t check_header(loong_dataset_t *ds)
{
    const char *path = ds->idx.path;
    const uint8_t *head = ds->idx.bytes;
    LOONG_CHECK(ds->ctx, ds->idx.size >= INDEX_HEADER, LOONG_ERR_FORMAT,
                "'%s' is truncated: %zu bytes, the header alone takes %d", path,
                ds->idx.size, INDEX_HEADER);
    LOONG_CHECK(ds->ctx, memcmp(head, INDEX_MAGIC, INDEX_MAGIC_SIZE) == 0,
                LOONG_ERR_FORMAT,
                "'%s' is not a Megatron index: it does not begin with MMIDIDX",
                path);
    uint64_t version = index_get(head + INDEX_VERSION_AT, 8);
    LOONG_CHECK(ds->ctx, version == INDEX_VERSION, LOONG_ERR_FORMAT,
                "'%s' has version %" PRIu64 ", supported is %d", path, version,
                INDEX_VERSION);
    int code = head[INDEX_DTYPE_AT];
    LOONG_CHECK(ds->ctx, code >= 1 && code < LOONG_COUNT_OF(index_dtypes),
                LOONG_ERR_FORMAT, "'%s' has type code %d, known are 1 to %d",
                path, code, (int)LOONG_COUNT_OF(index_dtypes) - 1);
    ds->info.dtype = index_dtypes[code];
    ds->element = (int64_t)loong_dtype_size(ds->info.dtype);
    return LOONG_OK;
}

/* The two counts against the size of the file, then the table addresses. */
static loong_status_t check_tables(loong_dataset_t *ds)
{
    const char *path = ds->idx.path;
    uint64_t sequences = index_get(ds->idx.bytes + INDEX_SEQUENCES_AT, 8);
    uint64_t starts = index_get(ds->idx.bytes + INDEX_STARTS_AT, 8);
    uint64_t room = ds->idx.size - INDEX_HEADER;
    LOONG_CHECK(ds->ctx,
                sequences <= room / 12 && starts <= (room - 12 * sequences) / 8,
                LOONG_ERR_FORMAT,
                "'%s' is truncated: %zu bytes do not hold the %" PRIu64
                " sequences and %" PRIu64 " document starts of its header",
                path, ds->idx.size, sequences, starts);
    uint64_t rest = room - 12 * sequences - 8 * starts;
    LOONG_CHECK(ds->ctx, rest != sequences || rest == 0, LOONG_ERR_UNSUPPORTED,
                "'%s' holds sequence modes: multimodal indices are not "
                "supported",
                path);
    LOONG_CHECK(ds->ctx, rest == 0, LOONG_ERR_FORMAT,
                "'%s' has %" PRIu64 " bytes after its last table", path, rest);
    LOONG_CHECK(ds->ctx, starts >= 1, LOONG_ERR_FORMAT,
                "'%s' has no document starts, at least one is required", path);
    ds->info.sequences = (int64_t)sequences;
    ds->info.documents = (int64_t)starts - 1;
    ds->lengths = ds->idx.bytes + INDEX_HEADER;
    ds->offsets = ds->lengths + 4 * sequences;
    ds->starts = ds->offsets + 8 * sequences;
    return LOONG_OK;
}

static loong_status_t check_sequences(const loong_dataset_t *ds,
                                      int64_t *tokens_p)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < ds->info.sequences; i++) {
        LOONG_CHECK(ds->ctx, length_of(ds, i) >= 0, LOONG_ERR_FORMAT,
                    "'%s': sequence %" PRId64 " has length %" PRId64,
                    ds->idx.path, i, length_of(ds, i));
        LOONG_CHECK(ds->ctx, offset_of(ds, i) == tokens * ds->element,
                    LOONG_ERR_FORMAT,
                    "'%s': sequence %" PRId64 " begins at byte %" PRId64
                    ", the sequences before it end at %" PRId64,
                    ds->idx.path, i, offset_of(ds, i), tokens * ds->element);
        tokens += length_of(ds, i);
    }
    *tokens_p = tokens;
    return LOONG_OK;
}

static loong_status_t check_documents(const loong_dataset_t *ds)
{
    int64_t last = 0;
    for (int64_t d = 0; d <= ds->info.documents; d++) {
        int64_t start = start_of(ds, d);
        LOONG_CHECK(ds->ctx, d > 0 || start == 0, LOONG_ERR_FORMAT,
                    "'%s': the first document starts at sequence %" PRId64
                    ", must be 0",
                    ds->idx.path, start);
        LOONG_CHECK(ds->ctx, start >= last && start <= ds->info.sequences,
                    LOONG_ERR_FORMAT,
                    "'%s': document %" PRId64 " starts at sequence %" PRId64
                    ", allowed is %" PRId64 " to %" PRId64,
                    ds->idx.path, d, start, last, ds->info.sequences);
        last = start;
    }
    LOONG_CHECK(ds->ctx, last == ds->info.sequences, LOONG_ERR_FORMAT,
                "'%s': the documents end at sequence %" PRId64
                ", the sequences at %" PRId64,
                ds->idx.path, last, ds->info.sequences);
    return LOONG_OK;
}

/* The first token of a document of an index that is right. */
static int64_t first_token(const loong_dataset_t *ds, int64_t document)
{
    int64_t sequence = start_of(ds, document);
    return sequence < ds->info.sequences ? offset_of(ds, sequence) / ds->element
                                         : ds->info.tokens;
}

/* Of each window, ended by each document in turn. */
static void count_starts(const loong_dataset_t *ds,
                         int64_t most[LOONG_INDEX_WINDOWS])
{
    int64_t first[LOONG_INDEX_WINDOWS] = {0};
    memset(most, 0, sizeof(*most) * LOONG_INDEX_WINDOWS);
    for (int64_t d = 0; d < ds->info.documents; d++) {
        int64_t token = first_token(ds, d);
        for (int k = 0; k < LOONG_INDEX_WINDOWS; k++) {
            int64_t window = (int64_t)LOONG_INDEX_WINDOW << k;
            while (token - first_token(ds, first[k]) >= window) {
                first[k]++;
            }
            most[k] = LOONG_MAX(most[k], d - first[k] + 1);
        }
    }
}

int64_t loong_dataset_most_documents(const loong_dataset_t *ds, int64_t tokens)
{
    int k = 0;
    while (k + 1 < LOONG_INDEX_WINDOWS &&
           ((int64_t)LOONG_INDEX_WINDOW << k) < tokens) {
        k++;
    }
    int64_t window = (int64_t)LOONG_INDEX_WINDOW << k;
    int64_t windows = (tokens + window - 1) / window;
    return LOONG_MIN(tokens, 1 + windows * ds->info.index.starts[k]);
}

static loong_status_t check_sizes(loong_dataset_t *ds)
{
    size_t promised = (size_t)(ds->info.tokens * ds->element);
    LOONG_CHECK(ds->ctx, ds->bin.size == promised, LOONG_ERR_FORMAT,
                "'%s' has %zu bytes, its index promises %zu (%" PRId64
                " tokens of %s)%s",
                ds->bin.path, ds->bin.size, promised, ds->info.tokens,
                loong_dtype_name(ds->info.dtype),
                ds->bin.size < promised ? ": truncated" : "");
    LOONG_CHECK(
        ds->ctx, !ds->info.has_mask || ds->mask.size == (size_t)ds->info.tokens,
        LOONG_ERR_FORMAT,
        "'%s' has %zu bytes, must have one for each of %" PRId64 " tokens",
        ds->mask.path, ds->mask.size, ds->info.tokens);
    return LOONG_OK;
}

/* Of an index that was checked: what opening itself relies on. */
static loong_status_t check_ends(const loong_dataset_t *ds)
{
    int64_t last = ds->info.sequences - 1;
    int64_t end =
        last < 0 ? 0 : offset_of(ds, last) + length_of(ds, last) * ds->element;
    LOONG_CHECK(ds->ctx,
                start_of(ds, 0) == 0 &&
                    start_of(ds, ds->info.documents) == ds->info.sequences &&
                    end == ds->info.tokens * ds->element &&
                    (last < 0 || offset_of(ds, 0) == 0),
                LOONG_ERR_FORMAT,
                "'%s' does not begin and end as when it was checked",
                ds->idx.path);
    return LOONG_OK;
}

/* Completely, unless that has been done since the file was changed last. */
static loong_status_t check_index(loong_dataset_t *ds,
                                  const loong_index_digest_t *known)
{
    loong_index_digest_t *digest = &ds->info.index;
    loong_index_digest_t kept;
    digest->size = ds->idx.size;
    digest->changed_s = (int64_t)ds->idx.changed.tv_sec;
    digest->changed_ns = (int64_t)ds->idx.changed.tv_nsec;
    if (known == NULL || !loongi_digest_same_file(known, digest)) {
        bool found = loongi_digest_read(ds->idx.path, &kept);
        known = found && loongi_digest_same_file(&kept, digest) ? &kept : NULL;
    }
    if (known != NULL) {
        *digest = *known;
        ds->info.tokens = known->tokens;
        return check_ends(ds);
    }
    LOONG_TRY(check_sequences(ds, &ds->info.tokens));
    LOONG_TRY(check_documents(ds));
    digest->tokens = ds->info.tokens;
    digest->hash = XXH3_64bits(ds->idx.bytes, ds->idx.size);
    count_starts(ds, digest->starts);
    loongi_digest_write(ds->idx.path, digest);
    return LOONG_OK;
}

/* Whole index, sizes, and up to 64 windows of the content: reading all of a
 * large .bin at every start would cost minutes. */
static uint64_t hash_content(const loong_dataset_t *ds)
{
    enum { WINDOWS = 64, WINDOW = 4096 };
    const mapped_t *files[] = {&ds->bin, &ds->mask};
    uint64_t hash = ds->info.index.hash;
    for (int f = 0; f < 2; f++) {
        size_t size = files[f]->size;
        hash = XXH3_64bits_withSeed(&size, sizeof(size), hash);
        for (size_t w = 0; size > 0 && w < WINDOWS; w++) {
            size_t room = size > WINDOW ? size - WINDOW : 0;
            size_t at = room / (WINDOWS - 1) * w;
            hash = XXH3_64bits_withSeed(files[f]->bytes + at,
                                        LOONG_MIN(WINDOW, size - at), hash);
        }
    }
    return hash;
}

static loong_status_t open_mask(loong_dataset_t *ds)
{
    size_t size = strlen(ds->prefix) + sizeof(".mask.bin");
    char *path = NULL;
    LOONG_TRY(loongi_alloc(ds->ctx, size, "data set path", &path));
    memcpy(path, ds->prefix, strlen(ds->prefix));
    memcpy(path + strlen(ds->prefix), ".mask.bin", sizeof(".mask.bin"));
    ds->info.has_mask = access(path, F_OK) == 0;
    loongi_free(ds->ctx, path);
    if (!ds->info.has_mask) {
        return LOONG_OK;
    }
    return map_file(ds->ctx, ds->prefix, ".mask.bin", &ds->mask);
}

static loong_status_t open_all(loong_dataset_t *ds, const char *prefix,
                               const loong_index_digest_t *known)
{
    LOONG_TRY(loongi_strdup(ds->ctx, prefix, &ds->prefix));
    ds->info.prefix = ds->prefix;
    LOONG_TRY(map_file(ds->ctx, prefix, ".idx", &ds->idx));
    LOONG_TRY(map_file(ds->ctx, prefix, ".bin", &ds->bin));
    LOONG_TRY(open_mask(ds));
    LOONG_TRY(check_header(ds));
    LOONG_TRY(check_tables(ds));
    LOONG_TRY(check_index(ds, known));
    LOONG_TRY(check_sizes(ds));
    ds->info.hash = hash_content(ds);
    return LOONG_OK;
}

loong_status_t loong_dataset_create_known(loong_context_t *ctx,
                                          const char *prefix,
                                          const loong_index_digest_t *known,
                                          loong_dataset_t **dataset_p)
{
    loong_dataset_t *ds = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*ds), "data set", &ds));
    ds->ctx = ctx;
    loong_status_t status = open_all(ds, prefix, known);
    if (status != LOONG_OK) {
        loong_dataset_destroy(&ds);
        return status;
    }
    *dataset_p = ds;
    return LOONG_OK;
}

loong_status_t loong_dataset_create(loong_context_t *ctx, const char *prefix,
                                    loong_dataset_t **dataset_p)
{
    return loong_dataset_create_known(ctx, prefix, NULL, dataset_p);
}

loong_status_t loong_dataset_check_index(const loong_dataset_t *ds)
{
    int64_t tokens = 0;
    LOONG_TRY(check_sequences(ds, &tokens));
    LOONG_TRY(check_documents(ds));
    uint64_t hash = XXH3_64bits(ds->idx.bytes, ds->idx.size);
    LOONG_CHECK(ds->ctx,
                tokens == ds->info.tokens && hash == ds->info.index.hash,
                LOONG_ERR_FORMAT,
                "'%s' is not what was checked: hash %016" PRIx64
                ", its digest says %016" PRIx64,
                ds->idx.path, hash, ds->info.index.hash);
    return LOONG_OK;
}

void loong_dataset_destroy(loong_dataset_t **dataset)
{
    loong_dataset_t *ds = *dataset;
    if (ds == NULL) {
        return;
    }
    unmap_file(ds->ctx, &ds->idx);
    unmap_file(ds->ctx, &ds->bin);
    unmap_file(ds->ctx, &ds->mask);
    loongi_free(ds->ctx, ds->prefix);
    loongi_free(ds->ctx, ds);
    *dataset = NULL;
}

void loong_dataset_get_info(const loong_dataset_t *dataset,
                            loong_dataset_info_t *info)
{
    *info = dataset->info;
}

/* The two entries of a sequence fit those of the next. */
static bool sequence_fits(const loong_dataset_t *ds, int64_t sequence)
{
    int64_t offset = offset_of(ds, sequence);
    int64_t end = sequence + 1 < ds->info.sequences
                      ? offset_of(ds, sequence + 1)
                      : ds->info.tokens * ds->element;
    return offset >= 0 && offset % ds->element == 0 && offset <= end &&
           end <= ds->info.tokens * ds->element &&
           end - offset == length_of(ds, sequence) * ds->element;
}

int64_t loong_dataset_get_start(const loong_dataset_t *ds, int64_t document)
{
    int64_t sequence = start_of(ds, document);
    int64_t before = document > 0 ? start_of(ds, document - 1) : 0;
    if (sequence == ds->info.sequences && before <= sequence) {
        return ds->info.tokens;
    }
    if (sequence < before || sequence > ds->info.sequences ||
        !sequence_fits(ds, sequence)) {
        (void)LOONG_FAIL(ds->ctx, LOONG_ERR_FORMAT,
                         "'%s' has changed since it was checked, or its disk "
                         "fails: document %" PRId64 " starts at sequence "
                         "%" PRId64 " of %" PRId64 ", the one before it at "
                         "%" PRId64 ", or the sequence does not end where the "
                         "next one begins",
                         ds->idx.path, document, sequence, ds->info.sequences,
                         before);
        return -1;
    }
    return offset_of(ds, sequence) / ds->element;
}

int64_t loong_dataset_find_document(const loong_dataset_t *ds, int64_t token)
{
    int64_t low = 0;                   /* starts at or before token */
    int64_t high = ds->info.documents; /* starts after it */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        int64_t start = loong_dataset_get_start(ds, middle);
        if (start < 0) {
            return -1;
        }
        if (start <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static loong_status_t check_range(const loong_dataset_t *ds, int64_t token,
                                  int64_t count)
{
    LOONG_CHECK(ds->ctx,
                token >= 0 && count >= 0 && token <= ds->info.tokens &&
                    count <= ds->info.tokens - token,
                LOONG_ERR_ARG,
                "tokens %" PRId64 " to %" PRId64 " of '%s', which has %" PRId64,
                token, token + count, ds->prefix, ds->info.tokens);
    return LOONG_OK;
}

/* Values of the file's type as i32; what no i32 holds becomes -1, which is
 * outside every vocabulary. */
#define COPY_IDS(type_, valid_)                                           \
    for (int64_t i = 0; i < count; i++) {                                 \
        type_ value;                                                      \
        memcpy(&value, from + i * (int64_t)sizeof(value), sizeof(value)); \
        ids[i] = (valid_) ? (int32_t)value : -1;                          \
    }                                                                     \
    break

static void copy_ids(const loong_dataset_t *ds, int64_t token, int64_t count,
                     int32_t *ids)
{
    const uint8_t *from = ds->bin.bytes + token * ds->element;
    switch (ds->info.dtype) {
    case LOONG_U8:
        COPY_IDS(uint8_t, true);
    case LOONG_I8:
        COPY_IDS(int8_t, true);
    case LOONG_U16:
        COPY_IDS(uint16_t, true);
    case LOONG_I16:
        COPY_IDS(int16_t, true);
    case LOONG_I32:
        COPY_IDS(int32_t, true);
    case LOONG_I64:
        COPY_IDS(int64_t, value >= 0 && value <= INT32_MAX);
    case LOONG_F32:
        COPY_IDS(float,
                 value >= 0 && value < 0x1p31f && value == floorf(value));
    default:
        COPY_IDS(double, value >= 0 && value < 0x1p31 && value == floor(value));
    }
}

/* The value as the file has it, for messages. */
static double raw_value(const loong_dataset_t *ds, int64_t token)
{
    const uint8_t *from = ds->bin.bytes + token * ds->element;
    int64_t wide;
    float single;
    double value;
    int32_t id;
    switch (ds->info.dtype) {
    case LOONG_I64:
        memcpy(&wide, from, sizeof(wide));
        return (double)wide;
    case LOONG_F32:
        memcpy(&single, from, sizeof(single));
        return (double)single;
    case LOONG_F64:
        memcpy(&value, from, sizeof(value));
        return value;
    default:
        copy_ids(ds, token, 1, &id);
        return (double)id;
    }
}

static loong_status_t fail_value(const loong_dataset_t *ds,
                                 const mapped_t *file, int64_t token,
                                 double value, int64_t limit)
{
    int64_t document = loong_dataset_find_document(ds, token);
    return LOONG_FAIL(
        ds->ctx, LOONG_ERR_FORMAT,
        "'%s', document %" PRId64 ", position %" PRId64 " (token %" PRId64
        "): value %.17g, allowed is 0 to %" PRId64,
        file->path, document, token - loong_dataset_get_start(ds, document),
        token, value, limit - 1);
}

loong_status_t loong_dataset_read(const loong_dataset_t *ds, int64_t token,
                                  int64_t count, int64_t vocab_size,
                                  int32_t *ids)
{
    LOONG_TRY(check_range(ds, token, count));
    if (count == 0) {
        return LOONG_OK;
    }
    copy_ids(ds, token, count, ids);
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        bad += ids[i] < 0 || ids[i] >= vocab_size;
    }
    for (int64_t i = 0; bad > 0 && i < count; i++) {
        if (ids[i] < 0 || ids[i] >= vocab_size) {
            return fail_value(ds, &ds->bin, token + i, raw_value(ds, token + i),
                              vocab_size);
        }
    }
    return LOONG_OK;
}

loong_status_t loong_dataset_read_mask(const loong_dataset_t *ds, int64_t token,
                                       int64_t count, uint8_t *mask)
{
    LOONG_TRY(check_range(ds, token, count));
    if (!ds->info.has_mask || count == 0) {
        memset(mask, 1, (size_t)count);
        return LOONG_OK;
    }
    memcpy(mask, ds->mask.bytes + token, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        if (mask[i] > 1) {
            return fail_value(ds, &ds->mask, token + i, mask[i], 2);
        }
    }
    return LOONG_OK;
}

void loong_dataset_prefetch(const loong_dataset_t *ds, int64_t token,
                            int64_t count)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t begin = token * ds->element / page * page;
    int64_t end =
        LOONG_MIN((token + count) * ds->element, (int64_t)ds->bin.size);
    if (begin < end) { /* advice: a refusal costs time only */
        (void)posix_madvise((void *)(uintptr_t)(ds->bin.bytes + begin),
                            (size_t)(end - begin), POSIX_MADV_WILLNEED);
    }
}

loong_dtype_t loong_dataset_dtype(int64_t vocab_size)
{
    return vocab_size < 65500 ? LOONG_U16 : LOONG_I32;
}
