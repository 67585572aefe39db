# Simulated devices: the kernels and the backends of devices that are not
# there, compiled for the processor and run by the everyday tests.

# Of tests/ops, what runs on a CUDA device: here, and on a real one (tests/gpu).
set(LOONG_CUDA_OP_TESTS linear head_linear attention cross_entropy pointwise tables in_place
  optimizer adamw_bf16 update muon_ops moe moe_rows router router_sets rms_scale segment select_rows
  token_logprob softmax_cross_entropy kl_estimate quantize rules)

if(LOONG_SANITIZE)
  message(STATUS "Simulated CUDA device: skipped, it sanitizes by itself")
  return()
endif()
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(STATUS "Simulated CUDA device: skipped, no C++ compiler")
  return()
endif()
enable_language(CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
set(cudasim ${PROJECT_SOURCE_DIR}/tests/sim/cuda)
include(tests/sim/xpu/xpu.cmake)
include(tests/sim/xpu/raw.cmake)
include(tests/xpu/xpu.cmake)
include(tests/sim/host_offload.cmake)

add_library(cudasim SHARED ${PROJECT_SOURCE_DIR}/tests/sim/fiber.cc
  ${cudasim}/engine.cc ${cudasim}/warp.cc ${cudasim}/memory.cc
  ${cudasim}/stream.cc ${cudasim}/graph.cc ${cudasim}/runtime.cc
  ${cudasim}/blaslt.cc ${cudasim}/blaslt_run.cc ${cudasim}/tensor.cc
  ${cudasim}/nccl.cc ${cudasim}/nccl_run.cc ${cudasim}/plant.cc
  ${cudasim}/cudnn.cc ${cudasim}/cudnn_run.cc)
target_include_directories(cudasim PUBLIC ${cudasim}/include ${cudasim}
  ${PROJECT_SOURCE_DIR}/tests/sim)
target_include_directories(cudasim PRIVATE ${PROJECT_SOURCE_DIR}/backends/nccl
  ${PROJECT_SOURCE_DIR}/kernels/cudnn)
target_link_libraries(cudasim PRIVATE Threads::Threads)
# Contexts of threads are switched by hand: no frame may be assumed.
target_compile_options(cudasim PRIVATE -O2 -fno-omit-frame-pointer
  -fno-semantic-interposition)

# Every access of device code is announced to memory.cc. Vectors that the
# source does not name would change the sizes of accesses.
set(cudasim_checked -O2 -fno-tree-vectorize -fno-tree-slp-vectorize
  -fno-store-merging -fno-exceptions -fno-rtti
  -Wno-unknown-pragmas -Wno-unused-function)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND cudasim_checked -fsanitize=kernel-address
    --param asan-instrumentation-with-call-threshold=0
    --param asan-globals=0 --param asan-stack=0)
endif()

# Sources of device code as C++: one file that includes each.
function(cudasim_device_code target)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(copy ${PROJECT_BINARY_DIR}/cudasim/${name}.cc)
    file(CONFIGURE OUTPUT ${copy} CONTENT "#include \"${source}\"\n")
    target_sources(${target} PRIVATE ${copy})
    set_source_files_properties(${copy} PROPERTIES
      COMPILE_OPTIONS "${cudasim_checked}" OBJECT_DEPENDS ${source})
  endforeach()
endfunction()

loong_test(NAME cudasim LABELS sim SOURCES ${cudasim}/test_cudasim.c)
cudasim_device_code(test_cudasim ${cudasim}/proof.cu)
target_link_libraries(test_cudasim PRIVATE cudasim)
loong_test(NAME cudasim_capture LABELS sim SOURCES ${cudasim}/test_capture.c)
cudasim_device_code(test_cudasim_capture ${cudasim}/proof.cu)
target_link_libraries(test_cudasim_capture PRIVATE cudasim)

