# Arrow's C++ library, in LOONG_ARROW: a prefix, or the folder of the package
# pyarrow. With it libloong_arrow.so is made, which libloong.so loads when it
# reads a .parquet, .arrow or .feather file.
set(LOONG_ARROW "" CACHE PATH
  "Arrow's C++ library: a prefix, or the folder of the package pyarrow")
if(NOT LOONG_ARROW)
  message(STATUS "Arrow: skipped, LOONG_ARROW is not set (parquet and arrow files)")
  return()
endif()
include(CheckLanguage)
check_language(CXX)
find_path(LOONG_ARROW_INCLUDE parquet/arrow/reader.h NO_DEFAULT_PATH
  PATHS ${LOONG_ARROW}/include)
file(GLOB arrow_libraries ${LOONG_ARROW}/libarrow.so* ${LOONG_ARROW}/lib*/libarrow.so*)
file(GLOB parquet_libraries ${LOONG_ARROW}/libparquet.so* ${LOONG_ARROW}/lib*/libparquet.so*)
if(NOT LOONG_ARROW_INCLUDE OR NOT arrow_libraries OR NOT parquet_libraries OR
   NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "LOONG_ARROW=${LOONG_ARROW}: no C++ compiler, or no "
    "include/parquet/arrow/reader.h, libarrow.so* and libparquet.so* there")
endif()
enable_language(CXX)
list(GET arrow_libraries 0 arrow_library)
list(GET parquet_libraries 0 parquet_library)
add_library(loong_arrow MODULE backends/arrow/arrow_files.cc)
target_include_directories(loong_arrow SYSTEM PRIVATE ${LOONG_ARROW_INCLUDE})
target_include_directories(loong_arrow PRIVATE backends/arrow)
target_link_libraries(loong_arrow PRIVATE ${parquet_library} ${arrow_library})
set_target_properties(loong_arrow PROPERTIES CXX_STANDARD 20
  CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET hidden
  INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS loong_arrow LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
message(STATUS "Arrow: ${arrow_library}, ${parquet_library}")
