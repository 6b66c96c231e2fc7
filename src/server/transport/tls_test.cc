#include "server/transport/tls.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace tokamak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/tls_" + std::to_string(::getpid());
    ::mkdir(folder_.c_str(), 0700);
    for (const char* kind : {"ec -pkeyopt ec_paramgen_curve:prime256v1", "rsa:2048"}) {
      const std::string name(kind, kind[0] == 'e' ? 2 : 3);
      if (!OpenSsl(fmt::format("req -x509 -newkey {} -nodes -days 2 -subj /CN=test -keyout {} "
                               "-out {}",
                               kind, Path(name + ".key"), Path(name + ".crt")))) {
        GTEST_SKIP() << "there is no openssl";
      }
    }
    OpenSsl(fmt::format("ecparam -genkey -noout -name prime256v1 -out {}", Path("other.key")));
    OpenSsl(fmt::format("pkcs8 -topk8 -passout pass:word -in {} -out {}", Path("ec.key"),
                        Path("secret.key")));
    std::ofstream(Path("empty"));
    std::ofstream(Path("broken")) << "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  bool OpenSsl(const std::string& arguments) const {
    return std::system(fmt::format("openssl {} >{}/log 2>&1", arguments, folder_).c_str()) == 0;
  }
  std::string ErrorOf(const std::string& cert, const std::string& key) const {
    return TlsServer::Load(Path(cert), Path(key)).status().ToString();
  }

  std::string folder_;
};

TEST_F(TlsTest, NamesTheFileAtFaultAndWhatIsWrongWithIt) {
  EXPECT_EQ(ErrorOf("ec.crt", "ec.key"), Status().ToString());
  EXPECT_EQ(ErrorOf("rsa.crt", "rsa.key"), Status().ToString());
  for (const auto& [cert, key] : {std::pair("ec.crt", "other.key"), std::pair("ec.crt", "rsa.key"),
                                  std::pair("rsa.crt", "ec.key")}) {
    EXPECT_THAT(ErrorOf(cert, key),
                HasSubstr(fmt::format("tls_key_file={}: is not the key of the certificate in "
                                      "tls_cert_file={}",
                                      Path(key), Path(cert))));
  }
  EXPECT_THAT(ErrorOf("ec.key", "ec.crt"), AllOf(HasSubstr(Path("ec.crt")), HasSubstr("swapped")));
  EXPECT_THAT(ErrorOf("ec.key", "ec.key"),
              AllOf(HasSubstr("tls_cert_file=" + Path("ec.key")), HasSubstr("swapped")));
  EXPECT_THAT(ErrorOf("ec.crt", "empty"),
              HasSubstr("tls_key_file=" + Path("empty") + ": holds no PRIVATE KEY in PEM form"));
  EXPECT_THAT(ErrorOf("empty", "ec.key"),
              HasSubstr("tls_cert_file=" + Path("empty") + ": holds no CERTIFICATE in PEM form"));
  EXPECT_THAT(ErrorOf("broken", "ec.key"), HasSubstr("tls_cert_file=" + Path("broken")));
  EXPECT_THAT(ErrorOf("ec.crt", "secret.key"),
              AllOf(HasSubstr("tls_key_file=" + Path("secret.key")), HasSubstr("password")));
  EXPECT_THAT(
      ErrorOf("nothing", "ec.key"),
      AllOf(HasSubstr("tls_cert_file"), HasSubstr(Path("nothing")), HasSubstr("no such file")));
}

TEST_F(TlsTest, ReloadSaysWhatIsWrongAndRecovers) {
  auto tls = TlsServer::Load(Path("ec.crt"), Path("ec.key"));
  ASSERT_TRUE(tls.ok());
  ASSERT_TRUE(
      OpenSsl(fmt::format("ecparam -genkey -noout -name prime256v1 -out {}", Path("ec.key"))));
  EXPECT_THAT((*tls)->Reload().ToString(), HasSubstr("is not the key of the certificate in"));
  ASSERT_TRUE(OpenSsl(fmt::format("req -x509 -key {} -days 2 -subj /CN=new -out {}", Path("ec.key"),
                                  Path("ec.crt"))));
  EXPECT_TRUE((*tls)->Reload().ok());
}

}  // namespace
}  // namespace tokamak
