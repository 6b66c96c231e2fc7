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

// One line of a key file: the key, and what its client may do.
struct KeyLine {
  std::string_view key;
  int32_t max_priority = 0;
};

// Returns the lines that hold a key, such as "KEY" or "KEY priority=10". Skips empty lines and
// lines that start with #. An error names the line but not its key.
Result<std::vector<KeyLine>> KeysIn(std::string_view text);

// A client, identified by its key or by its address.
struct Client {
  std::string name;          // as Request::client
  int32_t max_priority = 0;  // highest priority of its requests
};

// A set of keys, kept as SHA-256 digests. Immutable.
class ApiKeys {
 public:
  ApiKeys() = default;  // no keys: everybody may use the server
  // Reads the keys of a file with KeysIn. A file without keys is an error.
  static Result<ApiKeys> FromFile(const std::string& path);

  bool empty() const { return keys_.empty(); }
  // Returns the client whose key an Authorization header ("Bearer <key>") holds; nullopt if it is
  // none of these. Compares with every key, so that the time taken tells nothing about them.
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
