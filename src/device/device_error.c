/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the message of an error that a kernel noted on its device. Called by a
 * backend when it waits for the device (cuda_device.c). Read
 * loong_device_error_t in loong/kernel.h before. */
#include "device_error.h"

#include <stdio.h>
#include <string.h>

#include "base.h"

static void describe_segment(const loong_device_error_t *f, char *text,
                             size_t size)
{
    if (f->place == 0) {
        snprintf(text, size, "cu_seqlens[0] is %lld, must be 0",
                 (long long)f->value);
    } else {
        snprintf(text, size,
                 "cu_seqlens[%lld] is %lld after %lld: a segment has 0 to %lld "
                 "rows",
                 (long long)f->place, (long long)f->value, (long long)f->before,
                 (long long)f->end);
    }
}

static void describe_experts(const loong_device_error_t *f, char *text,
                             size_t size)
{
    long long value = f->value;
    long long place = f->place;
    long long before = f->before;
    long long end = f->end;
    switch ((loong_device_error_kind_t)f->kind) {
    case LOONG_DEVICE_ERROR_EXPERT:
        snprintf(text, size, "expert %lld of token %lld, allowed -1 to %lld",
                 value, place, end - 1);
        break;
    case LOONG_DEVICE_ERROR_EXPERT_TWICE:
        snprintf(text, size, "token %lld has expert %lld twice", place, value);
        break;
    case LOONG_DEVICE_ERROR_EXPERT_ROOM:
        snprintf(text, size, "%lld rows of experts %lld to %lld, room for %lld",
                 value, place, before, end);
        break;
    default:
        snprintf(text, size,
                 "offset %lld is %lld after %lld, there are %lld rows", place,
                 value, before, end);
    }
}

static void describe(const loong_device_error_t *f, char *text, size_t size)
{
    long long value = f->value;
    long long place = f->place;
    long long end = f->end;
    switch ((loong_device_error_kind_t)f->kind) {
    case LOONG_DEVICE_ERROR_NONE:
        break;
    case LOONG_DEVICE_ERROR_ID:
        snprintf(text, size, "id %lld at row %lld, allowed 0 to %lld", value,
                 place, end - 1);
        break;
    case LOONG_DEVICE_ERROR_LABEL:
        snprintf(text, size,
                 "label of row %lld is %lld, must be in 0..%lld or %d "
                 "(no loss)",
                 place, value, end - 1, (int)LOONG_IGNORE_LABEL);
        break;
    case LOONG_DEVICE_ERROR_SEGMENT:
        describe_segment(f, text, size);
        break;
    case LOONG_DEVICE_ERROR_SEGMENT_END:
        snprintf(text, size,
                 "cu_seqlens ends with %lld, must end with the %lld rows",
                 value, end);
        break;
    case LOONG_DEVICE_ERROR_ROW:
    case LOONG_DEVICE_ERROR_KEY_ROW:
        snprintf(text, size,
                 "%s[%lld] is %lld after %lld, must ascend and be below the "
                 "end of cu_seqlens, %lld",
                 f->kind == LOONG_DEVICE_ERROR_ROW ? "rows" : "key_rows", place,
                 value, (long long)f->before, end);
        break;
    case LOONG_DEVICE_ERROR_KEY_END:
        snprintf(text, size,
                 "key_ends[%lld] is %lld after %lld, must ascend, be behind "
                 "its row and not behind its segment, %lld",
                 place, value, (long long)f->before, end);
        break;
    case LOONG_DEVICE_ERROR_INDEX:
        snprintf(text, size,
                 "operand %d has %lld at %lld, allowed %lld to %lld",
                 (int)f->operand, value, place, (long long)f->before, end - 1);
        break;
    case LOONG_DEVICE_ERROR_COUNTS:
        snprintf(text, size,
                 "%lld rows on the device, %lld in the host's copy of their "
                 "counts",
                 value, end);
        break;
    case LOONG_DEVICE_ERROR_EXPERT:
    case LOONG_DEVICE_ERROR_EXPERT_TWICE:
    case LOONG_DEVICE_ERROR_EXPERT_ROOM:
    case LOONG_DEVICE_ERROR_OFFSET:
        describe_experts(f, text, size);
        break;
    }
}

loong_status_t loongi_device_error_take(loong_context_t *ctx,
                                        const char *device, int index,
                                        loong_device_error_t *error)
{
    char text[LOONG_REASON_SIZE] = "unknown error";
    loong_device_error_t f = *error;
    if (f.kind == LOONG_DEVICE_ERROR_NONE) {
        return LOONG_OK;
    }
    memset(error, 0, sizeof(*error));
    describe(&f, text, sizeof(text));
    return LOONG_FAIL(ctx, LOONG_ERR_ARG, "%s:%d: %s%s%s", device, index,
                      f.op != NULL ? f.op : "", f.op != NULL ? ": " : "", text);
}
