#include "server/access/access.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace tokamak {
namespace {

using testing::HasSubstr;

HttpRequest Get(const std::string& path, std::vector<std::pair<std::string, std::string>> headers,
                const std::string& key = "") {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.headers = std::move(headers);
  if (!key.empty()) request.headers.emplace_back("authorization", "Bearer " + key);
  return request;
}

// Returns the status of the refusal, or 0 if there is none.
int Refusal(const Access& access, const HttpRequest& request) {
  const std::optional<HttpResponse> response = access.Check(request);
  return response ? response->status : 0;
}

std::string HeaderOf(const HttpResponse& response, std::string_view name) {
  std::string found;
  for (const auto& [key, value] : response.headers) {
    if (key == name) found += value;
  }
  return found;
}

Access Make(Access::Options options) {
  options.is_public = [](std::string_view path) { return path == "/health"; };
  Result<Access> access = Access::Create(std::move(options));
  EXPECT_TRUE(access.ok()) << access.status().ToString();
  return *std::move(access);
}

class AccessTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/access_keys";
    WriteKeys("one\n# comment\ntwo\none\n");
  }
  void TearDown() override { std::remove(path_.c_str()); }
  void WriteKeys(const std::string& text) { std::ofstream(path_, std::ios::trunc) << text; }

  std::string path_;
};

TEST_F(AccessTest, EveryKeyIsComparedWhicheverMatches) {
  const Result<ApiKeys> keys = ApiKeys::FromFile(path_);
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(keys->Find("Bearer one"));  // first and last line of the file
  EXPECT_TRUE(keys->Find("Bearer two"));
  for (const char* wrong : {"", "o", "on", "onee", "one two", "One", "three", "# comment"}) {
    EXPECT_FALSE(keys->Find(std::string("Bearer ") + wrong)) << wrong;
  }
}

TEST_F(AccessTest, KeysMayHaveAHigherBoundOfPriority) {
  WriteKeys("one\ntwo priority=7\nthree\tpriority=0 \ntwo priority=3\n");
  const Access access = Make({.api_key_file = path_});
  const auto bound = [&](const std::string& key) {
    return access.Identify(Get("/x", {}, key)).max_priority;
  };
  EXPECT_EQ(bound("one"), 0);
  EXPECT_EQ(bound("two"), 7);  // the higher of the two
  EXPECT_EQ(bound("three"), 0);
  EXPECT_EQ(bound("two priority=7"), 0);  // not a key
  for (const char* line :
       {"key priority", "key priority=", "key priority=x", "key priority=-1", "key priority=1x",
        "key priority=99999999999", "key priority=1 2", "key other=1", "two words"}) {
    WriteKeys(fmt::format("# keys\n{}\n", line));
    const Result<ApiKeys> keys = ApiKeys::FromFile(path_);
    ASSERT_FALSE(keys.ok()) << line;
    EXPECT_THAT(std::string(keys.status().message()), HasSubstr("line 2: ")) << line;
    EXPECT_THAT(std::string(keys.status().message()), Not(HasSubstr("words"))) << "tells the key";
  }
}

TEST_F(AccessTest, ClientsAreNamedByKeyOrWithoutKeysByAddress) {
  const auto name = [](const Access& access, const std::string& key, const std::string& address) {
    HttpRequest request = Get("/x", {}, key);
    request.client = address;
    return access.Identify(request).name;
  };
  const Access keys = Make({.api_key_file = path_});
  EXPECT_EQ(name(keys, "one", "10.0.0.1"), name(keys, "one", "10.0.0.2"));
  EXPECT_NE(name(keys, "one", "10.0.0.1"), name(keys, "two", "10.0.0.1"));
  EXPECT_THAT(name(keys, "two", "10.0.0.1"), Not(HasSubstr("two")));
  const Access none = Make({});
  EXPECT_EQ(name(none, "one", "10.0.0.1"), name(none, "two", "10.0.0.1"));
  EXPECT_NE(name(none, "one", "10.0.0.1"), name(none, "one", "10.0.0.2"));
}

