/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks arrays up in the table of a processor. Called by token_fields.c and by
 * the processor of pictures. Read field_table.h before. */
#include "field_table.h"

#include <inttypes.h>
#include <string.h>

static const loong_field_type_t *entry_of(const loong_field_table_t *table,
                                          int64_t i)
{
    return (const void *)((const char *)table->entries +
                          (size_t)i * table->size);
}

static loong_status_t unknown_field(loong_context_t *ctx,
                                    const loong_field_table_t *table,
                                    const char *name)
{
    loong_text_t list = loongi_text_begin(ctx);
    for (int64_t i = 0; i < table->count; i++) {
        loongi_text_printf(&list, "%s%s", i > 0 ? ", " : "",
                           entry_of(table, i)->name);
    }
    loong_status_t status = LOONG_FAIL(
        ctx, LOONG_ERR_CONFIG,
        "the model reads an input '%s', which %s data does not have: it has %s",
        name, table->data, loongi_text_get(&list));
    loongi_text_free(&list);
    return status;
}

loong_status_t loongi_field_find(loong_context_t *ctx,
                                 const loong_field_table_t *table,
                                 loong_field_t *field)
{
    const loong_field_type_t *type = field->kind;
    for (int64_t i = 0; i < table->count && type == NULL; i++) {
        bool same = strcmp(entry_of(table, i)->name, field->name) == 0;
        type = same ? entry_of(table, i) : NULL;
    }
    if (type == NULL) {
        return unknown_field(ctx, table, field->name);
    }
    field->kind = type;
    LOONG_CHECK(ctx, field->dtype == type->dtype || field->dtype == type->other,
                LOONG_ERR_CONFIG,
                "the model reads the input '%s' as %s, %s data has %s",
                field->name, loong_dtype_name(field->dtype), table->data,
                loong_dtype_name(type->dtype));
    return LOONG_OK;
}

loong_status_t loongi_field_check_count(loong_context_t *ctx,
                                        const loong_field_t *field,
                                        int64_t count, bool fits)
{
    LOONG_CHECK(ctx, fits, LOONG_ERR_CONFIG,
                "the model reads %" PRId64 " elements of the input '%s', a "
                "micro-batch has %" PRId64,
                field->count, field->name, count);
    return LOONG_OK;
}
