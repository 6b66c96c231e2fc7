#include "images/data_url.h"

#include <algorithm>
#include <cstddef>

#include "base/base64.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

constexpr size_t kMaxQuoted = 40;  // bytes of a client's text in a message

// Removes a prefix, in upper or lower case. Returns false if there is none.
bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!EqualIgnoringCase(text.substr(0, prefix.size()), prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string_view LastBytes(std::string_view text, size_t count) {
  return text.substr(text.size() - std::min(text.size(), count));
}

// The number of bytes that a padded text decodes to.
size_t DecodedBytes(std::string_view base64) {
  const size_t padding = base64.ends_with("==") ? 2 : base64.ends_with('=') ? 1 : 0;
  const size_t bytes = (base64.size() + 3) / 4 * 3;
  return bytes - std::min(bytes, padding);
}

}  // namespace

Result<std::string> DecodeDataUrl(std::string_view url, const DecodeLimits& limits) {
  std::string_view rest = url;
  const bool is_data = TakePrefix(rest, "data:");
  const size_t comma = rest.find(',');
  if (!is_data || comma == std::string_view::npos) {
    return InvalidArgument("must be a data: URL (data:image/png;base64,iVBORw0...), got {}",
                           Quoted(url, kMaxQuoted));
  }
  std::string_view type = rest.substr(0, comma);
  const std::string_view base64 = rest.substr(comma + 1);
  if (!TakePrefix(type, "image/") || !EqualIgnoringCase(LastBytes(type, 7), ";base64")) {
    return InvalidArgument(
        "the media type of a data: URL must be that of an image, with base64 (image/png;base64), "
        "got {}",
        Quoted(rest.substr(0, comma), kMaxQuoted));
  }
  RETURN_IF_ERROR(CheckFileSize(DecodedBytes(base64), limits));
  std::string bytes;
  if (!DecodeStrictBase64(base64, bytes)) {
    return InvalidArgument(
        "the data: URL is not valid base64 (A-Z, a-z, 0-9, + and /, with = at the end up to a "
        "multiple of 4 characters; no white space)");
  }
  return bytes;
}

}  // namespace tokamak
