/* SPDX-License-Identifier: Apache-2.0
 *
 * Bump allocator: a chain of blocks, freed together. Called wherever texts and
 * lists end together: passes, recipes, checkpoints. Read base.h before. */
#include <stdio.h>
#include <string.h>

#include "base.h"

enum { ARENA_ALIGN = 16, ARENA_BLOCK = 64 * 1024 };

typedef struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t size;
    char pad[ARENA_ALIGN - sizeof(size_t)];
} arena_block_t;

struct loong_arena {
    loong_context_t *ctx;
    const char *what;
    arena_block_t *blocks; /* newest first */
};

loong_status_t loongi_arena_create(loong_context_t *ctx, const char *what,
                                   loong_arena_t **arena_p)
{
    loong_arena_t *arena = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*arena), what, &arena));
    arena->ctx = ctx;
    arena->what = what;
    *arena_p = arena;
    return LOONG_OK;
}

void loongi_arena_destroy(loong_arena_t **arena_p)
{
    loong_arena_t *arena = *arena_p;
    if (arena == NULL) {
        return;
    }
    while (arena->blocks != NULL) {
        arena_block_t *next = arena->blocks->next;
        loongi_free(arena->ctx, arena->blocks);
        arena->blocks = next;
    }
    loongi_free(arena->ctx, arena);
    *arena_p = NULL;
}

loong_status_t loongi_arena_alloc(loong_arena_t *arena, size_t size,
                                  void *ptr_p)
{
    arena_block_t *block = arena->blocks;
    size_t need = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    LOONG_CHECK(arena->ctx, need >= size, LOONG_ERR_MEMORY,
                "cannot allocate %zu bytes for %s", size, arena->what);
    if (block == NULL || block->size - block->used < need) {
        size_t room = LOONG_MAX(need, (size_t)ARENA_BLOCK);
        LOONG_TRY(loongi_alloc(arena->ctx, sizeof(*block) + room, arena->what,
                               &block));
        block->size = room;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *ptr = (char *)(block + 1) + block->used;
    block->used += need;
    memcpy(ptr_p, &ptr, sizeof(ptr));
    return LOONG_OK;
}

loong_status_t loongi_arena_strdup(loong_arena_t *arena, const char *text,
                                   char **copy_p)
{
    size_t size = strlen(text) + 1;
    LOONG_TRY(loongi_arena_alloc(arena, size, copy_p));
    memcpy(*copy_p, text, size);
    return LOONG_OK;
}

loong_status_t loongi_arena_printf(loong_arena_t *arena, char **text_p,
                                   const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    LOONG_CHECK(arena->ctx, length >= 0, LOONG_ERR_INTERNAL,
                "cannot format text for %s", arena->what);
    char *text = NULL;
    LOONG_TRY(loongi_arena_alloc(arena, (size_t)length + 1, &text));
    va_start(args, fmt);
    vsnprintf(text, (size_t)length + 1, fmt, args);
    va_end(args);
    *text_p = text;
    return LOONG_OK;
}
