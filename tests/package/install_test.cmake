# cmake -DBUILD=<build folder> -DSOURCE=<source tree> -P install_test.cmake
set(prefix ${BUILD}/install_test/prefix)
file(REMOVE_RECURSE ${BUILD}/install_test)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --build ${BUILD} --target tokamak tokamak_docs tokamak_shared)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --strip)
foreach(file bin/tokamak include/tokamak/engine.h share/man/man1/tokamak.1
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

run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/tests/package -B ${BUILD}/install_test/embedding
    -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${BUILD}/install_test/embedding)
run(${BUILD}/install_test/embedding/embedding)
