#include "local/testing/harmony_tokenizer.h"

#include <string_view>
#include <utility>

#include "chat/harmony.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak::testing {

std::shared_ptr<const Tokenizer> TinyHarmonyTokenizer() {
  GgufVocab spec = TinyBytePairs();
  for (const std::string_view token : kHarmonyTokens) {
    spec.tokens.emplace_back(token);
    spec.types.push_back(TokenType::kControl);
    spec.scores.push_back(0);
  }
  return MakeTokenizer(std::move(spec)).value();
}

}  // namespace tokamak::testing
