# A fuzz target: a source with LLVMFuzzerTestOneInput and a corpus in
# tests/fuzz/corpus/NAME.
#
#   loong_fuzz(NAME safetensors)
#
# Always: the everyday test fuzz_NAME runs the corpus and a fixed number of
# mutations of it, with the modules that read files built once more for the
# address sanitizer. Files with names of ten hexadecimal digits are what
# libFuzzer found that reaches new code. With clang, -DLOONG_FUZZ=ON and
# -DLOONG_SANITIZE=fuzzer-no-link,address: libFuzzer as fuzz_NAME_live, e.g.
# build/fuzz_safetensors_live tests/fuzz/corpus/safetensors
option(LOONG_FUZZ "libFuzzer programs (clang)" OFF)

# The modules that read what others wrote, before the library in link order.
add_library(loong_fuzzed OBJECT)
target_link_libraries(loong_fuzzed PRIVATE OpenMP::OpenMP_C)
foreach(module base jinja recipe data tokenizer images chat safetensors
    huggingface native)
  get_target_property(sources loong_${module} SOURCES)
  target_sources(loong_fuzzed PRIVATE ${sources})
  target_include_directories(loong_fuzzed PRIVATE
    $<TARGET_PROPERTY:loong_${module},INCLUDE_DIRECTORIES>)
  target_compile_definitions(loong_fuzzed PRIVATE
    $<TARGET_PROPERTY:loong_${module},COMPILE_DEFINITIONS>)
endforeach()
if(NOT LOONG_SANITIZE)
  target_compile_options(loong_fuzzed PRIVATE -O1 -fsanitize=address)
  target_link_options(loong_fuzzed INTERFACE -fsanitize=address)
endif()

function(loong_fuzz)
  cmake_parse_arguments(F "" "NAME;RUNS" "" ${ARGN})
  if(NOT F_RUNS)
    set(F_RUNS 4000)
  endif()
  add_executable(fuzz_${F_NAME} tests/fuzz/fuzz_${F_NAME}.c
    tests/fuzz/run_corpus.c)
  target_link_libraries(fuzz_${F_NAME} PRIVATE loong_fuzzed loong_all)
  add_test(NAME fuzz_${F_NAME} COMMAND fuzz_${F_NAME}
    ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${F_NAME} ${F_RUNS})
  set_tests_properties(fuzz_${F_NAME} PROPERTIES LABELS fuzz TIMEOUT 120)
  if(LOONG_FUZZ)
    add_executable(fuzz_${F_NAME}_live tests/fuzz/fuzz_${F_NAME}.c)
    target_link_libraries(fuzz_${F_NAME}_live PRIVATE loong_all)
    target_link_options(fuzz_${F_NAME}_live PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()
