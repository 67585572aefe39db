/* SPDX-License-Identifier: Apache-2.0
 *
 * Switching stacks: the threads of a simulated block, the cores of a simulated
 * cluster. */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <cstddef>

#if defined(__x86_64__)
typedef void *context_t;
#else
#include <ucontext.h>
typedef ucontext_t context_t;
#endif

namespace sim __attribute__((visibility("hidden")))
{

    /* Goes on with `to`; returns when somebody switches to *save. */
    void context_switch(context_t * save, context_t * to);
    /* f begins on the stack when somebody switches to *c; it never returns. */
    void context_make(context_t * c, char *stack, size_t size, void (*f)());

} // namespace )

using sim::context_make;
using sim::context_switch;

#endif
