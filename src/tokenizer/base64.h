// Base64 (RFC 4648, section 4), as vocabularies spell the bytes of their tokens.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// The bytes that `text` stands for; "=" at the end may be missing. False, leaving `bytes`
// unspecified, for another character or a length that nothing encodes to.
bool DecodeBase64(std::string_view text, std::string& bytes);

}  // namespace tokamak
