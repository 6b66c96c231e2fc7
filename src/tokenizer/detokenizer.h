// Turns token ids into text one at a time, for streaming.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// The results of Append and Flush joined together equal Tokenizer::Decode of all the ids. Each
// result is complete UTF-8. Not thread-safe.
class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options = {});

  // Returns the text completed by this token; often empty within a character. An id outside the
  // vocabulary (a padded output row of the model) gives no text.
  std::string Append(int32_t id);
  // Ends the text: an unfinished character becomes U+FFFD. The next Append starts a new text.
  std::string Flush();
  // Whether a character is unfinished.
  bool pending() const { return utf8_.pending(); }

 private:
  void Restart();

  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeOptions options_;
  bool starts_;         // no token has come yet
  size_t drop_spaces_;  // leading spaces still to drop, because encoding added them
  Utf8StreamDecoder utf8_;
};

}  // namespace tokamak
