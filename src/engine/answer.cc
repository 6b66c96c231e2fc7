#include "engine/answer.h"

#include <algorithm>

namespace tokamak {

TokenEffect TakeToken(const SamplingParams& sampling, int32_t before, bool last, TokenId token,
                      TextDecoder* decoder, TokenConstraint* constraint, OutputChunk* chunk) {
  const std::vector<TokenId>& end_ids = sampling.stop_token_ids;
  if (before >= sampling.min_tokens && std::binary_search(end_ids.begin(), end_ids.end(), token)) {
    if (decoder != nullptr) decoder->Flush(chunk);
    return {.end_token = true, .end = FinishReason::kStop};
  }
  if (constraint != nullptr && !constraint->Accept(token)) return {.allowed = false};
  chunk->token_ids.push_back(token);
  const bool finished = constraint != nullptr && constraint->finished();
  // A stop string must not cut the last token off an answer that ends here anyway.
  const bool may_end = constraint == nullptr || (constraint->complete() && !finished);
  const bool may_stop = before + 1 >= sampling.min_tokens && may_end;
  if (decoder != nullptr && decoder->Append(token, may_stop, chunk)) {
    return {.end = FinishReason::kStop};
  }
  if (!finished && !last) return {};
  if (decoder != nullptr) decoder->Flush(chunk);
  return {.end = finished ? FinishReason::kStop : FinishReason::kLength};
}

}  // namespace tokamak
