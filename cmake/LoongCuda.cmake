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
  ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_caps.c
  ${PROJECT_SOURCE_DIR}/backends/nccl/nccl_calls.c
  ${PROJECT_SOURCE_DIR}/kernels/list_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cublaslt/library_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cublaslt/cublaslt_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/cublaslt/choose_cuda.c
  ${PROJECT_SOURCE_DIR}/kernels/attention/attention_cudnn_cuda.c
  ${LOONG_CUDNN_SOURCES})

add_library(loong_cuda_absent OBJECT
  ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_absent.c
  ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_caps.c)
target_include_directories(loong_cuda_absent PUBLIC
  ${PROJECT_SOURCE_DIR}/backends/cuda
  $<TARGET_PROPERTY:loong_device,LOONG_API>)

# What the backend needs of the toolkit and is not there, with the package of
# NVIDIA's that has it; "": nothing.
function(loong_cuda_lacks lacks_p)
  set(lacks "")
  if(NOT CMAKE_CUDA_COMPILER)
    set(lacks "no nvcc that compiles a program (cuda-nvcc-13-0; put it on PATH or set CUDACXX)")
  elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
    set(lacks "nvcc of version 13 or later is wanted, ${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_VERSION} (cuda-nvcc-13-0; put it on PATH or set CUDACXX)")
  elseif(NOT CUDAToolkit_FOUND)
    set(lacks "no cuda_runtime.h or libcudart beside ${CMAKE_CUDA_COMPILER} (cuda-cudart-dev-13-0)")
  elseif(NOT TARGET CUDA::cudart_static)
    set(lacks "no libcudart_static.a in ${CUDAToolkit_LIBRARY_DIR} (cuda-cudart-dev-13-0)")
  endif()
  foreach(part cuda_bf16.h=cuda-cudart-dev cublasLt.h=libcublas-dev
      nvtx3/nvToolsExt.h=cuda-nvtx)
    string(REPLACE "=" ";" part ${part})
    list(GET part 0 header)
    list(GET part 1 package)
    find_path(where ${header} PATHS ${CUDAToolkit_INCLUDE_DIRS}
      NO_DEFAULT_PATH NO_CACHE)
    if(NOT lacks AND NOT where)
      set(lacks "no ${header} in ${CUDAToolkit_INCLUDE_DIRS} (${package}-13-0)")
    endif()
    unset(where)
  endforeach()
  set(${lacks_p} "${lacks}" PARENT_SCOPE)
endfunction()

set(LOONG_CUDA_FOUND FALSE)
if(LOONG_CUDA STREQUAL "OFF")
  set(LOONG_CUDA_WHY "LOONG_CUDA=OFF")
  message(STATUS "CUDA: off (LOONG_CUDA=OFF)")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${LOONG_CUDA_ARCHITECTURES})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25's module fails for a project that asks for 3.25 where there is
    # no libnvToolsExt: CUDA 13 has none.
    set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
    find_package(CUDAToolkit)
    set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
  endif()
  loong_cuda_lacks(LOONG_CUDA_WHY)
  if(NOT LOONG_CUDA_WHY)
    set(LOONG_CUDA_FOUND TRUE)
    message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for ${LOONG_CUDA_ARCHITECTURES}")
  elseif(LOONG_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOONG_CUDA=ON: ${LOONG_CUDA_WHY}")
  else()
    message(STATUS "CUDA: skipped, ${LOONG_CUDA_WHY}")
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
    $<TARGET_PROPERTY:loong_comm_device,INTERFACE_INCLUDE_DIRECTORIES>
    ${PROJECT_SOURCE_DIR}/src/comm/inside
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
  # Instructions that compute capability 9.0 alone has are compiled for it
  # whatever else is.
  if(NOT "${LOONG_CUDA_ARCHITECTURES}" MATCHES "90a")
    file(GLOB wgmma ${PROJECT_SOURCE_DIR}/kernels/*/*_wgmma_cuda.cu)
    set_source_files_properties(${wgmma} PROPERTIES
      COMPILE_OPTIONS "-gencode=arch=compute_90a,code=sm_90a")
  endif()
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
