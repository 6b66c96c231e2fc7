#include "local/calls_constraint.h"

#include <string_view>
#include <utility>

#include "grammar/grammar.h"
#include "local/token_mask.h"

namespace tokamak {
namespace {

class CallsConstraint final : public TokenConstraint {
 public:
  CallsConstraint(std::unique_ptr<TokenConstraint> calls, std::unique_ptr<TokenConstraint> text,
                  std::shared_ptr<const std::vector<std::string>> begins,
                  std::shared_ptr<const ConstraintTokens> tokens)
      : calls_(std::move(calls)),
        text_(std::move(text)),
        begins_(std::move(begins)),
        tokens_(std::move(tokens)) {}

  Status Allow(std::span<uint32_t> allowed) override {
    if (text_ == nullptr) return calls_->Allow(allowed);
    const Status text = text_->Allow(allowed);
    for (size_t i = 0; i < begins_->size() && may_begin_; ++i) {
      const std::string_view begin = (*begins_)[i];
      if (!begin.starts_with(written_)) continue;
      tokens_->vocabulary->ForEachWithPrefix(begin.substr(written_.size()),
                                             [&](int32_t id) { ForbidToken(allowed, id); });
    }
    if (calls_ == nullptr) return text;
    std::vector<uint32_t> of_calls(allowed.size());
    const Status calls = calls_->Allow(of_calls);
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] |= of_calls[i];
    // One of them may have no token to go on with, but neither may be given up for lack of work.
    if (text.code() == StatusCode::kResourceExhausted) return text;
    return text.ok() && calls.code() != StatusCode::kResourceExhausted ? text : calls;
  }

  bool Accept(TokenId token) override {
    if (static_cast<size_t>(token) >= tokens_->bytes.size()) return false;
    const bool call = calls_ != nullptr && calls_->Accept(token);
    const bool text = text_ != nullptr && !BeginsCall(token) && text_->Accept(token);
    if (!call && !text) return false;
    if (!call) calls_.reset();
    if (!text) text_.reset();
    return true;
  }

  bool complete() const override {
    return (calls_ != nullptr && calls_->complete()) || (text_ != nullptr && text_->complete());
  }
  bool finished() const override {
    return (calls_ == nullptr || calls_->finished()) && (text_ == nullptr || text_->finished());
  }

  std::unique_ptr<TokenConstraint> Clone() const override {
    auto clone = std::make_unique<CallsConstraint>(
        calls_ ? calls_->Clone() : nullptr, text_ ? text_->Clone() : nullptr, begins_, tokens_);
    clone->may_begin_ = may_begin_;
    clone->written_ = written_;
    return clone;
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    if (calls_ != nullptr && text_ != nullptr) return {};
    return (calls_ != nullptr ? calls_ : text_)->ForcedTokens(most);
  }

 private:
  // Adds a token to written_. Returns whether it completes the beginning of a call.
  bool BeginsCall(TokenId token) {
    if (!may_begin_) return false;
    written_ += tokens_->bytes[static_cast<size_t>(token)];
    bool begins = may_begin_ = false;
    for (const std::string& begin : *begins_) {
      begins = begins || written_.starts_with(begin);
      may_begin_ = may_begin_ || begin.starts_with(written_);
    }
    return begins;
  }

  // Null: the answer is no longer that. One of them is left.
  std::unique_ptr<TokenConstraint> calls_, text_;
  const std::shared_ptr<const std::vector<std::string>> begins_;
  const std::shared_ptr<const ConstraintTokens> tokens_;
  // Whether written_, which is the whole answer then, may become one of begins_.
  bool may_begin_ = true;
  std::string written_;
};

}  // namespace

std::unique_ptr<TokenConstraint> MakeCallsConstraint(
    std::unique_ptr<TokenConstraint> calls, std::unique_ptr<TokenConstraint> text,
    std::shared_ptr<const std::vector<std::string>> begins,
    std::shared_ptr<const ConstraintTokens> tokens) {
  return std::make_unique<CallsConstraint>(std::move(calls), std::move(text), std::move(begins),
                                           std::move(tokens));
}

}  // namespace tokamak
