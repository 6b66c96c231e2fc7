# Compiler settings for all targets, and the functions that folders' CMakeLists.txt files use.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# clang does not inline at -O1, which makes tests several times slower.
set(CMAKE_CXX_FLAGS_SANITIZE "-O2 -g1 -fno-omit-frame-pointer")

# Results must not depend on whether a compiler fuses a multiply and an add. Kernels that want FMA
# use intrinsics.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-ffp-contract=off;-fdiagnostics-color=always>")
# Messages and debug information use paths relative to the source tree, so that a build and ccache's
# entries do not depend on the tree's location.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety)
endif()
# Tests spend their time in the code under test, so optimizing the test code does not pay off.
set(TOKAMAK_TEST_OPTIONS $<$<CONFIG:Release>:-O1> $<$<CONFIG:Sanitize>:-O0>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # version 12 at -O1 suspects the standard library's strings
  list(APPEND TOKAMAK_TEST_OPTIONS -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
if(TOKAMAK_SANITIZE)
  add_compile_definitions(TOKAMAK_SANITIZED)  # base/testing/sanitizers.h
  # Using a null pointer crashes under every sanitizer. Checking each one first takes a fifth of the
  # compile time.
  add_compile_options(-fsanitize=${TOKAMAK_SANITIZE} -fno-sanitize=null -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang 14 cannot check types of called functions if there are coroutines; g++ never does.
    add_compile_options(-fno-sanitize=function)
    # Without timestamps a precompiled header is reproducible, so ccache works for its users.
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
    if(TOKAMAK_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__)  # g++ defines it by itself
    endif()
  endif()
  # The checks for undefined behavior are for the code under test. In test code they would take a
  # fifth of its compile time.
  list(APPEND TOKAMAK_TEST_OPTIONS -fno-sanitize=undefined)
  # Fuzz targets need not look for new paths in test code.
  if(TOKAMAK_SANITIZE MATCHES "fuzzer-no-link")
    list(APPEND TOKAMAK_TEST_OPTIONS -fno-sanitize=fuzzer-no-link)
  endif()
  # Static archives contain sanitizer calls, so every program that links them needs the runtime.
  string(REPLACE "fuzzer-no-link," "" sanitize_link "${TOKAMAK_SANITIZE}")
  add_link_options(-fsanitize=${sanitize_link})
endif()

# Use ccache and lld if they are installed. Neither changes the result.
find_program(TOKAMAK_CCACHE ccache)
mark_as_advanced(TOKAMAK_CCACHE)
if(TOKAMAK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The base folder makes paths relative before hashing, so that all checkouts share the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
                                  CCACHE_NOHASHDIR=true ${TOKAMAK_CCACHE})
  if(TOKAMAK_SANITIZE)  # otherwise ccache ignores sources that use a precompiled header
    list(INSERT CMAKE_CXX_COMPILER_LAUNCHER 3 CCACHE_SLOPPINESS=pch_defines,time_macros)
  endif()
endif()
if(NOT CMAKE_CROSSCOMPILING)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld TOKAMAK_HAVE_LLD)
  if(TOKAMAK_HAVE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# tokamak_library(name SOURCES a.cc ... [DEPS target ...] [PRIVATE_DEPS target ...])
# A static library in the calling folder; headers are included relative to src/ and include/.
function(tokamak_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(TOKAMAK_SANITIZE)
    target_precompile_headers(${name} REUSE_FROM tokamak_library_pch)
  endif()
  set_property(GLOBAL APPEND PROPERTY TOKAMAK_ARCHIVES ${name})
endfunction()

# tokamak_test(name SOURCES a_test.cc ... [DEPS target ...] [LABELS label ...] [TIMEOUT seconds]
#              [TSAN filter])
# One GoogleTest binary, registered with ctest under its name. Labels: `slow` is left out under the
# sanitizers; `cuda` needs a GPU; `sequential` is left out under ThreadSanitizer, because it starts
# no threads or only as other tests do. TSAN: the cases to run under ThreadSanitizer.
function(tokamak_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;TSAN" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT TOKAMAK_TESTS OR (TOKAMAK_SANITIZE AND "slow" IN_LIST ARG_LABELS) OR
     (TOKAMAK_SANITIZE STREQUAL "thread" AND "sequential" IN_LIST ARG_LABELS))
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TOKAMAK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${TOKAMAK_TEST_OPTIONS})
  if(TOKAMAK_SANITIZE)
    target_precompile_headers(${name} REUSE_FROM tokamak_test_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  if(ARG_TSAN AND TOKAMAK_SANITIZE STREQUAL "thread")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=${ARG_TSAN}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(TOKAMAK_SANITIZE)
    math(EXPR ARG_TIMEOUT "2 * ${ARG_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()

# tokamak_cuda_test(name [EMULATED filter] [SANITIZED filter]): runs the cases of the test binary
# `name` that have "cuda" in their names once more, as <name>_cuda with the label `cuda`. Without a
# GPU it is skipped and prints why. On the emulated backend <name>_emulated runs the cases of
# EMULATED, under sanitizers those of SANITIZED, and with `ctest -C soak` all.
function(tokamak_cuda_test name)
  if(NOT TOKAMAK_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "EMULATED;SANITIZED" "" ${ARGN})
  set(all --gtest_filter=*cuda*:*Cuda*)
  add_test(NAME ${name}_cuda COMMAND ${name} ${all})
  tokamak_needs_cuda(${name}_cuda)
  if(ARG_EMULATED)
    tokamak_emulator_test(${name}_emulated COMMAND ${name} --gtest_filter=${ARG_EMULATED} SAMPLE)
    tokamak_emulator_test(${name}_soak_emulated COMMAND ${name} ${all} SOAK)
  endif()
  if(ARG_SANITIZED AND TOKAMAK_SANITIZE)
    tokamak_emulator_test(${name}_emulated COMMAND ${name} --gtest_filter=${ARG_SANITIZED} SANITIZED)
  endif()
endfunction()

# tokamak_needs_cuda(test): labels a test made by add_test. The test prints "no CUDA backend here:
# <reason>" if it is to be skipped.
function(tokamak_needs_cuda test)
  set_tests_properties(${test} PROPERTIES
    LABELS cuda TIMEOUT 900 SKIP_REGULAR_EXPRESSION "no CUDA backend here"
    ENVIRONMENT TOKAMAK_CUDA_LIBRARY=${CMAKE_BINARY_DIR}/libtokamak_cuda.so)
endfunction()

# tokamak_emulator_test(name COMMAND args... [SOAK | SAMPLE] [SANITIZED]): a test on the
# emulated CUDA backend, with the label `emulator`. SOAK: too slow for commits, so only
# `ctest -C soak` runs it. SAMPLE: a test with SOAK does all that this one does; it has the label
# `sample`, and `make emulator-soak` leaves it out. SANITIZED: it runs under sanitizers too.
function(tokamak_emulator_test name)
  cmake_parse_arguments(ARG "SOAK;SAMPLE;SANITIZED" "" "COMMAND" ${ARGN})
  if(NOT TOKAMAK_TESTS OR NOT TOKAMAK_EMULATOR OR (TOKAMAK_SANITIZE AND NOT ARG_SANITIZED))
    return()
  endif()
  set(configurations)
  if(ARG_SOAK)
    set(configurations CONFIGURATIONS soak)
  endif()
  set(labels emulator)
  if(ARG_SAMPLE)
    list(APPEND labels sample)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} ${configurations})
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}" TIMEOUT 3600 FAIL_REGULAR_EXPRESSION "no CUDA backend here"
    ENVIRONMENT TOKAMAK_CUDA_LIBRARY=${CMAKE_BINARY_DIR}/emulated/libtokamak_cuda.so)
endfunction()

# `tokamak_fuzzers` builds only the fuzz targets and what they need.
add_custom_target(tokamak_fuzzers)

# tokamak_fuzzer(name SOURCES a_fuzz.cc DEPS target ...)
# A libFuzzer binary in the build folder's fuzz/, if TOKAMAK_FUZZ is set. Its corpus is in
# tests/fuzz/corpus/<name>/.
function(tokamak_fuzzer name)
  if(NOT TOKAMAK_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  add_dependencies(tokamak_fuzzers ${name})
endfunction()
