#include "server/transport/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tokamak {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr size_t kMaxHeader = 2000;
constexpr size_t kMaxBody = 1000;

// The result of reading some bytes, `step` at a time.
struct Outcome {
  int status = 0;  // 0: not refused
  bool done = false;
  std::string message, rest;
  HttpRequest request;
};

Outcome Read(std::string_view bytes, size_t step) {
  RequestReader reader(kMaxHeader, kMaxBody);
  std::string waiting;
  size_t at = 0;
  for (bool progress = true; progress && !reader.done() && !reader.refused();) {
    const size_t had = waiting.size();
    waiting += bytes.substr(at, step);
    progress = waiting.size() > had;
    at = std::min(bytes.size(), at + step);
    for (size_t taken = 1; taken > 0 && !reader.done();) {
      taken = reader.Feed(waiting);
      waiting.erase(0, taken);
    }
  }
  Outcome outcome{.status = reader.refused() ? reader.status() : 0,
                  .done = reader.done(),
                  .message = reader.refused() ? reader.message() : "",
                  .rest = reader.done() ? waiting + std::string(bytes.substr(at)) : "",
                  .request = {}};
  if (reader.done()) outcome.request = reader.request();
  return outcome;
}

// Like Read, but also checks that the result does not depend on how the bytes are split.
Outcome Read(std::string_view bytes) {
  const Outcome whole = Read(bytes, bytes.size());
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{100}}) {
    const Outcome parts = Read(bytes, step);
    EXPECT_EQ(parts.status, whole.status) << bytes << " by " << step;
    EXPECT_EQ(parts.done, whole.done) << bytes << " by " << step;
    EXPECT_EQ(parts.message, whole.message) << bytes << " by " << step;
    EXPECT_EQ(parts.request.body, whole.request.body) << bytes << " by " << step;
    EXPECT_EQ(parts.rest, whole.rest) << bytes << " by " << step;
  }
  return whole;
}

TEST(RequestReader, ReadsAHeadAndABody) {
  const Outcome outcome = Read(
      "POST /v1/completions?a=b HTTP/1.1\r\nHost: example.org:80\r\nContent-Type:  text/x \r\n"
      "AUTHORIZATION: Bearer k\r\nContent-Length: 5\r\n\r\nhelloGET");
  ASSERT_TRUE(outcome.done) << outcome.message;
  EXPECT_EQ(outcome.request.method, "POST");
  EXPECT_EQ(outcome.request.path, "/v1/completions");
  EXPECT_EQ(outcome.request.query, "a=b");
  EXPECT_EQ(outcome.request.Header("content-type"), "text/x");
  EXPECT_EQ(outcome.request.Header("authorization"), "Bearer k");
  EXPECT_EQ(outcome.request.body, "hello");
  EXPECT_EQ(outcome.rest, "GET");
  EXPECT_THAT(outcome.request.headers,
              ElementsAre(Pair("host", "example.org:80"), Pair("content-type", "text/x"),
                          Pair("authorization", "Bearer k"), Pair("content-length", "5")));
  EXPECT_EQ(outcome.request.Header("host"), "example.org:80");
  EXPECT_EQ(outcome.request.Header("nothing"), "");
}

