# Bad input and faults, on two ranks as a person starts them.
if(MPI_C_FOUND)
  add_test(NAME loongrun_faults COMMAND
    ${PROJECT_SOURCE_DIR}/tests/fault/loongrun_faults.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(loongrun_faults PROPERTIES LABELS fault TIMEOUT 300
    RUN_SERIAL ON
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
