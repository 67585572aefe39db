# States of the optimizer, over layouts: in bf16, and of each class.
foreach(name moments optimizers)
  loong_test(NAME ${name} LABELS parallel TIMEOUT 300
    SOURCES tests/parallel/test_${name}.c tests/parallel/layout_run.c
    LIBS loong_layouts)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "OMP_NUM_THREADS=1")
endforeach()
