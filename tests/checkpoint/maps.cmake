# Maps of names as they are printed.
loong_test(NAME map SOURCES tests/checkpoint/test_map.c LABELS unit)
