// TLS for servers, whose certificate and key may change while they run.
#pragma once

#include <memory>
#include <string>

#include "server/transport/byte_stream.h"
#include "tokamak/status.h"

namespace tokamak {

// TLS 1.2 and 1.3; for 1.2 only ephemeral keys with AEAD ciphers; ALPN "http/1.1". Owned by the I/O
// thread.
class TlsServer {
 public:
  // Reads PEM files: the certificate followed by the chain that signs it, and its private key,
  // which must not be encrypted. kInvalidArgument says what is wrong with them.
  static Result<std::unique_ptr<TlsServer>> Load(std::string cert_file, std::string key_file);
  ~TlsServer();

  // Reads the files again, for new connections. After an error the old ones stay in use.
  Status Reload();
  // Returns whether the files have changed since they were read, but not since the last call.
  bool FilesChanged();
  std::unique_ptr<ByteStream> Wrap(ByteStream::Socket socket) const;

 private:
  struct Impl;
  explicit TlsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
