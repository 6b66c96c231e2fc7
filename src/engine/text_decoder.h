// TextDecoder: how the engine core gets text and stop strings without knowing a tokenizer.
#pragma once

#include <cstdint>
#include <string>

#include "step/step_input.h"

namespace tokamak {

// Turns one choice's tokens into text and looks for its stop strings. Belongs to one sequence and
// is called by the engine thread alone, once per generated token, in order.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;

  // Adds `token` and appends to *text what is final: valid UTF-8 that no later token can change and
  // that cannot turn out to be the start of a stop string. With `may_stop`, returns true when the
  // text now holds a stop string: *text then ends before it, and no other call follows. Without,
  // stop strings are ordinary text.
  virtual bool Append(TokenId token, bool may_stop, std::string* text) = 0;

  // The generation ended without a stop string: appends what was held back.
  virtual void Flush(std::string* text) = 0;

  // As OutputChunk::tokens_held.
  virtual int32_t tokens_held() const = 0;
};

}  // namespace tokamak