# The backend and its kernels, for tests.
add_library(loong_cuda_sim OBJECT ${LOONG_CUDA_SOURCES})
target_include_directories(loong_cuda_sim BEFORE PRIVATE ${cudasim}/include
  ${PROJECT_SOURCE_DIR}/backends/cuda ${PROJECT_SOURCE_DIR}/backends/nccl
  ${PROJECT_SOURCE_DIR}/kernels/cublaslt ${PROJECT_SOURCE_DIR}/src/comm/inside
  $<TARGET_PROPERTY:loong_comm_device,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:loong_kernels,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:loong_device,INTERFACE_INCLUDE_DIRECTORIES>)
cudasim_device_code(loong_cuda_sim ${LOONG_CUDA_KERNELS})
target_compile_definitions(loong_cuda_sim PRIVATE LOONG_CUBLASLT_WORKSPACE=4096
  LOONG_CUDA_CONTEXT_BYTES=0 LOONG_CUDA_PIECE_BYTES=512
  LOONG_CUDA_COMMUNICATOR_BYTES=0
  LOONG_CUDNN_LAUNCH_BYTES=65536
  LOONG_NCCL_LIBRARY="$<TARGET_FILE:cudasim>"
  LOONG_CUBLASLT_LIBRARY="$<TARGET_FILE:cudasim>"
  LOONG_CUDNN_LIBRARY="$<TARGET_FILE:cudasim>")

