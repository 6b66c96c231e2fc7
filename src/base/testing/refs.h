// For tests: where scripts/setup-test-refs and scripts/fetch-model put what the tests compare with.
// A test skips itself, and says why, where these are absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/paths.h"

namespace tokamak::testing {

// The path of `relative` under $TOKAMAK_TEST_REFS, by default CacheDir()/test-refs, if it is there.
// E.g. "llama.cpp/models/ggml-vocab-gpt-2.gguf", "venv/bin/python".
inline std::optional<std::string> FindRef(const std::string& relative) {
  const char* refs = std::getenv("TOKAMAK_TEST_REFS");
  const std::string folder = refs != nullptr && *refs != '\0' ? refs : CacheDir() + "/test-refs";
  std::string path = folder + "/" + relative;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

// The real model that the end-to-end tests run, if it was fetched. Never $TOKAMAK_MODEL: the
// expected results are this model's.
inline std::optional<std::string> FindModel() {
  const std::string path = CacheDir() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

}  // namespace tokamak::testing

// In a TEST: skips it unless `optional` (of the functions above) has a value.
#define SKIP_WITHOUT(optional)                                                                  \
  if (!(optional).has_value())                                                                  \
  GTEST_SKIP() << "not fetched: run scripts/setup-test-refs and scripts/fetch-model, or `make " \
                  "test`"
