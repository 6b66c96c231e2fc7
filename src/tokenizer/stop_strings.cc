#include "tokenizer/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace tokamak {
namespace {

std::vector<uint32_t> Borders(std::string_view text) {
  std::vector<uint32_t> border(text.size() + 1, 0);
  for (size_t i = 1, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = border[k];
    if (text[i] == text[k]) ++k;
    border[i + 1] = static_cast<uint32_t>(k);
  }
  return border;
}

}  // namespace

Result<StopStringMatcher> StopStringMatcher::Create(std::vector<std::string> stop_strings) {
  if (stop_strings.size() > kMaxStrings) {
    return InvalidArgument("{} stop strings were given; at most {} are supported",
                           stop_strings.size(), kMaxStrings);
  }
  size_t total = 0;
  std::vector<Pattern> patterns;
  for (std::string& text : stop_strings) {
    const size_t index = patterns.size();
    if (text.empty()) return InvalidArgument("stop string {} is empty", index);
    if (ValidUtf8Prefix(text) != text.size()) {
      return InvalidArgument("stop string {} is not valid UTF-8", index);
    }
    total += text.size();
    if (total > kMaxBytes) {
      return InvalidArgument("the stop strings are longer than {} bytes together", kMaxBytes);
    }
    Pattern pattern;
    pattern.border = Borders(text);
    pattern.text = std::move(text);
    patterns.push_back(std::move(pattern));
  }
  return StopStringMatcher(std::move(patterns));
}

std::string StopStringMatcher::Append(std::string_view text) {
  if (matched()) return {};
  if (patterns_.empty()) return std::string(text);
  held_.append(text);
  const size_t start = held_.size() - text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    size_t longest = 0;  // size of the longest stop string completed by this byte
    for (size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      size_t& k = pattern.matched;
      while (k > 0 && text[i] != pattern.text[k]) k = pattern.border[k];
      if (text[i] == pattern.text[k]) ++k;
      if (k == pattern.text.size() && k > longest) {
        longest = k;
        match_ = static_cast<int32_t>(p);
      }
    }
    if (longest > 0) {
      std::string out = held_.substr(0, start + i + 1 - longest);
      held_.clear();
      return out;
    }
  }
  size_t hold = 0;
  for (const Pattern& pattern : patterns_) hold = std::max(hold, pattern.matched);
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopStringMatcher::Flush() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, {});
}

std::string_view StopStringMatcher::matched_string() const {
  return matched() ? std::string_view(patterns_[match_].text) : std::string_view();
}

}  // namespace tokamak
