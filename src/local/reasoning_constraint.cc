#include "local/reasoning_constraint.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "local/token_mask.h"

namespace tokamak {
namespace {

constexpr size_t kMaxLineBreaks = 2;

// Whether `text` may stand between reasoning and answer.
bool IsGap(std::string_view text) {
  return text.size() <= kMaxLineBreaks && text.find_first_not_of('\n') == std::string_view::npos;
}

// Whether `text` closes the reasoning and goes on with more than a gap.
bool GoesAcross(std::string_view text, std::string_view close) {
  const size_t found = text.find(close);
  return found != std::string_view::npos && !IsGap(text.substr(found + close.size()));
}

class ReasoningConstraint final : public TokenConstraint {
 public:
  ReasoningConstraint(const StructuredOutput::Reasoning& reasoning,
                      std::shared_ptr<const ConstraintTokens> tokens,
                      std::shared_ptr<const std::vector<TokenId>> across,
                      std::function<std::unique_ptr<TokenConstraint>()> make_answer)
      : open_(reasoning.open),
        close_(reasoning.close),
        tokens_(std::move(tokens)),
        across_(std::move(across)),
        make_answer_(std::move(make_answer)),
        answer_(make_answer_()),
        state_(reasoning.begun ? State::kReasoning : State::kStart) {}

  ReasoningConstraint(const ReasoningConstraint& other)
      : open_(other.open_),
        close_(other.close_),
        tokens_(other.tokens_),
        across_(other.across_),
        make_answer_(other.make_answer_),
        answer_(other.answer_->Clone()),
        state_(other.state_),
        text_(other.text_),
        fits_answer_(other.fits_answer_),
        touched_(other.touched_) {}
  ReasoningConstraint& operator=(const ReasoningConstraint&) = delete;

  Status Allow(std::span<uint32_t> allowed) override {
    switch (state_) {
      case State::kStart:
        return AllowStart(allowed);
      case State::kReasoning:
        AllowReasoning(allowed);
        return Status();
      case State::kGap:
        return AllowGap(allowed);
      case State::kAnswer:
        return answer_->Allow(allowed);
    }
    return Status();
  }

  bool Accept(TokenId token) override {
    if (static_cast<size_t>(token) >= tokens_->bytes.size()) return false;
    const std::string_view bytes = tokens_->bytes[static_cast<size_t>(token)];
    switch (state_) {
      case State::kStart:
        return AcceptStart(token, bytes);
      case State::kReasoning:
        return AcceptReasoning(bytes);
      case State::kGap:
        if (!bytes.empty() && IsGap(text_ + std::string(bytes))) {
          text_ += bytes;
          return true;
        }
        state_ = State::kAnswer;
        return answer_->Accept(token);
      case State::kAnswer:
        return answer_->Accept(token);
    }
    return false;
  }

  bool complete() const override { return may_answer() && answer_->complete(); }
  // Without any token even an empty answer is not finished: reasoning may come.
  bool finished() const override { return state_ == State::kAnswer && answer_->finished(); }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<ReasoningConstraint>(*this);
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    if (state_ != State::kAnswer) return {};
    return answer_->ForcedTokens(most);
  }

 private:
  enum class State {
    kStart,      // text_ is the beginning of open_, and perhaps of an answer too
    kReasoning,  // text_ ends the reasoning so far; it is shorter than close_
    kGap,        // text_ is the line breaks after the reasoning
    kAnswer,
  };

  bool may_answer() const {
    return state_ == State::kGap || state_ == State::kAnswer ||
           (state_ == State::kStart && fits_answer_);
  }

  Status AllowStart(std::span<uint32_t> allowed) {
    const Status status = fits_answer_ ? answer_->Allow(allowed) : Status();
    const std::string_view rest = std::string_view(open_).substr(text_.size());
    bool any = false;
    for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
      const std::string_view bytes = tokens_->bytes[id];
      if (bytes.empty() || !(rest.starts_with(bytes) || bytes.starts_with(rest))) continue;
      if (bytes.size() > rest.size() && GoesAcross(bytes.substr(rest.size()), close_)) continue;
      AllowToken(allowed, static_cast<TokenId>(id));
      any = true;
    }
    return any ? Status() : status;
  }

