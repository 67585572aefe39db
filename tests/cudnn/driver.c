/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver without a device: what cuDNN looks up in libcuda when it builds a
 * plan. Compiled kernels are loaded to nowhere, all else fails as the toolkit's
 * stub does. */
#define ABSENT(name_) \
    int name_(void);  \
    int name_(void)   \
    {                 \
        return 34; /* CUDA_ERROR_STUB_LIBRARY */ \
    }
#define DONE(name_)  \
    int name_(void); \
    int name_(void)  \
    {                \
        return 0;    \
    }
#define GIVES(name_)        \
    int name_(void **made); \
    int name_(void **made)  \
    {                       \
        static int thing;   \
        *made = &thing;     \
        return 0;           \
    }

GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)
GIVES(cuModuleLoadData)
GIVES(cuModuleGetFunction)
DONE(cuLibraryUnload)
DONE(cuKernelSetAttribute)
DONE(cuFuncSetAttribute)
DONE(cuModuleUnload)

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

ABSENT(cuLaunchKernel)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLinkDestroy)
ABSENT(cuLinkComplete)
ABSENT(cuLaunchKernelEx)
ABSENT(cuGetErrorString)
ABSENT(cuGetErrorName)
ABSENT(cuDeviceGet)
ABSENT(cuCtxPushCurrent)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxGetLimit)
ABSENT(cuStreamGetCtx)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuLinkCreate)
ABSENT(cuLinkAddData)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuKernelGetAttribute)
ABSENT(cuDeviceGetCount)
ABSENT(cuCtxGetCurrent)
ABSENT(cuTensorMapEncodeTiled)
ABSENT(cuStreamSynchronize)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuModuleLoadFatBinary)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkAddFile_v2)
ABSENT(cuLinkAddData_v2)
ABSENT(cuInit)
ABSENT(cuFuncGetAttribute)
ABSENT(cuDevicePrimaryCtxRetain)
ABSENT(cuDevicePrimaryCtxReset)
ABSENT(cuDevicePrimaryCtxRelease)
ABSENT(cuDeviceGetAttribute)
ABSENT(cuCtxGetDevice)
