/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of the arrays that a processor makes: names and types. */
#ifndef LOONG_FIELD_TABLE_H
#define LOONG_FIELD_TABLE_H

#include "base.h"
#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an entry of a processor's table begins with. */
typedef struct loong_field_type {
    const char *name;
    loong_dtype_t dtype, other; /* allowed */
} loong_field_type_t;

typedef struct loong_field_table {
    const char *data; /* what the processor reads, for messages */
    const void *entries;
    size_t size; /* bytes of an entry */
    int64_t count;
} loong_field_table_t;

/* Sets field->kind to its entry, unless it is set, and checks its type. Errors:
 * LOONG_ERR_CONFIG, which lists the names there are. */
LOONG_NODISCARD loong_status_t
loongi_field_find(loong_context_t *ctx, const loong_field_table_t *table,
                  loong_field_t *field);

/* Its elements against what there is. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_field_check_count(
    loong_context_t *ctx, const loong_field_t *field, int64_t count, bool fits);

#ifdef __cplusplus
}
#endif

#endif
