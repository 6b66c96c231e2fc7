// Base64 (RFC 4648, section 4), in which vocabularies spell their tokens' bytes.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// Decodes `text` into `bytes`; trailing "=" may be missing. Returns false for an invalid character
// or length; `bytes` is then unspecified.
bool DecodeBase64(std::string_view text, std::string& bytes);

}  // namespace tokamak
