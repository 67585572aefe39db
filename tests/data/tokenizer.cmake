# Tokenizers: reading damaged files, and arbitrary files and texts.
loong_test(NAME tokenizer_corrupt SOURCES tests/unit/test_tokenizer_corrupt.c
  LABELS unit)
loong_fuzz(NAME tokenizer RUNS 1000)
loong_fuzz(NAME text)
target_compile_definitions(fuzz_text PRIVATE
  LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
if(LOONG_FUZZ)
  target_compile_definitions(fuzz_text_live PRIVATE
    LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
