# Mixtures of experts, over ranks.
loong_test(NAME layer_kinds SOURCES tests/unit/test_layer_kinds.c LABELS unit)
loong_test(NAME experts LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_experts.c tests/parallel/layout_run.c
  tests/parallel/poison_rows.c LIBS loong_layouts)
target_link_options(test_experts PRIVATE LINKER:--wrap=loong_register_builtin)
set_tests_properties(experts PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME experts_long COMMAND test_experts
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(experts_long PROPERTIES LABELS "parallel;full"
  TIMEOUT 3600 ENVIRONMENT
  "OMP_NUM_THREADS=1;LOONG_LAYOUT_STEPS=100")
loong_test(NAME router_replay LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_router_replay.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(router_replay PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME router_replay_long COMMAND test_router_replay
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(router_replay_long PROPERTIES LABELS "parallel;full"
  TIMEOUT 1200 ENVIRONMENT
  "OMP_NUM_THREADS=1;LOONG_LAYOUT_STEPS=6")
if(MPI_C_FOUND)
  add_test(NAME experts_mpi COMMAND
    ${PROJECT_SOURCE_DIR}/tests/parallel/experts_mpi.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(experts_mpi PROPERTIES LABELS parallel TIMEOUT 300
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
