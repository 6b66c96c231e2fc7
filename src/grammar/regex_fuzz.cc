// Any text as a regular expression.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "grammar/testing/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokamak::GrammarSpec spec;
  spec.kind = tokamak::GrammarSpec::Kind::kRegex;
  tokamak::grammar::FuzzGrammar(std::move(spec), data, size);
  return 0;
}
