// The engine core's TextDecoder over the real tokenizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/text_decoder.h"
#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// One for a choice. kInvalidArgument, starting with "stop: ", when a stop string cannot be looked
// for.
Result<std::unique_ptr<TextDecoder>> MakeTextDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                     const std::vector<std::string>& stop);

}  // namespace tokamak
