// Tests which URLs are read, and which hosts and addresses are allowed.
#include "server/transport/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/transport/allowed_hosts.h"
#include "server/transport/public_address.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

TEST(ParseUrl, SplitsAddresses) {
  const struct {
    const char* text;
    const char *host, *port, *target;
    bool tls = false;
  } cases[] = {{"http://127.0.0.1:8080", "127.0.0.1", "8080", "/"},
               {"http://example.org", "example.org", "80", "/"},
               {"HTTP://Example.ORG:81/Api/?q=A#top", "example.org", "81", "/Api/?q=A"},
               {"http://example.org?q=/#?", "example.org", "80", "/?q=/"},
               {"http://[::1]:8080/", "::1", "8080", "/"},
               {"http://[0:0:0:0:0:0:0:1]", "::1", "80", "/"},
               {"http://[FD00::0:7]", "fd00::7", "80", "/"},
               {"http://my_host-1:0080/", "my_host-1", "80", "/"},
               {"https://example.org", "example.org", "443", "/", true},
               {"https://xn--bcher-kva.example/a@b:c/%40", "xn--bcher-kva.example", "443",
                "/a@b:c/%40", true},
               {"https://[::1]:8443/api", "::1", "8443", "/api", true}};
  for (const auto& c : cases) {
    const Result<Url> url = ParseUrl(c.text);
    ASSERT_TRUE(url.ok()) << c.text << ": " << url.status().ToString();
    EXPECT_EQ(url->host, c.host) << c.text;
    EXPECT_EQ(url->port, c.port) << c.text;
    EXPECT_EQ(url->target, c.target) << c.text;
    EXPECT_EQ(url->tls, c.tls) << c.text;
    EXPECT_EQ(url->default_port, url->port == (c.tls ? "443" : "80")) << c.text;
  }
}

