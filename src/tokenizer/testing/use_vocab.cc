#include "tokenizer/testing/use_vocab.h"

#include <utility>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace tokamak::testing {

void UseVocab(Result<VocabSpec> vocab) {
  if (!vocab.ok()) return;
  const auto tokenizer = Tokenizer::Create(*std::move(vocab));
  if (!tokenizer.ok()) return;
  for (const bool parse : {false, true}) {
    const auto ids = (*tokenizer)
                         ->Encode("Hello  w\xC3\xB6rld 123 <s>!\n\xE4\xB8\xAD\xFF",
                                  {.add_special = parse, .parse_special = parse});
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
    CHECK((*tokenizer)->Decode(*ids).ok());
  }
}

}  // namespace tokamak::testing
