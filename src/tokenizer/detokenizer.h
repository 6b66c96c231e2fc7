// Token ids to text, one at a time, for streaming.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace tokamak {

// Owned by one thread. What Append and Flush return, joined together, equals Tokenizer::Decode of
// all the ids; each returned text is complete UTF-8.
class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options = {});

  // The text that became certain with this token; often empty in the middle of a character. An id
  // outside the vocabulary (a padded output row of the model) gives no text.
  std::string Append(int32_t id);
  // Ends the stream: a character left unfinished becomes U+FFFD. Append may start a new text after.
  std::string Flush();
  // Whether a character is left unfinished so far.
  bool pending() const { return utf8_.pending(); }

 private:
  void Restart();

  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeOptions options_;
  bool starts_;         // nothing has come yet
  size_t drop_spaces_;  // of those that the text starts with, which encoding added
  Utf8StreamDecoder utf8_;
};

}  // namespace tokamak
