#include "server/access/api_keys.h"

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tokamak {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

}  // namespace

Result<std::vector<KeyLine>> KeysIn(std::string_view text) {
  std::vector<KeyLine> keys;
  int number = 0;
  for (std::string_view line : Split(text, '\n')) {
    ++number;
    line = Trim(line);
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.find_first_of(" \t");
    KeyLine key = {.key = line.substr(0, space)};
    if (space != std::string_view::npos) {
      const std::string_view option = Trim(line.substr(space));
      constexpr std::string_view kPriority = "priority=";
      const auto priority = option.starts_with(kPriority)
                                ? ParseNumber<int32_t>(option.substr(kPriority.size()))
                                : std::nullopt;
      if (!priority || *priority < 0) {
        return InvalidArgument(
            "line {}: after the key and a space only priority=N may stand, the highest priority "
            "that its requests may have, of at least 0",
            number);
      }
      key.max_priority = *priority;
    }
    keys.push_back(key);
  }
  return keys;
}

Result<ApiKeys> ApiKeys::FromFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path, kMaxFileBytes));
  const Result<std::vector<KeyLine>> lines = KeysIn(content);
  if (!lines.ok()) return lines.status().WithContext(path);
  ApiKeys keys;
  for (const KeyLine& line : *lines) keys.keys_.push_back({DigestOf(line.key), line.max_priority});
  if (keys.empty()) return InvalidArgument("{}: holds no key; write one per line", path);
  return keys;
}

std::optional<Client> ApiKeys::Find(std::string_view authorization) const {
  // Schemes are compared without regard to case (RFC 9110, section 11.1).
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = authorization.size() > kScheme.size() &&
                      EqualIgnoringCase(authorization.substr(0, kScheme.size()), kScheme);
  // Does the same work without a key, so that the time of a response tells nothing.
  const Digest digest = DigestOf(bearer ? Trim(authorization.substr(kScheme.size())) : "");
  // Digests have one length and say nothing about their keys, and comparing them takes the same
  // time wherever they differ. If a key appears twice, its higher priority counts.
  int matches = 0;
  int32_t max_priority = 0;
  for (const Key& known : keys_) {
    const bool same = CRYPTO_memcmp(digest.data(), known.digest.data(), digest.size()) == 0;
    matches += same ? 1 : 0;
    max_priority = std::max(max_priority, same ? known.max_priority : 0);
  }
  if (matches == 0) return std::nullopt;
  return Client{fmt::format("key {:02x}", fmt::join(digest.begin(), digest.begin() + 8, "")),
                max_priority};
}

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

}  // namespace tokamak
