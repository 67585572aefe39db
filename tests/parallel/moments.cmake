# Moments of the optimizer in bf16, over layouts.
loong_test(NAME moments LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_moments.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(moments PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1;GOMP_SPINCOUNT=10000")
