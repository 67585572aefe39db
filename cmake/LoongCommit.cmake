# Writes OUT: LOONG_COMMIT, the commit of the tree at SOURCE as text, "" when
# it is no git work tree. Run at every build; the file is touched only when the
# commit is another, so that only what includes it is compiled again.
set(commit "")
if(EXISTS ${SOURCE}/.git)
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND git describe --always --dirty --exclude=* --abbrev=10
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REPLACE "-dirty" " and changes" commit "${commit}")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define LOONG_COMMIT \"${commit}\"\n")
