// TextDecoder: gives the engine core text and stop strings without knowledge of tokenizers.
#pragma once

#include <cstdint>
#include <memory>

#include "step/step_input.h"
#include "tokamak/request.h"

namespace tokamak {

// Turns one choice's tokens into text and looks for its stop strings. Belongs to one sequence. Only
// the engine thread calls it, once per generated token, in order.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;

  // Adds `token` and appends to chunk->text what is final: valid UTF-8 that no later token can
  // change and that cannot be the start of a stop string. Appends to chunk->special_at, too.
  // Returns true if the text now holds a stop string; chunk->text then ends before it, and no other
  // call may follow. The text of a token without `may_stop` is never part of a stop string.
  // `may_stop` may change back and forth.
  virtual bool Append(TokenId token, bool may_stop, OutputChunk* chunk) = 0;

  // Call it when the generation ends without a stop string: appends what was held back.
  virtual void Flush(OutputChunk* chunk) = 0;

  // A copy in the same state, for a look ahead. The same thread uses both.
  virtual std::unique_ptr<TextDecoder> Clone() const = 0;

  // See OutputChunk::tokens_held.
  virtual int32_t tokens_held() const = 0;
};

}  // namespace tokamak
