# Jobs that are restarted, and what is decided.
loong_test(NAME supervise_policy LABELS fault
  SOURCES tests/fault/test_supervise.c tools/loong_supervise_policy.c)
target_include_directories(test_supervise_policy PRIVATE
  ${PROJECT_SOURCE_DIR}/tools)
function(loong_supervise_test name labels)
  if(MPI_C_FOUND)
    add_test(NAME supervise_${name} COMMAND
      ${PROJECT_SOURCE_DIR}/tests/fault/supervise.sh ${PROJECT_BINARY_DIR}
      ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} ${ARGN})
    set_tests_properties(supervise_${name} PROPERTIES LABELS "${labels}"
      TIMEOUT 300
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    loong_test_waits(supervise_${name})
  endif()
endfunction()
loong_supervise_test(lost fault kill stop exit wrong_collective corrupt)
loong_supervise_test(ended fault options refused same asked alone)
loong_supervise_test(more "fault;full" crash hang io_error gain interval slow
  launcher orphaned)
loong_supervise_test(layouts "fault;full" pipeline tensor sharded)
