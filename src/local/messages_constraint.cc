#include "local/messages_constraint.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/error.h"
#include "grammar/grammar.h"
#include "local/forced_tokens.h"
#include "local/token_mask.h"

namespace tokamak {
namespace {

class MessagesConstraint final : public TokenConstraint {
 public:
  MessagesConstraint(std::shared_ptr<const MessageHeaders> headers,
                     std::shared_ptr<const ConstraintTokens> tokens,
                     std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content)
      : headers_(std::move(headers)),
        tokens_(std::move(tokens)),
        make_content_(std::move(make_content)),
        in_free_text_(headers_->begun) {
    for (size_t i = 0; i < headers_->headers.size() && !in_free_text_; ++i) {
      open_.push_back({.header = i});
      open_.push_back({.header = i, .piece = headers_->num_start_pieces});
    }
  }

  Status Allow(std::span<uint32_t> allowed) override {
    if (content_ != nullptr) {
      RETURN_IF_ERROR(content_->Allow(allowed));
      for (const auto& [name, id] : headers_->marks->tokens) ForbidToken(allowed, id);
      return Status();
    }
    if (in_free_text_) {
      std::copy(headers_->marks->text.begin(), headers_->marks->text.end(), allowed.begin());
      AllowToken(allowed, headers_->end);
      return Status();
    }
    for (const Position& at : open_) {
      const MessageHeaders::Piece& piece = PieceAt(at);
      if (piece.mark >= 0) {
        AllowToken(allowed, piece.mark);
        continue;
      }
      tokens_->vocabulary->ForEachStart(std::string_view(piece.text).substr(at.byte),
                                        [&](int32_t id) { AllowToken(allowed, id); });
    }
    return Status();
  }

  bool Accept(TokenId token) override {
    if (static_cast<size_t>(token) >= tokens_->bytes.size()) return false;
    if (content_ != nullptr) return !IsMark(token) && content_->Accept(token);
    if (in_free_text_) {
      if (token != headers_->end) {
        return (headers_->marks->text[static_cast<size_t>(token) / 32] >> token % 32 & 1) != 0;
      }
      in_free_text_ = false;
      for (size_t i = 0; i < headers_->headers.size(); ++i) open_.push_back({.header = i});
      return true;
    }
    return AcceptInHeader(token);
  }

  bool complete() const override { return content_ != nullptr && content_->complete(); }
  bool finished() const override { return content_ != nullptr && content_->finished(); }

  std::unique_ptr<TokenConstraint> Clone() const override {
    auto clone = std::make_unique<MessagesConstraint>(headers_, tokens_, make_content_);
    clone->open_ = open_;
    clone->in_free_text_ = in_free_text_;
    if (content_ != nullptr) clone->content_ = content_->Clone();
    return clone;
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    if (content_ != nullptr) return content_->ForcedTokens(most);
    if (in_free_text_ || open_.size() != 1) return {};
    const std::vector<MessageHeaders::Piece>& pieces = headers_->headers[open_[0].header].pieces;
    std::vector<TokenId> tokens;
    size_t written = open_[0].byte;
    for (size_t i = open_[0].piece; i < pieces.size(); ++i) {
      if (pieces[i].mark >= 0) {
        tokens.push_back(pieces[i].mark);
        continue;
      }
      const auto text = TokensWithin(std::string_view(pieces[i].text).substr(written), *tokens_);
      if (text.empty()) break;
      tokens.insert(tokens.end(), text.begin(), text.end());
      written = 0;
    }
    if (tokens.size() > static_cast<size_t>(most)) tokens.resize(static_cast<size_t>(most));
    return tokens;
  }

 private:
  // The part of a header that has been written.
  struct Position {
    size_t header = 0;
    size_t piece = 0;
    size_t byte = 0;
  };

  bool AcceptInHeader(TokenId token) {
    std::vector<Position> next;
    for (Position at : open_) {
      const MessageHeaders::Piece& piece = PieceAt(at);
      const std::string_view bytes = tokens_->bytes[static_cast<size_t>(token)];
      const bool fits = piece.mark >= 0
                            ? piece.mark == token
                            : !bytes.empty() && !IsMark(token) &&
                                  std::string_view(piece.text).substr(at.byte).starts_with(bytes);
      if (!fits) continue;
      at.byte += bytes.size();
      if (piece.mark >= 0 || at.byte == piece.text.size()) {
        ++at.piece;
        at.byte = 0;
      }
      const MessageHeaders::Header& header = headers_->headers[at.header];
      if (at.piece == header.pieces.size()) return Open(header);
      next.push_back(at);
    }
    open_ = std::move(next);
    return !open_.empty();
  }

