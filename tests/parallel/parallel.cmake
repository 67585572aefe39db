# Layouts: meshes, regions, equality of layouts.
loong_test(NAME mesh LABELS parallel SOURCES tests/parallel/test_mesh.c)
loong_test(NAME regions LABELS parallel SOURCES tests/parallel/test_regions.c)
