// How long the JSON text of an answer can become, before it is made: no part of response.h's
// text is longer than what is said here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "server/openai/logprobs_json.h"
#include "server/openai/response.h"

namespace tokamak {

// The size of a string's content with its escapes; bytes that are not UTF-8 become U+FFFD.
size_t JsonTextBytes(std::string_view text);
// The size of numbers in a list, commas included.
size_t JsonIdBytes(const std::vector<int32_t>& ids);
// The size of the text that answers have around their choices, and each choice around its parts.
size_t HeadBytes(const ResponseHead& head);
inline constexpr size_t kChoiceBytes = 512;
size_t ToolCallBytes(const ToolCallPart& call);

enum class LogprobForm { kChat, kCompletion, kPrompt };

// The text of each token of a vocabulary, measured once: answers with logprobs name some of them
// millions of times. Immutable and safe to use from any number of threads.
class TokenSizes {
 public:
  TokenSizes(int32_t vocab_size, TokenBytesRef bytes_of);

  size_t Text(int32_t token) const { return At(token).text; }
  // One of /tokenize's pieces.
  size_t Piece(int32_t token) const;
  size_t Logprobs(const TokenLogprobs& token, LogprobForm form) const;

 private:
  struct Size {
    uint32_t text = 0;   // as JsonTextBytes
    uint32_t bytes = 0;  // as a list of numbers
  };
  // An unknown token has no text, and so no size.
  Size At(int32_t token) const {
    return token >= 0 && static_cast<size_t>(token) < sizes_.size() ? sizes_[token] : Size{};
  }
  std::vector<Size> sizes_;  // by id
};

}  // namespace tokamak
