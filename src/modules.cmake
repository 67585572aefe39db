# The modules of the library, lowest first; see cmake/LoongModules.cmake. Each
# says what it may include. Keep the order of the architecture.
loong_module(NAME base DIR src/base PUBLIC context dtype nearest status
  LIBS jansson ${CMAKE_DL_LIBS})
set_source_files_properties(src/base/quant.c PROPERTIES COMPILE_OPTIONS -O3)
loong_module(NAME jinja DIR src/jinja USES base LIBS utf8proc)
include(cmake/LoongChatTemplates.cmake)
loong_module(NAME jinja_named DIR src/jinja/named USES base
  INCLUDES ${PROJECT_BINARY_DIR}/jinja_named)
loong_module(NAME comm DIR src/comm PUBLIC comm comm_backend exit_code
  INSIDE src/comm/inside USES base)
set_source_files_properties(src/comm/reduce.c PROPERTIES COMPILE_OPTIONS -O3)
loong_module(NAME launch DIR src/launch PUBLIC job launch USES base comm)
loong_module(NAME comm_threads DIR backends/threads INSIDE src/comm/inside
  USES base comm)
loong_module(NAME comm_self DIR backends/self INSIDE src/comm/inside
  USES base comm comm_threads)
include(cmake/LoongMpi.cmake)
if(MPI_C_FOUND)
  loong_module(NAME comm_mpi DIR backends/mpi INSIDE src/comm/inside
    USES base comm launch
    SOURCES backends/mpi/mpi_comm.c backends/mpi/mpi_heartbeat.c
            backends/mpi/mpi_world.c
    backends/mpi/mpi_version.c backends/mpi/mpi_launcher.c
    DEFINES ${LOONG_PMIX_DEFINES}
    INCLUDES ${MPI_C_INCLUDE_DIRS} ${PMIX_INCLUDE_DIRS}
    LIBS ${MPI_C_LIBRARIES} ${PMIX_LINK_LIBRARIES})
else()
  loong_module(NAME comm_mpi DIR backends/mpi USES base comm
    SOURCES backends/mpi/mpi_absent.c)
endif()

loong_module(NAME mesh DIR src/mesh PUBLIC mesh USES base)
loong_module(NAME recipe DIR src/recipe PUBLIC extension recipe
  USES base LIBS yaml)
loong_module(NAME data DIR src/data
  PUBLIC blend corpus dataset dataset_merge indexer loader processor source
  USES base mesh LIBS xxhash lzma z zstd)
loong_module(NAME tokenizer DIR src/data/tokenizer PUBLIC tokenizer USES base
  LIBS pcre2-8 utf8proc xxhash)
pkg_check_modules(IMAGES libjpeg libpng libwebp)
pkg_check_modules(ARCHIVE libarchive) # its headers; tar.c loads it
if(NOT IMAGES_FOUND OR NOT ARCHIVE_FOUND)
  message(FATAL_ERROR "pictures need libjpeg, libpng, libwebp and libarchive; "
    "on Debian: make deps, or "
    "apt-get install libjpeg-dev libpng-dev libwebp-dev libarchive-dev")
endif()
loong_module(NAME images DIR src/data/images PUBLIC image video packing
  USES base data LIBS xxhash ${IMAGES_LINK_LIBRARIES} ${CMAKE_DL_LIBS}
  INCLUDES ${IMAGES_INCLUDE_DIRS} ${ARCHIVE_INCLUDE_DIRS}
  ${PROJECT_SOURCE_DIR}/backends/video)
loong_module(NAME image_text DIR src/data/image_text
  USES base images CALLS data tokenizer LIBS xxhash)
loong_module(NAME chat DIR src/data/chat PUBLIC chat webdataset
  USES base jinja jinja_named recipe data images CALLS tokenizer LIBS xxhash
  INCLUDES ${PROJECT_SOURCE_DIR}/backends/arrow)
set_source_files_properties(src/data/images/resize.c
  PROPERTIES COMPILE_OPTIONS -O3)

loong_module(NAME device DIR src/device PUBLIC device device_types kernel
  USES base CALLS comm)
loong_module(NAME isa DIR src/isa USES base CALLS device LIBS dnnl)
loong_module(NAME device_cpu DIR backends/cpu USES base isa CALLS device)
loong_module(NAME comm_device DIR backends/device_comm INSIDE src/comm/inside
  USES base comm device)
