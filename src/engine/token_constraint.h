// TokenConstraint: gives the engine core grammars without knowledge of grammars and tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "step/step_input.h"
#include "tokamak/status.h"

namespace tokamak {

// Which tokens may come next in one choice. Belongs to one sequence. Its state depends on nothing
// but the tokens that it was given. Used by one thread at a time: Allow runs in the compute pool,
// beside those of other sequences, and everything else on the engine thread.
//
// End tokens (the model's own and the request's stop_token_ids) are not its business: the engine
// core allows them where the answer is complete, and nowhere else.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the bits of the tokens that may come next in `allowed`, which is all zero: bit t % 32 of
  // word t / 32 is token t. An error ends the request.
  virtual Status Allow(std::span<uint32_t> allowed) = 0;
  // Adds a token, which is not an end token. Returns false if it may not come next; the state is
  // unspecified then.
  virtual bool Accept(TokenId token) = 0;
  // Whether the answer may end here.
  virtual bool complete() const = 0;
  // Whether the answer must end here, because nothing may follow. Implies complete().
  virtual bool finished() const = 0;
  // A copy in the same state, for a look ahead. It may share what it learns with the original, so
  // the same thread uses both.
  virtual std::unique_ptr<TokenConstraint> Clone() const = 0;
  // Returns up to `most` tokens as which a model probably writes the text that must come next. They
  // are a guess: the caller looks whether they are allowed, and the model may write others.
  virtual std::vector<TokenId> ForcedTokens(int32_t /*most*/) { return {}; }
  // Returns how many of the next tokens surely need no mask: whatever they are, any token may come
  // at each of their places, and the answer is complete before it.
  virtual int32_t num_free() const { return 0; }
};

}  // namespace tokamak
