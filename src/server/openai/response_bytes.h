// Upper bounds for the length of a response's JSON text, known before it is written. A test
// compares them with response.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "server/openai/logprobs_json.h"
#include "server/openai/response.h"

namespace tokamak {

// Size of a string's content with its escapes. Bytes that are not UTF-8 become U+FFFD.
size_t JsonTextBytes(std::string_view text);
// Size of numbers in a list, with their commas.
size_t JsonIdBytes(const std::vector<int32_t>& ids);
// Size of the text around the choices of a response, and around the parts of a choice.
size_t HeadBytes(const ResponseHead& head);
inline constexpr size_t kChoiceBytes = 512;
size_t ToolCallBytes(const ToolCallPart& call);

// Size of a logprob's alternative in the shorter forms, without its text: "":, and a number of 25
// characters.
inline constexpr size_t kLeastAlternativeBytes = 29;

enum class LogprobForm { kChat, kCompletion, kPrompt };

// The size of each token's text, measured once: responses with logprobs contain some of them
// millions of times. Immutable and thread-safe.
class TokenSizes {
 public:
  TokenSizes(int32_t vocab_size, TokenBytesRef bytes_of);

  size_t Text(int32_t token) const { return At(token).text; }
  // Size of one piece in a response of /tokenize.
  size_t Piece(int32_t token) const;
  size_t Logprobs(const TokenLogprobs& token, LogprobForm form) const;

 private:
  struct Size {
    uint32_t text = 0;   // as JsonTextBytes
    uint32_t bytes = 0;  // as a list of numbers
  };
  // An unknown token has no text.
  Size At(int32_t token) const {
    return token >= 0 && static_cast<size_t>(token) < sizes_.size() ? sizes_[token] : Size{};
  }
  std::vector<Size> sizes_;  // [token id]
};

}  // namespace tokamak
