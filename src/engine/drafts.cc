#include "engine/drafts.h"

#include <algorithm>

namespace tokamak {

std::vector<TokenId> ProposeFromText(std::span<const ContentId> text, const DraftOptions& options,
                                     int32_t most) {
  if (most <= 0) return {};
  const auto size = static_cast<int32_t>(text.size());
  int32_t best_length = options.min_match - 1;
  int32_t best_end = 0;  // of the place: the index of what followed
  for (int32_t end = size - 1; end >= options.min_match && best_length < options.max_match; --end) {
    const int32_t longest = std::min(end, options.max_match);
    int32_t length = 0;
    while (length < longest && text[static_cast<size_t>(end - 1 - length)] ==
                                   text[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length <= best_length) continue;
    best_length = length;
    best_end = end;
  }
  std::vector<TokenId> drafts;
  if (best_end == 0) return drafts;
  // The text that followed may reach its end and go on with what has been proposed.
  for (int32_t i = best_end; static_cast<int32_t>(drafts.size()) < most; ++i) {
    drafts.push_back(i < size ? static_cast<TokenId>(text[static_cast<size_t>(i)])
                              : drafts[static_cast<size_t>(i - size)]);
  }
  return drafts;
}

void DraftHistory::Note(int32_t accepted, int32_t proposed) {
  // The first refused draft is the last one that says anything.
  for (int32_t i = 0; i < std::min(accepted + 1, proposed); ++i) {
    acceptance_ += ((i < accepted ? 1.0 : 0.0) - acceptance_) * kLearn;
  }
}

}  // namespace tokamak
