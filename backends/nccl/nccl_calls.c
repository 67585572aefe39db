/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of NCCL. Its communicators do not block: what a call has begun is
 * polled, so that a rank that does not come is found by the time limit, when
 * they connect as well as when NCCL connects more of its channels later. A
 * call is launched by a thread of NCCL's, also into a stream that is captured
 * here, and nothing is given to that stream before it is. The table is
 * called by device_comm.c. Read device_comm.h before. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device_comm.h"
#include "nccl_abi.h"
#include "nccl_comm.h"
#include "object.h"
#include "progress.h"

/* X(name after nccl): every function that is called. */
#define LOONG_NCCL_FUNCTIONS(X) \
    X(GetVersion)               \
    X(GetErrorString)           \
    X(GetUniqueId)              \
    X(CommInitRankConfig)       \
    X(CommDestroy)              \
    X(CommAbort)                \
    X(CommGetAsyncError)        \
    X(GroupStart)               \
    X(GroupEnd)                 \
    X(AllReduce)                \
    X(Reduce)                   \
    X(ReduceScatter)            \
    X(AllGather)                \
    X(Broadcast)                \
    X(Send)                     \
    X(Recv)

typedef struct nccl_library {
    void *handle;
#define LOONG_NCCL_POINTER(name_) __typeof__(&nccl##name_) name_;
    LOONG_NCCL_FUNCTIONS(LOONG_NCCL_POINTER)
#undef LOONG_NCCL_POINTER
} nccl_library_t;

static nccl_library_t *library_of(const device_comm_t *n)
{
    return n->library;
}

static ncclComm_t handle_of(const device_comm_t *n)
{
    return n->handle;
}

static loong_status_t failed(device_comm_t *n, const char *call,
                             ncclResult_t result)
{
    return LOONG_FAIL(n->ctx, LOONG_ERR_COMM, "nccl%s of %s, rank %d: %s", call,
                      n->comm->name, n->comm->rank,
                      library_of(n)->GetErrorString(result));
}

