// Base64 (RFC 4648, section 4).
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// Decodes `text` into `bytes`; trailing "=" may be missing, and bits that no byte uses may have any
// value. Returns false for an invalid character or length; `bytes` is then unspecified.
bool DecodeBase64(std::string_view text, std::string& bytes);

// Accepts only the text that an encoder writes: padded, and with unused bits of zero.
bool DecodeStrictBase64(std::string_view text, std::string& bytes);

}  // namespace tokamak