TEST(ParseUrl, RefusesTheRest) {
  const std::string label(64, 'a'), name(254, 'a');
  for (const std::string& text : {std::string(),
                                  std::string("127.0.0.1:8080"),
                                  std::string("http://"),
                                  std::string("http://:80"),
                                  std::string("http://a:"),
                                  std::string("http://a:b"),
                                  std::string("http://a:99999"),
                                  std::string("http://a:123456"),
                                  std::string("http://a:0"),
                                  std::string("http://a:-1"),
                                  std::string("http://a:+80"),
                                  std::string("http://a:80:80"),
                                  std::string("http://a/b c"),
                                  std::string("http://a\r\nb"),
                                  std::string("http://a\tb"),
                                  std::string("ftp://a"),
                                  std::string("https://"),
                                  std::string("https:a"),
                                  std::string("http:/a"),
                                  std::string("http:///a"),
                                  std::string("//a"),
                                  std::string("http://[::1"),
                                  std::string("http://[::1]a"),
                                  std::string("http://[::1]:"),
                                  std::string("http://[]"),
                                  std::string("http://[127.0.0.1]"),
                                  std::string("http://::1"),
                                  std::string("http://[fe80::1%25eth0]"),
                                  std::string("http://[v1.a]"),
                                  std::string("http://a..b"),
                                  std::string("http://.a"),
                                  std::string("http://a."),
                                  std::string("http://a%2eb"),
                                  std::string("http://a\\b"),
                                  std::string("http://a/\\b"),
                                  std::string("http://u@a"),
                                  std::string("http://u:p@a"),
                                  std::string("http://@a"),
                                  std::string("http://a,b"),
                                  std::string("http://b\xC3\xBC"
                                              "cher.example"),
                                  std::string("http://a\0b", 10),
                                  std::string("http://a/\x7f"),
                                  std::string(" http://a"),
                                  std::string("http://1"),
                                  std::string("http://1.2.3"),
                                  std::string("http://a.1"),
                                  std::string("http://1.2.3.4.5"),
                                  std::string("http://256.1.1.1"),
                                  std::string("http://01.2.3.4"),
                                  std::string("http://0x1.2.3.4"),
                                  std::string("http://1.2.3.0x4"),
                                  std::string("http://a.0x"),
                                  "http://" + label,
                                  "http://" + name,
                                  "http://a/" + std::string(8192, 'a')}) {
    EXPECT_EQ(ParseUrl(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ResolveRedirect, FollowsRfc3986WithoutItsDots) {
  const Result<Url> base = ParseUrl("https://example.org:8443/a/b?c=/d");
  ASSERT_TRUE(base.ok());
  const std::pair<const char*, const char*> cases[] = {
      {"http://other.example/x", "http://other.example/x"},
      {"//other.example/x", "https://other.example/x"},
      {"/x?y", "https://example.org:8443/x?y"},
      {"x", "https://example.org:8443/a/x"},
      {"?y", "https://example.org:8443/a/b?y"},
      {"x?y=http://z", "https://example.org:8443/a/x?y=http://z"}};
  for (const auto& [location, target] : cases) {
    const Result<Url> url = ResolveRedirect(*base, location);
    ASSERT_TRUE(url.ok()) << location;
    EXPECT_EQ(url->ToString(), target) << location;
  }
  for (const char* location : {"file:///etc/passwd", "data:,x", "javascript:x", "//u@a/", "/\\a",
                               "\\\\a", "http:b", "//"}) {
    EXPECT_FALSE(ResolveRedirect(*base, location).ok()) << location;
  }
}

TEST(IsPublicAddress, KnowsTheRanges) {
  for (const char* address :
       {"1.1.1.1",         "9.255.255.255",        "11.0.0.0",        "100.63.255.255",
        "100.128.0.0",     "126.255.255.255",      "128.0.0.0",       "169.253.255.255",
        "169.255.0.0",     "172.15.255.255",       "172.32.0.0",      "192.0.1.0",
        "192.167.255.255", "192.169.0.0",          "198.17.255.255",  "198.20.0.0",
        "203.0.112.255",   "203.0.114.0",          "223.255.255.255", "2606:4700::1111",
        "2001:200::1",     "2001:4860:4860::8888", "2a00::1",         "3ffe::1",
        "2003::1"}) {
    EXPECT_TRUE(IsPublicAddress(address)) << address;
  }
  for (const char* address : {"0.0.0.0",
                              "0.1.2.3",
                              "10.0.0.0",
                              "10.255.255.255",
                              "100.64.0.0",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.255.255",
                              "169.254.169.254",
                              "172.16.0.0",
                              "172.31.255.255",
                              "192.0.0.8",
                              "192.0.2.1",
                              "192.88.99.1",
                              "192.168.0.0",
                              "192.168.255.255",
                              "198.18.0.0",
                              "198.19.255.255",
                              "198.51.100.7",
                              "203.0.113.9",
                              "224.0.0.1",
                              "239.255.255.255",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::127.0.0.1",
                              "::8.8.8.8",
                              "::ffff:127.0.0.1",
                              "::ffff:8.8.8.8",
                              "::ffff:0:8.8.8.8",
                              "64:ff9b::8.8.8.8",
                              "64:ff9b:1::1",
                              "100::1",
                              "2001::1",
                              "2001:2::1",
                              "2001:10::1",
                              "2001:1ff:ffff::1",
                              "2001:db8::1",
                              "2002:808:808::1",
                              "3fff::1",
                              "3fff:fff::1",
                              "4000::1",
                              "5f00::1",
                              "fc00::1",
                              "fd12::1",
                              "fe80::1",
                              "fec0::1",
                              "ff02::1",
                              "",
                              "a",
                              "1.2.3",
                              "1.1.1.1 ",
                              "fe80::1%eth0"}) {
    EXPECT_FALSE(IsPublicAddress(address)) << address;
  }
}

Url Parsed(const std::string& text) { return ParseUrl(text).value(); }

TEST(AllowedHosts, AreCompared) {
  const auto hosts = AllowedHosts::Parse(
      {"Images.example.org", "other.example:8080", "[FD00::0:7]", "10.0.0.7:9000"}, false);
  ASSERT_TRUE(hosts.ok()) << hosts.status().ToString();
  for (const char* url :
       {"http://images.example.org/", "https://IMAGES.example.org:443/x", "http://[fd00::7]/",
        "http://other.example:8080/", "https://other.example:8080/", "http://10.0.0.7:9000/"}) {
    EXPECT_TRUE(hosts->Check(Parsed(url)).ok()) << url;
  }
  for (const char* url :
       {"http://example.org/", "http://a.images.example.org/", "http://images.example.orgx/",
        "http://images.example.org:8080/", "https://images.example.org:80/",
        "http://other.example/", "http://[fd00::8]/", "http://10.0.0.7/"}) {
    EXPECT_THAT(hosts->Check(Parsed(url)).ToString(), HasSubstr("--allow-image-hosts")) << url;
  }
  EXPECT_TRUE(hosts->Permits(Parsed("http://images.example.org/"), "8.8.8.8"));
  EXPECT_FALSE(hosts->Permits(Parsed("http://images.example.org/"), "10.0.0.7"));
  EXPECT_TRUE(hosts->Permits(Parsed("http://10.0.0.7:9000/"), "10.0.0.7"));
  EXPECT_TRUE(hosts->Permits(Parsed("http://[fd00::7]/"), "fd00::7"));
  EXPECT_FALSE(hosts->Permits(Parsed("http://unknown/"), "8.8.8.8"));
}

TEST(AllowedHosts, AStarIsAnyPublicHost) {
  const auto hosts = AllowedHosts::Parse({"*", "127.0.0.1"}, false);
  ASSERT_TRUE(hosts.ok());
  EXPECT_TRUE(hosts->Check(Parsed("http://any.example/")).ok());
  EXPECT_FALSE(hosts->Check(Parsed("http://any.example:8080/")).ok());
  EXPECT_TRUE(hosts->Permits(Parsed("http://any.example/"), "8.8.8.8"));
  EXPECT_FALSE(hosts->Permits(Parsed("http://any.example/"), "127.0.0.1"));
  EXPECT_FALSE(hosts->Permits(Parsed("http://127.0.0.2/"), "127.0.0.2"));
  EXPECT_TRUE(hosts->Permits(Parsed("http://127.0.0.1/"), "127.0.0.1"));
  const auto internal = AllowedHosts::Parse({"*:9000"}, true);
  ASSERT_TRUE(internal.ok());
  EXPECT_TRUE(internal->Permits(Parsed("http://any.example:9000/"), "127.0.0.1"));
  EXPECT_FALSE(internal->Permits(Parsed("http://any.example/"), "127.0.0.1"));
}

TEST(AllowedHosts, OtherEntriesAreErrors) {
  for (const char* host : {"", " ", "http://a", "a/", "a/b", "a?b", "a#", "u@a", "a:", "a:0", "*.a",
                           "**", "*:", "*a", "a,b", "127.1", "[::1", "::1", "10.0.0.0/8"}) {
    EXPECT_THAT(AllowedHosts::Parse({host}, false).status().ToString(), HasSubstr("is not a host"))
        << host;
  }
}

}  // namespace
}  // namespace tokamak
