# Families and presets: README.md in this folder.
set(presets tests/models/preset.c)
loong_test(NAME presets SOURCES tests/models/test_presets.c ${presets}
  LABELS "unit;models")
loong_test(NAME whole_presets SOURCES tests/models/test_whole_presets.c
  ${presets} LABELS "unit;models")
add_test(NAME whole_presets_all COMMAND test_whole_presets
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(whole_presets PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
set_tests_properties(whole_presets_all PROPERTIES LABELS "models;full"
  ENVIRONMENT "OMP_NUM_THREADS=1;LOONG_PLANS=all")
loong_test(NAME overrides SOURCES tests/models/test_overrides.c ${presets}
  LABELS "unit;models")
loong_test(NAME recipe_model SOURCES tests/models/test_recipe_model.c
  LABELS "unit;models")
loong_test(NAME families SOURCES tests/models/test_families.c
  tests/parallel/layout_run.c LABELS "parallel;models" TIMEOUT 600
  LIBS loong_layouts)
target_include_directories(test_families PRIVATE
  ${PROJECT_SOURCE_DIR}/tests/parallel)
add_test(NAME families_all COMMAND test_families
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(families PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
set_tests_properties(families_all PROPERTIES LABELS "parallel;models;full"
  TIMEOUT 600
  ENVIRONMENT "OMP_NUM_THREADS=1;LOONG_FAMILIES=all")
loong_test(NAME dry_run SOURCES tests/models/test_dry_run.c ${presets}
  LABELS models)
add_test(NAME dry_run_all COMMAND test_dry_run
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(dry_run PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
set_tests_properties(dry_run_all PROPERTIES LABELS "models;full" TIMEOUT 600
  ENVIRONMENT "OMP_NUM_THREADS=1;LOONG_PLANS=all")
# One core; what a sanitizer adds is no figure of ours.
if(LOONG_SANITIZE)
  set_tests_properties(dry_run dry_run_all whole_presets_all PROPERTIES
    DISABLED ON)
endif()
loong_test(NAME latent_memory SOURCES tests/models/test_latent_memory.c
  LABELS "unit;models")
loong_test(NAME from_hf SOURCES tests/models/test_from_hf.c
  LABELS "train;models")
add_executable(models_reference tests/models/models_reference.c ${presets})
target_link_libraries(models_reference PRIVATE loong_all cmocka)
target_include_directories(models_reference PRIVATE
  ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(models_reference PRIVATE
  LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_test(NAME models_reference COMMAND sh -c
  "$<TARGET_FILE:models_reference> | diff ${PROJECT_SOURCE_DIR}/docs/models.md -")
set_tests_properties(models_reference PROPERTIES LABELS "docs;models")
