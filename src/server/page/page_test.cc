#include "server/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "server/page/page_assets.h"
#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using testing::HasSubstr;
using testing::Not;

class PageTest : public ServerFixture {
 protected:
  void SetUp() override {
    if (PageAssets().empty()) GTEST_SKIP() << "this build is without the page";
  }
  // Returns the value of a header of a response, or "".
  static std::string Header(const HttpClient::Response& response, const std::string& name) {
    const size_t at = response.headers.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return response.headers.substr(begin, response.headers.find("\r\n", begin) - begin);
  }
};

TEST_F(PageTest, IsServedWithoutAKeyUnderAStrictPolicy) {
  const std::string keys = testing::TempDir() + "page_test_keys";
  std::FILE* file = std::fopen(keys.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("secret\n", file);
  std::fclose(file);
  ServerOptions options;
  options.api_key_file = keys;
  Start(std::move(options));
  for (const PageAsset& asset : PageAssets()) {
    const auto response = Connect().Get(asset.path);
    EXPECT_EQ(response.status, 200) << asset.path;
    EXPECT_EQ(response.body, asset.plain) << asset.path;
    EXPECT_EQ(Header(response, "Content-Type"), asset.content_type);
    EXPECT_EQ(Header(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(Header(response, "Content-Encoding"), "");
    if (asset.path != "/") continue;
    EXPECT_EQ(Header(response, "Content-Security-Policy"),
              "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
              "font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
              "form-action 'none'");
  }
  EXPECT_EQ(Connect().Get("/v1/models").status, 401);
}

// The policy forbids inline scripts and styles, so a browser would not use them.
TEST_F(PageTest, HasNoInlineScriptsOrStyles) {
  for (const PageAsset& asset : PageAssets()) {
    if (asset.path != "/") continue;
    EXPECT_THAT(asset.plain, Not(HasSubstr("style=")));
    EXPECT_THAT(asset.plain, Not(HasSubstr("<style")));
    EXPECT_THAT(asset.plain, Not(HasSubstr(" onclick")));
    EXPECT_THAT(asset.plain, Not(HasSubstr("://")));
    EXPECT_THAT(asset.plain, Not(HasSubstr("<script>")));
  }
}

TEST_F(PageTest, IsCompressedForClientsThatAcceptIt) {
  Start();
  for (const char* accepted : {"gzip", "deflate, GZIP;q=0.5, br", "gzip ; q=1.0"}) {
    const auto response = Connect().Get("/", std::string("Accept-Encoding: ") + accepted + "\r\n");
    EXPECT_EQ(Header(response, "Content-Encoding"), "gzip") << accepted;
    EXPECT_TRUE(response.body.starts_with("\x1f\x8b")) << accepted;
    EXPECT_EQ(Header(response, "Vary"), "Accept-Encoding");
  }
  for (const char* accepted : {"", "br", "*", "gzip;q=0", "gzip;q=0.000", "xgzip"}) {
    const auto response = Connect().Get("/", std::string("Accept-Encoding: ") + accepted + "\r\n");
    EXPECT_EQ(Header(response, "Content-Encoding"), "") << accepted;
    EXPECT_TRUE(response.body.starts_with("<!doctype html>")) << accepted;
    EXPECT_EQ(Header(response, "Vary"), "Accept-Encoding");
  }
}

TEST_F(PageTest, SendsFontsAsTheyAre) {
  Start();
  int fonts = 0;
  for (const PageAsset& asset : PageAssets()) {
    if (asset.content_type != "font/woff2") continue;
    ++fonts;
    const auto response = Connect().Get(asset.path, "Accept-Encoding: gzip\r\n");
    EXPECT_EQ(Header(response, "Content-Encoding"), "") << asset.path;
    EXPECT_TRUE(response.body.starts_with("wOF2")) << asset.path;
    EXPECT_EQ(response.body.size(), asset.plain.size()) << asset.path;
  }
  EXPECT_GT(fonts, 10);
}

// Everybody who reads a formula loads KaTeX, perhaps over a slow line.
TEST_F(PageTest, KeepsMathsUnder400Kilobytes) {
  size_t bytes = 0;
  for (const PageAsset& asset : PageAssets()) {
    if (asset.path.find("katex") == asset.path.npos &&
        asset.path.find("/fonts/") == asset.path.npos) {
      continue;
    }
    bytes += asset.gzip.empty() ? asset.plain.size() : asset.gzip.size();
  }
  EXPECT_GT(bytes, 200'000u);
  EXPECT_LE(bytes, 400'000u);
}

TEST_F(PageTest, IsNotSentAgainToClientsThatHaveIt) {
  Start();
  HttpClient client = HttpClient(server_->port());
  const std::string plain = Header(client.Get("/page/app.js"), "ETag");
  const std::string gzip = Header(client.Get("/page/app.js", "Accept-Encoding: gzip\r\n"), "ETag");
  EXPECT_NE(plain, "");
  EXPECT_NE(plain, gzip);
  for (const std::string& tags : {plain, "W/" + plain, "\"x\", " + plain, std::string("*")}) {
    ASSERT_TRUE(client.Send(
        "GET /page/app.js HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: " + tags + "\r\n\r\n"));
    ASSERT_TRUE(client.SkipPast("HTTP/1.1 304")) << tags;
    ASSERT_TRUE(client.SkipPast("\r\n\r\n")) << tags;
  }
  // No body followed those heads: the next response begins there.
  EXPECT_EQ(client.Get("/page/app.js", "If-None-Match: " + gzip + "\r\n").status, 200);
  EXPECT_EQ(client.Get("/page/app.js", "If-None-Match: \"x\"\r\n").status, 200);
}

TEST_F(PageTest, TakesGetAlone) {
  Start();
  const auto response = Connect().Post("/", "{}");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(Header(response, "Allow"), "GET");
  HttpClient client(server_->port());
  ASSERT_TRUE(client.Send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  ASSERT_TRUE(client.SkipPast("HTTP/1.1 200"));
  ASSERT_TRUE(client.SkipPast("\r\n\r\n"));
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST_F(PageTest, ServesNothingElse) {
  Start();
  for (const char* path : {"/page", "/page/", "/page/../page/app.js", "/page/page.cc", "/page/lib/",
                           "//", "/index.html", "/page/app.js/", "/%2e"}) {
    EXPECT_EQ(Connect().Get(path).status, 404) << path;
  }
  EXPECT_EQ(Connect().Get("/?query=is&left=alone").status, 200);
}

TEST_F(PageTest, CanBeTurnedOff) {
  ServerOptions options;
  options.page = false;
  Start(std::move(options));
  EXPECT_EQ(Connect().Get("/").status, 404);
  EXPECT_EQ(Connect().Get("/page/app.js").status, 404);
  EXPECT_EQ(Connect().Get("/v1/models").status, 200);
}

// The licences of the page's parts require it.
TEST_F(PageTest, KeepsTheNoticesOfOthers) {
  for (const PageAsset& asset : PageAssets()) {
    if (asset.path != "/page/notices.txt") continue;
    for (const char* owner :
         {"Christopher Jeffrey", "Mario Heiderich", "Ivan Sagalaev", "Khan Academy",
          "SIL OPEN FONT LICENSE", "Redistributions in binary form", "Apache License"}) {
      EXPECT_THAT(asset.plain, HasSubstr(owner));
    }
    return;
  }
  FAIL() << "there is no notices.txt";
}

}  // namespace
}  // namespace tokamak
