#include "tokenizer/detokenizer.h"

#include <utility>

namespace tokamak {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      drop_space_(!options.continuation && tokenizer_->drops_leading_space()) {}

std::string Detokenizer::Append(int32_t id) {
  std::string out;
  if (options_.skip_special && tokenizer_->IsSpecial(id)) return out;
  std::string_view piece = tokenizer_->TokenPiece(id);
  if (piece.empty()) return out;
  if (drop_space_ && piece.front() == ' ') piece.remove_prefix(1);
  drop_space_ = false;
  utf8_.Append(piece, out);
  return out;
}

std::string Detokenizer::Flush() {
  std::string out;
  utf8_.Flush(out);
  drop_space_ = !options_.continuation && tokenizer_->drops_leading_space();
  return out;
}

}  // namespace tokamak
