# What transformers and PyTorch computed: README.md in this folder.
loong_test(NAME golden LABELS golden TIMEOUT 300
  SOURCES tests/golden/test_golden.c tests/golden/fixture.c)
loong_test(NAME golden_bf16 LABELS golden
  SOURCES tests/golden/test_bf16.c tests/golden/fixture.c)
loong_test(NAME golden_vision LABELS golden SOURCES tests/golden/test_vision.c)
loong_test(NAME golden_llava LABELS golden SOURCES tests/golden/test_llava.c)
loong_test(NAME whole_models LABELS golden ARGS llava qwen3_vl internvl
  SOURCES tests/golden/test_whole_models.c)
add_test(NAME whole_models_long COMMAND test_whole_models
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(whole_models_long PROPERTIES LABELS "golden;full"
  TIMEOUT 300 ENVIRONMENT OMP_NUM_THREADS=2)
loong_test(NAME router_losses LABELS golden
  SOURCES tests/golden/test_router_losses.c tests/golden/fixture.c)
# Also where products of bf16 are made of others.
foreach(isa AVX512_CORE AVX2 SSE41)
  add_test(NAME golden_bf16_${isa} COMMAND test_golden_bf16
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(golden_bf16_${isa} PROPERTIES TIMEOUT 120)
  loong_test_level(golden_bf16_${isa} ${isa} golden)
endforeach()
loong_test(NAME training SOURCES tests/golden/test_training.c LABELS golden)
loong_test(NAME hf_fields SOURCES tests/unit/test_hf_fields.c LABELS unit)
loong_test(NAME hf_defaults SOURCES tests/unit/test_hf_defaults.c LABELS unit)
loong_test(NAME family_defaults SOURCES tests/unit/test_family_defaults.c
  LABELS unit)

# What transformers itself has to do, with the Python of README.md.
function(loong_oracle_test name)
  add_test(NAME oracle_${name} COMMAND ${LOONG_ORACLE} ${ARGN}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(oracle_${name} PROPERTIES LABELS "oracle;full"
    TIMEOUT 1800)
endfunction()
if(LOONG_ORACLE)
  loong_oracle_test(golden tests/golden/generate.py --check)
  loong_oracle_test(vision tests/golden/vision.py --check)
  loong_oracle_test(vision_train tests/golden/vision_train.py --check)
  loong_oracle_test(kl_train tests/golden/kl_train.py --check)
  loong_oracle_test(packed_train tests/golden/packed_train.py --check)
  loong_oracle_test(lora tests/golden/lora.py --check)
  loong_oracle_test(lora_export tests/golden/lora.py --export
    ${PROJECT_BINARY_DIR})
  loong_oracle_test(lora_files tests/golden/lora_files.py
    ${PROJECT_BINARY_DIR})
  loong_oracle_test(llava tests/golden/llava.py --check)
  loong_oracle_test(whole_models tests/golden/whole_models.py
    ${PROJECT_BINARY_DIR} --check)
  loong_oracle_test(internvl_chat tests/golden/internvl_chat.py
    ${PROJECT_BINARY_DIR})
  loong_oracle_test(kimi_k25_published tests/golden/kimi_k25_published.py
    ${PROJECT_BINARY_DIR})
  loong_oracle_test(vision_export tests/golden/vision.py --export
    ${PROJECT_BINARY_DIR})
  loong_oracle_test(fields tests/golden/fields.py --check)
  loong_oracle_test(export tests/golden/check_families.py
    ${PROJECT_BINARY_DIR})
  loong_oracle_test(fp8 tests/golden/check_fp8.py ${PROJECT_BINARY_DIR})
  set_tests_properties(oracle_fp8 PROPERTIES SKIP_RETURN_CODE 77)
  loong_oracle_test(published tests/models/published.py --check)
  loong_oracle_test(published_vl tests/models/published_vl.py --check)
  loong_oracle_test(token_spans tests/oracle/tokenizer_spans.py --check)
  loong_oracle_test(chat tests/oracle/chat.py --check)
  loong_oracle_test(chat_templates tests/oracle/chat.py --tools
    ${PROJECT_BINARY_DIR})
endif()
