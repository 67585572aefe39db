# Command-line tools: thin mains over public headers.
add_executable(loong-ckpt tools/loong_ckpt.c)
target_link_libraries(loong-ckpt PRIVATE loong)
install(TARGETS loong-ckpt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_executable(loong-data tools/loong_data.c tools/loong_data_index.c
  tools/loong_data_inspect.c tools/loong_data_tokenizer.c)
target_link_libraries(loong-data PRIVATE loong_all)
install(TARGETS loong-data RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