static loong_status_t load(loong_context_t *ctx, nccl_library_t *lib)
{
    static const char *const places[] = {LOONG_NCCL_LIBRARY, "libnccl.so.2"};
    char why[LOONG_OBJECT_REASON] = "";
    int version = 0;
    /* Memory of a stream-ordered pool cannot be exported to other ranks, as
     * NCCL would try when its calls are captured. What the user set stays. */
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
    for (int i = 0; i < LOONG_COUNT_OF(places) && lib->handle == NULL; i++) {
        lib->handle = loongi_object_open(
            places[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE, why, sizeof(why));
    }
    LOONG_CHECK(ctx, lib->handle != NULL, LOONG_ERR_UNSUPPORTED,
                "several ranks on GPUs need NCCL: %s", why);
#define LOAD(name_)                                                    \
    *(void **)(void *)&lib->name_ = dlsym(lib->handle, "nccl" #name_); \
    LOONG_CHECK(ctx, lib->name_ != NULL, LOONG_ERR_UNSUPPORTED,        \
                "this libnccl has no nccl" #name_                      \
                ": 2.22 or later is wanted");
    LOONG_NCCL_FUNCTIONS(LOAD)
#undef LOAD
    ncclResult_t result = lib->GetVersion(&version);
    LOONG_CHECK(ctx, result == ncclSuccess && version >= LOONG_NCCL_LEAST,
                LOONG_ERR_UNSUPPORTED,
                "this libnccl is version code %d: 2.22 (%d) or later is "
                "wanted, which can give up several communicators together",
                version, LOONG_NCCL_LEAST);
    return LOONG_OK;
}

/* Until NCCL has done on the host what it was asked for. */
static loong_status_t settle(device_comm_t *n, const char *call,
                             ncclResult_t result)
{
    loong_wait_t wait = loongi_wait_begin(n->comm);
    int peer = (n->comm->rank + 1) % n->comm->size;
    while (result == ncclInProgress) {
        ncclResult_t asked =
            library_of(n)->CommGetAsyncError(handle_of(n), &result);
        result = asked == ncclSuccess ? result : asked;
        if (result == ncclInProgress && !loongi_wait_step(&wait, peer)) {
            loong_status_t status = loongi_wait_failed_on(&wait, peer);
            loongi_error_note(n->ctx, "in nccl%s", call);
            return status;
        }
    }
    loongi_wait_end(&wait);
    return result == ncclSuccess ? LOONG_OK : failed(n, call, result);
}

static loong_status_t connect_ranks(device_comm_t *n)
{
    /* Of a link, which waits for its peer on the device, and meanwhile keeps
     * products from so many multiprocessors. */
    enum { LINK_CTAS = 4 };
    ncclUniqueId id;
    ncclConfig_t config = {
        .size = sizeof(config),
        .magic = LOONG_NCCL_MAGIC,
        .version = LOONG_NCCL_VERSION,
        .blocking = 0,
        .cgaClusterSize = LOONG_NCCL_DEFAULT,
        .minCTAs = LOONG_NCCL_DEFAULT,
        .maxCTAs = n->messages != NULL ? LINK_CTAS : LOONG_NCCL_DEFAULT,
        .netName = NULL,
        .splitShare = LOONG_NCCL_DEFAULT,
    };
    memset(&id, 0, sizeof(id));
    if (n->library == NULL) {
        LOONG_TRY(
            loongi_alloc(n->ctx, sizeof(nccl_library_t), "NCCL", &n->library));
    }
    LOONG_TRY(load(n->ctx, library_of(n)));
    LOONG_TRY(loongi_device_comm_events(n)); /* and the device is current */
    if (n->comm->rank == 0) {
        ncclResult_t result = library_of(n)->GetUniqueId(&id);
        if (result != ncclSuccess) {
            return failed(n, "GetUniqueId", result);
        }
    }
    LOONG_TRY(loong_comm_broadcast(n->host, &id, sizeof(id), 0, "NCCL"));
    ncclComm_t handle = NULL;
    ncclResult_t result = library_of(n)->CommInitRankConfig(
        &handle, n->comm->size, id, n->comm->rank, &config);
    n->handle = handle;
    return settle(n, "CommInitRankConfig", result);
}

static void disconnect(device_comm_t *n, bool abort)
{
    if (n->handle != NULL && !loongi_device_hangs(n->device)) {
        (void)(abort ? library_of(n)->CommAbort(handle_of(n))
                     : library_of(n)->CommDestroy(handle_of(n)));
    }
    n->handle = NULL;
}

/* Each is told to end before one is waited for: a launch of a graph ends when
 * the calls of all its communicators have. */
static void give_up(device_comm_t *n)
{
    const nccl_library_t *lib = NULL;
    device_comm_t *m = n;
    do {
        if (m->handle != NULL && lib == NULL) {
            lib = library_of(m);
            (void)lib->GroupStart();
        }
        disconnect(m, true);
        m = m->next;
    } while (m != n);
    if (lib != NULL) {
        (void)lib->GroupEnd();
    }
}

static loong_status_t check(device_comm_t *n)
{
    ncclResult_t result = ncclSuccess;
    ncclResult_t asked =
        library_of(n)->CommGetAsyncError(handle_of(n), &result);
    result = asked == ncclSuccess ? result : asked;
    return result == ncclSuccess || result == ncclInProgress
               ? LOONG_OK
               : failed(n, "CommGetAsyncError", result);
}

/* ---- collectives --------------------------------------------------------- */

static loong_status_t type_of(device_comm_t *n, const loong_collective_t *call,
                              ncclDataType_t *type_p)
{
    switch (call->dtype) {
    case LOONG_U8:
    case LOONG_BOOL:
        *type_p = ncclUint8;
        return LOONG_OK;
    case LOONG_I32:
        *type_p = ncclInt32;
        return LOONG_OK;
    case LOONG_I64:
        *type_p = ncclInt64;
        return LOONG_OK;
    case LOONG_F16:
        *type_p = ncclFloat16;
        return LOONG_OK;
    case LOONG_BF16:
        *type_p = ncclBfloat16;
        return LOONG_OK;
    case LOONG_F32:
        *type_p = ncclFloat32;
        return LOONG_OK;
    case LOONG_F64:
        *type_p = ncclFloat64;
        return LOONG_OK;
    default:
        return LOONG_FAIL(n->ctx, LOONG_ERR_UNSUPPORTED,
                          "%s of %s: NCCL has no %s",
                          loong_collective_name(call->kind), n->comm->name,
                          loong_dtype_name(call->dtype));
    }
}

static ncclRedOp_t op_of(const loong_collective_t *call)
{
    return call->reduce == LOONG_REDUCE_SUM   ? ncclSum
           : call->reduce == LOONG_REDUCE_MAX ? ncclMax
                                              : ncclMin;
}

static bool equal_pieces(const device_comm_t *n, const loong_collective_t *call)
{
    for (int r = 1; r < n->comm->size; r++) {
        if (call->counts[r] != call->counts[0]) {
            return false;
        }
    }
    return true;
}

/* A call and what it needs. */
typedef struct job {
    device_comm_t *n;
    const loong_collective_t *call;
    ncclDataType_t type;
    size_t size; /* of an element */
    ncclStream_t stream;
} job_t;

/* Pieces of any length: one after the other is reduced to, or sent by, its
 * rank. */
static ncclResult_t each_piece(const job_t *j)
{
    const nccl_library_t *l = library_of(j->n);
    char *at = j->call->data;
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < j->n->comm->size; r++) {
        size_t count = (size_t)j->call->counts[r];
        if (count > 0 && result == ncclSuccess) {
            result = j->call->kind == LOONG_COLLECTIVE_ALL_GATHER
                         ? l->Broadcast(at, at, count, j->type, r,
                                        handle_of(j->n), j->stream)
                         : l->Reduce(at, at, count, j->type, op_of(j->call), r,
                                     handle_of(j->n), j->stream);
        }
        at += count * j->size;
    }
    return result;
}

static ncclResult_t pieces(const job_t *j)
{
    const nccl_library_t *l = library_of(j->n);
    const loong_collective_t *c = j->call;
    size_t count = (size_t)c->counts[0];
    char *own = (char *)c->data + (size_t)j->n->comm->rank * count * j->size;
    if (!equal_pieces(j->n, c)) {
        return each_piece(j);
    }
    return c->kind == LOONG_COLLECTIVE_ALL_GATHER
               ? l->AllGather(own, c->data, count, j->type, handle_of(j->n),
                              j->stream)
               : l->ReduceScatter(c->data, own, count, j->type, op_of(c),
                                  handle_of(j->n), j->stream);
}

static ncclResult_t all_to_all(const job_t *j)
{
    const nccl_library_t *l = library_of(j->n);
    const loong_collective_t *c = j->call;
    const char *from = c->send;
    char *to = c->data;
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < j->n->comm->size && result == ncclSuccess; r++) {
        if (c->counts[r] > 0) {
            result = l->Send(from, (size_t)c->counts[r], j->type, r,
                             handle_of(j->n), j->stream);
        }
        if (c->receive_counts[r] > 0 && result == ncclSuccess) {
            result = l->Recv(to, (size_t)c->receive_counts[r], j->type, r,
                             handle_of(j->n), j->stream);
        }
        from += (size_t)c->counts[r] * j->size;
        to += (size_t)c->receive_counts[r] * j->size;
    }
    return result;
}

