/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of oneDNN. Called by src/version/version.c. Read
 * onednn_version.h before. */
#include "onednn_version.h"

#include <dnnl.h>
#include <stdio.h>

const char *loongi_onednn_version(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, size, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}
