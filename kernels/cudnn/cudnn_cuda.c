/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads cuDNN, opens a handle on a device or on a description of one, and says
 * the version. Called by kernels/attention/attention_cudnn_cuda.c. Read
 * cudnn_graph.h before. */
#include <dlfcn.h>
#include <string.h>

#include "cudnn_attention.h"
#include "cudnn_graph.h"
#include "object.h"

static loong_status_t load(loong_context_t *ctx, loong_cudnn_t *c)
{
    static const char *const places[] = {LOONG_CUDNN_LIBRARY, "libcudnn.so.9"};
    char why[LOONG_OBJECT_REASON] = "";
    for (int i = 0; i < LOONG_COUNT_OF(places) && c->library == NULL; i++) {
        c->library = loongi_object_open(
            places[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE, why, sizeof(why));
    }
    LOONG_CHECK(ctx, c->library != NULL, LOONG_ERR_UNSUPPORTED,
                "attention by cuDNN needs that library: %s", why);
#define LOAD(name_)                                                           \
    *(void **)(void *)&c->name_ = dlsym(c->library, "cudnn" #name_);          \
    LOONG_CHECK(ctx, c->name_ != NULL, LOONG_ERR_UNSUPPORTED,                 \
                "this libcudnn has no cudnn" #name_ ": 9.18 or later is "     \
                "wanted");
    LOONG_CUDNN_FUNCTIONS(LOAD)
#undef LOAD
    size_t version = c->GetVersion();
    LOONG_CHECK(ctx, version >= LOONG_CUDNN_OLDEST, LOONG_ERR_UNSUPPORTED,
                "cuDNN %zu.%zu.%zu was found, 9.18 or later is wanted",
                version / 10000, version / 100 % 100, version % 100);
    return LOONG_OK;
}

static loong_status_t describe(loong_context_t *ctx, loong_cudnn_t *c,
                               const char *description)
{
    char text[LOONG_CUDNN_REASON];
    cudnnStatus_t status = c->BackendCreateDescriptor(
        CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->description);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = c->BackendSetAttribute(
            c->description, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
            CUDNN_TYPE_CHAR, (int64_t)strlen(description), description);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = c->BackendFinalize(c->description);
    }
    LOONG_CHECK(ctx, status == CUDNN_STATUS_SUCCESS, LOONG_ERR_UNSUPPORTED,
                "cuDNN, the description of a device: %s",
                loongi_cudnn_reason(c, status, text));
    return LOONG_OK;
}

static loong_status_t open_device(loong_context_t *ctx, loong_cudnn_t *c)
{
    char text[LOONG_CUDNN_REASON];
    cudnnStatus_t status = c->Create(&c->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        c->handle = NULL;
        return LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED, "cudnnCreate: %s",
                          loongi_cudnn_reason(c, status, text));
    }
    return LOONG_OK;
}

loong_status_t loongi_cudnn_open(loong_context_t *ctx, const char *description,
                                 loong_cudnn_t **cudnn_p)
{
    loong_cudnn_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "cuDNN", &c));
    loong_status_t status = load(ctx, c);
    if (status == LOONG_OK) {
        status = description != NULL ? describe(ctx, c, description)
                                     : open_device(ctx, c);
    }
    if (status != LOONG_OK) {
        loongi_cudnn_close(ctx, c);
        return status;
    }
    *cudnn_p = c;
    return LOONG_OK;
}

void loongi_cudnn_close(loong_context_t *ctx, loong_cudnn_t *cudnn)
{
    if (cudnn == NULL) {
        return;
    }
    if (cudnn->description != NULL) {
        cudnn->BackendDestroyDescriptor(cudnn->description);
    }
    if (cudnn->handle != NULL) {
        cudnn->Destroy(cudnn->handle);
    }
    if (cudnn->library != NULL) {
        dlclose(cudnn->library);
    }
    loongi_free(ctx, cudnn);
}

size_t loongi_cudnn_version(const loong_cudnn_t *cudnn)
{
    return cudnn->GetVersion();
}
