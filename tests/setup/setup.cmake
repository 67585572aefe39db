# Set-up as a person meets it: make demo, make deps, builds of another kind.
if(MPI_C_FOUND)
  add_test(NAME demo_twice COMMAND ${PROJECT_SOURCE_DIR}/tests/setup/demo_twice.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set_tests_properties(demo_twice PROPERTIES LABELS cli TIMEOUT 300)
endif()
if(MPI_C_FOUND)
  add_test(NAME demo COMMAND ${PROJECT_SOURCE_DIR}/tests/setup/demo.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set_tests_properties(demo PROPERTIES LABELS "setup;full" TIMEOUT 3600
    RUN_SERIAL ON)
endif()
add_test(NAME deps COMMAND ${PROJECT_SOURCE_DIR}/tests/setup/deps.sh
  ${PROJECT_SOURCE_DIR})
set_tests_properties(deps PROPERTIES LABELS cli TIMEOUT 60)
add_test(NAME build_no_mpi COMMAND ${PROJECT_SOURCE_DIR}/tests/setup/no_mpi.sh
  ${PROJECT_BINARY_DIR}/no_mpi ${PROJECT_SOURCE_DIR})
set_tests_properties(build_no_mpi PROPERTIES LABELS "setup;full" TIMEOUT 3600
  RUN_SERIAL ON)
add_test(NAME sanitize COMMAND ${PROJECT_SOURCE_DIR}/tests/setup/sanitize.sh
  ${PROJECT_BINARY_DIR}/sanitize ${PROJECT_SOURCE_DIR})
set_tests_properties(sanitize PROPERTIES LABELS "setup;full" TIMEOUT 3600
  RUN_SERIAL ON)
if(MPI_C_FOUND)
  add_test(NAME slurm COMMAND ${PROJECT_SOURCE_DIR}/tests/setup/slurm.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} 4)
  set_tests_properties(slurm PROPERTIES LABELS "fault;full" TIMEOUT 600
    SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()
if(LOONG_CUDA_FOUND)
  add_test(NAME cuda_parts COMMAND
    ${PROJECT_SOURCE_DIR}/tests/setup/cuda_parts.sh
    ${PROJECT_BINARY_DIR}/cuda_parts ${PROJECT_SOURCE_DIR}
    ${CMAKE_CUDA_COMPILER})
  set_tests_properties(cuda_parts PROPERTIES LABELS "setup;full" TIMEOUT 600)
endif()
