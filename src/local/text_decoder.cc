#include "local/text_decoder.h"

#include <deque>
#include <optional>

#include "base/error.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"

namespace tokamak {
namespace {

class TokenizerTextDecoder final : public TextDecoder {
 public:
  TokenizerTextDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                       std::optional<StopStringMatcher> stop, std::vector<int32_t> shown)
      // The output continues the prompt, so a first space was written by the model and is kept.
      : detokenizer_(
            std::move(tokenizer),
            {.skip_special = true, .continuation = true, .shown_special = std::move(shown)}),
        stop_(std::move(stop)) {}

  bool Append(TokenId token, bool may_stop, std::string* text) override {
    const std::string piece = detokenizer_.Append(token);
    if (!stop_ || !may_stop) {
      Release(text);
      text->append(piece);
      return false;
    }
    held_.push_back(decoded_);
    decoded_ += piece.size();
    const std::string final_text = stop_->Append(piece);
    shown_ += final_text.size();
    while (!held_.empty() && held_.front() < shown_) held_.pop_front();
    // The remaining tokens have no text at all.
    if (shown_ == decoded_ && !detokenizer_.pending()) held_.clear();
    text->append(final_text);
    return stop_->matched();
  }

  void Flush(std::string* text) override {
    const std::string piece = detokenizer_.Flush();
    Release(text);
    text->append(piece);
  }

  int32_t tokens_held() const override { return static_cast<int32_t>(held_.size()); }

 private:
  // Appends what may have been the start of a stop string.
  void Release(std::string* text) {
    if (!stop_) return;
    text->append(stop_->Flush());
    shown_ = decoded_;
    held_.clear();
  }

  Detokenizer detokenizer_;
  std::optional<StopStringMatcher> stop_;
  size_t decoded_ = 0;       // bytes of text given to stop_
  size_t shown_ = 0;         // bytes that stop_ has released
  std::deque<size_t> held_;  // text offsets of the tokens that have no released text
};

}  // namespace

Result<std::unique_ptr<TextDecoder>> MakeTextDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                                                     const SamplingParams& sampling) {
  std::optional<StopStringMatcher> matcher;
  if (!sampling.stop.empty()) {
    Result<StopStringMatcher> made = StopStringMatcher::Create(sampling.stop);
    if (!made.ok()) return made.status().WithContext("stop");
    matcher = *std::move(made);
  }
  return std::unique_ptr<TextDecoder>(std::make_unique<TokenizerTextDecoder>(
      std::move(tokenizer), std::move(matcher), sampling.shown_special_tokens));
}

}  // namespace tokamak
