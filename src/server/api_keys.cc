#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

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

std::vector<std::string_view> KeysIn(std::string_view text) {
  std::vector<std::string_view> keys;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  return keys;
}

Result<ApiKeys> ApiKeys::FromFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path, kMaxFileBytes));
  ApiKeys keys;
  for (const std::string_view key : KeysIn(content)) keys.digests_.push_back(DigestOf(key));
  if (keys.empty()) return InvalidArgument("{}: holds no key; write one per line", path);
  return keys;
}

bool ApiKeys::Accepts(std::string_view authorization) const {
  if (empty()) return true;
  // Schemes are compared without regard to case (RFC 9110, section 11.1).
  constexpr std::string_view kScheme = "bearer ";
  bool bearer = authorization.size() > kScheme.size();
  for (size_t i = 0; bearer && i < kScheme.size(); ++i) {
    bearer = (kScheme[i] == ' ' ? authorization[i] : authorization[i] | 0x20) == kScheme[i];
  }
  // The same work without a key: an answer's time tells nothing.
  const std::string_view key = bearer ? Trim(authorization.substr(kScheme.size())) : "";
  return Matches(key) > 0;
}

// Digests are of one length and say nothing about their keys, and comparing them takes a time that
// does not depend on where they differ.
size_t ApiKeys::Matches(std::string_view key) const {
  const Digest digest = DigestOf(key);
  size_t matches = 0;
  for (const Digest& known : digests_) {
    matches += CRYPTO_memcmp(digest.data(), known.data(), digest.size()) == 0 ? 1U : 0U;
  }
  return matches;
}

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

}  // namespace tokamak
