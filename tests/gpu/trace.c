/* SPDX-License-Identifier: Apache-2.0
 *
 * When kernels, copies and fills ran on the GPU, by CUPTI: a library that is
 * loaded into a program by LD_PRELOAD, since not every driver loads what
 * CUDA_INJECTION64_PATH names. It writes to the file $LOONG_TRACE a line for
 * each: kind, begin and end in nanoseconds, name. tests/gpu/gaps.py reads it
 * where there is no nsys. */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER = 8 << 20, ALIGNED = 8 };

static FILE *out;

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records)
{
    *buffer = aligned_alloc(ALIGNED, BUFFER);
    *size = *buffer != NULL ? BUFFER : 0;
    *records = 0; /* as many as there is room for */
}

static void put(const char *kind, uint64_t begin, uint64_t end,
                const char *name)
{
    fprintf(out, "%s %llu %llu %s\n", kind, (unsigned long long)begin,
            (unsigned long long)end, name);
}

static void tell(const CUpti_Activity *record)
{
    const void *at = record;
    const CUpti_ActivityKernel10 *kernel = at;
    const CUpti_ActivityMemcpy6 *copy = at;
    const CUpti_ActivityMemset4 *fill = at;
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        put("kernel", kernel->start, kernel->end, kernel->name);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        put("copy", copy->start, copy->end, "copy");
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        put("fill", fill->start, fill->end, "fill");
        break;
    default:
        break;
    }
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer,
                          size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) ==
           CUPTI_SUCCESS) {
        tell(record);
    }
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) ==
            CUPTI_SUCCESS &&
        dropped > 0) {
        fprintf(out, "dropped %llu 0 -\n", (unsigned long long)dropped);
    }
    free(buffer);
}

static void finish(void)
{
    (void)cuptiActivityFlushAll(1);
    fclose(out);
}

__attribute__((constructor)) static void start(void)
{
    static const CUpti_ActivityKind kinds[] = {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET};
    const char *path = getenv("LOONG_TRACE");
    out = path != NULL ? fopen(path, "w") : NULL;
    if (out == NULL) {
        fprintf(stderr, "trace: LOONG_TRACE names no file to write\n");
        return;
    }
    CUptiResult result = cuptiActivityRegisterCallbacks(give, take);
    for (int i = 0; i < 3 && result == CUPTI_SUCCESS; i++) {
        result = cuptiActivityEnable(kinds[i]);
    }
    if (result != CUPTI_SUCCESS) {
        fprintf(stderr, "trace: CUPTI refuses: error %d\n", (int)result);
        return;
    }
    (void)atexit(finish);
}
