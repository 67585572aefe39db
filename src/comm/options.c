/* SPDX-License-Identifier: Apache-2.0
 *
 * What only some communicators have, and what holds for the others. Called by
 * src/component/, src/engine/, src/run/ and backends. Read comm_run.h
 * before. */
#include "comm_impl.h"

bool loongi_comm_progress(loong_comm_t *comm)
{
    return comm->progress != NULL && comm->progress(comm);
}

loong_status_t loongi_comm_watch(loong_comm_t *comm, bool waits)
{
    return comm->watch != NULL ? comm->watch(comm, waits) : LOONG_OK;
}

loong_status_t loongi_comm_reserve(loong_comm_t *comm, int count,
                                   size_t bytes)
{
    return comm->reserve != NULL ? comm->reserve(comm, count, bytes)
                                 : LOONG_OK;
}

loong_status_t loongi_comm_group_messages(loong_comm_t *comm, bool begin)
{
    return comm->group_messages != NULL ? comm->group_messages(comm, begin)
                                        : LOONG_OK;
}

bool loongi_comm_has_failed(const loong_comm_t *comm)
{
    return comm->failed;
}

bool loongi_comm_is_on_host(const loong_comm_t *comm)
{
    return comm->on_host;
}

loong_comm_t *loongi_comm_host(loong_comm_t *comm)
{
    return comm->host != NULL || comm->on_host ? comm->host : comm;
}
