// Splits a template's text into tokens, with the whitespace rules that transformers sets:
// trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,  // between tags
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int32_t line = 1;
  std::string text;  // a string's value, an operator's spelling, a number's digits
};

// Errors are kInvalidArgument and begin with the line.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace tokamak::jinja