# A test of this device: the objects stand in front of cuda_absent.c.
function(loong_cuda_sim_test)
  loong_test(${ARGV})
  cmake_parse_arguments(T "" "NAME" "" ${ARGN})
  target_sources(test_${T_NAME} PRIVATE $<TARGET_OBJECTS:loong_cuda_sim>)
  target_link_libraries(test_${T_NAME} PRIVATE cudasim)
  # What is compared with is small.
  set_tests_properties(${T_NAME} PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()

loong_cuda_sim_test(NAME cuda_device LABELS sim
  SOURCES ${cudasim}/test_device.c
  ${PROJECT_SOURCE_DIR}/tests/sim/device_streams.c)
# Devices with less shared memory.
loong_op_cases(loong_op_cases_cuda OP_DEVICE="cuda")
loong_cuda_sim_test(NAME cuda_shared LABELS sim
  SOURCES ${cudasim}/test_shared.c LIBS loong_op_cases_cuda)
# loongrun on this device: processes that have one each.
add_executable(loongrun_cudasim ${LOONGRUN_SOURCES}
  $<TARGET_OBJECTS:loong_cuda_sim>)
add_dependencies(loongrun_cudasim loong_commit)
target_link_libraries(loongrun_cudasim PRIVATE loong_all cudasim)
target_include_directories(loongrun_cudasim PRIVATE ${PROJECT_BINARY_DIR})
target_compile_definitions(loongrun_cudasim PRIVATE
  LOONG_CONFIG_DIR="${PROJECT_SOURCE_DIR}/configs"
  LOONG_TO_CONFIGS="../share/loong/configs")
# What tests/gpu/run.sh asks of the tools, in small.
add_test(NAME cuda_bench COMMAND ${cudasim}/bench.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(cuda_bench PROPERTIES LABELS sim TIMEOUT 120
  ENVIRONMENT OMP_NUM_THREADS=1)
if(MPI_C_FOUND)
  add_test(NAME cuda_loongrun COMMAND ${cudasim}/loongrun.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE}
    $<$<BOOL:${LOONG_CUDA_FOUND}>:loongrun>)
  add_test(NAME cuda_abort COMMAND ${cudasim}/abort.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME cuda_uses COMMAND ${cudasim}/uses.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME cuda_uses_long COMMAND ${cudasim}/uses.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} all)
  foreach(name cuda_uses cuda_uses_long)
    set_tests_properties(${name} PROPERTIES LABELS sim TIMEOUT 400
      RUN_SERIAL ON
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endforeach()
  set_tests_properties(cuda_uses_long PROPERTIES LABELS "sim;full")
  add_test(NAME cuda_components COMMAND ${cudasim}/components.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME cuda_components_long COMMAND ${cudasim}/components.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} all)
  set_tests_properties(cuda_components cuda_components_long PROPERTIES
    LABELS sim TIMEOUT 120
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  set_tests_properties(cuda_components_long PROPERTIES LABELS "sim;full"
    TIMEOUT 1200)
  set_tests_properties(cuda_loongrun cuda_abort PROPERTIES LABELS "sim;fault"
    TIMEOUT 240
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  loong_test_waits(cuda_loongrun cuda_abort)
  set_tests_properties(cuda_loongrun PROPERTIES COST 40)
endif()
# What transformers computed, as far as there are kernels.
loong_cuda_sim_test(NAME cuda_golden LABELS "sim;golden" TIMEOUT 300
  SOURCES ${PROJECT_SOURCE_DIR}/tests/golden/test_golden.c
  ${PROJECT_SOURCE_DIR}/tests/golden/fixture.c)
loong_cuda_sim_test(NAME cuda_golden_vision LABELS "sim;golden"
  SOURCES ${PROJECT_SOURCE_DIR}/tests/golden/test_vision.c)
loong_cuda_sim_test(NAME cuda_golden_bf16 LABELS "sim;golden;full" TIMEOUT 900
  SOURCES ${PROJECT_SOURCE_DIR}/tests/golden/test_bf16.c
  ${PROJECT_SOURCE_DIR}/tests/golden/fixture.c)
foreach(name cuda_golden cuda_golden_vision cuda_golden_bf16)
  target_compile_definitions(test_${name} PRIVATE FIXTURE_DEVICE="cuda")
  target_include_directories(test_${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/tests/golden)
endforeach()
loong_cuda_sim_test(NAME cuda_predict LABELS sim
  SOURCES ${cudasim}/test_predict.c)
add_dependencies(test_cuda_predict xpusim_all) # for jobs that have both
set_property(TEST cuda_predict APPEND PROPERTY ENVIRONMENT
  LOONG_XPU_PATH=${XPUSIM_DIR})
loong_cuda_sim_test(NAME cuda_nccl LABELS sim
  SOURCES ${cudasim}/test_nccl.c ${PROJECT_SOURCE_DIR}/tests/sim/comm_place.c)
loong_cuda_sim_test(NAME cuda_train LABELS sim
  SOURCES ${cudasim}/test_train.c ${cudasim}/train_run.c)
loong_cuda_sim_test(NAME cuda_overhead LABELS sim
  SOURCES ${cudasim}/test_device_overhead.c ${cudasim}/train_run.c)
loong_cuda_sim_test(NAME cuda_dispatch LABELS sim
  SOURCES ${cudasim}/test_dispatch.c)
loong_cuda_sim_test(NAME cuda_logprob LABELS sim
  SOURCES ${cudasim}/test_logprob.c)
loong_cuda_sim_test(NAME cuda_loaded LABELS sim
  SOURCES ${cudasim}/test_loaded.c)
loong_cuda_sim_test(NAME cuda_layouts LABELS sim
  SOURCES ${cudasim}/test_layouts.c ${cudasim}/train_run.c)
add_test(NAME cuda_layouts_long COMMAND test_cuda_layouts long
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_layouts_long PROPERTIES LABELS "sim;full"
  TIMEOUT 1200 ENVIRONMENT OMP_NUM_THREADS=1)
loong_cuda_sim_test(NAME cuda_edges LABELS sim
  SOURCES ${cudasim}/test_edges.c ${cudasim}/train_run.c)
add_test(NAME cuda_edges_long COMMAND test_cuda_edges long
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_edges_long PROPERTIES LABELS "sim;full"
  TIMEOUT 3600 ENVIRONMENT OMP_NUM_THREADS=1)
loong_cuda_sim_test(NAME cuda_staged LABELS sim
  SOURCES ${cudasim}/test_staged.c ${PROJECT_SOURCE_DIR}/tests/sim/comm_place.c)
loong_cuda_sim_test(NAME cuda_mixed LABELS sim
  SOURCES ${cudasim}/test_mixed.c ${cudasim}/train_run.c)
loong_cuda_sim_test(NAME cuda_staged_lane LABELS "sim;fault"
  SOURCES ${cudasim}/test_staged_lane.c ${cudasim}/train_run.c)
target_link_options(test_cuda_staged_lane PRIVATE
  LINKER:--wrap=loongi_staged_run)
# It counts what the two threads of a rank do at one time: alone.
set_tests_properties(cuda_staged_lane PROPERTIES RUN_SERIAL TRUE)
loong_cuda_sim_test(NAME cuda_experts LABELS sim TIMEOUT 300
  SOURCES ${cudasim}/test_experts.c ${cudasim}/train_run.c)
loong_cuda_sim_test(NAME cuda_graphs LABELS sim
  SOURCES ${cudasim}/test_graphs.c ${cudasim}/train_run.c)
foreach(wrapped replay_find replay_begin replay_end async_await)
  target_link_options(test_cuda_graphs PRIVATE
    LINKER:--wrap=loongi_${wrapped})
endforeach()
# Bugs in kernels and host code as they are, each of which a test must see.
add_test(NAME cuda_planted COMMAND ${cudasim}/planted.sh ${PROJECT_BINARY_DIR})
add_test(NAME cuda_planted_long COMMAND ${cudasim}/planted.sh
  ${PROJECT_BINARY_DIR} all)
set_tests_properties(cuda_planted PROPERTIES LABELS sim TIMEOUT 120
  ENVIRONMENT OMP_NUM_THREADS=1)
set_tests_properties(cuda_planted_long PROPERTIES LABELS "sim;full"
  TIMEOUT 1800 ENVIRONMENT OMP_NUM_THREADS=1)
# A call of the runtime that fails, wherever it is.
loong_cuda_sim_test(NAME cuda_failing LABELS "sim;fault"
  SOURCES ${cudasim}/test_failing.c ${cudasim}/train_run.c)
add_test(NAME cuda_failing_long COMMAND test_cuda_failing long
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_failing_long PROPERTIES LABELS "sim;fault;full"
  TIMEOUT 1200 ENVIRONMENT OMP_NUM_THREADS=1)
# Random layouts of devices against one rank of the processor.
add_executable(loong_bench_cudasim ${LOONG_BENCH_SOURCES}
  $<TARGET_OBJECTS:loong_cuda_sim>)
target_link_libraries(loong_bench_cudasim PRIVATE loong_layouts cudasim)
target_compile_definitions(loong_bench_cudasim PRIVATE
  LOONG_CONFIG_DIR="${PROJECT_SOURCE_DIR}/configs"
  LOONG_TO_CONFIGS="../share/loong/configs")
add_test(NAME parity_cuda_long COMMAND loong_bench_cudasim parity
  ${PROJECT_SOURCE_DIR}/tests/parallel/parity_moe.yaml --dtype fp32
  --device cuda --layouts 10 --steps 4 --ranks 4 --seed 5 data.seq_length=8)
set_tests_properties(parity_cuda_long PROPERTIES LABELS "sim;parallel;full"
  TIMEOUT 3600 ENVIRONMENT "OMP_NUM_THREADS=1;CUDASIM_DEVICES=4")
foreach(name ${LOONG_CUDA_OP_TESTS})
  loong_cuda_sim_test(NAME cuda_op_${name} LABELS "sim;ops" TIMEOUT 300 SOURCES
    ${PROJECT_SOURCE_DIR}/tests/ops/test_${name}.c LIBS loong_op_cases_cuda)
endforeach()
# Sums of biases' gradients that cuBLASLt does not take into a product.
add_test(NAME cuda_op_linear_apart COMMAND test_cuda_op_linear)
set_tests_properties(cuda_op_linear_apart PROPERTIES LABELS "sim;ops"
  TIMEOUT 300 ENVIRONMENT "OMP_NUM_THREADS=1;CUDASIM_BIAS_SUMS=0")
include(tests/sim/xpu/kinds.cmake)
