#include "api/text_decoder.h"

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
      // What is generated goes on from the prompt: a first space is one that the model wrote.
      : detokenizer_(
            std::move(tokenizer),
            {.skip_special = true, .continuation = true, .shown_special = std::move(shown)}),
        stop_(std::move(stop)) {}

  bool Append(TokenId token, bool may_stop, std::string* text) override {
    const std::string piece = detokenizer_.Append(token);
    if (!stop_ || !may_stop) {
      text->append(piece);
      return false;
    }
    text->append(stop_->Append(piece));
    return stop_->matched();
  }

  void Flush(std::string* text) override {
    const std::string piece = detokenizer_.Flush();
    if (!stop_) {
      text->append(piece);
      return;
    }
    text->append(stop_->Append(piece));
    text->append(stop_->Flush());
  }

 private:
  Detokenizer detokenizer_;
  std::optional<StopStringMatcher> stop_;
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
