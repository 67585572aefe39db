/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that do not depend on order: each addend is rounded to a fixed grid of
 * 2^-LOONG_EXACT_SHIFT and added to a wide integer. The words are independent
 * counters of 32-bit digits, so records add word by word, in any order and by
 * an integer all-reduce across ranks.
 *
 * Range: |sum| < 2^160, addends below 2^-145 are rounded (absolute error of a
 * sum of n addends at most n * 2^-145). Up to 2^30 additions per record before
 * a digit could overflow; loongi_exact_carry renews that budget. Infinities
 * and NaN are counted and make the value NaN.
 */
#ifndef LOONG_EXACT_SUM_H
#define LOONG_EXACT_SUM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LOONG_EXACT_DIGITS = 10, /* 32 bits each */
    LOONG_EXACT_SHIFT = 144, /* weight of bit 0 is 2^-144 */
    LOONG_EXACT_WORDS = LOONG_EXACT_DIGITS + 1 /* the last: not finite */
};

/* Adds one value. */
void loongi_exact_add(int64_t record[LOONG_EXACT_WORDS], double value);

/* Moves overflow of each digit to the next; the value does not change. */
void loongi_exact_carry(int64_t record[LOONG_EXACT_WORDS]);

/* Adds `other`, after a carry. */
void loongi_exact_merge(int64_t record[LOONG_EXACT_WORDS],
                        const int64_t other[LOONG_EXACT_WORDS]);

/* The sum, rounded (a function of the record alone). */
double loongi_exact_value(const int64_t record[LOONG_EXACT_WORDS]);

#ifdef __cplusplus
}
#endif

#endif