TEST_F(AccessTest, WrongKeysAllGetTheSameAnswer) {
  const Access access = Make({.api_key_file = path_});
  const auto answer = [&](const std::string& authorization) {
    const HttpRequest request = Get("/v1/models", {{"authorization", authorization}});
    const std::optional<HttpResponse> response = access.Check(request);
    return response ? fmt::format("{} {}", response->status, response->body) : "";
  };
  const std::string missing = answer("");
  EXPECT_THAT(missing, HasSubstr("401 "));
  for (const char* wrong : {"Bearer", "Bearer ", "Bearer on", "Bearer onex", "Bearer One", "one",
                            "Basic one", "Bearer\tone", "Bearerone", "Bearer one two"}) {
    EXPECT_EQ(answer(wrong), missing) << wrong;
  }
  for (const char* right : {"Bearer one", "Bearer two", "bearer one", "BEARER  one "}) {
    EXPECT_EQ(answer(right), "") << right;
  }
  EXPECT_EQ(Refusal(access, Get("/health", {})), 0);
  EXPECT_EQ(Refusal(access, Get("/health/", {})), 401);
  EXPECT_EQ(Refusal(access, Get("/nothing", {})), 401);  // does not tell which paths exist
}

TEST_F(AccessTest, ReadsKeysAgainAndKeepsTheOldOnesWhenTheFileIsBad) {
  Access access = Make({.api_key_file = path_});
  WriteKeys("# none\n");
  EXPECT_FALSE(access.ReloadKeys().ok());
  EXPECT_EQ(Refusal(access, Get("/x", {}, "one")), 0);
  WriteKeys("new\n");
  EXPECT_TRUE(access.ReloadKeys().ok());
  EXPECT_EQ(Refusal(access, Get("/x", {}, "one")), 401);
  EXPECT_EQ(Refusal(access, Get("/x", {}, "new")), 0);
}

TEST_F(AccessTest, OnLoopbackOnlyNamesOfThisMachineAreHosts) {
  const Access access = Make({.allowed_hosts = {"Proxy.example"}});
  for (const char* host :
       {"localhost", "localhost:8080", "LOCALHOST:1", "localhost.", "127.0.0.1", "127.0.0.1:80",
        "127.9.9.9", "[::1]", "[::1]:8080", "proxy.example", "PROXY.example:443"}) {
    EXPECT_EQ(Refusal(access, Get("/x", {{"host", host}})), 0) << host;
  }
  for (const char* host :
       {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8080",
        "0.0.0.0", "10.0.0.1", "[::2]", "[::1", "localhost:80:80", "localhost:x", "xlocalhost",
        "127.evil", "localhost..", "sub.proxy.example", "2130706433"}) {
    EXPECT_EQ(Refusal(access, Get("/x", {{"host", host}})), 403) << host;
    EXPECT_EQ(Refusal(access, Get("/health", {{"host", host}})), 403) << host;
  }
  EXPECT_EQ(Refusal(access, Get("/x", {})), 0);  // HTTP/1.0: not a browser
  // Other machines may use names that we do not know.
  const Access open = Make({.loopback = false, .insecure = true});
  EXPECT_EQ(Refusal(open, Get("/x", {{"host", "any.example"}})), 0);
  const Access strict = Make({.loopback = false, .allowed_hosts = {"a.example"}});
  EXPECT_EQ(Refusal(strict, Get("/x", {{"host", "a.example"}})), 0);
  EXPECT_EQ(Refusal(strict, Get("/x", {{"host", "localhost"}})), 403);
}

TEST_F(AccessTest, PagesOfOtherOriginsAreRefusedByDefault) {
  const Access access = Make({});
  const auto from = [&](const std::string& header, const std::string& value) {
    return Refusal(access, Get("/v1/models", {{"host", "localhost:80"}, {header, value}}));
  };
  EXPECT_EQ(from("origin", "http://localhost:80"), 0);
  EXPECT_EQ(from("origin", "https://LOCALHOST:80"), 0);
  for (const char* origin :
       {"http://evil.example", "null", "http://localhost", "http://localhost:81", "file://",
        "http://localhost:80.evil.example"}) {
    EXPECT_EQ(from("origin", origin), 403) << origin;
  }
  EXPECT_EQ(from("sec-fetch-site", "cross-site"), 403);
  EXPECT_EQ(from("sec-fetch-site", "same-site"), 403);
  EXPECT_EQ(from("sec-fetch-site", "same-origin"), 0);
  EXPECT_EQ(from("sec-fetch-site", "none"), 0);
  HttpRequest preflight = Get("/v1/models", {{"host", "localhost"},
                                             {"origin", "http://evil.example"},
                                             {"access-control-request-method", "POST"}});
  preflight.method = "OPTIONS";
  EXPECT_EQ(Refusal(access, preflight), 403);
  HttpResponse response;
  access.Decorate(preflight, response);
  EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Origin"), "");
}

