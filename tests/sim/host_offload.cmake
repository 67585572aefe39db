# A third device, as docs/devices/porting.md adds one: an extension of a recipe,
# and the tests of every device with it linked in.
set(host_offload ${PROJECT_SOURCE_DIR}/backends/host_offload/host_offload.c)
add_library(host_offload MODULE ${host_offload})
target_link_libraries(host_offload PRIVATE loong Threads::Threads)
target_include_directories(host_offload PRIVATE
  ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/src/isa)
target_compile_definitions(host_offload PRIVATE _DEFAULT_SOURCE)
loong_op_cases(loong_op_cases_host_offload OP_DEVICE="host_offload")
function(host_offload_test name)
  loong_test(NAME host_offload_${name} ${ARGN})
  target_sources(test_host_offload_${name} PRIVATE ${host_offload}
    ${PROJECT_SOURCE_DIR}/tests/sim/host_offload_register.c)
  target_link_options(test_host_offload_${name} PRIVATE
    LINKER:--wrap=loong_register_builtin)
  set_tests_properties(host_offload_${name} PROPERTIES
    ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()
foreach(name ${LOONG_CUDA_OP_TESTS})
  set(labels "sim;ops")
  if(NOT name MATCHES "^(rules|moe_rows|table.*)$")
    list(APPEND labels full)
  endif()
  host_offload_test(op_${name} LABELS ${labels} TIMEOUT 300
    SOURCES ${PROJECT_SOURCE_DIR}/tests/ops/test_${name}.c
    LIBS loong_op_cases_host_offload)
endforeach()
host_offload_test(golden LABELS "sim;golden;full" TIMEOUT 300
  SOURCES ${PROJECT_SOURCE_DIR}/tests/golden/test_golden.c
  ${PROJECT_SOURCE_DIR}/tests/golden/fixture.c)
target_compile_definitions(test_host_offload_golden PRIVATE
  FIXTURE_DEVICE="host_offload")
target_include_directories(test_host_offload_golden PRIVATE
  ${PROJECT_SOURCE_DIR}/tests/golden)
if(MPI_C_FOUND)
  add_test(NAME host_offload_training
    COMMAND ${PROJECT_SOURCE_DIR}/tests/sim/host_offload.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE}
    $<TARGET_FILE:host_offload>)
  set_tests_properties(host_offload_training PROPERTIES LABELS sim TIMEOUT 300
    ENVIRONMENT "OMP_NUM_THREADS=1;OMPI_ALLOW_RUN_AS_ROOT=1;\
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
