// Implements the engine core's TextDecoder with a real tokenizer.
#pragma once

#include <memory>

#include "engine/text_decoder.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// Makes the decoder of one choice, using the fields on stop strings and special tokens.
// kInvalidArgument, starting with "stop: ", for a stop string that cannot be matched.
Result<std::unique_ptr<TextDecoder>> MakeTextDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                     const SamplingParams& sampling);

}  // namespace tokamak
