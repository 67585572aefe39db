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

# One request to end, while a step lasts; the cases wait beside each other.
function(loong_stopping_test name labels)
  if(MPI_C_FOUND)
    add_test(NAME ${name} COMMAND
      ${PROJECT_SOURCE_DIR}/tests/fault/stopping.sh ${PROJECT_BINARY_DIR}
      ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 120
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    loong_test_waits(${name})
  endif()
endfunction()
loong_stopping_test(stopping fault 4 mpirun_term mpirun_int supervised_term
  everybody pipe)
loong_stopping_test(stopping_long "fault;full" 8 mpirun_term mpirun_int
  mpirun_kill mpirun_usr2 supervised_term supervised_int supervised_twice
  supervisor_killed everybody pipe)
