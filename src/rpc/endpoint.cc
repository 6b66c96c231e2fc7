#include "rpc/endpoint.h"

#include <openssl/ssl.h>
#include <sys/un.h>

#include <charconv>
#include <cstdint>
#include <memory>

#include "base/error.h"

namespace tokamak {
namespace {

constexpr std::string_view kUnix = "unix:";

// A name, an IPv4 address or an IPv6 address in brackets, and a port. gRPC gives other characters a
// meaning of their own.
bool IsHostAndPort(std::string_view address) {
  constexpr std::string_view kName =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
  constexpr std::string_view kIpv6 = "0123456789abcdefABCDEF:.";
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return false;
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number == 0) return false;
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  return !host.empty() && host.find_first_not_of(bracketed ? kIpv6 : kName) == host.npos;
}

Result<TlsIdentity> ReadIdentity(const TlsFiles& files) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()),
                                                             &SSL_CTX_free);
  if (context == nullptr) return Internal("TLS: {}", TakeTlsError());
  RETURN_IF_ERROR(UseCertificate(context.get(), files.certificate, files.key));
  RETURN_IF_ERROR(UseAuthority(context.get(), files.authority));
  TlsIdentity identity;
  ASSIGN_OR_RETURN(identity.certificate, ReadPem(files.certificate));
  ASSIGN_OR_RETURN(identity.key, ReadPem(files.key));
  ASSIGN_OR_RETURN(identity.authority, ReadPem(files.authority));
  return identity;
}

}  // namespace

std::optional<std::string> SocketFolder(std::string_view address) {
  if (!address.starts_with(kUnix)) return std::nullopt;
  address.remove_prefix(kUnix.size());
  return std::string(address.substr(0, address.rfind('/')));
}

Result<Endpoint> MakeEndpoint(std::string_view option, const std::string& address,
                              const TlsFiles& files) {
  const FileOption* const all[] = {&files.certificate, &files.key, &files.authority};
  if (address.starts_with(kUnix)) {
    constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
    const std::string_view path = std::string_view(address).substr(kUnix.size());
    if (path.rfind('/') == 0 || !path.starts_with('/') || path.ends_with('/')) {
      return InvalidArgument(
          "{}={}: after unix: there must be the absolute path of a socket in a folder of its own",
          option, address);
    }
    if (path.size() > kMaxPath) {
      return InvalidArgument("{}={}: the path of a socket has at most {} bytes", option, address,
                             kMaxPath);
    }
    for (const FileOption* const file : all) {
      if (!file->path.empty()) {
        return InvalidArgument("{}: is for TCP; a Unix socket is guarded by its folder",
                               file->name);
      }
    }
    return Endpoint{.address = address};
  }
  if (!IsHostAndPort(address)) {
    return InvalidArgument("{}: must be unix:PATH or HOST:PORT, got \"{}\"", option, address);
  }
  for (const FileOption* const file : all) {
    if (file->path.empty()) {
      return InvalidArgument(
          "{}={}: TCP needs {}, {} and {}: driver and workers know each other by certificates",
          option, address, all[0]->name, all[1]->name, all[2]->name);
    }
  }
  Endpoint endpoint{.address = address};
  ASSIGN_OR_RETURN(endpoint.tls, ReadIdentity(files));
  return endpoint;
}

}  // namespace tokamak
