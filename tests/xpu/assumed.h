/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of assumed.c. */
#ifndef ASSUMED_H
#define ASSUMED_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "xpu_library.h"

typedef struct claim {
    const char *name;
    const char *assumed;
    /* True: it is so. Says what was found, by found(). */
    bool (*probe)(int64_t number);
    int64_t number; /* the probe's own */
} claim_t;

/* Of the child that tries a claim. */
extern loong_xpu_library_t lib;
void found(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the row. loads: the libraries are loaded before. */
bool tell_claim(const claim_t *claim, bool loads);
/* Of what is compared with nothing, as how fast something is. */
bool tell_measured(const claim_t *claim);

/* Print the rows of a part; false: something deviates. */
bool claims_of_values(void);
bool claims_of_runtime(void);
bool claims_of_products(void);
bool claims_of_speed(void);
bool claims_of_ranks(int ranks);

#endif
