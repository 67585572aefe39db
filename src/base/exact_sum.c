/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that are the same bits in any order. Called by the kernels of the
 * gradient norm and by the step's metrics and losses. Read exact_sum.h before:
 * it states the range. */
#include "exact_sum.h"

#include <math.h>
#include <string.h>

void loongi_exact_add(int64_t record[LOONG_EXACT_WORDS], double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t mantissa = bits & 0xfffffffffffffu;
    if (exponent == 0x7ff) {
        record[LOONG_EXACT_DIGITS]++;
        return;
    }
    if (exponent == 0) {
        return; /* below the grid */
    }
    mantissa |= (uint64_t)1 << 52;
    int shift = exponent - 1075 + LOONG_EXACT_SHIFT; /* of bit 0 */
    if (shift < -54) {
        return;
    }
    if (shift < 0) {
        mantissa = (mantissa + ((uint64_t)1 << (-shift - 1))) >> -shift;
        shift = 0;
    }
    int digit = shift / 32;
    if (digit + 2 >= LOONG_EXACT_DIGITS) {
        record[LOONG_EXACT_DIGITS]++; /* beyond the range */
        return;
    }
    int64_t sign = bits >> 63 ? -1 : 1;
    uint64_t low = mantissa << (shift % 32);
    uint64_t high = shift % 32 == 0 ? 0 : mantissa >> (64 - shift % 32);
    record[digit] += sign * (int64_t)(low & 0xffffffffu);
    record[digit + 1] += sign * (int64_t)(low >> 32);
    record[digit + 2] += sign * (int64_t)high;
}

void loongi_exact_carry(int64_t record[LOONG_EXACT_WORDS])
{
    for (int i = 0; i + 1 < LOONG_EXACT_DIGITS; i++) {
        int64_t carry = record[i] >> 32; /* floor */
        record[i] -= carry * ((int64_t)1 << 32);
        record[i + 1] += carry;
    }
}

void loongi_exact_merge(int64_t record[LOONG_EXACT_WORDS],
                        const int64_t other[LOONG_EXACT_WORDS])
{
    for (int i = 0; i < LOONG_EXACT_WORDS; i++) {
        record[i] += other[i];
    }
    loongi_exact_carry(record);
}

double loongi_exact_value(const int64_t record[LOONG_EXACT_WORDS])
{
    int64_t digits[LOONG_EXACT_WORDS];
    if (record[LOONG_EXACT_DIGITS] != 0) {
        return NAN;
    }
    memcpy(digits, record, sizeof(digits));
    loongi_exact_carry(digits);
    double sign = 1.0;
    if (digits[LOONG_EXACT_DIGITS - 1] < 0) {
        sign = -1.0;
        for (int i = 0; i < LOONG_EXACT_DIGITS; i++) {
            digits[i] = -digits[i];
        }
        loongi_exact_carry(digits);
    }
    double value = 0.0;
    for (int i = LOONG_EXACT_DIGITS - 1; i >= 0; i--) {
        value += ldexp((double)digits[i], 32 * i - LOONG_EXACT_SHIFT);
    }
    return sign * value;
}
