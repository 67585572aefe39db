/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of an .idx file (MMIDIDX version 1), all little-endian:
 *
 *    0  9 bytes  "MMIDIDX\0\0"
 *    9  u64      version = 1
 *   17  u8       type code
 *   18  u64      S, sequences
 *   26  u64      D, document starts: documents + 1
 *   34  i32[S]   tokens of each sequence
 *       i64[S]   byte offset of each sequence in the .bin file
 *       i64[D]   first sequence of each document; the last entry is S
 *
 * Nothing is aligned: values are read and written byte by byte. */
#ifndef LOONG_INDEX_FORMAT_H
#define LOONG_INDEX_FORMAT_H

#include <stdint.h>
#include <string.h>

#include "loong/dtype.h"

#define INDEX_MAGIC "MMIDIDX\0"

enum {
    INDEX_MAGIC_SIZE = 9, /* the literal's own NUL is the ninth byte */
    INDEX_VERSION = 1,
    INDEX_VERSION_AT = 9,
    INDEX_DTYPE_AT = 17,
    INDEX_SEQUENCES_AT = 18,
    INDEX_STARTS_AT = 26,
    INDEX_HEADER = 34
};

/* Type codes 1 .. 8. */
static const loong_dtype_t index_dtypes[] = {
    LOONG_DTYPE_COUNT, LOONG_U8,  LOONG_I8,  LOONG_I16, LOONG_I32,
    LOONG_I64,         LOONG_F64, LOONG_F32, LOONG_U16};

static inline uint64_t index_get(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static inline void index_put(uint8_t *bytes, int size, uint64_t value)
{
    for (int i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

#endif
