# The modules of the library, lowest first; see cmake/LoongModules.cmake.
# Each line: what the module may include. Keep the order of the architecture.
loong_module(NAME base DIR src/base LIBS jansson)
loong_module(NAME checkpoint DIR src/checkpoint USES base)
