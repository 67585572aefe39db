# What transformers and PyTorch computed: README.md in this folder.
loong_test(NAME golden LABELS golden TIMEOUT 300
  SOURCES tests/golden/test_golden.c tests/golden/fixture.c)
loong_test(NAME golden_bf16 LABELS golden
  SOURCES tests/golden/test_bf16.c tests/golden/fixture.c)
# Also where products of bf16 are made of others.
foreach(isa AVX512_CORE AVX2 SSE41)
  add_test(NAME golden_bf16_${isa} COMMAND test_golden_bf16
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(golden_bf16_${isa} PROPERTIES TIMEOUT 120 LABELS golden
    ENVIRONMENT
    "OMP_NUM_THREADS=2;GOMP_SPINCOUNT=10000;ONEDNN_MAX_CPU_ISA=${isa}")
endforeach()
loong_test(NAME training SOURCES tests/golden/test_training.c LABELS golden)
loong_test(NAME hf_fields SOURCES tests/unit/test_hf_fields.c LABELS unit)
