# What is assumed of the vendor's libraries: run.sh asks it of those on a
# machine, and here of simulated ones that deviate.
add_executable(test_xpu_assumed tests/xpu/assumed.c tests/xpu/runtime.c
  tests/xpu/products.c tests/xpu/ranks.c tests/sim/comm_place.c)
target_link_libraries(test_xpu_assumed PRIVATE loong_all cmocka m)
target_include_directories(test_xpu_assumed PRIVATE
  ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/sim)
target_compile_definitions(test_xpu_assumed PRIVATE PLACE_RANKS=8)
add_dependencies(test_xpu_assumed xpusim_all)
foreach(long "" long)
  set(name xpu_rehearsal)
  if(long)
    set(name xpu_rehearsal_long)
  endif()
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/xpu/rehearse.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${long})
  set_tests_properties(${name} PROPERTIES LABELS sim TIMEOUT 120 ENVIRONMENT
    "OMP_NUM_THREADS=1")
endforeach()
set_tests_properties(xpu_rehearsal_long PROPERTIES LABELS "sim;full"
  TIMEOUT 1200)
