# NVIDIA GPUs by LOONG_CUDA (AUTO, ON, OFF): the shared library has the backend
# and its kernels, or cuda_absent.c in their place. Tests have the latter, and
# the former on a simulated device (tests/sim). The runtime is linked into the
# library, which so starts without a driver and without CUDA.
set(LOONG_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON, OFF")
set(LOONG_CUDA_ARCHITECTURES 90 CACHE STRING
  "GPUs that kernels are compiled for, e.g. 80;90a;100; and PTX of the last")
file(GLOB LOONG_CUDA_KERNELS CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/kernels/*/*_cuda.cu)
set(LOONG_CUDNN_SOURCES ${PROJECT_SOURCE_DIR}/kernels/cudnn/cudnn_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cudnn/cudnn_graph_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cudnn/cudnn_plan_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cudnn/attention_cuda.c)
set(LOONG_CUDA_SOURCES ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_device.c
  ${PROJECT_SOURCE_DIR}/backends/nccl/nccl_comm.c
  ${PROJECT_SOURCE_DIR}/backends/nccl/nccl_calls.c
  ${PROJECT_SOURCE_DIR}/kernels/list_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cublaslt/cublaslt_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cublaslt/choose_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/attention/attention_cudnn_cuda.c
  ${LOONG_CUDNN_SOURCES})

add_library(loong_cuda_absent OBJECT
  ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_absent.c)
target_include_directories(loong_cuda_absent PUBLIC
  ${PROJECT_SOURCE_DIR}/backends/cuda ${PROJECT_SOURCE_DIR}/include)

set(LOONG_CUDA_FOUND FALSE)
if(LOONG_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off (LOONG_CUDA=OFF)")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${LOONG_CUDA_ARCHITECTURES})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 13)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(LOONG_CUDA_FOUND TRUE)
    message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for ${LOONG_CUDA_ARCHITECTURES}")
  elseif(LOONG_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOONG_CUDA=ON, but no CUDA toolkit of version 13 was found: put nvcc on PATH or set CUDACXX")
  else()
    message(STATUS "CUDA: skipped, no toolkit of version 13 was found (nvcc on PATH, or CUDACXX)")
  endif()
endif()

if(LOONG_CUDA_FOUND)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  add_library(loong_cuda OBJECT ${LOONG_CUDA_SOURCES} ${LOONG_CUDA_KERNELS})
  target_include_directories(loong_cuda PRIVATE
    $<TARGET_PROPERTY:loong_kernels,INTERFACE_INCLUDE_DIRECTORIES>
    $<TARGET_PROPERTY:loong_device,INTERFACE_INCLUDE_DIRECTORIES>
    $<TARGET_PROPERTY:loong_comm,INTERFACE_INCLUDE_DIRECTORIES>
    ${PROJECT_SOURCE_DIR}/backends/cuda ${PROJECT_SOURCE_DIR}/backends/nccl
    ${PROJECT_SOURCE_DIR}/kernels/cublaslt)
  target_include_directories(loong_cuda SYSTEM PRIVATE
    ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(loong_cuda PRIVATE
    LOONG_NCCL_LIBRARY="libnccl.so.2"
    LOONG_CUDNN_LIBRARY="${CUDAToolkit_LIBRARY_DIR}/libcudnn.so.9"
    LOONG_CUBLASLT_LIBRARY="${CUDAToolkit_LIBRARY_DIR}/libcublasLt.so.13")
  target_compile_options(loong_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-exceptions,-fvisibility=hidden>)
endif()

# The backend, or its absence, for both libraries.
function(loong_link_cuda)
  target_sources(loong_all PRIVATE $<TARGET_OBJECTS:loong_cuda_absent>)
  target_include_directories(loong_all PUBLIC
    ${PROJECT_SOURCE_DIR}/backends/cuda)
  if(LOONG_CUDA_FOUND)
    loong_with_cuda(loong)
    target_link_options(loong PRIVATE LINKER:--exclude-libs,ALL)
  else()
    target_sources(loong PRIVATE $<TARGET_OBJECTS:loong_cuda_absent>)
  endif()
endfunction()

# The backend in a program that links loong_all: its objects stand in front of
# cuda_absent.c. Without a toolkit nothing changes.
function(loong_with_cuda target)
  if(LOONG_CUDA_FOUND)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:loong_cuda>)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
endfunction()
