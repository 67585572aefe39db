# One module of the library = one object library whose include path holds only
# the modules named in USES (transitive), so that an upward include does not
# compile.
#
#   loong_module(NAME graph DIR src/graph USES base tensor LIBS m)
#
# All *.c of DIR are taken. What is linked (LIBS) reaches the final library.
define_property(GLOBAL PROPERTY LOONG_MODULES)
define_property(GLOBAL PROPERTY LOONG_LIBS)

function(loong_module)
  cmake_parse_arguments(M "" "NAME;DIR" "USES;LIBS;INCLUDES;DEFINES;SOURCES" ${ARGN})
  if(NOT M_SOURCES)
    file(GLOB M_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${M_DIR}/*.c)
  endif()
  add_library(loong_${M_NAME} OBJECT ${M_SOURCES})
  target_include_directories(loong_${M_NAME}
    PUBLIC ${PROJECT_SOURCE_DIR}/${M_DIR} ${PROJECT_SOURCE_DIR}/include)
  foreach(used ${M_USES})
    target_include_directories(loong_${M_NAME} PUBLIC
      $<TARGET_PROPERTY:loong_${used},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
  target_link_libraries(loong_${M_NAME} PRIVATE OpenMP::OpenMP_C)
  target_include_directories(loong_${M_NAME} SYSTEM PRIVATE ${M_INCLUDES})
  target_compile_definitions(loong_${M_NAME} PRIVATE ${M_DEFINES})
  set_property(GLOBAL APPEND PROPERTY LOONG_MODULES loong_${M_NAME})
  set_property(GLOBAL APPEND PROPERTY LOONG_LIBS ${M_LIBS})
endfunction()

# One test executable, linked with the whole library (internal symbols
# included), run by ctest under the given labels.
#
#   loong_test(NAME base SOURCES tests/unit/test_base.c LABELS unit)
function(loong_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LABELS;ARGS;LIBS" ${ARGN})
  add_executable(test_${T_NAME} ${T_SOURCES})
  target_link_libraries(test_${T_NAME} PRIVATE loong_all cmocka ${T_LIBS})
  target_include_directories(test_${T_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${T_NAME} PRIVATE
    LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${T_NAME} COMMAND test_${T_NAME} ${T_ARGS}
           WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${T_NAME} PROPERTIES TIMEOUT ${T_TIMEOUT}
    LABELS "${T_LABELS}" ENVIRONMENT "OMP_NUM_THREADS=2;GOMP_SPINCOUNT=10000")
endfunction()

# Tests that take long begin first, so that none of them ends alone.
function(loong_tests_first)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(name ${ARGV})
    if(name IN_LIST tests)
      set_tests_properties(${name} PROPERTIES COST 100)
    endif()
  endforeach()
endfunction()

# Tests that mostly wait for time limits of their own, which work beside them
# would disturb: they come last, beside each other (loong_tests_order).
function(loong_test_waits)
  set_property(GLOBAL APPEND PROPERTY LOONG_WAITING ${ARGV})
endfunction()

function(loong_tests_order)
  get_property(waiting GLOBAL PROPERTY LOONG_WAITING)
  get_property(others DIRECTORY PROPERTY TESTS)
  if(waiting)
    list(REMOVE_ITEM others ${waiting})
    set_tests_properties(${waiting} PROPERTIES DEPENDS "${others}")
  endif()
endfunction()
