/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting by attributes, as jinja2's filters do it.
 */
#ifndef LOONG_JINJA_SORT_H
#define LOONG_JINJA_SORT_H

#include "run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct jinja_order {
    bool reverse;
    bool exact;               /* upper and lower case are different */
    bool several;             /* attribute may be several, parted by commas */
    value_t attribute;        /* MISSING or none: the item itself */
    const value_t *otherwise; /* for an attribute that is not there */
} jinja_order_t;

/* A list of the items, sorted; equal ones stay in their order. */
LOONG_NODISCARD loong_status_t jinja_sort(run_t *r, value_t items,
                                          const jinja_order_t *order,
                                          value_t *list_p);
/* What an item is compared by. */
LOONG_NODISCARD loong_status_t jinja_sort_key(run_t *r, value_t item,
                                              value_t attribute, bool exact,
                                              value_t *key_p);
/* A text in lower case, other values as they are. */
LOONG_NODISCARD loong_status_t jinja_fold_case(run_t *r, value_t value,
                                               value_t *folded_p);

#ifdef __cplusplus
}
#endif

#endif
