# Communicators, the per-rank parent, faults.
loong_test(NAME comm LABELS parallel TIMEOUT 180
  SOURCES tests/parallel/test_comm.c tests/parallel/comm_cases.c)
target_link_options(test_comm PRIVATE LINKER:--wrap=sched_yield)
add_executable(worker_comm tests/parallel/worker_comm.c
  tests/parallel/comm_cases.c)
target_link_libraries(worker_comm PRIVATE loong_all)
loong_mpi_test(NAME comm_mpi_1 RANKS 1 PROGRAM worker_comm ARGS cases 0
  LABELS parallel)
loong_mpi_test(NAME comm_mpi_2 RANKS 2 PROGRAM worker_comm ARGS cases 0
  LABELS parallel)
loong_mpi_test(NAME comm_mpi_4 RANKS 4 PROGRAM worker_comm ARGS cases 0
  LABELS parallel)
loong_mpi_test(NAME comm_mpi_4_nodes RANKS 4 PROGRAM worker_comm ARGS cases 1
  LABELS parallel)
loong_mpi_test(NAME comm_mpi_2x2_nodes RANKS 4 PROGRAM worker_comm
  ARGS cases 2 LABELS parallel)
# Counted among processes; with one rank on a machine, and eight.
foreach(on_machine 1 8)
  loong_mpi_test(NAME comm_mpi_64_count_${on_machine} RANKS 64
    PROGRAM worker_comm ARGS count ${on_machine} LABELS parallel full)
endforeach()
# As under srun without --mpi=pmix: alone, though four were started.
if(MPI_C_FOUND)
  add_test(NAME comm_mpi_singleton COMMAND worker_comm cases 0)
  set_tests_properties(comm_mpi_singleton PROPERTIES LABELS parallel TIMEOUT 60
    PASS_REGULAR_EXPRESSION "srun started 4 processes, but each is a job"
    ENVIRONMENT "SLURM_PROCID=0;SLURM_STEP_NUM_TASKS=4")
endif()
loong_test(NAME cancel LABELS parallel SOURCES tests/parallel/test_cancel.c)
add_executable(bench_comm tests/bench/bench_comm.c)
target_link_libraries(bench_comm PRIVATE loong_all)
add_executable(worker_fault tests/fault/worker_fault.c)
target_link_libraries(worker_fault PRIVATE loong_all)
loong_test(NAME parent SOURCES tests/fault/test_parent.c LABELS fault
  ARGS $<TARGET_FILE:worker_fault> "${MPIEXEC_EXECUTABLE}" TIMEOUT 240)
set_property(TEST parent APPEND PROPERTY ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
loong_test_waits(parent)
set_tests_properties(parent PROPERTIES COST 40)
