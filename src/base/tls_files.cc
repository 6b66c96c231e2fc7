#include "base/tls_files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace tokamak {
namespace {

constexpr std::string_view kCertificate = "CERTIFICATE";  // PEM's names
constexpr std::string_view kKey = "PRIVATE KEY";

// Gives no password: otherwise OpenSSL would ask for one at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

// Says why a file does not hold a `wanted`. OpenSSL does not say what the file holds instead.
// `other_file`: the option for a file with the `other`, if there is one.
Status WrongPem(const FileOption& file, std::string_view wanted, std::string_view other,
                std::string_view other_file) {
  const std::string reason = TakeTlsError();
  ASSIGN_OR_RETURN(const std::string text, ReadPem(file));
  const auto holds = [&text](std::string_view label) {
    return text.find(fmt::format("{}-----", label)) != std::string::npos;
  };
  if (!holds(wanted)) {
    std::string hint;
    if (holds(other)) hint = fmt::format(", but a {}", other);
    if (holds(other) && !other_file.empty()) {
      hint += fmt::format("; are {} and {} swapped?", file.name, other_file);
    }
    return InvalidArgument("{}={}: holds no {} in PEM form{}", file.name, file.path, wanted, hint);
  }
  if (text.find("ENCRYPTED") != std::string::npos) {
    return InvalidArgument("{}={}: the key has a password; `openssl pkey -in {}` writes it without",
                           file.name, file.path, file.path);
  }
  return InvalidArgument("{}={}: the {} in it is broken: {}", file.name, file.path, wanted, reason);
}

}  // namespace

std::string TakeTlsError() {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "cannot be read" : reason;
}

Result<std::string> ReadPem(const FileOption& file) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  Result<std::string> text = ReadWholeFile(file.path, kMaxBytes);
  if (!text.ok()) return text.status().WithContext(file.name);
  return text;
}

Status UseCertificate(ssl_ctx_st* context, const FileOption& certificate, const FileOption& key) {
  ERR_clear_error();
  SSL_CTX_set_default_passwd_cb(context, NoPassword);
  // Loads the key first: if the certificate does not fit, OpenSSL drops the key and the check
  // fails.
  if (SSL_CTX_use_PrivateKey_file(context, key.path.c_str(), SSL_FILETYPE_PEM) != 1) {
    return WrongPem(key, kKey, kCertificate, certificate.name);
  }
  if (SSL_CTX_use_certificate_chain_file(context, certificate.path.c_str()) != 1) {
    return WrongPem(certificate, kCertificate, kKey, key.name);
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    ERR_clear_error();
    return InvalidArgument("{}={}: is not the key of the certificate in {}={}", key.name, key.path,
                           certificate.name, certificate.path);
  }
  if (X509_cmp_current_time(X509_get0_notAfter(SSL_CTX_get0_certificate(context))) < 0) {
    LogWarning("{}={}: the certificate has expired", certificate.name, certificate.path);
  }
  return Status();
}

Status UseAuthority(ssl_ctx_st* context, const FileOption& authority) {
  ERR_clear_error();
  if (SSL_CTX_load_verify_file(context, authority.path.c_str()) == 1) return Status();
  return WrongPem(authority, kCertificate, kKey, "");
}

}  // namespace tokamak
