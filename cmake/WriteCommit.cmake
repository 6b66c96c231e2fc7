# cmake -DSOURCE=<repository> -DOUTPUT=<file> -P WriteCommit.cmake
# Writes the definition of Commit() (src/base/version.h): the short commit, with "-dirty" if tracked
# files differ from it.
find_program(git git)
set(commit "unknown")
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE failed)
  if(NOT failed AND found)
    set(commit ${found})
  endif()
endif()
string(CONCAT content "#include \"base/version.h\"\n\n"
       "std::string_view tokamak::Commit() { return \"${commit}\"; }\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT content STREQUAL before)
  file(WRITE ${OUTPUT} "${content}")
endif()
