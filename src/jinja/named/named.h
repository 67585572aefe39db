/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates that come with the library, by names that people know them
 * by: written here, with `generation` blocks around what an assistant says,
 * and held against the published ones by what they render.
 */
#ifndef LOONG_JINJA_NAMED_H
#define LOONG_JINJA_NAMED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The text of the template; NULL: there is none of this name. "NAME-hf" is
 * NAME as well. */
const char *loongi_named_template(const char *name);
/* Name number k, from 0; NULL behind the last one. */
const char *loongi_named_template_name(int64_t k);

#ifdef __cplusplus
}
#endif

#endif
