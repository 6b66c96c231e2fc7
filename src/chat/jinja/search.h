// Substring search in linear time for any texts: two-way string matching (Crochemore and Perrin,
// "Two-way string-matching", JACM 38, 1991).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "chat/jinja/budget.h"

namespace tokamak::jinja {

// Reads a text from its end to its start.
class Backwards {
 public:
  explicit Backwards(std::string_view text) : text_(text) {}
  size_t size() const { return text_.size(); }
  char operator[](size_t i) const { return text_[text_.size() - 1 - i]; }

 private:
  std::string_view text_;
};

// `Text` has size() and operator[], and is cheap to copy.
template <typename Text>
class TwoWay {
 public:
  static constexpr size_t kNone = std::string_view::npos;

  // `needle` must not be empty, and its characters must outlive this.
  explicit TwoWay(Text needle) : needle_(needle) {
    const Suffix up = MaximalSuffix(/*ascending=*/true);
    const Suffix down = MaximalSuffix(/*ascending=*/false);
    const Suffix& longest = up.start > down.start ? up : down;
    cut_ = longest.start;
    const size_t size = needle_.size();
    // The needle is periodic if the part before the cut repeats one period later. After a shift by
    // the period, that part still matches.
    size_t same = 0;
    while (same < cut_ && same + longest.period < size &&
           needle_[same] == needle_[same + longest.period]) {
      ++same;
    }
    periodic_ = same == cut_ && cut_ + longest.period <= size;
    period_ = periodic_ ? longest.period : std::max(cut_, size - cut_) + 1;
  }

  // Returns the offset of the needle's first occurrence in `text` at or after `from`, or kNone.
  size_t Find(Text text, size_t from) const {
    const size_t size = needle_.size();
    size_t known = 0;  // characters at the start of the needle that are known to match
    while (from <= text.size() && text.size() - from >= size) {
      size_t i = std::max(cut_, known);
      while (i < size && needle_[i] == text[from + i]) ++i;
      if (i < size) {
        from += i - cut_ + 1;
        known = 0;
        continue;
      }
      i = cut_;
      while (i > known && needle_[i - 1] == text[from + i - 1]) --i;
      if (i <= known) return from;
      from += period_;
      known = periodic_ ? size - period_ : 0;
    }
    return kNone;
  }

 private:
  struct Suffix {
    size_t start, period;
  };

  // The largest suffix in alphabetical order, or in reverse order.
  Suffix MaximalSuffix(bool ascending) const {
    size_t start = 0, other = 1, matched = 0, period = 1;
    while (other + matched < needle_.size()) {
      const char a = needle_[start + matched], b = needle_[other + matched];
      if (a == b) {
        if (++matched == period) {
          other += period;
          matched = 0;
        }
      } else if ((a > b) == ascending) {
        other += matched + 1;
        matched = 0;
        period = other - start;
      } else {
        start = other++;
        matched = 0;
        period = 1;
      }
    }
    return {start, period};
  }

  const Text needle_;
  size_t cut_ = 0;  // where the right half begins, which is compared first
  size_t period_ = 0;
  bool periodic_ = false;
};

// The non-overlapping occurrences of a needle that is not empty, first to last; with
// Matches<Backwards> last to first. The constructor charges for the whole search.
template <typename Text = std::string_view>
class Matches {
 public:
  static constexpr size_t kNone = TwoWay<Text>::kNone;

  Matches(Budget& budget, std::string_view text, std::string_view needle)
      : text_(text),
        needle_size_(needle.size()),
        // TwoWay compares each character at most twice and reads the needle no more often.
        more_(needle.size() <= text.size() && budget.StepBytes(2 * text.size())),
        search_(Text(more_ ? needle : std::string_view())) {}

  // Returns the offset of the next occurrence, or kNone; always kNone once the budget is exhausted.
  size_t Next() {
    const size_t at = more_ ? search_.Find(text_, from_) : kNone;
    more_ = at != kNone;
    if (!more_) return kNone;
    from_ = at + needle_size_;
    return std::is_same_v<Text, Backwards> ? text_.size() - from_ : at;
  }

 private:
  const Text text_;
  const size_t needle_size_;
  bool more_;
  const TwoWay<Text> search_;
  size_t from_ = 0;
};

}  // namespace tokamak::jinja
