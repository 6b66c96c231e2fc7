// Certificates and keys in PEM files that options name. Errors name the option and the file.
#pragma once

#include <string>

#include "tokamak/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tokamak {

struct FileOption {
  std::string name = {};
  std::string path = {};
};

// Makes OpenSSL use a certificate, with its chain, and its key. A certificate that has expired is
// only logged.
Status UseCertificate(ssl_ctx_st* context, const FileOption& certificate, const FileOption& key);
// Makes OpenSSL trust the certificates in the file.
Status UseAuthority(ssl_ctx_st* context, const FileOption& authority);

// Takes the first of OpenSSL's errors on this thread, which is the cause of the others.
std::string TakeTlsError();

// Reads such a file: at most 1 MiB.
Result<std::string> ReadPem(const FileOption& file);

}  // namespace tokamak
