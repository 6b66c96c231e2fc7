// Images within requests: data URLs (RFC 2397).
#pragma once

#include <string>
#include <string_view>

#include "images/decode.h"
#include "tokamak/status.h"

namespace tokamak {

// Returns the bytes of "data:image/png;base64,...". The media type must be that of an image, but
// need not be the right one: an image's first bytes tell its format. The base64 must be as an
// encoder writes it, without white space or escapes. kInvalidArgument for anything else,
// kResourceExhausted for more than limits.max_bytes.
Result<std::string> DecodeDataUrl(std::string_view url, const DecodeLimits& limits = {});

}  // namespace tokamak
