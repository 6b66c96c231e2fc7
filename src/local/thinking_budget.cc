#include "local/thinking_budget.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "local/forced_tokens.h"
#include "local/token_mask.h"

namespace tokamak {
namespace {

constexpr int32_t kMostToFinishCharacter = 3;

// Returns the tokens of a closing mark, which may be one special token.
std::vector<TokenId> TokensOfMark(std::string_view mark, const ConstraintTokens& tokens) {
  for (const TokenId id : tokens.special) {
    if (tokens.bytes[static_cast<size_t>(id)] == mark) return {id};
  }
  return TokensWithin(mark, tokens);
}

// Shared by all choices of a request.
struct Rules {
  std::string open, close;
  std::vector<TokenId> closing;  // the tokens of `close`
  std::shared_ptr<const ConstraintTokens> tokens;
};

// Finds reasoning where the reader of answers finds it (AnswerParser): at the beginning, after
// white space.
class ThinkingBudget final : public TokenConstraint {
 public:
  ThinkingBudget(std::shared_ptr<const Rules> rules, bool begun, int32_t budget,
                 std::unique_ptr<TokenConstraint> answer)
      : rules_(std::move(rules)), answer_(std::move(answer)), left_(budget) {
    if (!begun && !rules_->open.empty()) return;
    state_ = begun ? State::kReasoning : State::kAnswer;
    if (begun) Reason({});
  }
  ThinkingBudget(const ThinkingBudget& other)
      : rules_(other.rules_),
        answer_(other.answer_ == nullptr ? nullptr : other.answer_->Clone()),
        state_(other.state_),
        left_(other.left_),
        text_(other.text_),
        characters_(other.characters_),
        forced_(other.forced_) {}
  ThinkingBudget& operator=(const ThinkingBudget&) = delete;

  Status Allow(std::span<uint32_t> allowed) override {
    if (state_ == State::kClosing) {
      AllowToken(allowed, forced_.front());
    } else if (answer_ != nullptr) {
      return answer_->Allow(allowed);
    } else {
      std::fill(allowed.begin(), allowed.end(), ~uint32_t{0});
    }
    return Status();
  }

  bool Accept(TokenId token) override {
    if (token < 0 || (answer_ != nullptr && !answer_->Accept(token))) return false;
    switch (state_) {
      case State::kStart:
        Start(BytesOf(token));
        break;
      case State::kReasoning:
        --left_;
        Reason(BytesOf(token));
        break;
      case State::kClosing:
        if (token != forced_.front()) return false;
        forced_.erase(forced_.begin());
        if (forced_.empty()) state_ = State::kAnswer;
        break;
      case State::kAnswer:
        break;
    }
    return true;
  }

  bool complete() const override {
    return state_ != State::kClosing && (answer_ == nullptr || answer_->complete());
  }
  bool finished() const override {
    return state_ != State::kClosing && answer_ != nullptr && answer_->finished();
  }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<ThinkingBudget>(*this);
  }
  int32_t num_free() const override {
    const int32_t most = answer_ == nullptr ? INT32_MAX : answer_->num_free();
    switch (state_) {
      case State::kStart:  // the next token may complete the opening mark
        return std::min(most, 1 + std::min(left_, INT32_MAX - 1));
      case State::kReasoning:  // the budget may be used up while a character is incomplete
        return std::min(most, std::max(1, left_));
      case State::kClosing:
        return 0;
      case State::kAnswer:
        break;
    }
    return most;
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    if (state_ != State::kClosing) {
      return answer_ == nullptr ? std::vector<TokenId>() : answer_->ForcedTokens(most);
    }
    const auto count = std::min<std::ptrdiff_t>(std::ssize(forced_), std::max(0, most));
    return {forced_.begin(), forced_.begin() + count};
  }

 private:
  enum class State {
    kStart,      // text_ is the beginning of the opening mark
    kReasoning,  // text_ ends the reasoning so far; it is shorter than the closing mark
    kClosing,    // forced_ comes next
    kAnswer,
  };

  // Models may have more tokens than their tokenizers.
  std::string_view BytesOf(TokenId token) const {
    const std::vector<std::string>& bytes = rules_->tokens->bytes;
    const auto index = static_cast<size_t>(token);
    return index < bytes.size() ? std::string_view(bytes[index]) : std::string_view();
  }

  void Start(std::string_view bytes) {
    const std::string_view open = rules_->open;
    text_ += bytes;
    text_.erase(0, std::min(text_.size(), text_.find_first_not_of(kWhiteSpace)));
    if (text_.starts_with(open)) {
      state_ = State::kReasoning;
      Reason(std::exchange(text_, {}).substr(open.size()));
    } else if (!open.starts_with(text_)) {
      state_ = State::kAnswer;
    }
  }

  // Adds text to the reasoning.
  void Reason(std::string_view bytes) {
    const std::string_view close = rules_->close;
    text_ += bytes;
    if (text_.find(close) != std::string::npos) {
      state_ = State::kAnswer;
      return;
    }
    text_.erase(0, text_.size() - std::min(text_.size(), close.size() - 1));
    std::string ignored;
    characters_.Append(bytes, ignored);
    const bool waits = characters_.pending() && left_ > -kMostToFinishCharacter;
    if (left_ <= 0 && !waits) Close();
  }

  void Close() {
    forced_ = rules_->closing;
    // The text may end with a part of the mark. Then the rest follows, unless one token is the
    // mark.
    const std::string_view close = rules_->close;
    for (size_t begun = text_.size(); begun > 0 && rules_->closing.size() > 1; --begun) {
      if (!text_.ends_with(close.substr(0, begun))) continue;
      std::vector<TokenId> rest = TokensWithin(close.substr(begun), *rules_->tokens);
      if (rest.empty()) continue;
      forced_ = std::move(rest);
      break;
    }
    state_ = AnswerTakes(forced_) ? State::kClosing : State::kAnswer;
  }

  // False if what looks like reasoning is a part of the structured output.
  bool AnswerTakes(const std::vector<TokenId>& tokens) const {
    if (answer_ == nullptr) return true;
    const std::unique_ptr<TokenConstraint> ahead = answer_->Clone();
    return std::all_of(tokens.begin(), tokens.end(),
                       [&](TokenId token) { return ahead->Accept(token); });
  }

  const std::shared_ptr<const Rules> rules_;
  const std::unique_ptr<TokenConstraint> answer_;
  State state_ = State::kStart;
  int32_t left_;  // tokens of the budget
  std::string text_;
  Utf8StreamDecoder characters_;
  std::vector<TokenId> forced_;
};

}  // namespace

Result<std::unique_ptr<TokenConstraint>> MakeThinkingBudget(
    const StructuredOutput::Reasoning& marks, int32_t budget,
    std::shared_ptr<const ConstraintTokens> tokens, std::unique_ptr<TokenConstraint> answer) {
  std::vector<TokenId> closing = TokensOfMark(marks.close, *tokens);
  if (closing.empty()) {
    return Unimplemented(
        "thinking_token_budget: no tokens of this model spell \"{}\", which ends its reasoning",
        marks.close);
  }
  auto rules = std::make_shared<const Rules>(Rules{.open = marks.open,
                                                   .close = marks.close,
                                                   .closing = std::move(closing),
                                                   .tokens = std::move(tokens)});
  return std::unique_ptr<TokenConstraint>(
      std::make_unique<ThinkingBudget>(std::move(rules), marks.begun, budget, std::move(answer)));
}

}  // namespace tokamak
