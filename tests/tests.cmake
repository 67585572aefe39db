# Tests by folder. Everyday tests carry no label "full"; `make check` runs
# ctest without them, `make check-full` runs all.
loong_test(NAME base SOURCES tests/unit/test_base.c LABELS unit)
loong_test(NAME base_io SOURCES tests/unit/test_base_io.c LABELS unit)
loong_test(NAME comm LABELS parallel TIMEOUT 180
  SOURCES tests/parallel/test_comm.c tests/parallel/comm_cases.c)
loong_test(NAME dataset SOURCES tests/unit/test_dataset.c LABELS unit)
loong_test(NAME blend SOURCES tests/unit/test_blend.c LABELS unit)
loong_test(NAME loader SOURCES tests/unit/test_loader.c LABELS unit)
