// Golden models with a tokenizer: models that take images, and models that keep states.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::invariance {

// A golden model (tests/golden/hf).
struct GoldenModel {
  const char* name = "";
  bool images = false;  // takes them
  bool states = false;  // keeps them, so it has no prefix cache and no drafts
  // The same as in RoundOptions.
  int32_t cache_groups = 1;
  int32_t least_batch_tokens = 0;
};

// kInvalidArgument for an unknown name.
Result<GoldenModel> FindGoldenModel(const std::string& name);

// Writes a Hugging Face directory: a golden model, and a byte pair vocabulary of ASCII characters
// and a few English words.
Status WriteGoldenModel(const GoldenModel& model, const std::string& path);

// The files of pictures of several sizes, formats and contents.
Result<std::vector<std::string>> Pictures();

}  // namespace tokamak::invariance
