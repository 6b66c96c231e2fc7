#include "server/transport/http_caller.h"

#include <gtest/gtest.h>

namespace tokamak {
namespace {

TEST(ParseUrl, SplitsAddresses) {
  const struct {
    const char* text;
    const char *host, *port, *path;
    bool tls = false;
  } cases[] = {{"http://127.0.0.1:8080", "127.0.0.1", "8080", ""},
               {"http://example.org", "example.org", "80", ""},
               {"http://example.org:81/api/", "example.org", "81", "/api"},
               {"http://[::1]:8080/", "::1", "8080", ""},
               {"http://[::1]", "::1", "80", ""},
               {"https://example.org", "example.org", "443", "", true},
               {"https://[::1]:8443/api", "::1", "8443", "/api", true}};
  for (const auto& c : cases) {
    const Result<Url> url = ParseUrl(c.text);
    ASSERT_TRUE(url.ok()) << c.text;
    EXPECT_EQ(url->host, c.host) << c.text;
    EXPECT_EQ(url->port, c.port) << c.text;
    EXPECT_EQ(url->path, c.path) << c.text;
    EXPECT_EQ(url->tls, c.tls) << c.text;
  }
}

TEST(ParseUrl, RefusesTheRest) {
  for (const char* text : {"", "127.0.0.1:8080", "http://", "http://:80", "http://a:", "http://a:b",
                           "http://a:99999", "http://a:123456", "http://a/b c", "http://a\r\nb",
                           "ftp://a", "https://", "http://a?b", "http://[::1"}) {
    EXPECT_EQ(ParseUrl(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tokamak
