# Tests on a real NVIDIA GPU. tests/gpu/run.sh builds and runs them.
option(LOONG_TEST_GPU "tests that need an NVIDIA GPU" OFF)
# Libraries of CUDA's names that are not NVIDIA's.
if(LOONG_CUDA_FOUND)
  add_test(NAME gpu_kunlun COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/kunlun.sh
    ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER})
  set_tests_properties(gpu_kunlun PROPERTIES LABELS cli TIMEOUT 60)
endif()

if(NOT LOONG_TEST_GPU)
  return()
endif()
if(NOT LOONG_CUDA_FOUND)
  message(FATAL_ERROR "LOONG_TEST_GPU=ON, but there is no CUDA toolkit of version 13")
endif()

add_custom_target(gpu DEPENDS loongrun loong-bench)
foreach(name ${LOONG_CUDA_OP_TESTS})
  loong_test(NAME gpu_op_${name} LABELS gpu TIMEOUT 300 SERIAL SOURCES
    ${PROJECT_SOURCE_DIR}/tests/ops/test_${name}.c ${LOONG_OP_TEST_SOURCES})
  target_compile_definitions(test_gpu_op_${name} PRIVATE OP_DEVICE="cuda")
  loong_with_cuda(test_gpu_op_${name})
  add_dependencies(gpu test_gpu_op_${name})
endforeach()