file(GLOB xpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/xpu/*.c
  ${PROJECT_SOURCE_DIR}/backends/bkcl/*.c)
loong_module(NAME device_xpu DIR backends/xpu INSIDE src/comm/inside
  USES base device comm_device SOURCES ${xpu_sources}
  INCLUDES ${PROJECT_SOURCE_DIR}/backends/bkcl
  ${PROJECT_SOURCE_DIR}/backends/xpu LIBS ${CMAKE_DL_LIBS})
loong_module(NAME comm_staged DIR backends/staged INSIDE src/comm/inside
  USES base comm device)
loong_module(NAME graph DIR src/graph PUBLIC graph op register
  USES base CALLS mesh device)
loong_module(NAME op DIR src/op
  PUBLIC collective latent loss_ops moe ops quantize rope update
  USES base CALLS graph)
# Kernels: contracts and implementations, raw pointers and sizes only.
file(GLOB kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*.c
  ${PROJECT_SOURCE_DIR}/kernels/*/*.c)
list(FILTER kernel_sources EXCLUDE REGEX "_(cpu|cuda|xpu)\\.c$")
loong_module(NAME kernels DIR kernels USES base isa mesh CALLS op
  SOURCES ${kernel_sources} LIBS dnnl)
include(cmake/LoongIsa.cmake)
loong_isa_module(NAME kernels PATTERN kernels/*/*_cpu.c)
loong_module(NAME kernels_xpu DIR kernels/xpu USES base kernels device_xpu
  CALLS op)
loong_module(NAME pass DIR src/pass USES base graph CALLS op)
loong_module(NAME run DIR src/run USES base comm pass)
loong_module(NAME engine DIR src/engine USES base comm graph pass run)
loong_module(NAME nn DIR src/nn PUBLIC family nn
  USES base CALLS graph op data recipe)
pkg_check_modules(HDF5 REQUIRED hdf5)
loong_module(NAME safetensors DIR src/checkpoint/safetensors USES base
  LIBS xxhash DEFINES LOONG_PROJECT_VERSION="${PROJECT_VERSION}")
loong_module(NAME huggingface DIR src/checkpoint/huggingface PUBLIC hub
  USES base recipe safetensors)
loong_module(NAME foundation DIR src/model/foundation
  USES base recipe CALLS nn)
loong_module(NAME vision DIR src/model/vision
  USES base recipe CALLS nn)
loong_module(NAME projector DIR src/model/projector
  USES base recipe CALLS nn)
loong_module(NAME foundation_hf DIR src/model/foundation/hf
  USES base foundation huggingface)
loong_module(NAME vision_hf DIR src/model/vision/hf
  USES base vision huggingface)
loong_module(NAME projector_hf DIR src/model/projector/hf
  USES base recipe projector huggingface)
loong_module(NAME composite DIR src/model/composite
  USES base safetensors huggingface)
loong_module(NAME native DIR src/checkpoint/native USES base safetensors
  LIBS ${HDF5_LINK_LIBRARIES} INCLUDES ${HDF5_INCLUDE_DIRS})
loong_module(NAME exchange DIR src/checkpoint PUBLIC checkpoint
  USES base safetensors huggingface native CALLS nn)
loong_module(NAME draft DIR src/checkpoint/draft
  USES base safetensors huggingface native CALLS exchange)
loong_module(NAME metrics DIR src/metrics PUBLIC progress USES base
  CALLS device)
loong_module(NAME optim DIR src/optim USES base recipe pass run)
loong_module(NAME component DIR src/component
  USES base comm device graph pass run nn engine optim)
loong_module(NAME plan DIR src/plan
  USES base isa device pass run engine optim component metrics CALLS launch)
loong_module(NAME training_files DIR src/checkpoint/training
  USES base recipe graph component huggingface native exchange
  CALLS tokenizer)
loong_module(NAME report DIR src/report
  USES base comm device run nn plan metrics native)
loong_module(NAME features DIR src/features
  USES base data component plan huggingface native CALLS launch tokenizer)
loong_module(NAME run_data DIR src/run_data
  USES base data component plan training_files features exchange
  CALLS images chat tokenizer)
loong_module(NAME show DIR src/show
  USES base data images component plan training_files features run_data
  CALLS tokenizer)
loong_module(NAME train DIR src/train PUBLIC trainer
  USES base comm data component huggingface native exchange plan
  training_files report features run_data show CALLS launch images)
include(cmake/LoongCuda.cmake)
loong_module(NAME registry DIR src/registry
  USES base op kernels kernels_xpu device_cpu device_xpu comm_staged foundation_hf vision_hf projector_hf
  run_data images image_text chat
  INCLUDES ${PROJECT_SOURCE_DIR}/backends/cuda)
loong_module(NAME version DIR src/version PUBLIC version
  USES kernels native comm_mpi
  DEFINES LOONG_PROJECT_VERSION="${PROJECT_VERSION}")
