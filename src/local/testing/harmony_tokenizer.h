// A tokenizer with the tokens that give Harmony's messages their structure.
#pragma once

#include <memory>

#include "tokenizer/tokenizer.h"

namespace tokamak::testing {

// A small vocabulary with all bytes.
std::shared_ptr<const Tokenizer> TinyHarmonyTokenizer();

}  // namespace tokamak::testing
