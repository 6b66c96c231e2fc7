// Tiny models that take images, with a tokenizer.
#pragma once

#include <string>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::invariance {

// The golden models (tests/golden/hf) that take images.
std::vector<std::string> SeeingModels();

// Writes a Hugging Face directory: a golden model, and a byte pair vocabulary of ASCII characters
// and a few English words. kInvalidArgument for an unknown model.
Status WriteSeeingModel(const std::string& model, const std::string& path);

// The files of pictures of several sizes, formats and contents.
Result<std::vector<std::string>> Pictures();

}  // namespace tokamak::invariance
