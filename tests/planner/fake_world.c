/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { POISON = 0xDB };

/* ---- table -------------------------------------------------------------- */

static uint64_t find(const fake_table_t *t, uint64_t key)
{
    uint64_t at = key & (t->size - 1);
    while (t->key[at] != 0 && t->key[at] != key) {
        at = (at + 1) & (t->size - 1);
    }
    return at;
}

static void grow(fake_table_t *t)
{
    fake_table_t old = *t;
    t->size = old.size > 0 ? 2 * old.size : 1024;
    t->used = 0;
    t->key = calloc(t->size, sizeof(*t->key));
    t->value = calloc(t->size, sizeof(*t->value));
    for (uint64_t i = 0; i < old.size; i++) {
        if (old.key[i] != 0) {
            fake_table_put(t, old.key[i], old.value[i]);
        }
    }
    free(old.key);
    free(old.value);
}

void fake_table_put(fake_table_t *table, uint64_t key, uint64_t value)
{
    if (2 * (table->used + 1) > table->size) {
        grow(table);
    }
    uint64_t at = find(table, key);
    table->used += table->key[at] == 0;
    table->key[at] = key;
    table->value[at] = value;
}

bool fake_table_get(const fake_table_t *table, uint64_t key, uint64_t *value)
{
    if (table->size == 0) {
        return false;
    }
    uint64_t at = find(table, key);
    *value = table->value[at];
    return table->key[at] == key;
}

void fake_table_free(fake_table_t *table)
{
    free(table->key);
    free(table->value);
    memset(table, 0, sizeof(*table));
}

/* ---- world -------------------------------------------------------------- */

void fake_world_fail(fake_world_t *world, const char *fmt, ...)
{
    va_list args;
    if (world->error[0] != '\0') {
        return;
    }
    va_start(args, fmt);
    vsnprintf(world->error, sizeof(world->error), fmt, args);
    va_end(args);
}

fake_region_t *fake_world_add(fake_world_t *world, const char *name,
                              int64_t bytes)
{
    if (world->num_regions == FAKE_MAX_REGIONS) {
        abort();
    }
    fake_region_t *r = &world->regions[world->num_regions++];
    size_t size = (size_t)LOONG_MAX(bytes, 1);
    r->name = name;
    r->bytes = bytes;
    r->data = aligned_alloc(64, (size + 63) / 64 * 64);
    r->valid = calloc(size, sizeof(*r->valid));
    r->touched = 0;
    fake_region_poison(r, 0, bytes);
    return r;
}

void fake_world_free(fake_world_t *world)
{
    for (int i = 0; i < world->num_regions; i++) {
        free(world->regions[i].data);
        free(world->regions[i].valid);
    }
    world->num_regions = 0;
}

void fake_region_poison(fake_region_t *region, int64_t begin, int64_t bytes)
{
    if (bytes > 0) {
        memset(region->data + begin, POISON, (size_t)bytes);
        memset(region->valid + begin, 0, (size_t)bytes);
    }
}

static fake_region_t *region_of(fake_world_t *world, const char *data,
                                int64_t bytes)
{
    for (int i = 0; i < world->num_regions; i++) {
        fake_region_t *r = &world->regions[i];
        if (data >= r->data && data + bytes <= r->data + r->bytes) {
            return r;
        }
    }
    return NULL;
}

bool fake_world_read(fake_world_t *world, const void *data, int64_t bytes,
                     const char *what)
{
    if (world->num_regions == 0) {
        return true;
    }
    fake_region_t *r = region_of(world, data, bytes);
    if (r == NULL) {
        fake_world_fail(world, "%s: reads outside of memory", what);
        return false;
    }
    int64_t at = (const char *)data - r->data;
    for (int64_t i = at; i < at + bytes; i++) {
        if (!r->valid[i]) {
            fake_world_fail(world,
                            "%s: reads byte %lld of %s, which holds nothing",
                            what,
                            (long long)i, r->name);
            return false;
        }
    }
    return true;
}

bool fake_world_write(fake_world_t *world, const void *data, int64_t bytes,
                      const char *what)
{
    if (world->num_regions == 0) {
        return true;
    }
    fake_region_t *r = region_of(world, data, bytes);
    if (r == NULL) {
        fake_world_fail(world, "%s: writes outside of memory", what);
        return false;
    }
    int64_t at = (const char *)data - r->data;
    memset(r->valid + at, 1, (size_t)bytes);
    r->touched = LOONG_MAX(r->touched, at + bytes);
    return true;
}
