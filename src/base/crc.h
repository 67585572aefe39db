/* SPDX-License-Identifier: Apache-2.0
 *
 * Cyclic redundancy checks of 32 bits, as zlib, PNG (CRC32) and iSCSI (CRC32C)
 * compute them. */
#ifndef LOONG_CRC_H
#define LOONG_CRC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The polynomial, lowest bit first. */
#define LOONG_CRC32 0xedb88320u
#define LOONG_CRC32C 0x82f63b78u

uint32_t loongi_crc(uint32_t polynomial, const void *bytes, size_t length);

#ifdef __cplusplus
}
#endif

#endif
