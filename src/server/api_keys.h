// Who may use the server.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// The keys in the text of a file: one per line; empty lines and those that start with # are left
// out.
std::vector<std::string_view> KeysIn(std::string_view text);

// A set of keys, kept as SHA-256 digests. Immutable.
class ApiKeys {
 public:
  ApiKeys() = default;  // none: everyone may
  // Those of KeysIn; an error when there is none.
  static Result<ApiKeys> FromFile(const std::string& path);

  bool empty() const { return digests_.empty(); }
  // Whether an Authorization header ("Bearer <key>") holds one of the keys. Takes the same time
  // whatever part of a key is right, and which.
  bool Accepts(std::string_view authorization) const;
  // How many of the file's keys are this one. Looks at all of them, whichever match.
  size_t Matches(std::string_view key) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(std::string_view key);

  std::vector<Digest> digests_;
};

}  // namespace tokamak
