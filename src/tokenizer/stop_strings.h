// Stop strings in a stream of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// Lets text through up to the first stop string, and holds back what may be the start of one. The
// first is the one completed earliest (of several completed by the same byte, the longest), so the
// result does not depend on how the text was cut into pieces. Owned by one thread.
class StopStringMatcher {
 public:
  static constexpr size_t kMaxStrings = 64;
  static constexpr size_t kMaxBytes = 16384;  // all strings together

  // kInvalidArgument for an empty string, one that is not UTF-8, or too many.
  static Result<StopStringMatcher> Create(std::vector<std::string> stop_strings);

  // The text that can be shown after `text` has arrived. Once a stop string is found, everything
  // from its first byte on is dropped, later text included. O(strings) amortized per byte.
  std::string Append(std::string_view text);
  // Ends the stream: what was held back turned out not to be a stop string.
  std::string Flush();

  bool matched() const { return match_ >= 0; }
  // Index of the stop string that was found, or -1.
  int32_t match() const { return match_; }
  // The stop string that was found, or an empty view.
  std::string_view matched_string() const;

 private:
  // One Knuth-Morris-Pratt automaton per string.
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // [text.size() + 1] longest proper border of each prefix
    size_t matched = 0;            // bytes of `text` that the stream ends with
  };
  explicit StopStringMatcher(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}

  std::vector<Pattern> patterns_;
  std::string held_;  // the longest end of the stream that starts a stop string
  int32_t match_ = -1;
};

}  // namespace tokamak
