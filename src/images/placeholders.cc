#include "images/placeholders.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {

std::string WriteOutPlaceholders(const ImageInfo& info, std::string text) {
  if (info.placeholder_text.empty()) return text;
  std::string written;
  size_t begin = 0;
  int number = 0;
  for (size_t at; (at = text.find(info.placeholder, begin)) != std::string::npos;) {
    written.append(text, begin, at - begin);
    if (!info.number_begin.empty()) written += info.number_begin + std::to_string(number++);
    written += info.placeholder_text;
    begin = at + info.placeholder.size();
  }
  return written.append(text, begin);
}

Status CheckPlaceholders(const ImageInfo& info, size_t num_images,
                         std::span<const int32_t> prompt) {
  const auto places =
      static_cast<size_t>(std::count(prompt.begin(), prompt.end(), info.placeholder_id));
  if (places == num_images) return Status();
  return InvalidArgument(
      "the prompt has {} images and {} placeholders for them (\"{}\"; a text that spells it counts "
      "too)",
      num_images, places, info.placeholder);
}

std::vector<int32_t> ExpandPlaceholders(int32_t placeholder_id,
                                        std::span<const std::span<const int32_t>> images,
                                        std::vector<int32_t>& prompt) {
  std::vector<int32_t> positions, expanded;
  for (const int32_t token : prompt) {
    if (token != placeholder_id) {
      expanded.push_back(token);
      continue;
    }
    CHECK(positions.size() < images.size());
    const std::span<const int32_t> tokens = images[positions.size()];
    positions.push_back(static_cast<int32_t>(expanded.size()));
    expanded.insert(expanded.end(), tokens.begin(), tokens.end());
  }
  CHECK(positions.size() == images.size());
  prompt = std::move(expanded);
  return positions;
}

}  // namespace tokamak
