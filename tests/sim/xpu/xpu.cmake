# Kunlun's libraries, simulated: shared objects of the vendor's names, found by
# LOONG_XPU_PATH alone. The backend is the library's own, as it is everywhere.
set(xpusim ${PROJECT_SOURCE_DIR}/tests/sim/xpu)
set(XPUSIM_DIR ${PROJECT_BINARY_DIR}/xpusim)

# One of them: its file's name is that of the vendor's, e.g. libxpurt.so.2.
function(xpusim_library target file)
  add_library(${target} SHARED ${ARGN})
  get_filename_component(name ${file} NAME_WE)
  get_filename_component(suffix ${file} EXT)
  string(REGEX REPLACE "^lib" "" name ${name})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
    SUFFIX ${suffix} LIBRARY_OUTPUT_DIRECTORY ${XPUSIM_DIR}
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN"
    CXX_VISIBILITY_PRESET hidden)
  target_include_directories(${target} PRIVATE ${xpusim}
    ${PROJECT_SOURCE_DIR}/backends/xpu ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE Threads::Threads)
  target_compile_options(${target} PRIVATE -O2)
  if(NOT "${target}" STREQUAL "xpusim")
    target_link_libraries(${target} PRIVATE xpusim)
  endif()
endfunction()

xpusim_library(xpusim libxpurt.so.2 ${xpusim}/memory.cc ${xpusim}/stream.cc
  ${xpusim}/runtime.cc)
target_include_directories(xpusim INTERFACE ${xpusim})
# The runtime alone, for what the backend does without the others.
add_custom_command(TARGET xpusim POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E make_directory ${XPUSIM_DIR}_bare
  COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:xpusim>
  ${XPUSIM_DIR}_bare/libxpurt.so.2)
xpusim_library(xpusim_ml libxpuml.so.1 ${xpusim}/ml.cc)
xpusim_library(xpusim_blas libxpu_blas.so ${xpusim}/blas.cc)
xpusim_library(xpusim_bkcl libbkcl.so ${xpusim}/bkcl.cc ${xpusim}/bkcl_run.cc)
# It has the processor's kernels, as any user of the library.
xpusim_library(xpusim_shim libloong_xpukern.so ${xpusim}/shim.cc)
target_link_libraries(xpusim_shim PRIVATE loong)
set_target_properties(xpusim_shim PROPERTIES
  INSTALL_RPATH "\$ORIGIN:$<TARGET_FILE_DIR:loong>")
add_custom_target(xpusim_all
  DEPENDS xpusim xpusim_ml xpusim_blas xpusim_bkcl xpusim_shim)

set(XPUSIM_ENVIRONMENT OMP_NUM_THREADS=1
  LOONG_XPU_PATH=${XPUSIM_DIR} SIM_XPU_STRICT=1 SIM_XPU_ODD=1)

# A test of this device; what looks into the simulator links it (LIBS xpusim).
function(loong_xpu_sim_test)
  loong_test(${ARGV})
  cmake_parse_arguments(T "" "NAME" "" ${ARGN})
  xpusim_environment(${T_NAME})
endfunction()

# What makes a test find the simulator.
function(xpusim_environment name)
  add_dependencies(test_${name} xpusim_all)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${XPUSIM_ENVIRONMENT}")
endfunction()

loong_xpu_sim_test(NAME xpu_device LABELS sim SOURCES ${xpusim}/test_device.c
  ${PROJECT_SOURCE_DIR}/tests/sim/device_streams.c LIBS xpusim)
target_include_directories(test_xpu_device PRIVATE
  ${PROJECT_SOURCE_DIR}/tests/sim)
loong_xpu_sim_test(NAME xpu_bkcl LABELS sim SOURCES ${xpusim}/test_bkcl.c
  ${PROJECT_SOURCE_DIR}/tests/sim/comm_place.c LIBS xpusim)
target_include_directories(test_xpu_bkcl PRIVATE
  ${PROJECT_SOURCE_DIR}/tests/sim)

add_test(NAME xpu_device_bare COMMAND test_xpu_device)
set_tests_properties(xpu_device_bare PROPERTIES LABELS sim ENVIRONMENT
  "LOONG_XPU_PATH=${XPUSIM_DIR}_bare;SIM_XPU_STRICT=1")
loong_xpu_sim_test(NAME xpu_order LABELS sim SOURCES ${xpusim}/test_order.c
  LIBS xpusim)

# What is the same on every device: ops, and what transformers computed.
loong_op_cases(loong_op_cases_xpu OP_DEVICE="xpu")
foreach(name ${LOONG_CUDA_OP_TESTS})
  set(labels "sim;ops")
  if(name MATCHES "^(linear|attention|pointwise|moe|router.*|rms_scale|quantize|token_logprob)$")
    list(APPEND labels full)
  endif()
  loong_xpu_sim_test(NAME xpu_op_${name} LABELS ${labels} TIMEOUT 300 SOURCES
    ${PROJECT_SOURCE_DIR}/tests/ops/test_${name}.c LIBS loong_op_cases_xpu)
endforeach()
loong_xpu_sim_test(NAME xpu_golden LABELS "sim;golden" TIMEOUT 300
  SOURCES ${PROJECT_SOURCE_DIR}/tests/golden/test_golden.c
  ${PROJECT_SOURCE_DIR}/tests/golden/fixture.c)
loong_xpu_sim_test(NAME xpu_golden_vision LABELS "sim;golden"
  SOURCES ${PROJECT_SOURCE_DIR}/tests/golden/test_vision.c)
foreach(name xpu_golden xpu_golden_vision)
  target_compile_definitions(test_${name} PRIVATE FIXTURE_DEVICE="xpu")
  target_include_directories(test_${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/tests/golden)
endforeach()
# Mistakes of host code, each of which a test must see.
add_test(NAME xpu_planted COMMAND ${xpusim}/planted.sh ${PROJECT_BINARY_DIR})
set_tests_properties(xpu_planted PROPERTIES LABELS "sim;full" TIMEOUT 300
  ENVIRONMENT "${XPUSIM_ENVIRONMENT}")
if(MPI_C_FOUND)
  add_test(NAME xpu_training COMMAND ${xpusim}/training.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} 2)
  add_test(NAME xpu_training_long COMMAND ${xpusim}/training.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} 4)
  set_tests_properties(xpu_training xpu_training_long PROPERTIES LABELS sim
    TIMEOUT 300 ENVIRONMENT "${XPUSIM_ENVIRONMENT};OMPI_ALLOW_RUN_AS_ROOT=1;\
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  set_tests_properties(xpu_training_long PROPERTIES LABELS "sim;full")
endif()
