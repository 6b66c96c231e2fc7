# Precompiled headers, only for sanitizer builds: common includes are parsed once. The release build
# does without, so it detects missing includes.
if(NOT TOKAMAK_SANITIZE)
  return()
endif()

set(shared_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <fstream> <functional> <map>
  <memory> <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map> <utility>
  <vector> <fmt/format.h> <nlohmann/json.hpp>)

# Libraries and tests are compiled with different flags, so each has its own.
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/pch.cc CONTENT "int main() {}\n")
add_library(tokamak_library_pch OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/pch.cc)
target_link_libraries(tokamak_library_pch PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(tokamak_library_pch PRIVATE ${shared_headers})
if(TOKAMAK_TESTS)
  add_executable(tokamak_test_pch EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/pch.cc)
  target_compile_options(tokamak_test_pch PRIVATE ${TOKAMAK_TEST_OPTIONS})
  target_link_libraries(tokamak_test_pch PRIVATE fmt::fmt nlohmann_json::nlohmann_json GTest::gmock)
  target_precompile_headers(tokamak_test_pch PRIVATE ${shared_headers} <gmock/gmock.h> <gtest/gtest.h>)
endif()
