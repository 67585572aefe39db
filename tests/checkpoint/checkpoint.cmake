# Saving behind a training.
loong_test(NAME native_async SOURCES tests/checkpoint/test_native_async.c
  LABELS unit)
foreach(wrapped fsync pwrite posix_fallocate rename unlink rmdir)
  target_link_options(test_native_async PRIVATE LINKER:--wrap=${wrapped})
endforeach()
