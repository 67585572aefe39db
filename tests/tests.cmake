# Tests by folder. Everyday tests carry no label "full"; `make check` runs
# ctest without them, `make check-full` runs all.
loong_test(NAME base SOURCES tests/unit/test_base.c LABELS unit)
loong_test(NAME base_io SOURCES tests/unit/test_base_io.c LABELS unit)
loong_test(NAME comm LABELS parallel TIMEOUT 180
  SOURCES tests/parallel/test_comm.c tests/parallel/comm_cases.c)
loong_test(NAME dataset SOURCES tests/unit/test_dataset.c LABELS unit)
loong_test(NAME blend SOURCES tests/unit/test_blend.c LABELS unit)
loong_test(NAME loader SOURCES tests/unit/test_loader.c LABELS unit)
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
add_executable(bench_comm tests/bench/bench_comm.c)
target_link_libraries(bench_comm PRIVATE loong_all)
loong_test(NAME safetensors SOURCES tests/unit/test_safetensors.c LABELS unit)
loong_test(NAME hf SOURCES tests/unit/test_hf.c LABELS unit)
loong_test(NAME native SOURCES tests/unit/test_native.c LABELS unit)
loong_test(NAME corpus SOURCES tests/unit/test_corpus.c LABELS unit)
