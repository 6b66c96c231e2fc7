// API keys: the clients that may use the server.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// A line of a key file: the key, and what its client may do.
struct KeyLine {
  std::string_view key;
  int32_t max_priority = 0;
};

// The lines of a file's text that hold keys, as in "KEY" or "KEY priority=10"; empty lines and
// those that start with # are left out. An error names the line, and not its key.
Result<std::vector<KeyLine>> KeysIn(std::string_view text);

// The client of a request.
struct Client {
  std::string name;          // as Request::client
  int32_t max_priority = 0;  // of its requests
};

// A set of keys, kept as SHA-256 digests. Immutable.
class ApiKeys {
 public:
  ApiKeys() = default;  // none: everyone may
  // Reads the keys of a file, as KeysIn does; an error when there is none.
  static Result<ApiKeys> FromFile(const std::string& path);

  bool empty() const { return keys_.empty(); }
  // The client whose key an Authorization header ("Bearer <key>") holds, if it is one of these.
  // Looks at all of them, and takes the same time whatever part of a key is right, and which.
  std::optional<Client> Find(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Key {
    Digest digest;
    int32_t max_priority = 0;
  };
  static Digest DigestOf(std::string_view key);

  std::vector<Key> keys_;
};

}  // namespace tokamak
