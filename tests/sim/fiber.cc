// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void sim_switch(void **save,
                                                                 void *to);
asm(".text\n"
    ".hidden sim_switch\n"
    ".type sim_switch, @function\n"
    "sim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n"
    "  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n"
    "  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size sim_switch, .-sim_switch\n");

void sim::context_switch(context_t *save, context_t *to)
{
    sim_switch(save, *to);
}

void sim::context_make(context_t *c, char *stack, size_t size, void (*f)())
{
    // As sim_switch leaves it: six registers, then where to return to; a
    // function begins with the stack 8 bytes off a multiple of 16.
    void **top = reinterpret_cast<void **>(stack + size) - 2;
    top[0] = reinterpret_cast<void *>(f);
    top[1] = nullptr;
    *c = top - 6;
}
#else
void sim::context_switch(context_t *save, context_t *to)
{
    swapcontext(save, to);
}

void sim::context_make(context_t *c, char *stack, size_t size, void (*f)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, f, 0);
}
#endif
