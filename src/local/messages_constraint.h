// A constraint for answers that are messages with headers, such as Harmony's. Grammars know only
// text; headers also have tokens that are not text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"
#include "local/structured_output.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"

namespace tokamak {

// The tokens that give messages their structure, and those that do not. Immutable.
struct MessageMarks {
  std::vector<std::pair<std::string, TokenId>> tokens;  // by name
  std::vector<uint32_t> text;  // mask of the others, special tokens left out
};
// kUnimplemented if the vocabulary lacks one of these names.
Result<MessageMarks> FindMarks(const std::vector<std::string>& names,
                               const ConstraintTokens& tokens);

// The headers that messages may have, cut at their marks. Immutable.
struct MessageHeaders {
  struct Piece {
    TokenId mark = -1;      // -1: text
    std::string text = {};  // not empty unless the piece is a mark
  };
  struct Header {
    std::vector<Piece> pieces;  // those of `start` first; the last one is a mark
    int32_t content = -1;       // calls[content], or for calls.size() the text; -1: free text
  };
  std::vector<Header> headers;
  size_t num_start_pieces = 0;
  TokenId end = -1;    // ends free text
  bool begun = false;  // the prompt ends with the first header of free text
  std::shared_ptr<const MessageMarks> marks;
};
// Returns those of output.messages and output.calls. kInvalidArgument if a header does not end with
// a mark, or if there is none.
Result<MessageHeaders> CutHeaders(const StructuredOutput& output,
                                  std::shared_ptr<const MessageMarks> marks);

// Allows messages with free text and then one whose text a constraint of `make_content` decides,
// given Header::content; that may return null for a text that cannot begin like this.
std::unique_ptr<TokenConstraint> MakeMessagesConstraint(
    std::shared_ptr<const MessageHeaders> headers, std::shared_ptr<const ConstraintTokens> tokens,
    std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content);

}  // namespace tokamak
