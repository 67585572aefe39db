# Command-line tools: thin mains over public headers.
add_executable(loong-ckpt tools/loong_ckpt.c)
target_link_libraries(loong-ckpt PRIVATE loong_all)
install(TARGETS loong-ckpt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
