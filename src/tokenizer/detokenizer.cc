#include "tokenizer/detokenizer.h"

#include <algorithm>
#include <utility>

namespace tokamak {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)) {
  Restart();
}

void Detokenizer::Restart() {
  starts_ = !options_.continuation;
  drop_spaces_ = starts_ ? tokenizer_->leading_spaces() : 0;
}

std::string Detokenizer::Append(int32_t id) {
  std::string out;
  const std::vector<int32_t>& shown = options_.shown_special;
  if (options_.skip_special && tokenizer_->IsSpecial(id) &&
      std::find(shown.begin(), shown.end(), id) == shown.end()) {
    return out;
  }
  std::string_view piece = tokenizer_->TokenPiece(id);
  std::string first;
  if (std::exchange(starts_, false)) {
    first = tokenizer_->FirstPiece(id);
    piece = first;
  }
  if (piece.empty()) return out;
  while (drop_spaces_ > 0 && piece.starts_with(' ')) {
    piece.remove_prefix(1);
    --drop_spaces_;
  }
  if (!piece.empty()) drop_spaces_ = 0;
  utf8_.Append(piece, out);
  return out;
}

std::string Detokenizer::Flush() {
  std::string out;
  utf8_.Flush(out);
  Restart();
  return out;
}

}  // namespace tokamak
