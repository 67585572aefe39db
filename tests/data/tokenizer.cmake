# Tokenizers: reading damaged files, and arbitrary files and texts; loong-data.
loong_test(NAME tokenizer_corrupt SOURCES tests/unit/test_tokenizer_corrupt.c
  LABELS unit)
loong_test(NAME token_spans SOURCES tests/unit/test_token_spans.c LABELS unit)
loong_test(NAME tokenizer_merges SOURCES tests/unit/test_tokenizer_merges.c
  LABELS unit)
loong_test(NAME tiktoken SOURCES tests/unit/test_tiktoken.c LABELS unit)
loong_fuzz(NAME tokenizer RUNS 2000)
loong_fuzz(NAME text RUNS 2000)
loong_fuzz(NAME tokenizer_config RUNS 500)
target_compile_definitions(fuzz_text PRIVATE
  LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
if(LOONG_FUZZ)
  target_compile_definitions(fuzz_text_live PRIVATE
    LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
# The commands, as a person types them.
foreach(part index tokenizer)
  add_test(NAME cli_data_${part} COMMAND
    ${PROJECT_SOURCE_DIR}/tests/cli/data_${part}.sh $<TARGET_FILE:loong-data>
    ${PROJECT_SOURCE_DIR})
  set_tests_properties(cli_data_${part} PROPERTIES LABELS cli TIMEOUT 120)
endforeach()
