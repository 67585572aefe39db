# train.attention_backend on the simulated device; and the real cuDNN, where it
# is: its header, and plans for GPUs that are not.
if(COMMAND loong_cuda_sim_test)
  loong_cuda_sim_test(NAME cuda_cudnn LABELS sim
    SOURCES ${PROJECT_SOURCE_DIR}/tests/cudnn/test_cuda_cudnn.c
    ${cudasim}/train_run.c)
  target_include_directories(test_cuda_cudnn PRIVATE ${cudasim})
  add_test(NAME cuda_cudnn_long COMMAND test_cuda_cudnn long
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(cuda_cudnn_long PROPERTIES LABELS "sim;full"
    TIMEOUT 300 ENVIRONMENT OMP_NUM_THREADS=1)
endif()
find_library(LOONG_CUDNN_FOUND libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR}
  /usr/local/cuda/lib64)
find_path(LOONG_CUDNN_INCLUDE cudnn_graph_v9.h cudnn_graph.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
if(NOT LOONG_CUDNN_FOUND OR NOT LOONG_CUDNN_INCLUDE)
  message(STATUS "cudnn_abi, cudnn_plans: skipped, no libcudnn.so.9 with its headers")
  return()
endif()
if(EXISTS ${LOONG_CUDNN_INCLUDE}/cudnn_graph_v9.h)
  set(cudnn_header ${LOONG_CUDNN_INCLUDE}/cudnn_graph_v9.h)
else()
  set(cudnn_header ${LOONG_CUDNN_INCLUDE}/cudnn_graph.h)
endif()
loong_test(NAME cudnn_abi LABELS unit SOURCES tests/cudnn/test_abi.c)
target_compile_definitions(test_cudnn_abi PRIVATE
  CUDNN_HEADER="${cudnn_header}")

# In front of the machine's libcuda, should it have one.
add_library(cudnn_driver SHARED tests/cudnn/driver.c)
set_target_properties(cudnn_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
  C_VISIBILITY_PRESET default
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/cudnn_driver)
loong_test(NAME cudnn_plans LABELS unit
  SOURCES tests/cudnn/test_plans.c ${LOONG_CUDNN_SOURCES})
target_compile_definitions(test_cudnn_plans PRIVATE
  LOONG_CUDNN_LIBRARY="${LOONG_CUDNN_FOUND}")
target_link_libraries(test_cudnn_plans PRIVATE
  -Wl,--no-as-needed cudnn_driver)
if(LOONG_SANITIZE) # cuDNN itself does not give all of its memory back
  set_tests_properties(cudnn_plans PROPERTIES
    ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
add_test(NAME cudnn_plans_long COMMAND test_cudnn_plans all
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(cudnn_plans_long PROPERTIES LABELS "unit;full"
  TIMEOUT 600)
