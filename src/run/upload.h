/* SPDX-License-Identifier: Apache-2.0
 *
 * What parameters start from, on its way to the memory of a run: pieces in a
 * ring of the host's memory that copies do not wait for. The bases of a
 * processor are written where they are. Of one thread. */
#ifndef LOONG_UPLOAD_H
#define LOONG_UPLOAD_H

#include "executor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_UPLOAD_PIECE = 4 << 20 }; /* bytes, at most */

typedef struct loong_upload {
    const loong_binding_t *run; /* borrowed */
    char *ring;             /* NULL: a processor's bases */
    size_t size, used;
} loong_upload_t;

/* `bytes`: all that comes, about; the ring is no longer. Errors:
 * LOONG_ERR_MEMORY. */
LOONG_NODISCARD loong_status_t loongi_upload_create(const loong_binding_t *run,
                                                    size_t bytes,
                                                    loong_upload_t **upload_p);
/* Waits for what is under way. NULL: nothing is done. */
LOONG_NODISCARD loong_status_t loongi_upload_finish(loong_upload_t **upload_p);

/* Room for a piece that goes to `to`; when it is written it is sent. Waits for
 * all pieces before it when the ring is full. */
LOONG_NODISCARD loong_status_t loongi_upload_room(loong_upload_t *upload,
                                                  loong_operand_t to,
                                                  size_t bytes, void **room_p);
LOONG_NODISCARD loong_status_t loongi_upload_send(loong_upload_t *upload,
                                                  loong_operand_t to,
                                                  const void *room,
                                                  size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
