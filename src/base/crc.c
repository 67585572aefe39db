/* SPDX-License-Identifier: Apache-2.0
 *
 * Cyclic redundancy checks of 32 bits. Called for TensorBoard's records, token
 * fields, extensions and the file of algorithms. Read crc.h
 * before. */
#include "crc.h"

/* Half a byte at a time: the table is made in less than it takes to look for
 * one in memory. */
uint32_t loongi_crc(uint32_t polynomial, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint32_t table[16];
    uint32_t crc = 0xffffffffu;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++) {
            table[i] = (table[i] >> 1) ^ (polynomial & (0u - (table[i] & 1u)));
        }
    }
    for (size_t i = 0; i < length; i++) {
        crc = (crc >> 4) ^ table[(crc ^ at[i]) & 15];
        crc = (crc >> 4) ^ table[(crc ^ (uint32_t)(at[i] >> 4)) & 15];
    }
    return ~crc;
}
