// Certificates for tests, made with openssl's command line.
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tokamak {

// A folder of NAME.crt and NAME.key files, removed at the end.
class TestCertificates {
 public:
  TestCertificates() { is_there_ = ::mkdtemp(folder_.data()) != nullptr && OpenSsl("version"); }
  ~TestCertificates() { std::filesystem::remove_all(folder_); }

  // False if there is no openssl.
  bool is_there() const { return is_there_; }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Certificate(const std::string& name) const { return Path(name + ".crt"); }
  std::string Key(const std::string& name) const { return Path(name + ".key"); }
  bool OpenSsl(const std::string& arguments) const {
    return std::system(fmt::format("openssl {} >{}/log 2>&1", arguments, folder_).c_str()) == 0;
  }

  // An authority, which signs itself.
  bool MakeAuthority(const std::string& name) const {
    return OpenSsl(fmt::format("req -x509 {} -days 2 -subj /CN={} -keyout {} -out {}", kNewKey,
                               name, Key(name), Certificate(name)));
  }
  // `host`: "DNS:localhost". With negative `days` the certificate has expired.
  bool Make(const std::string& name, const std::string& authority, const std::string& host,
            int days = 2) const {
    return OpenSsl(fmt::format("req {} -subj /CN={} -addext subjectAltName={} -keyout {} -out {}",
                               kNewKey, name, host, Key(name), Path("request"))) &&
           OpenSsl(fmt::format("x509 -req -in {} -CA {} -CAkey {} -CAcreateserial -days {} "
                               "-copy_extensions copy -out {}",
                               Path("request"), Certificate(authority), Key(authority), days,
                               Certificate(name)));
  }

 private:
  static constexpr const char* kNewKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

  std::string folder_ = "/tmp/tokamak-certificates-XXXXXX";
  bool is_there_ = false;
};

}  // namespace tokamak
