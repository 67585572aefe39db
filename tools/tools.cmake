# Command-line tools: thin mains over public headers.
add_executable(loong-ckpt tools/loong_ckpt.c tools/loong_ckpt_write.c)
target_link_libraries(loong-ckpt PRIVATE loong)
install(TARGETS loong-ckpt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_executable(loong-data tools/loong_data.c tools/options.c
  tools/loong_data_chat.c tools/loong_data_index.c
  tools/loong_data_inspect.c tools/loong_data_merge.c
  tools/loong_data_show.c tools/loong_data_tokenizer.c
  tools/loong_data_tokenize.c tools/loong_data_train.c
  tools/loong_data_webdataset.c)
target_link_libraries(loong-data PRIVATE loong_all)
target_compile_definitions(loong-data PRIVATE
  LOONG_CONFIG_DIR="${PROJECT_SOURCE_DIR}/configs"
  LOONG_TO_CONFIGS="${to_share}/loong/configs")
install(TARGETS loong-data RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_custom_target(loong_commit BYPRODUCTS ${PROJECT_BINARY_DIR}/loong_commit.h
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
  -DOUT=${PROJECT_BINARY_DIR}/loong_commit.h
  -P ${PROJECT_SOURCE_DIR}/cmake/LoongCommit.cmake)
set(LOONGRUN_SOURCES tools/loongrun.c tools/loongrun_banner.c
  tools/loongrun_bus.c tools/loongrun_config.c tools/loongrun_doctor.c
  tools/loongrun_screen.c)
add_executable(loongrun ${LOONGRUN_SOURCES})
add_dependencies(loongrun loong_commit)
set_source_files_properties(tools/loongrun_banner.c PROPERTIES
  INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR})
target_link_libraries(loongrun PRIVATE loong OpenMP::OpenMP_C)
target_compile_definitions(loongrun PRIVATE
  LOONG_CONFIG_DIR="${PROJECT_SOURCE_DIR}/configs"
  LOONG_TO_CONFIGS="${to_share}/loong/configs")
install(TARGETS loongrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_library(loong_layouts STATIC tools/layout_job.c)
target_link_libraries(loong_layouts PUBLIC loong_all)
target_include_directories(loong_layouts PUBLIC tools)
add_executable(loong-supervise tools/loong_supervise.c
  tools/loong_supervise_job.c tools/loong_supervise_log.c
  tools/loong_supervise_policy.c)
target_link_libraries(loong-supervise PRIVATE loong m)
install(TARGETS loong-supervise RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(LOONG_BENCH_SOURCES tools/loong_bench.c tools/loong_bench_costs.c
  tools/loong_bench_floor.c
  tools/loong_bench_item.c tools/loong_bench_op.c tools/loong_bench_ops.c
  tools/loong_bench_parity.c tools/layout_draw.c tools/loong_bench_speeds.c
  tools/loong_bench_step.c tools/loong_bench_tokenizer.c
  tools/loong_bench_training.c tools/options.c)
add_executable(loong-bench ${LOONG_BENCH_SOURCES})
target_link_libraries(loong-bench PRIVATE loong_layouts)
loong_with_cuda(loong-bench)
target_compile_definitions(loong-bench PRIVATE
  LOONG_CONFIG_DIR="${PROJECT_SOURCE_DIR}/configs"
  LOONG_TO_CONFIGS="${to_share}/loong/configs")
install(TARGETS loong-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
