# What ranks save, and the directory that they save to.
loong_test(NAME native SOURCES tests/checkpoint/test_native.c
  tests/checkpoint/native_case.c LABELS unit)
loong_test(NAME native_dir SOURCES tests/checkpoint/test_native_dir.c
  tests/checkpoint/native_case.c LABELS unit)

# Saving behind a training.
loong_test(NAME native_async SOURCES tests/checkpoint/test_native_async.c
  LABELS unit)
foreach(wrapped fsync pwrite posix_fallocate rename unlink rmdir)
  target_link_options(test_native_async PRIVATE LINKER:--wrap=${wrapped})
endforeach()

# The index of many ranks; with `big` that of 10,240, and its figures.
loong_test(NAME native_index SOURCES tests/checkpoint/test_native_index.c
  LABELS unit)
add_test(NAME native_index_10240 COMMAND test_native_index big)
set_tests_properties(native_index_10240 PROPERTIES LABELS "unit;full"
  TIMEOUT 300)

# Names from files, fp8.
loong_test(NAME names SOURCES tests/checkpoint/test_names.c LABELS unit)
loong_test(NAME fp8_families SOURCES tests/checkpoint/test_fp8_families.c
  tests/checkpoint/fp8_files.c LABELS "unit;models")
target_include_directories(test_fp8_families PRIVATE tests/models)
loong_test(NAME codes SOURCES tests/checkpoint/test_codes.c LABELS unit)
loong_test(NAME packed SOURCES tests/checkpoint/test_packed.c LABELS unit)
loong_test(NAME hf_types SOURCES tests/checkpoint/test_types.c LABELS unit)
loong_test(NAME hf_import SOURCES tests/checkpoint/test_import.c LABELS unit)
loong_test(NAME predictors SOURCES tests/checkpoint/test_predictors.c
  LABELS "unit;models")
loong_test(NAME draft SOURCES tests/checkpoint/test_draft.c LABELS unit)
loong_test(NAME draft_fields SOURCES tests/checkpoint/test_draft_fields.c
  LABELS unit)

# Conversions of large models, and of models with other names.
add_executable(make_model tests/checkpoint/make_model.c)
target_link_libraries(make_model PRIVATE loong_all)
add_test(NAME convert COMMAND ${PROJECT_SOURCE_DIR}/tests/checkpoint/convert.sh
  ${PROJECT_BINARY_DIR} 2)
set_tests_properties(convert PROPERTIES LABELS cli TIMEOUT 300)
add_test(NAME convert_100gb COMMAND
  ${PROJECT_SOURCE_DIR}/tests/checkpoint/convert.sh ${PROJECT_BINARY_DIR} 100)
set_tests_properties(convert_100gb PROPERTIES LABELS "cli;full" TIMEOUT 1200)

# Directories with all files and fields that publishers ship.
find_program(LOONG_PYTHON python3)
if(LOONG_PYTHON)
  set(published ${LOONG_PYTHON}
    ${PROJECT_SOURCE_DIR}/tests/checkpoint/published_dirs.py
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  add_test(NAME published_dirs COMMAND ${published} llama3 deepseek_v2)
  set_tests_properties(published_dirs PROPERTIES LABELS cli TIMEOUT 60)
  add_test(NAME published_dirs_all COMMAND ${published})
  set_tests_properties(published_dirs_all PROPERTIES LABELS "cli;full"
    TIMEOUT 300)
endif()
