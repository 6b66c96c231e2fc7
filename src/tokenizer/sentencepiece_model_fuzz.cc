// Parses bytes as a SentencePiece model. If it is one, encodes and decodes text with it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/testing/use_vocab.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view model(reinterpret_cast<const char*>(data), size);
  tokamak::testing::UseVocab(tokamak::ParseSentencePieceModel(model, "tokenizer.model"));
  return 0;
}
