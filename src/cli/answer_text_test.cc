#include "cli/answer_text.h"

#include <gtest/gtest.h>

#include <string>

namespace tokamak::cli {
namespace {

constexpr char kHarmony[] = "<|channel|>analysis<|message|> <|start|>assistant";

// Shows the text in pieces of `step` bytes.
std::string Shown(AnswerText& answer, const std::string& text, size_t step) {
  std::string shown;
  for (size_t at = 0; at < text.size(); at += step) shown += answer.Append(text.substr(at, step));
  return shown + answer.Finish();
}

TEST(AnswerText, ShowsHarmonyAsText) {
  const std::string think = "<|channel|>analysis<|message|>Hm.\nSo<|end|>";
  const std::string say = "<|start|>assistant<|channel|>final<|message|>Yes.";
  for (const size_t step : {1, 3, 50}) {
    AnswerText both(kHarmony), cut(kHarmony), plain(kHarmony);
    EXPECT_EQ(Shown(both, think + say, step), "<think>\nHm.\nSo\n</think>\n\nYes.");
    EXPECT_EQ(Shown(cut, think, step), "<think>\nHm.\nSo\n</think>\n\n");
    EXPECT_EQ(Shown(plain, say, step), "Yes.");
  }
}

TEST(AnswerText, ShowsOtherModelsAnswersUnchanged) {
  const std::string text = "<think>a</think>b <|channel|>analysis<|message|>";
  AnswerText answer("{{ messages }} </think>");
  EXPECT_EQ(Shown(answer, text, 3), text);
}

}  // namespace
}  // namespace tokamak::cli
