#include "server/openai/response_bytes.h"

#include <string>

#include "base/utf8.h"

namespace tokamak {
namespace {

// A float as the JSON library writes a double: sign, 17 digits, point and exponent.
constexpr size_t kNumberBytes = 25;

// Bytes around a token's text and number in each form, and around those of an alternative.
struct FormBytes {
  size_t token, alternative;
  bool with_bytes;  // the token's bytes as a list of numbers
};
FormBytes BytesOf(LogprobForm form) {
  switch (form) {
    case LogprobForm::kChat:  // {"token":"","logprob":,"bytes":[],"top_logprobs":[]},
      return {53 + kNumberBytes, 31 + kLeastAlternativeBytes, true};
    case LogprobForm::kCompletion:  // "", and , and {}, or null, and an offset of 11 characters
      return {20 + kNumberBytes, kLeastAlternativeBytes, false};
    case LogprobForm::kPrompt:  // {"token":"","logprob":,"top_logprobs":{}},
      return {42 + kNumberBytes, kLeastAlternativeBytes, false};
  }
  return {};
}

}  // namespace

size_t JsonTextBytes(std::string_view text) {
  // Each byte that is not UTF-8 may become a U+FFFD, which has three bytes.
  const size_t odd = ValidUtf8Prefix(text) == text.size() ? 1 : 3;
  size_t bytes = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    bytes += byte < 0x20 ? 6 : byte == '"' || byte == '\\' ? 2 : byte < 0x80 ? 1 : odd;
  }
  return bytes;
}

size_t JsonIdBytes(const std::vector<int32_t>& ids) {
  size_t bytes = 0;
  for (const int32_t id : ids) {
    bytes += 2 + (id < 0);
    for (int32_t rest = id / 10; rest != 0; rest /= 10) ++bytes;
  }
  return bytes;
}

size_t HeadBytes(const ResponseHead& head) {
  constexpr size_t kFields = 1536;  // fields of fixed length, such as usage and timings
  return kFields + JsonTextBytes(head.id) + JsonTextBytes(head.model) +
         JsonTextBytes(head.system_fingerprint);
}

size_t ToolCallBytes(const ToolCallPart& call) {
  constexpr size_t kFields = 128;
  return kFields + JsonTextBytes(call.id) + JsonTextBytes(call.name) +
         JsonTextBytes(call.arguments);
}

TokenSizes::TokenSizes(int32_t vocab_size, TokenBytesRef bytes_of) {
  sizes_.reserve(static_cast<size_t>(vocab_size));
  for (int32_t id = 0; id < vocab_size; ++id) {
    const std::string text = bytes_of(id);
    // A byte in a list takes up to three digits and a comma.
    sizes_.push_back(
        {static_cast<uint32_t>(JsonTextBytes(text)), static_cast<uint32_t>(4 * text.size())});
  }
}

size_t TokenSizes::Piece(int32_t token) const {
  constexpr size_t kFields = 40;  // {"id":2147483647,"text":"","bytes":[]},
  const Size size = At(token);
  return kFields + size.text + size.bytes;
}

size_t TokenSizes::Logprobs(const TokenLogprobs& token, LogprobForm form) const {
  const FormBytes around = BytesOf(form);
  const auto of = [&](int32_t id) {
    const Size size = At(id);
    return size.text + (around.with_bytes ? size.bytes : 0);
  };
  size_t bytes = around.token + of(token.token.token_id);
  for (const TokenLogprobs::Entry& other : token.top)
    bytes += around.alternative + of(other.token_id);
  return bytes;
}

}  // namespace tokamak