  bool Open(const MessageHeaders::Header& header) {
    open_.clear();
    in_free_text_ = header.content < 0;
    if (in_free_text_) return true;
    content_ = make_content_(static_cast<size_t>(header.content));
    return content_ != nullptr;
  }

  bool IsMark(TokenId token) const {
    const auto& marks = headers_->marks->tokens;
    return std::any_of(marks.begin(), marks.end(),
                       [token](const auto& mark) { return mark.second == token; });
  }
  const MessageHeaders::Piece& PieceAt(const Position& at) const {
    return headers_->headers[at.header].pieces[at.piece];
  }

  const std::shared_ptr<const MessageHeaders> headers_;
  const std::shared_ptr<const ConstraintTokens> tokens_;
  const std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content_;
  std::vector<Position> open_;  // the headers that this one may still be
  bool in_free_text_;
  std::unique_ptr<TokenConstraint> content_;  // once its header is complete
};

// Cuts `text` at the names of marks.
std::vector<MessageHeaders::Piece> Cut(std::string_view text, const MessageMarks& marks) {
  std::vector<MessageHeaders::Piece> pieces;
  for (size_t at = 0; at < text.size();) {
    const auto mark = std::find_if(marks.tokens.begin(), marks.tokens.end(), [&](const auto& one) {
      return !one.first.empty() && text.substr(at).starts_with(one.first);
    });
    if (mark != marks.tokens.end()) {
      pieces.push_back({.mark = mark->second});
      at += mark->first.size();
      continue;
    }
    if (pieces.empty() || pieces.back().mark >= 0) pieces.emplace_back();
    pieces.back().text += text[at++];
  }
  return pieces;
}

}  // namespace

Result<MessageMarks> FindMarks(const std::vector<std::string>& names,
                               const ConstraintTokens& tokens) {
  MessageMarks marks;
  for (const std::string& name : names) marks.tokens.emplace_back(name, -1);
  marks.text.assign((tokens.bytes.size() + 31) / 32, 0);
  for (size_t id = 0; id < tokens.bytes.size(); ++id) {
    const std::string& bytes = tokens.bytes[id];
    if (!bytes.empty()) AllowToken(marks.text, static_cast<TokenId>(id));
    // Vocabularies have these tokens at their end, so the last one counts.
    for (auto& [name, token] : marks.tokens) {
      if (bytes == name) token = static_cast<TokenId>(id);
    }
  }
  for (const TokenId id : tokens.special) ForbidToken(marks.text, id);
  for (const auto& [name, token] : marks.tokens) {
    if (token < 0) {
      return Unimplemented(
          "structured_output: this model has no token \"{}\", so its messages cannot be held to a "
          "form",
          name);
    }
    ForbidToken(marks.text, token);
  }
  return marks;
}

Result<MessageHeaders> CutHeaders(const StructuredOutput& output,
                                  std::shared_ptr<const MessageMarks> marks) {
  const StructuredOutput::Messages& messages = *output.messages;
  MessageHeaders headers;
  headers.begun = messages.begun && !messages.free.empty();
  headers.marks = std::move(marks);
  const std::vector<MessageHeaders::Piece> start = Cut(messages.start, *headers.marks);
  headers.num_start_pieces = start.size();
  bool closed = true;  // all headers end with a mark
  const auto add = [&](std::string_view header, int32_t content) {
    std::vector<MessageHeaders::Piece> pieces = start;
    for (MessageHeaders::Piece& piece : Cut(header, *headers.marks)) {
      pieces.push_back(std::move(piece));
    }
    closed = closed && pieces.size() > start.size() && pieces.back().mark >= 0;
    headers.headers.push_back({std::move(pieces), content});
  };
  for (const std::string& header : messages.free) add(header, -1);
  for (size_t i = 0; i < output.calls.size(); ++i) {
    add(output.calls[i].begin, static_cast<int32_t>(i));
  }
  if (!output.must_call) add(messages.answer, static_cast<int32_t>(output.calls.size()));
  for (const auto& [name, id] : headers.marks->tokens) {
    if (name == messages.end) headers.end = id;
  }
  if (!closed || headers.headers.empty() || (headers.end < 0 && !messages.free.empty())) {
    return InvalidArgument(
        "structured_output.messages: every header must end with a mark, and `end` must be one");
  }
  return headers;
}

std::unique_ptr<TokenConstraint> MakeMessagesConstraint(
    std::shared_ptr<const MessageHeaders> headers, std::shared_ptr<const ConstraintTokens> tokens,
    std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content) {
  return std::make_unique<MessagesConstraint>(std::move(headers), std::move(tokens),
                                              std::move(make_content));
}

}  // namespace tokamak
