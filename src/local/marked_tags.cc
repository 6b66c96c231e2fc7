#include "local/marked_tags.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace tokamak {
namespace {

class MarkedConstraint final : public TokenConstraint {
 public:
  MarkedConstraint(std::shared_ptr<const std::vector<MarkedBegin>> begins,
                   std::shared_ptr<const ConstraintTokens> tokens,
                   std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content)
      : begins_(std::move(begins)),
        tokens_(std::move(tokens)),
        make_content_(std::move(make_content)) {
    for (size_t i = 0; i < begins_->size(); ++i) open_.push_back({.begin = i});
  }

  Status Allow(std::span<uint32_t> allowed) override {
    if (content_ != nullptr) return content_->Allow(allowed);
    for (const Position& at : open_) {
      const MarkedBegin::Piece& piece = PieceAt(at);
      if (piece.special >= 0) {
        Set(allowed, static_cast<size_t>(piece.special));
        continue;
      }
      for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
        if (Fits(at, id)) Set(allowed, id);
      }
    }
    return Status();
  }

  bool Accept(TokenId token) override {
    if (content_ != nullptr) return content_->Accept(token);
    const auto id = static_cast<size_t>(token);
    std::vector<Position> next;
    for (Position at : open_) {
      const MarkedBegin::Piece& piece = PieceAt(at);
      if (piece.special >= 0 ? piece.special != token : !Fits(at, id)) continue;
      at.byte += piece.special >= 0 ? 0 : tokens_->bytes[id].size();
      if (piece.special >= 0 || at.byte == piece.text.size()) {
        ++at.piece;
        at.byte = 0;
      }
      if (at.piece == (*begins_)[at.begin].pieces.size()) {
        content_ = make_content_(at.begin);
        return content_ != nullptr;
      }
      next.push_back(at);
    }
    if (next.empty()) return false;
    open_ = std::move(next);
    return true;
  }

  bool complete() const override { return content_ != nullptr && content_->complete(); }
  bool finished() const override { return content_ != nullptr && content_->finished(); }

 private:
  // The part of a tag's beginning that the answer has.
  struct Position {
    size_t begin = 0;
    size_t piece = 0;
    size_t byte = 0;
  };

  static void Set(std::span<uint32_t> mask, size_t id) { mask[id / 32] |= uint32_t{1} << id % 32; }
  const MarkedBegin::Piece& PieceAt(const Position& at) const {
    return (*begins_)[at.begin].pieces[at.piece];
  }
  // Whether this token's text follows. Text does not contain the names of special tokens.
  bool Fits(const Position& at, size_t id) const {
    const std::string& bytes = tokens_->bytes[id];
    return !bytes.empty() && std::string_view(PieceAt(at).text).substr(at.byte).starts_with(bytes);
  }

  const std::shared_ptr<const std::vector<MarkedBegin>> begins_;
  const std::shared_ptr<const ConstraintTokens> tokens_;
  const std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content_;
  std::vector<Position> open_;                // the tags that the answer may still be
  std::unique_ptr<TokenConstraint> content_;  // once the tag is known
};

// Cuts `text` at the names of special tokens.
MarkedBegin Cut(std::string_view text, const ConstraintTokens& tokens) {
  MarkedBegin begin;
  for (size_t at = 0; at < text.size();) {
    TokenId longest = -1;
    size_t size = 0;
    for (const TokenId id : tokens.special) {
      const std::string& name = tokens.bytes[static_cast<size_t>(id)];
      if (name.size() <= size || !text.substr(at).starts_with(name)) continue;
      longest = id;
      size = name.size();
    }
    if (longest >= 0) {
      begin.pieces.push_back({.special = longest});
      at += size;
      continue;
    }
    if (begin.pieces.empty() || begin.pieces.back().special >= 0) begin.pieces.emplace_back();
    begin.pieces.back().text += text[at++];
  }
  return begin;
}

}  // namespace

std::vector<MarkedBegin> MarkedBegins(const StructuredOutput& output,
                                      const ConstraintTokens& tokens) {
  if (output.kind != StructuredOutput::Kind::kTags || !output.starts_with_tag ||
      !output.ends_after_tag) {
    return {};
  }
  std::vector<MarkedBegin> begins;
  for (const StructuredOutput::Tag& tag : output.tags) {
    const MarkedBegin begin = Cut(tag.begin, tokens);
    if (begin.pieces.empty() || begin.pieces.back().special < 0) return {};
    begins.push_back(begin);
  }
  return begins;
}

std::unique_ptr<TokenConstraint> MakeMarkedConstraint(
    std::shared_ptr<const std::vector<MarkedBegin>> begins,
    std::shared_ptr<const ConstraintTokens> tokens,
    std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content) {
  return std::make_unique<MarkedConstraint>(std::move(begins), std::move(tokens),
                                            std::move(make_content));
}

}  // namespace tokamak
