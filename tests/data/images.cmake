# Pictures: against PIL and transformers, sources, and arbitrary files.
loong_test(NAME images SOURCES tests/data/test_images.c LABELS unit)
loong_test(NAME tiles SOURCES tests/data/test_tiles.c LABELS unit)
loong_test(NAME videos SOURCES tests/data/test_videos.c LABELS unit)
set_tests_properties(videos PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: ")
loong_test(NAME image_source SOURCES tests/data/test_image_source.c LABELS unit)
loong_fuzz(NAME images)
# Texts with pictures.
loong_test(NAME image_text SOURCES tests/data/test_image_text.c LABELS unit)
loong_test(NAME image_text_rows SOURCES tests/data/test_image_text_rows.c
  LABELS unit)
