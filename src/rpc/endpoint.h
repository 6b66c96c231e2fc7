// The address at which a driver listens for its workers, and how both sides know each other.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/tls_files.h"
#include "tokamak/status.h"

namespace tokamak {

// The certificate that a side shows, and the authority that it believes, in PEM form.
struct TlsIdentity {
  std::string certificate = {};  // with its chain
  std::string key = {};
  std::string authority = {};  // the other side's certificate must be signed by one of these
};

struct Endpoint {
  std::string address = {};             // "unix:PATH" or "HOST:PORT"
  std::optional<TlsIdentity> tls = {};  // always there for HOST:PORT
};

// The options with a side's files.
struct TlsFiles {
  FileOption certificate = {};
  FileOption key = {};
  FileOption authority = {};
};

// The folder of a Unix socket's address; nullopt if the address is none.
std::optional<std::string> SocketFolder(std::string_view address);

// Reads the files if the address is HOST:PORT. kInvalidArgument, naming the option or file: an
// address that is neither an absolute path after "unix:" nor a host and a port; TCP without all
// three files, because nothing is sent without TLS; a Unix socket with files; files that do not
// fit. `option`: the name of the address.
Result<Endpoint> MakeEndpoint(std::string_view option, const std::string& address,
                              const TlsFiles& files);

}  // namespace tokamak