TEST(RequestReader, ReadsChunksWithExtensionsAndATrailerThatChangesNothing) {
  const Outcome outcome = Read(
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nAuthorization: Bearer k\r\n\r\nGET");
  ASSERT_TRUE(outcome.done) << outcome.message;
  EXPECT_EQ(outcome.request.body, "abcde");
  EXPECT_EQ(outcome.request.Header("authorization"), "");
  EXPECT_EQ(outcome.rest, "GET");
}

TEST(RequestReader, TakesWhatOrdinaryClientsSend) {
  for (const char* request :
       {"GET / HTTP/1.0\r\n\r\n", "\r\nGET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "GET /%2e%2e/a//b?q=%20&r=/../ HTTP/1.1\r\nHost: a\r\nX-Empty:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=b; c=\"d\"\r\nUser-Agent: \xc3\xa9\tx\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n"}) {
    EXPECT_TRUE(Read(request).done) << request << Read(request).message;
  }
}

TEST(RequestReader, WaitsForTheRest) {
  for (const char* request :
       {"", "\r", "\r\n", "G", "GET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r"}) {
    const Outcome outcome = Read(request);
    EXPECT_FALSE(outcome.done) << request;
    EXPECT_EQ(outcome.status, 0) << request << outcome.message;
  }
}

TEST(RequestReader, RefusesAmbiguousRequests) {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n";
  const std::vector<std::string> requests = {
      // The request line.
      "GET /\r\n", "GET / HTTP/0.9\r\n", "GET / HTTP/2.0\r\n", "GET / HTTP/1.2\r\n",
      "GET / http/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", " GET / HTTP/1.1\r\n",
      "GET  / HTTP/1.1\r\n", "GET / x HTTP/1.1\r\n", "GET\t/\tHTTP/1.1\r\n", "G{T / HTTP/1.1\r\n",
      "GETGETGETGETGETGET / HTTP/1.1\r\n", "GET http://a/ HTTP/1.1\r\n", "GET * HTTP/1.1\r\n",
      "CONNECT a:80 HTTP/1.1\r\n", "GET a HTTP/1.1\r\n", "GET /\\a HTTP/1.1\r\n",
      "GET /#a HTTP/1.1\r\n", "GET /\xc3\xa9 HTTP/1.1\r\n", "\r\n\r\nGET / HTTP/1.1\r\n",
      "NONSENSE\r\n\r\n", "\x16\x03\x01\x02",  // the last: TLS
      // Lines.
      "GET / HTTP/1.1\nHost: a\r\n\r\n", get + "A: b\nC: d\r\n\r\n", get + "A: b\rC: d\r\n\r\n",
      get + std::string("A: b\0c\r\n\r\n", 10), get + "A: b\x01\r\n\r\n", get + "A: b\x7f\r\n\r\n",
      get + "A: b\r\n c\r\n\r\n", get + "A: b\r\n\tc\r\n\r\n", get + "\n", get + "\r\r\n",
      // Names.
      get + "A : b\r\n\r\n", get + ": b\r\n\r\n", get + "A\r\n\r\n", get + "A b: c\r\n\r\n",
      get + "\xc3\xa9: b\r\n\r\n",
      // Hosts.
      "GET / HTTP/1.1\r\n\r\n", get + "Host: a\r\n\r\n", get + "HOST: b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
      // Fields that may come once.
      get + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
      get + "Content-Type: a\r\ncontent-type: b\r\n\r\n", get + "Origin: a\r\nOrigin: b\r\n\r\n",
      post + "Content-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
      // Framing.
      post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
      post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
      post + "Content-Length: 1, 1\r\n\r\na", post + "Content-Length: +1\r\n\r\na",
      post + "Content-Length: -1\r\n\r\n", post + "Content-Length: 0x1\r\n\r\na",
      post + "Content-Length: 1a\r\n\r\na", post + "Content-Length:\r\n\r\n",
      post + "Content-Length: 1 1\r\n\r\na", chunked + "Content-Length: 5\r\n\r\n0\r\n\r\n",
      post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      chunked + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: identity\r\n\r\n", post + "Transfer-Encoding: xchunked\r\n\r\n",
      post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      post +
          "Transfer-Encoding: \x0b"
          "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      // Chunks.
      chunked + "\r\nG\r\n\r\n0\r\n\r\n", chunked + "\r\n-1\r\n\r\n0\r\n\r\n",
      chunked + "\r\n 1\r\na\r\n0\r\n\r\n", chunked + "\r\n0x1\r\na\r\n0\r\n\r\n",
      chunked + "\r\n11111111111111111\r\na\r\n0\r\n\r\n", chunked + "\r\n1\r\nab\r\n0\r\n\r\n",
      chunked + "\r\n1\r\na0\r\n\r\n", chunked + "\r\n1 x\r\na\r\n0\r\n\r\n",
      chunked + "\r\n1;" + std::string(5000, 'x') + "\r\na\r\n0\r\n\r\n",
      chunked + "\r\n1\na\r\n0\r\n\r\n", chunked + "\r\n1;a=\"\n\"\r\na\r\n0\r\n\r\n",
      chunked + "\r\n1;a\rb\r\na\r\n0\r\n\r\n", chunked + "\r\n1;\x01\r\na\r\n0\r\n\r\n",
      chunked + "\r\n\r\n", chunked + "\r\n;a\r\n", chunked + "\r\n1\r\na\n0\r\n\r\n",
      chunked + "\r\n0\r\nA : b\r\n\r\n", chunked + "\r\n0\r\nA: b\r\n c\r\n\r\n",
      chunked + "\r\n0\r\nA: b\nC: d\r\n\r\n",
      chunked + "\r\n0\r\n" + std::string(5000, 'x') + "\r\n\r\n"};
  for (const std::string& request : requests) EXPECT_EQ(Read(request).status, 400) << request;
}

TEST(RequestReader, RefusesWhatIsTooLarge) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(Read("GET /" + std::string(kMaxHeader, 'a')).status, 431);
  EXPECT_EQ(Read(post + "A: " + std::string(kMaxHeader, 'a') + "\r\n\r\n").status, 431);
  std::string many;
  for (size_t i = 0; i <= RequestReader::kMaxHeaders; ++i) many += "A: b\r\n";
  EXPECT_EQ(Read(post + many + "\r\n").status, 400);
  EXPECT_EQ(Read(post + "Content-Length: 1001\r\n\r\n").status, 413);
  EXPECT_EQ(Read(post + "Content-Length: 18446744073709551615\r\n\r\n").status, 413);
  EXPECT_EQ(Read(post + "Content-Length: 18446744073709551616\r\n\r\n").status, 400);
  EXPECT_EQ(Read(post + "Transfer-Encoding: chunked\r\n\r\n3E9\r\n").status, 413);
  EXPECT_EQ(Read(post + "Transfer-Encoding: chunked\r\n\r\n3E8\r\n" + std::string(1000, 'a') +
                 "\r\n1\r\na\r\n0\r\n\r\n")
                .status,
            413);
  EXPECT_TRUE(Read(post + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'a')).done);
}

TEST(RequestReader, LetsTheCallerDecideBeforeABodyThatIsTooLarge) {
  RequestReader reader(kMaxHeader, kMaxBody);
  reader.Feed("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_TRUE(reader.head_done());
  EXPECT_EQ(reader.request().path, "/x");
  EXPECT_EQ(reader.status(), 413);
}

TEST(RequestReader, KnowsExpectations) {
  RequestReader reader(kMaxHeader, kMaxBody);
  reader.Feed("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(Read("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n").status, 417);
}

}  // namespace
}  // namespace tokamak