static ncclResult_t put(const job_t *j)
{
    const nccl_library_t *l = library_of(j->n);
    const loong_collective_t *c = j->call;
    switch (c->kind) {
    case LOONG_COLLECTIVE_SEND:
        return l->Send(c->data, (size_t)c->count, j->type, c->root,
                       handle_of(j->n), j->stream);
    case LOONG_COLLECTIVE_RECV:
        return l->Recv(c->data, (size_t)c->count, j->type, c->root,
                       handle_of(j->n), j->stream);
    case LOONG_COLLECTIVE_ALL_REDUCE:
        return l->AllReduce(c->data, c->data, (size_t)c->count, j->type,
                            op_of(c), handle_of(j->n), j->stream);
    case LOONG_COLLECTIVE_BROADCAST:
        return l->Broadcast(c->data, c->data, (size_t)c->count, j->type,
                            c->root, handle_of(j->n), j->stream);
    case LOONG_COLLECTIVE_ALL_TO_ALL:
        return all_to_all(j);
    default:
        return pieces(j);
    }
}

static loong_status_t enqueue(device_comm_t *n, const loong_collective_t *call)
{
    bool message = call->kind == LOONG_COLLECTIVE_SEND ||
                   call->kind == LOONG_COLLECTIVE_RECV;
    job_t job = {n, call, ncclUint8, loong_dtype_size(call->dtype),
                 message ? n->messages : n->comm->stream};
    LOONG_TRY(type_of(n, call, &job.type));
    ncclResult_t result = library_of(n)->GroupStart();
    if (result == ncclSuccess) {
        result = put(&job);
        ncclResult_t ended = library_of(n)->GroupEnd();
        result = result == ncclSuccess ? ended : result;
    }
    return settle(n, loong_collective_name(call->kind), result);
}

static loong_status_t group(device_comm_t *n, bool begin)
{
    if (!begin) {
        return settle(n, "GroupEnd", library_of(n)->GroupEnd());
    }
    ncclResult_t result = library_of(n)->GroupStart();
    return result == ncclSuccess ? LOONG_OK : failed(n, "GroupStart", result);
}

/* ---- the table ----------------------------------------------------------- */

static const device_calls_t calls = {"nccl",     connect_ranks, enqueue, group,
                                     disconnect, give_up,       check};

loong_status_t loongi_nccl_create(loong_context_t *ctx, loong_device_t *device,
                                  loong_comm_t *host, loong_comm_t **comm_p)
{
    return loongi_device_comm_create(ctx, device, host, &calls, comm_p);
}
