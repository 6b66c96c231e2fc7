#include "server/transport/allowed_hosts.h"

#include "base/error.h"
#include "server/transport/public_address.h"

namespace tokamak {
namespace {

constexpr char kAny[] = "*";

}  // namespace

Result<AllowedHosts> AllowedHosts::Parse(const std::vector<std::string>& hosts,
                                         bool allow_private) {
  AllowedHosts allowed;
  allowed.allow_private_ = allow_private;
  for (const std::string& text : hosts) {
    const bool any = text == kAny || text.starts_with("*:");
    // Parsed as a URL's host, so that both are written alike.
    const Result<Url> plain = ParseUrl("http://" + (any ? "any" + text.substr(1) : text));
    const Result<Url> tls = ParseUrl("https://" + (any ? "any" + text.substr(1) : text));
    if (!plain.ok() || !tls.ok() || plain->target != "/" || text.ends_with('/') ||
        text.find_first_of("?#") != text.npos) {
      return InvalidArgument(
          "\"{}\" is not a host, such as images.example.org, localhost:9000, 10.0.0.7, "
          "[fd00::7]:443 or * for all",
          text);
    }
    allowed.entries_.push_back(
        {.host = any ? kAny : plain->host, .port = plain->port == tls->port ? plain->port : ""});
  }
  return allowed;
}

// Entries that name the host itself come first: an address that is listed may be any.
const AllowedHosts::Entry* AllowedHosts::Find(const Url& url) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    const bool port = entry.port.empty() ? url.default_port : entry.port == url.port;
    if (!port || (entry.host != url.host && entry.host != kAny)) continue;
    if (found == nullptr || entry.host == url.host) found = &entry;
  }
  return found;
}

Status AllowedHosts::Check(const Url& url) const {
  if (Find(url) != nullptr) return Status();
  return InvalidArgument("{} is not among the hosts that --allow-image-hosts lists",
                         url.authority());
}

bool AllowedHosts::Permits(const Url& url, const std::string& address) const {
  const Entry* const entry = Find(url);
  if (entry == nullptr) return false;
  return allow_private_ || entry->host == address || IsPublicAddress(address);
}

}  // namespace tokamak
