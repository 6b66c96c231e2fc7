// Parses bytes as a tiktoken rank file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/testing/use_vocab.h"
#include "tokenizer/tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view ranks(reinterpret_cast<const char*>(data), size);
  tokamak::testing::UseVocab(
      tokamak::ParseTiktoken(ranks, "tiktoken.model", "tokenization_kimi.TikTokenTokenizer"));
  return 0;
}
