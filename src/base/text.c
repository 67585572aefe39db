/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing text, human-readable figures, edit distance, checked casts, time.
 * Called by all modules. Read base.h before. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base.h"

static bool text_reserve(loong_text_t *text, size_t more)
{
    size_t need = text->length + more + 1;
    if (text->status != LOONG_OK) {
        return false;
    }
    if (need > text->capacity) {
        size_t capacity = LOONG_MAX(text->capacity * 2, need);
        text->status = loongi_realloc(text->ctx, capacity, "text", &text->data);
        if (text->status != LOONG_OK) {
            return false;
        }
        text->capacity = capacity;
    }
    return true;
}

void loongi_text_append(loong_text_t *text, const void *bytes, size_t length)
{
    if (text_reserve(text, length)) {
        memcpy(text->data + text->length, bytes, length);
        text->length += length;
        text->data[text->length] = '\0';
    }
}

void loongi_text_printf(loong_text_t *text, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0 || !text_reserve(text, (size_t)length)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text->data + text->length, (size_t)length + 1, fmt, args);
    va_end(args);
    text->length += (size_t)length;
}

const char *loongi_text_get(const loong_text_t *text)
{
    return text->data != NULL ? text->data : "";
}

void loongi_text_free(loong_text_t *text)
{
    if (text->data != NULL) {
        loongi_free(text->ctx, text->data);
    }
    text->data = NULL;
    text->length = text->capacity = 0;
}

int loongi_edit_distance(const char *a, const char *b, int limit)
{
    enum { LONGEST = 128 };
    int row[LONGEST + 1];
    int na = (int)LOONG_MIN(strlen(a), (size_t)LONGEST);
    int nb = (int)LOONG_MIN(strlen(b), (size_t)LONGEST);
    for (int j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int shift = LOONG_MIN(row[j], row[j - 1]) + 1;
            row[j] = LOONG_MIN(change, shift);
        }
    }
    return LOONG_MIN(row[nb], limit + 1);
}

const char *loongi_human_bytes(double bytes, char buffer[LOONG_HUMAN_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024.0 && unit + 1 < LOONG_COUNT_OF(units)) {
        bytes /= 1024.0;
        unit++;
    }
    snprintf(buffer, LOONG_HUMAN_SIZE, unit == 0 ? "%.0f %s" : "%.2f %s", bytes,
             units[unit]);
    return buffer;
}

const char *loongi_human_count(double count, char buffer[LOONG_HUMAN_SIZE])
{
    static const char *const units[] = {"", "k", "M", "B", "T"};
    int unit = 0;
    while (count >= 1000.0 && unit + 1 < LOONG_COUNT_OF(units)) {
        count /= 1000.0;
        unit++;
    }
    snprintf(buffer, LOONG_HUMAN_SIZE, unit == 0 ? "%.0f%s" : "%.2f%s", count,
             units[unit]);
    return buffer;
}

loong_status_t loongi_to_int(loong_context_t *ctx, int64_t value,
                             const char *what, int *out_p)
{
    LOONG_CHECK(ctx, value >= INT_MIN && value <= INT_MAX, LOONG_ERR_ARG,
                "%s is %lld and does not fit 32 bits", what, (long long)value);
    *out_p = (int)value;
    return LOONG_OK;
}

double loongi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
