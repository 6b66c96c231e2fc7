// TLS as servers need it: a certificate and its key, and new ones while the server runs.
#pragma once

#include <memory>
#include <string>

#include "server/transport/byte_stream.h"
#include "tokamak/status.h"

namespace tokamak {

// TLS 1.2 and 1.3; for 1.2 only ephemeral keys with AEAD ciphers; ALPN "http/1.1". Owner: the I/O
// thread.
class TlsServer {
 public:
  // PEM files: the certificate with those that sign it behind it, and its private key, which must
  // not be encrypted. kInvalidArgument says what is wrong with them.
  static Result<std::unique_ptr<TlsServer>> Load(std::string cert_file, std::string key_file);
  ~TlsServer();

  // Reads the files again, for the connections to come. After an error the old ones stay in use.
  Status Reload();
  // True once after either file has changed and both have been at rest since the call before this.
  bool FilesChanged();
  std::unique_ptr<ByteStream> Wrap(ByteStream::Socket socket) const;

 private:
  struct Impl;
  explicit TlsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
