# Kernels that are compiled several times from one source, once per instruction
# set level; the level is chosen at run time (src/isa/isa.h).
#
#   loong_isa_module(NAME kernels PATTERN kernels/*/*_cpu.c)
#
# They may include what the module NAME may. Each copy is compiled with LOONG_ISA=<level> and names what it defines with
# LOONG_ISA_NAME(x).
set(LOONG_ISA_FLAGS_base "")
set(LOONG_ISA_FLAGS_avx2 -march=x86-64-v3)
set(LOONG_ISA_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(LOONG_ISA_FLAGS_avx512_bf16 ${LOONG_ISA_FLAGS_avx512} -mavx512bf16)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(LOONG_ISA_LEVELS base avx2 avx512 avx512_bf16)
else()
  set(LOONG_ISA_LEVELS base)
endif()

function(loong_isa_module)
  cmake_parse_arguments(M "" "NAME;PATTERN" "" ${ARGN})
  get_target_property(dirs loong_${M_NAME} INTERFACE_INCLUDE_DIRECTORIES)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${M_PATTERN})
  foreach(level ${LOONG_ISA_LEVELS})
    set(target loong_${M_NAME}_${level})
    add_library(${target} OBJECT ${sources})
    target_include_directories(${target} PRIVATE ${dirs})
    target_compile_definitions(${target} PRIVATE LOONG_ISA=${level})
    # Vectorisation and fused multiply-add are the point of these copies.
    target_compile_options(${target} PRIVATE -O3 -ffp-contract=fast
      -fno-trapping-math ${LOONG_ISA_FLAGS_${level}})
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_C)
    set_property(GLOBAL APPEND PROPERTY LOONG_MODULES ${target})
  endforeach()
endfunction()
