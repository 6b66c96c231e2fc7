// Stop strings in a stream of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// Passes text on up to the first stop string and holds back what may begin one. The first is the
// one completed earliest; of several completed by the same byte, the longest. So the result does
// not depend on how the text was split. Not thread-safe.
class StopStringMatcher {
 public:
  static constexpr size_t kMaxStrings = 64;
  static constexpr size_t kMaxBytes = 16384;  // all strings together

  // kInvalidArgument if a string is empty or not UTF-8, or if there are too many.
  static Result<StopStringMatcher> Create(std::vector<std::string> stop_strings);

  // Returns the text that can be shown after `text` has arrived. Once a stop string is found, drops
  // everything from its first byte on, including later text. O(strings) amortized per byte.
  std::string Append(std::string_view text);
  // Ends the stream and returns the text that was held back.
  std::string Flush();

  bool matched() const { return match_ >= 0; }
  // Index of the found stop string, or -1.
  int32_t match() const { return match_; }
  // The found stop string; empty if none.
  std::string_view matched_string() const;

 private:
  // One Knuth-Morris-Pratt automaton per string.
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // [text.size() + 1] longest proper border of each prefix
    size_t matched = 0;            // bytes of `text` matched at the end of the stream
  };
  explicit StopStringMatcher(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}

  std::vector<Pattern> patterns_;
  std::string held_;  // the longest end of the stream that begins a stop string
  int32_t match_ = -1;
};

}  // namespace tokamak