TEST_F(AccessTest, AllowedOriginsGetPreflightsAndHeaders) {
  const Access access =
      Make({.api_key_file = path_, .cors_origins = {"https://a.example", "http://b.example:81"}});
  HttpRequest preflight =
      Get("/v1/models", {{"host", "localhost"},
                         {"origin", "https://a.example"},
                         {"access-control-request-method", "POST"},
                         {"access-control-request-headers", "authorization,x-stainless-lang"}});
  preflight.method = "OPTIONS";
  std::optional<HttpResponse> response = access.Check(preflight);  // browsers send it without a key
  ASSERT_TRUE(response);
  access.Decorate(preflight, *response);
  EXPECT_EQ(response->status, 204);
  EXPECT_EQ(HeaderOf(*response, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(HeaderOf(*response, "Access-Control-Allow-Headers"), "authorization,x-stainless-lang");
  EXPECT_EQ(HeaderOf(*response, "Access-Control-Allow-Methods"), "GET, POST");
  EXPECT_EQ(HeaderOf(*response, "Vary"), "Origin");

  const HttpRequest get = Get("/x", {{"origin", "http://b.example:81"}}, "one");
  EXPECT_EQ(Refusal(access, get), 0);
  HttpResponse answer;
  access.Decorate(get, answer);
  EXPECT_EQ(HeaderOf(answer, "Access-Control-Allow-Origin"), "http://b.example:81");
  EXPECT_EQ(HeaderOf(answer, "Access-Control-Expose-Headers"),
            "Retry-After, Tokamak-Ignored-Fields");
  EXPECT_EQ(HeaderOf(answer, "Access-Control-Allow-Credentials"), "");
  EXPECT_EQ(Refusal(access, Get("/x", {{"origin", "http://b.example:81"}})), 401);
  EXPECT_EQ(Refusal(access, Get("/x", {{"origin", "http://b.example"}}, "one")), 403);
  preflight.headers[1].second = "https://a.example.evil";
  EXPECT_EQ(Refusal(access, preflight), 401);
}

TEST_F(AccessTest, RefusesOriginsThatNoBrowserSendsAndAnyOriginWithoutKeys) {
  for (const char* origin : {"", "a.example", "https://a.example/", "https://A.example", "null",
                             "https://*.example", "https://", "https://a b", "https://a\r\nb"}) {
    EXPECT_FALSE(Access::Create({.cors_origins = {origin}}).ok()) << origin;
  }
  EXPECT_FALSE(Access::Create({.cors_origins = {"*"}}).ok());
  EXPECT_TRUE(Access::Create({.api_key_file = path_, .cors_origins = {"*"}}).ok());
  EXPECT_TRUE(Access::Create({.insecure = true, .cors_origins = {"*"}}).ok());
  for (const char* host : {"", "a:80", "http://a", "[::1]:80", "a."}) {
    EXPECT_FALSE(Access::Create({.allowed_hosts = {host}}).ok()) << host;
  }
}

TEST_F(AccessTest, AnswersTellBrowsersToBeCareful) {
  const Access access = Make({});
  HttpResponse json;
  access.Decorate(Get("/", {}), json);
  EXPECT_EQ(HeaderOf(json, "X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(HeaderOf(json, "Cache-Control"), "no-store");
  EXPECT_EQ(HeaderOf(json, "Referrer-Policy"), "no-referrer");
  EXPECT_EQ(HeaderOf(json, "Content-Security-Policy"), "");
  HttpResponse page{.content_type = "text/html; charset=utf-8",
                    .body = "",
                    .headers = {{"Cache-Control", "no-cache"}}};
  access.Decorate(Get("/", {}), page);
  EXPECT_EQ(HeaderOf(page, "Cache-Control"), "no-cache");
  EXPECT_EQ(HeaderOf(page, "Content-Security-Policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
            "form-action 'none'");
}

}  // namespace
}  // namespace tokamak
