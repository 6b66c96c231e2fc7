// Finds the reference files that scripts/setup-test-refs and scripts/fetch-model download. A test
// skips itself, and says why, if its file is absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/paths.h"

namespace tokamak::testing {

// Path of `relative` under $TOKAMAK_TEST_REFS (default: CacheDir()/test-refs), if it exists.
// Examples: "llama.cpp/models/ggml-vocab-gpt-2.gguf", "venv/bin/python".
inline std::optional<std::string> FindRef(const std::string& relative) {
  const char* refs = std::getenv("TOKAMAK_TEST_REFS");
  const std::string folder = refs != nullptr && *refs != '\0' ? refs : CacheDir() + "/test-refs";
  std::string path = folder + "/" + relative;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

// The real model of the end-to-end tests, if fetched. $TOKAMAK_MODEL is not used: the expected
// results hold for this model only.
inline std::optional<std::string> FindModel() {
  const std::string path = CacheDir() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

}  // namespace tokamak::testing

// Skips a TEST unless `optional` (from the functions above) has a value.
#define SKIP_WITHOUT(optional)                                                                  \
  if (!(optional).has_value())                                                                  \
  GTEST_SKIP() << "not fetched: run scripts/setup-test-refs and scripts/fetch-model, or `make " \
                  "test`"
