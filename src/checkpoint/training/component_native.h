/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank holds of a component, in native checkpoints: parameters as their
 * masters, states of the optimizer as they are. */
#ifndef LOONG_COMPONENT_NATIVE_H
#define LOONG_COMPONENT_NATIVE_H

#include "component.h"
#include "native.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where pieces go. The thread that writes fetches them on the stream. */
typedef struct loong_piece_writer {
    loong_checkpoint_save_t *save;
    loong_device_t *device;
    void *stream;
    loong_arena_t *arena; /* lives as long as the save */
} loong_piece_writer_t;

/* Adds what this rank owns; it stays in the memory of the component until it is
 * fetched. */
LOONG_NODISCARD loong_status_t loongi_component_write(
    const loong_component_t *component, const loong_piece_writer_t *to);

/* Reads the parameters, and with `states` what the optimizers keep of them;
 * what is new (new_params.h) starts by seed. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_component_read(loong_component_t *component, loong_checkpoint_t *ck,
                      bool states, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
