# All that tests/gpu/run.sh builds, linked, with the kernels for every GPU that a
# release is built for. Ten minutes of a core and more: full. The everyday build
# compiles the kernels for one, and links libloong and the tools with them.
if(LOONG_CUDA_FOUND)
  add_test(NAME cuda_architectures COMMAND ${CMAKE_CTEST_COMMAND}
    --build-and-test ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/cuda_architectures
    --build-generator ${CMAKE_GENERATOR} --build-target gpu
    --build-noclean --build-options -DLOONG_CUDA=ON -DLOONG_WERROR=ON
    -DLOONG_TEST_GPU=ON
    "-DLOONG_CUDA_ARCHITECTURES=80-real;90a-real;100")
  set_tests_properties(cuda_architectures PROPERTIES LABELS full TIMEOUT 7200)
endif()
