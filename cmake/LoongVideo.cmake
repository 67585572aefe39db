# FFmpeg's libav*, as a distribution has it. With it libloong_video.so is made,
# which libloong.so loads when it reads the first video file.
set(LOONG_VIDEO AUTO CACHE STRING "video files by FFmpeg's libav*: AUTO, ON, OFF")
set(LOONG_VIDEO_SEEN FALSE)
if(NOT LOONG_VIDEO STREQUAL OFF)
  pkg_check_modules(LIBAV IMPORTED_TARGET
    libavformat>=59 libavcodec>=59 libswscale>=6 libavutil>=57)
  set(LOONG_VIDEO_SEEN ${LIBAV_FOUND})
endif()
if(NOT LOONG_VIDEO_SEEN)
  if(LOONG_VIDEO STREQUAL ON)
    message(FATAL_ERROR "LOONG_VIDEO=ON: libavformat, libavcodec, libswscale and "
      "libavutil of FFmpeg 5 or later are wanted; on Debian: make deps, or "
      "apt-get install libavformat-dev libavcodec-dev libswscale-dev")
  endif()
  message(STATUS "Videos: skipped, no libav* of FFmpeg 5 or later (libavformat-dev)")
  return()
endif()
add_library(loong_video MODULE backends/video/video_files.c)
target_include_directories(loong_video PRIVATE backends/video)
target_link_libraries(loong_video PRIVATE PkgConfig::LIBAV m)
set_target_properties(loong_video PROPERTIES C_VISIBILITY_PRESET hidden)
install(TARGETS loong_video LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
message(STATUS "Videos: FFmpeg's libavformat ${LIBAV_libavformat_VERSION}")
