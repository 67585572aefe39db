# Checkpoints of one layout in another: some pairs, then all of them.
loong_test(NAME reshard LABELS parallel TIMEOUT 600
  SOURCES tests/parallel/test_reshard.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(reshard PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME reshard_long COMMAND test_reshard
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(reshard_long PROPERTIES LABELS "parallel;full"
  TIMEOUT 3600
  ENVIRONMENT "OMP_NUM_THREADS=1;LOONG_ALL_PAIRS=1")
