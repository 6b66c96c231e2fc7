#include "rpc/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokamak {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::string& address,
                    const TlsFiles& files = {{"cert"}, {"key"}, {"ca"}}) {
  return MakeEndpoint("driver", address, files).status().ToString();
}

TEST(Endpoint, IsAUnixSocketInAFolder) {
  EXPECT_EQ(ErrorOf("unix:/run/me/socket"), Status().ToString());
  EXPECT_EQ(SocketFolder("unix:/run/me/socket"), "/run/me");
  EXPECT_EQ(SocketFolder("localhost:80"), std::nullopt);
  for (const char* address : {"unix:", "unix:socket", "unix:/socket", "unix:/run/me/"}) {
    EXPECT_THAT(ErrorOf(address), HasSubstr("the absolute path of a socket in a folder"));
  }
  EXPECT_THAT(ErrorOf("unix:/run/" + std::string(200, 'x')), HasSubstr("at most 107 bytes"));
  EXPECT_THAT(ErrorOf("unix:/run/me/socket", {{"cert"}, {"key", "/some/key"}, {"ca"}}),
              HasSubstr("key: is for TCP"));
}

// "TCP needs": the address itself is fine.
TEST(Endpoint, IsAHostAndAPort) {
  for (const char* address :
       {"localhost:1", "0.0.0.0:65535", "[::]:5000", "[fe80::1]:5000", "node-7.example.org:5000"}) {
    EXPECT_THAT(ErrorOf(address), HasSubstr("TCP needs cert, key and ca"));
  }
  for (const char* address :
       {"", "localhost", "localhost:", ":5000", "localhost:0", "localhost:65536", "localhost:5x",
        "::1:5000", "[]:5000", "[host]:5000", "dns:///host:5000", "unix-abstract:name:5000",
        "ipv4:1.2.3.4:5000", "a b:5000", "a/b:5000", "tls://host:5000"}) {
    EXPECT_THAT(ErrorOf(address), HasSubstr("driver: must be unix:PATH or HOST:PORT")) << address;
  }
}

}  // namespace
}  // namespace tokamak
