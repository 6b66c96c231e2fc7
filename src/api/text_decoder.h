// The engine core's TextDecoder over the real tokenizer.
#pragma once

#include <memory>

#include "engine/text_decoder.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// One for a choice, with its `stop` and `shown_special_tokens`. kInvalidArgument, starting with
// "stop: ", when a stop string cannot be looked for.
Result<std::unique_ptr<TextDecoder>> MakeTextDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                     const SamplingParams& sampling);

}  // namespace tokamak