  bool AcceptStart(TokenId token, std::string_view bytes) {
    const std::string_view rest = std::string_view(open_).substr(text_.size());
    fits_answer_ = fits_answer_ && answer_->Accept(token);
    touched_ = touched_ || fits_answer_;
    if (rest.size() > bytes.size() && rest.starts_with(bytes)) {
      text_ += bytes;
      return true;
    }
    if (bytes.starts_with(rest)) {
      state_ = State::kReasoning;
      text_.clear();
      // The marker may have begun like an answer ("<" of "<tool_call>").
      if (touched_) answer_ = make_answer_();
      return AcceptReasoning(bytes.substr(rest.size()));
    }
    state_ = State::kAnswer;
    return fits_answer_;
  }

  // All tokens but those that would end the reasoning and go on with something else: the answer
  // must begin with a token of its own.
  void AllowReasoning(std::span<uint32_t> allowed) {
    const size_t size = tokens_->bytes.size();
    std::fill_n(allowed.begin(), size / 32, ~uint32_t{0});
    for (size_t id = size / 32 * 32; id < size; ++id) AllowToken(allowed, static_cast<TokenId>(id));
    for (const TokenId id : *across_) ForbidToken(allowed, id);
    for (size_t begun = 1; begun <= text_.size(); ++begun) {
      if (!std::string_view(close_).starts_with(
              std::string_view(text_).substr(text_.size() - begun)))
        continue;
      const std::string_view rest = std::string_view(close_).substr(begun);
      for (size_t id = 0; id < tokens_->bytes.size(); ++id) {
        const std::string_view bytes = tokens_->bytes[id];
        if (bytes.starts_with(rest) && !IsGap(bytes.substr(rest.size())))
          ForbidToken(allowed, static_cast<TokenId>(id));
      }
    }
  }

  bool AcceptReasoning(std::string_view bytes) {
    text_ += bytes;
    const size_t end = text_.find(close_);
    if (end == std::string::npos) {
      text_.erase(0, text_.size() - std::min(text_.size(), close_.size() - 1));
      return true;
    }
    text_.erase(0, end + close_.size());
    state_ = State::kGap;
    return IsGap(text_);
  }

  Status AllowGap(std::span<uint32_t> allowed) {
    const Status status = answer_->Allow(allowed);
    const size_t left = kMaxLineBreaks - std::min(kMaxLineBreaks, text_.size());
    bool any = false;
    for (const TokenId id : tokens_->newlines) {
      if (tokens_->bytes[static_cast<size_t>(id)].size() > left) continue;
      AllowToken(allowed, id);
      any = true;
    }
    return any ? Status() : status;
  }

  const std::string open_;
  const std::string close_;
  const std::shared_ptr<const ConstraintTokens> tokens_;
  const std::shared_ptr<const std::vector<TokenId>> across_;
  const std::function<std::unique_ptr<TokenConstraint>()> make_answer_;
  std::unique_ptr<TokenConstraint> answer_;
  State state_;
  std::string text_;
  bool fits_answer_ = true;  // kStart: the tokens so far are the beginning of an answer
  bool touched_ = false;     // kStart: answer_ has accepted a token
};

}  // namespace

std::vector<TokenId> TokensAcross(std::string_view close, const ConstraintTokens& tokens) {
  std::vector<TokenId> across;
  for (size_t id = 0; id < tokens.bytes.size() && !close.empty(); ++id) {
    if (GoesAcross(tokens.bytes[id], close)) across.push_back(static_cast<TokenId>(id));
  }
  return across;
}

std::unique_ptr<TokenConstraint> MakeReasoningConstraint(
    const StructuredOutput::Reasoning& reasoning, std::shared_ptr<const ConstraintTokens> tokens,
    std::shared_ptr<const std::vector<TokenId>> across,
    std::function<std::unique_ptr<TokenConstraint>()> make_answer) {
  if (reasoning.close.empty() || (reasoning.open.empty() && !reasoning.begun)) return make_answer();
  return std::make_unique<ReasoningConstraint>(reasoning, std::move(tokens), std::move(across),
                                               std::move(make_answer));
}

}  // namespace tokamak
