#include "local/text_decoder.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"

namespace tokamak {
namespace {

class TokenizerTextDecoder final : public TextDecoder {
 public:
  TokenizerTextDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                       std::optional<StopStringMatcher> stop, const SamplingParams& sampling)
      : tokenizer_(tokenizer),
        shown_special_(sampling.shown_special_tokens),
        shows_stop_(sampling.include_stop_str_in_output),
        // The output continues the prompt, so a first space was written by the model and is kept.
        detokenizer_(std::move(tokenizer), {.skip_special = sampling.skip_special_tokens,
                                            .continuation = true,
                                            .shown_special = shown_special_}),
        stop_(std::move(stop)) {}

  bool Append(TokenId token, bool may_stop, OutputChunk* chunk) override {
    const std::string piece = detokenizer_.Append(token);
    const size_t begin = decoded_;
    decoded_ += piece.size();
    if (std::find(shown_special_.begin(), shown_special_.end(), token) != shown_special_.end()) {
      // An unfinished character may come before the name.
      special_.push_back(decoded_ - std::min(piece.size(), tokenizer_->TokenPiece(token).size()));
    }
    if (!stop_ || !may_stop) {
      Release(chunk);
      Show(piece, chunk);
      return false;
    }
    held_.push_back(begin);
    Show(stop_->Append(piece), chunk);
    if (stop_->matched() && shows_stop_) Show(stop_->matched_string(), chunk);
    while (!held_.empty() && held_.front() < shown_) held_.pop_front();
    // The remaining tokens have no text at all.
    if (shown_ == decoded_ && !detokenizer_.pending()) held_.clear();
    return stop_->matched();
  }

  void Flush(OutputChunk* chunk) override {
    const std::string piece = detokenizer_.Flush();
    decoded_ += piece.size();
    Release(chunk);
    Show(piece, chunk);
  }

  std::unique_ptr<TextDecoder> Clone() const override {
    return std::make_unique<TokenizerTextDecoder>(*this);
  }

  int32_t tokens_held() const override { return static_cast<int32_t>(held_.size()); }

 private:
  void Show(std::string_view text, OutputChunk* chunk) {
    for (; !special_.empty() && special_.front() < shown_ + text.size(); special_.pop_front()) {
      chunk->special_at.push_back(chunk->text.size() + special_.front() - shown_);
    }
    chunk->text += text;
    shown_ += text.size();
  }
  // Shows what may have been the start of a stop string.
  void Release(OutputChunk* chunk) {
    if (!stop_) return;
    Show(stop_->Flush(), chunk);
    held_.clear();
  }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<int32_t> shown_special_;
  const bool shows_stop_;
  Detokenizer detokenizer_;
  std::optional<StopStringMatcher> stop_;
  size_t decoded_ = 0;          // bytes of text
  size_t shown_ = 0;            // bytes of it that are final
  std::deque<size_t> held_;     // text offsets of the tokens that have no final text
  std::deque<size_t> special_;  // text offsets of shown special tokens, not final yet
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
  return std::unique_ptr<TextDecoder>(
      std::make_unique<TokenizerTextDecoder>(std::move(tokenizer), std::move(matcher), sampling));
}

}  // namespace tokamak
