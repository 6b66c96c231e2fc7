// Reads bytes as a data: URL. What is decoded encodes to the same text: there is only one for each
// image.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "images/data_url.h"

namespace {

std::string Encode(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += at + i > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 63];
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  const std::string_view url(reinterpret_cast<const char*>(data), size);
  const DecodeLimits limits{.max_bytes = 64};
  const Result<std::string> bytes = DecodeDataUrl(url, limits);
  if (!bytes.ok()) {
    if (bytes.status().message().empty()) std::abort();
    return 0;
  }
  if (bytes->empty() || bytes->size() > limits.max_bytes) std::abort();
  if (!url.ends_with("," + Encode(*bytes))) std::abort();
  return 0;
}
