# cmake -DBUILD=<build folder> -DSOURCE=<source tree> [-DMODEL=<model.gguf>] -P install_test.cmake
set(prefix ${BUILD}/install_test/prefix)
set(moved ${BUILD}/install_test/moved)
file(REMOVE_RECURSE ${BUILD}/install_test)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --build ${BUILD} --target tokamak tokamak_docs tokamak_shared)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --strip)
foreach(file bin/tokamak include/tokamak/engine.h include/tokamak/server.h share/man/man1/tokamak.1
             share/bash-completion/completions/tokamak share/zsh/site-functions/_tokamak
             share/fish/vendor_completions.d/tokamak.fish)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

# The program alone, moved away from its library, as people copy it.
file(COPY ${prefix}/bin/tokamak DESTINATION ${BUILD}/install_test/alone)
run(${BUILD}/install_test/alone/tokamak --version)
file(SIZE ${prefix}/bin/tokamak size)
math(EXPR limit "25 * 1024 * 1024")
if(size GREATER limit)
  message(FATAL_ERROR "the stripped program has ${size} bytes; at most ${limit}")
endif()

# The package in another place than it was installed to: nothing in it may name the first place, the
# build folder or the source tree.
file(RENAME ${prefix} ${moved})
file(GLOB_RECURSE texts ${moved}/include/* ${moved}/*.cmake)
foreach(file ${texts})
  file(READ ${file} text)
  foreach(place ${prefix} ${BUILD} ${SOURCE})
    string(FIND "${text}" "${place}" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${file} names ${place}")
    endif()
  endforeach()
endforeach()
foreach(project tests/package examples)
  get_filename_component(name ${project} NAME)
  set(folder ${BUILD}/install_test/${name})
  run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/${project} -B ${folder} -DCMAKE_PREFIX_PATH=${moved}
      "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
  run(${CMAKE_COMMAND} --build ${folder})
endforeach()
run(${BUILD}/install_test/package/embedding)
run(python3 ${SOURCE}/tests/package/run_examples.py ${BUILD}/install_test/examples "${MODEL}")
