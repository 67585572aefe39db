/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets out of data sets. Called by indexer.c and tools/loong_data_merge.c.
 * Read loong/dataset_merge.h before. */
#include "loong/dataset_merge.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base.h"
#include "loong/dataset.h"
#include "permutation.h"

typedef struct merger {
    loong_context_t *ctx;
    loong_dataset_t **sources;
    int64_t *first; /* of the documents of all, that of each source; the end */
    int64_t num_sources;
    loong_dataset_writer_t *writer;
    bool with_mask;
    int32_t *ids;
    int64_t ids_size;
    uint8_t *mask;
    int64_t mask_size;
    int64_t tokens;
} merger_t;

static loong_status_t open_source(merger_t *m, const char *prefix,
                                  const char *output,
                                  loong_dataset_info_t *before)
{
    loong_dataset_info_t info;
    LOONG_CHECK(m->ctx, strcmp(prefix, output) != 0, LOONG_ERR_ARG,
                "'%s' is both a source and the output", prefix);
    LOONG_TRY(loong_dataset_create(m->ctx, prefix,
                                   &m->sources[m->num_sources]));
    loong_dataset_get_info(m->sources[m->num_sources], &info);
    if (m->num_sources++ == 0) {
        *before = info;
    }
    LOONG_CHECK(m->ctx,
                info.dtype == before->dtype &&
                    info.has_mask == before->has_mask,
                LOONG_ERR_MISMATCH,
                "'%s' has %s ids %s a mask, '%s' %s ids %s: sets of one kind "
                "are merged",
                before->prefix, loong_dtype_name(before->dtype),
                before->has_mask ? "with" : "without", prefix,
                loong_dtype_name(info.dtype),
                info.has_mask ? "with" : "without");
    m->first[m->num_sources] = m->first[m->num_sources - 1] + info.documents;
    return LOONG_OK;
}

static loong_status_t open_all(merger_t *m,
                               const loong_dataset_merge_params_t *p)
{
    loong_dataset_info_t info = {0};
    LOONG_TRY(loongi_calloc(m->ctx, (size_t)p->num_prefixes,
                            sizeof(loong_dataset_t *), "data sets",
                            &m->sources));
    LOONG_TRY(loongi_calloc(m->ctx, (size_t)p->num_prefixes + 1,
                            sizeof(*m->first), "data sets", &m->first));
    for (int64_t i = 0; i < p->num_prefixes; i++) {
        LOONG_TRY(open_source(m, p->prefixes[i], p->output, &info));
    }
    m->with_mask = info.has_mask;
    loong_dataset_writer_params_t params = {p->output, info.dtype,
                                            info.has_mask};
    return loong_dataset_writer_create(m->ctx, &params, &m->writer);
}

/* `document` counts through all sources. */
static loong_status_t copy_document(merger_t *m, int64_t document)
{
    int64_t s = 0;
    while (document >= m->first[s + 1]) {
        s++;
    }
    const loong_dataset_t *source = m->sources[s];
    int64_t own = document - m->first[s];
    int64_t token = loong_dataset_get_start(source, own);
    int64_t end = token >= 0 ? loong_dataset_get_start(source, own + 1) : -1;
    int64_t count = end - token;
    if (end < 0) { /* which it has told */
        return LOONG_ERR_FORMAT;
    }
    LOONG_TRY(loongi_grow(m->ctx, &m->ids, &m->ids_size, count,
                          sizeof(*m->ids), "ids of a document"));
    LOONG_TRY(loong_dataset_read(source, token, count, INT32_MAX, m->ids));
    if (m->with_mask) {
        LOONG_TRY(loongi_grow(m->ctx, &m->mask, &m->mask_size, count, 1,
                              "mask of a document"));
        LOONG_TRY(loong_dataset_read_mask(source, token, count, m->mask));
    }
    LOONG_TRY(loong_dataset_writer_add(m->writer, m->ids,
                                       m->with_mask ? m->mask : NULL, count));
    m->tokens += count;
    return loong_dataset_writer_end_document(m->writer);
}

static loong_status_t merge(merger_t *m, const loong_dataset_merge_params_t *p,
                            int64_t *documents_p)
{
    LOONG_CHECK(m->ctx, p->num_prefixes > 0, LOONG_ERR_ARG, "no data sets");
    LOONG_TRY(open_all(m, p));
    int64_t all = m->first[m->num_sources];
    int64_t begin = (int64_t)floor(p->begin * (double)all);
    int64_t end = (int64_t)floor(p->end * (double)all);
    uint64_t key = loongi_permutation_key(p->seed, 0);
    LOONG_CHECK(m->ctx, begin >= 0 && begin < end && end <= all, LOONG_ERR_ARG,
                "%g to %g of %" PRId64 " documents: none of them", p->begin,
                p->end, all);
    for (int64_t i = begin; i < end; i++) {
        LOONG_TRY(copy_document(
            m, p->shuffle ? loongi_permutation_get(key, all, i) : i));
    }
    *documents_p = end - begin;
    return loong_dataset_writer_commit(m->writer);
}

loong_status_t loong_dataset_merge(loong_context_t *ctx,
                                   const loong_dataset_merge_params_t *params,
                                   int64_t *documents_p, int64_t *tokens_p)
{
    merger_t m = {.ctx = ctx};
    int64_t documents = 0;
    loong_status_t status = merge(&m, params, &documents);
    for (int64_t i = 0; i < m.num_sources; i++) {
        loong_dataset_destroy(&m.sources[i]);
    }
    loong_dataset_writer_destroy(&m.writer);
    loongi_free(ctx, m.sources);
    loongi_free(ctx, m.first);
    loongi_free(ctx, m.ids);
    loongi_free(ctx, m.mask);
    if (status == LOONG_OK) {
        *documents_p = documents;
        *tokens_p = m.tokens;
    }
    return status;
}
