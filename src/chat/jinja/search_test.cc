#include "chat/jinja/search.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace tokamak::jinja {
namespace {

class Watched {
 public:
  Watched(std::string_view text, int64_t* reads) : text_(text), reads_(reads) {}
  size_t size() const { return text_.size(); }
  char operator[](size_t i) const {
    ++*reads_;
    return text_[i];
  }

 private:
  std::string_view text_;
  int64_t* reads_;
};

std::string Times(std::string_view piece, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += piece;
  return out;
}

TEST(Search, FindsWhatTheStandardLibraryFinds) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const auto draw = [&](size_t most, int letters) {
      std::string text(random() % (most + 1), 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % static_cast<unsigned>(letters));
      return text;
    };
    const int letters = 1 + static_cast<int>(random() % 3);
    const std::string text = draw(40, letters), needle = "a" + draw(6, letters);
    const size_t from = random() % (text.size() + 2);
    ASSERT_EQ(TwoWay<std::string_view>(needle).Find(text, from), text.find(needle, from))
        << text << " " << needle << " " << from;
    const Limits limits;
    Budget budget(limits);
    ASSERT_EQ(Matches<Backwards>(budget, text, needle).Next(), text.rfind(needle))
        << text << " " << needle;
    size_t count = 0, expected = 0;
    for (Matches<> matches(budget, text, needle); matches.Next() != matches.kNone;) ++count;
    for (size_t at = 0; (at = text.find(needle, at)) != std::string::npos; at += needle.size()) {
      ++expected;
    }
    ASSERT_EQ(count, expected) << text << " " << needle;
  }
}

TEST(Search, TakesTimeLinearInTheText) {
  std::string fibonacci = "a", before = "b";
  while (fibonacci.size() < 60000) before = std::exchange(fibonacci, fibonacci + before);
  const std::string a = Times("a", 60000), ab = Times("ab", 30000);
  for (const std::string& text : {a, ab, fibonacci, Times("a", 30000) + "b" + a}) {
    for (const std::string& needle :
         {Times("a", 30000) + "b", "b" + Times("a", 30000), Times("a", 15000) + "b" + a,
          Times("ab", 9000) + "b", "b" + Times("ab", 9000), fibonacci.substr(0, 20000) + "c",
          fibonacci.substr(1, 20000), Times("a", 5) + "b", std::string("b")}) {
      int64_t reads = 0;
      const TwoWay<Watched> search(Watched(needle, &reads));
      const Watched watched(text, &reads);
      for (size_t from = 0;
           from != std::string::npos && (from = search.Find(watched, from)) != std::string::npos;) {
        from += needle.size();
      }
      EXPECT_LE(reads, static_cast<int64_t>(4 * text.size() + 10 * needle.size()))
          << text.substr(0, 9) << " " << needle.substr(0, 9);
    }
  }
}

}  // namespace
}  // namespace tokamak::jinja
