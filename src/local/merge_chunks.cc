#include "local/merge_chunks.h"

#include <iterator>
#include <utility>

namespace tokamak {

void MergeChunk(OutputChunk chunk, OutputChunk* whole) {
  whole->request = chunk.request;
  whole->choice = chunk.choice;
  for (const size_t at : chunk.special_at) whole->special_at.push_back(whole->text.size() + at);
  whole->text += chunk.text;
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(whole->token_ids, chunk.token_ids);
  whole->tokens_held = chunk.tokens_held;
  append(whole->logprobs, chunk.logprobs);
  append(whole->prompt_logprobs, chunk.prompt_logprobs);
  if (chunk.finish_reason) whole->finish_reason = chunk.finish_reason;
  if (!chunk.error.ok()) whole->error = std::move(chunk.error);
  if (chunk.beam_score) whole->beam_score = chunk.beam_score;
  whole->seed = chunk.seed;
  whole->usage = chunk.usage;
  whole->timings = chunk.timings;
}

}  // namespace tokamak
