loong_test(NAME signals LABELS fault SOURCES tests/fault/test_signals.c)
# Bad input and faults, on two ranks as a person starts them.
if(MPI_C_FOUND)
  add_test(NAME loongrun_faults COMMAND
    ${PROJECT_SOURCE_DIR}/tests/fault/loongrun_faults.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(loongrun_faults PROPERTIES LABELS fault TIMEOUT 300
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  loong_test_waits(loongrun_faults)
endif()
# Two machines, which are namespaces of this one; for root.
option(LOONG_TEST_MACHINES "the test two_machines (root)" OFF)
if(MPI_C_FOUND AND LOONG_TEST_MACHINES)
  add_test(NAME two_machines COMMAND
    ${PROJECT_SOURCE_DIR}/tests/fault/two_machines.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(two_machines PROPERTIES LABELS fault TIMEOUT 240
    RUN_SERIAL ON
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
