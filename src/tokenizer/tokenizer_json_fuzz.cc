// Parses bytes as a tokenizer.json. If it is one, encodes and decodes text with it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/testing/use_vocab.h"
#include "tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  tokamak::testing::UseVocab(tokamak::ParseTokenizerJson(json, "tokenizer.json"));
  return 0;
}
