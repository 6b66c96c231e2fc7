#include "server/access/api_keys.h"

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"

namespace tokamak {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

Result<std::vector<KeyLine>> KeysIn(std::string_view text) {
  std::vector<KeyLine> keys;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.find_first_of(" \t");
    KeyLine key = {.key = line.substr(0, space)};
    if (space != std::string_view::npos) {
      const std::string_view option = Trim(line.substr(space));
      constexpr std::string_view kPriority = "priority=";
      const char* const last = option.data() + option.size();
      const char* const first = option.data() + std::min(kPriority.size(), option.size());
      const auto [rest, error] = std::from_chars(first, last, key.max_priority);
      if (!option.starts_with(kPriority) || error != std::errc() || rest != last ||
          key.max_priority < 0) {
        return InvalidArgument(
            "line {}: after the key and a space only priority=N may stand, the highest priority "
            "that its requests may have, of at least 0",
            number);
      }
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
  bool bearer = authorization.size() > kScheme.size();
  for (size_t i = 0; bearer && i < kScheme.size(); ++i) {
    bearer = (kScheme[i] == ' ' ? authorization[i] : authorization[i] | 0x20) == kScheme[i];
  }
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
