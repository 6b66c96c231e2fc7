#include "invariance/compare.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>

namespace tokamak::invariance {
namespace {

bool SameBits(const TokenLogprobs::Entry& a, const TokenLogprobs::Entry& b) {
  return a.token_id == b.token_id &&
         std::bit_cast<uint32_t>(a.logprob) == std::bit_cast<uint32_t>(b.logprob);
}

std::string Text(const TokenLogprobs::Entry& entry) {
  return fmt::format("token {} with logprob {} ({:#010x})", entry.token_id, entry.logprob,
                     std::bit_cast<uint32_t>(entry.logprob));
}

// With `beginning`, `mixed` may be shorter.
std::string Logprobs(const char* name, const std::vector<TokenLogprobs>& mixed,
                     const std::vector<TokenLogprobs>& alone, bool beginning) {
  for (size_t i = 0; i < std::min(mixed.size(), alone.size()); ++i) {
    const TokenLogprobs& a = mixed[i];
    const TokenLogprobs& b = alone[i];
    if (!SameBits(a.token, b.token)) {
      return fmt::format("{}[{}]: {}, alone {}", name, i, Text(a.token), Text(b.token));
    }
    if (a.top.size() != b.top.size()) {
      return fmt::format("{}[{}]: {} alternatives, alone {}", name, i, a.top.size(), b.top.size());
    }
    for (size_t k = 0; k < a.top.size(); ++k) {
      if (SameBits(a.top[k], b.top[k])) continue;
      return fmt::format("{}[{}].top[{}]: {}, alone {}", name, i, k, Text(a.top[k]),
                         Text(b.top[k]));
    }
  }
  if (mixed.size() == alone.size() || (beginning && mixed.size() < alone.size())) return "";
  return fmt::format("{}: {} entries, alone {}", name, mixed.size(), alone.size());
}

std::string Ids(const OutputChunk& mixed, const OutputChunk& alone, bool beginning) {
  const auto& a = mixed.token_ids;
  const auto& b = alone.token_ids;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i]) return fmt::format("token {} is {}, alone {}", i, a[i], b[i]);
  }
  if (a.size() == b.size() || (beginning && a.size() < b.size())) return "";
  return fmt::format("{} tokens, alone {}", a.size(), b.size());
}

int Reason(const OutputChunk& chunk) {
  return chunk.finish_reason ? static_cast<int>(*chunk.finish_reason) : -1;
}

std::string Choice(const OutputChunk& mixed, const OutputChunk& alone) {
  const bool beginning = mixed.finish_reason == FinishReason::kCancelled;
  std::string difference =
      Logprobs("prompt_logprobs", mixed.prompt_logprobs, alone.prompt_logprobs, beginning);
  if (difference.empty()) difference = Ids(mixed, alone, beginning);
  if (difference.empty()) {
    difference = Logprobs("logprobs", mixed.logprobs, alone.logprobs, beginning);
  }
  if (!difference.empty()) return difference;
  if (mixed.seed != alone.seed) {
    return fmt::format("seed {}, alone {}", mixed.seed, alone.seed);
  }
  if (beginning ? !alone.text.starts_with(mixed.text) : mixed.text != alone.text) {
    return fmt::format("text \"{}\", alone \"{}\"", mixed.text, alone.text);
  }
  if (!beginning && mixed.finish_reason != alone.finish_reason) {
    return fmt::format("finish reason {}, alone {}; {}", Reason(mixed), Reason(alone),
                       mixed.error.ToString());
  }
  return "";
}

}  // namespace

std::string FirstDifference(const std::vector<OutputChunk>& mixed,
                            const std::vector<OutputChunk>& alone) {
  if (mixed.size() != alone.size()) {
    return fmt::format("{} choices, alone {}", mixed.size(), alone.size());
  }
  for (size_t i = 0; i < mixed.size(); ++i) {
    const std::string difference = Choice(mixed[i], alone[i]);
    if (!difference.empty()) return fmt::format("choice {}: {}", i, difference);
  }
  return "";
}

}  // namespace tokamak::invariance
