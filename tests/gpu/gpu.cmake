# Tests on a real NVIDIA GPU. tests/gpu/run.sh builds and runs them.
option(LOONG_TEST_GPU "tests that need an NVIDIA GPU" OFF)

# That script itself, with made-up tools.
find_program(LOONG_PYTHON python3)
if(LOONG_PYTHON)
  add_test(NAME gpu_run COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/test_run.sh
    ${PROJECT_SOURCE_DIR})
  set_tests_properties(gpu_run PROPERTIES LABELS "cli;full" TIMEOUT 300)
else()
  message(STATUS "tests/gpu/run.sh: not tested, no python3")
endif()

# Libraries of CUDA's names that are not NVIDIA's; and when what ran on the GPU
# (tests/gpu/gaps.py).
if(LOONG_CUDA_FOUND)
  add_test(NAME gpu_kunlun COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/kunlun.sh
    ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER})
  set_tests_properties(gpu_kunlun PROPERTIES LABELS cli TIMEOUT 60)
  # Reads that kernels have under way: in what nvcc writes, and where there is a
  # disassembler in the machine code of the library.
  if(LOONG_PYTHON)
    set(loads ${LOONG_PYTHON} ${PROJECT_SOURCE_DIR}/tests/gpu/loads.py)
    set(table ${PROJECT_SOURCE_DIR}/tests/gpu/loads.txt)
    set(kernels ${PROJECT_SOURCE_DIR}/kernels)
    set(includes $<TARGET_PROPERTY:loong_cuda,INCLUDE_DIRECTORIES>)
    set(includes "-I$<JOIN:$<REMOVE_DUPLICATES:${includes}>, -I>")
    add_test(NAME cuda_loads COMMAND ${loads}
      --nvcc "${CMAKE_CUDA_COMPILER} -std=c++17 -arch=sm_90 ${includes}" ${table}
      ${kernels}/elementwise/elementwise_cuda.cu
      ${kernels}/elementwise/move_cuda.cu
      ${kernels}/activation/activation_cuda.cu ${kernels}/rope/rope_cuda.cu)
    set_tests_properties(cuda_loads PROPERTIES LABELS cli TIMEOUT 120)
    find_program(LOONG_CUOBJDUMP cuobjdump PATHS ${CUDAToolkit_BIN_DIR})
    if(LOONG_CUOBJDUMP)
      get_filename_component(where ${LOONG_CUOBJDUMP} DIRECTORY)
      set(objects ${PROJECT_BINARY_DIR}/CMakeFiles/loong_cuda.dir/kernels)
      add_test(NAME cuda_loads_sass COMMAND ${CMAKE_COMMAND} -E env
        "PATH=${where}:$ENV{PATH}" ${loads} ${table}
        ${objects}/elementwise/elementwise_cuda.cu.o
        ${objects}/elementwise/move_cuda.cu.o
        ${objects}/activation/activation_cuda.cu.o
        ${objects}/rope/rope_cuda.cu.o ${objects}/norm/norm_cuda.cu.o
        ${objects}/optimizer/update_cuda.cu.o)
      set_tests_properties(cuda_loads_sass PROPERTIES LABELS cli TIMEOUT 60)
    else()
      message(STATUS "cuda_loads_sass: skipped, no cuobjdump")
    endif()
  endif()
  if(TARGET CUDA::cupti)
    add_library(loong_trace MODULE tests/gpu/trace.c)
    target_link_libraries(loong_trace PRIVATE CUDA::cupti)
  else()
    message(STATUS "tests/gpu/gaps.py: without CUPTI, nsys alone")
  endif()
endif()

if(NOT LOONG_TEST_GPU)
  return()
endif()
if(NOT LOONG_CUDA_FOUND)
  message(FATAL_ERROR "LOONG_TEST_GPU=ON needs CUDA: ${LOONG_CUDA_WHY}")
endif()

add_custom_target(gpu DEPENDS loongrun loong-bench loong-ckpt)
if(TARGET loong_trace)
  add_dependencies(gpu loong_trace)
endif()
loong_op_cases(loong_op_cases_gpu OP_DEVICE="cuda" OP_LARGE=1)
foreach(name ${LOONG_CUDA_OP_TESTS})
  loong_test(NAME gpu_op_${name} LABELS "gpu;gpu_ops" TIMEOUT 300 SOURCES
    ${PROJECT_SOURCE_DIR}/tests/ops/test_${name}.c LIBS loong_op_cases_gpu)
  loong_with_cuda(test_gpu_op_${name})
  add_dependencies(gpu test_gpu_op_${name})
endforeach()
foreach(name golden bf16)
  loong_test(NAME gpu_golden_${name} LABELS "gpu;gpu_golden" TIMEOUT 400
    SOURCES tests/golden/test_${name}.c tests/golden/fixture.c)
  target_compile_definitions(test_gpu_golden_${name} PRIVATE
    FIXTURE_DEVICE="cuda")
  target_include_directories(test_gpu_golden_${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/tests/golden)
  loong_with_cuda(test_gpu_golden_${name})
  add_dependencies(gpu test_gpu_golden_${name})
endforeach()
