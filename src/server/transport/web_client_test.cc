#include "server/transport/web_client.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/transport/http_server.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

// Much more than what should happen at once takes, and less than the 20 s of a fetch.
constexpr std::chrono::seconds kSoon{10};

// A server of images on this machine. "/N" answers with N bytes, "/to?URL" leads to the URL (~ is a
// backslash),
// "/status?N" has that status, "/never" does not answer.
class ImageServer {
 public:
  explicit ImageServer(HttpServer::Options options = {}) {
    options.port = 0;
    options.error_response = [](const HttpRequest&, int status, const std::string& message) {
      return HttpResponse{.status = status, .body = message};
    };
    options.check_head = [this](const HttpRequest& request) {
      ++requests;
      MutexLock lock(mutex_);
      host_ = request.Header("host");
      return std::optional<HttpResponse>();
    };
    auto server = HttpServer::Listen(std::move(options),
                                     [this](ResponseWriter& writer) { return Handle(writer); });
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    http_ = *std::move(server);
    thread_ = std::thread([this] { http_->Run(); });
  }
  ~ImageServer() {
    http_->Post([this] { http_->Stop(); });
    thread_.join();
  }
  int port() const { return http_->port(); }

  std::atomic<int> requests = 0;
  std::atomic<int> gone = 0;  // clients that left before the answer
  std::string host() {        // of the last request
    MutexLock lock(mutex_);
    return host_;
  }

 private:
  Awaitable<> Handle(ResponseWriter& writer) {
    const std::string& path = writer.request().path;
    const std::string& query = writer.request().query;
    if (path == "/to") {
      std::string location = query;
      std::replace(location.begin(), location.end(), '~', '\\');
      writer.Respond({.status = 302, .body = "", .headers = {{"Location", location}}});
    } else if (path == "/status") {
      writer.Respond({.status = std::stoi(query), .body = "none"});
    } else if (path == "/chunks") {
      writer.StartStream({});
      for (int i = 0; i < std::stoi(query); ++i) writer.Write(std::string(1000, 'c'));
      writer.Finish();
    } else if (path == "/never") {
      while (!writer.gone()) co_await writer.Wait();
      ++gone;
    } else {
      writer.Respond({.body = std::string(std::stoul(path.substr(1)), 'x')});
    }
  }

  Mutex mutex_;
  std::string host_ GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
};

// Lookups of names that begin with "slow" take until Release. Other names have 127.0.0.1.
class SlowNames {
  struct State {
    Mutex mutex;
    CondVar changed;
    bool released GUARDED_BY(mutex) = false;
    int asked GUARDED_BY(mutex) = 0;  // about slow names
  };

 public:
  // Waits for the threads of the lookups, which may outlive everything else.
  ~SlowNames() {
    Release();
    while (state_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::function<std::vector<std::string>(const std::string&)> resolve() const {
    return [state = state_](const std::string& host) {
      MutexLock lock(state->mutex);
      if (host.starts_with("slow")) {
        ++state->asked;
        while (!state->released) state->changed.Wait(state->mutex);
      }
      return std::vector<std::string>{"127.0.0.1"};
    };
  }
  void Release() {
    MutexLock lock(state_->mutex);
    state_->released = true;
    state_->changed.NotifyAll();
  }
  int asked() const {
    MutexLock lock(state_->mutex);
    return state_->asked;
  }

 private:
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class WebClientTest : public testing::Test {
 protected:
  void MakeClient(const std::vector<std::string>& hosts, bool allow_private = false,
                  WebClient::Options options = {}) {
    auto allowed = AllowedHosts::Parse(hosts, allow_private);
    ASSERT_TRUE(allowed.ok()) << allowed.status().ToString();
    options.hosts = *std::move(allowed);
    if (!options.resolve) {
      options.resolve = [this](const std::string& host) {
        ++lookups_;
        const auto found = names_.find(host);
        return found == names_.end() ? std::vector<std::string>() : found->second;
      };
    }
    auto client = WebClient::Create(io_, std::move(options));
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = *std::move(client);
  }
  std::string Own(const std::string& rest) const {
    return fmt::format("http://127.0.0.1:{}{}", server_.port(), rest);
  }
  // With %P for the server's port.
  std::string WithPort(std::string text) const {
    for (size_t at = 0; (at = text.find("%P")) != text.npos;) {
      text.replace(at, 2, std::to_string(server_.port()));
    }
    return text;
  }
  Result<WebClient::File> Fetch(const std::string& url) {
    std::optional<Result<WebClient::File>> got;
    const auto fetch =
        client_->Get(url, [&](Result<WebClient::File> file) { got = std::move(file); });
    EXPECT_FALSE(got) << "too early";
    io_.restart();
    while (!got) io_.run_one();
    io_.run();
    return *std::move(got);
  }
  std::string Error(const std::string& url) { return Fetch(url).status().ToString(); }
  // All hosts are allowed, and some of their names are slow.
  void MakeClientOfSlowNames(WebClient::Options options) {
    options.resolve = slow_.resolve();
    MakeClient({WithPort("*:%P")}, /*allow_private=*/true, std::move(options));
  }
  // Fetches from a slow name until it is being looked up.
  void Abandon(const std::string& slow) {
    const int before = slow_.asked();
    const auto fetch =
        client_->Get(At(slow), [](const auto&) { ADD_FAILURE() << "nobody waits for it"; });
    io_.restart();
    while (slow_.asked() == before) io_.run_one_for(std::chrono::milliseconds(1));
  }
  // The URL of one byte.
  std::string At(const std::string& host) const { return WithPort("http://" + host + ":%P/1"); }

  SlowNames slow_;  // outlives the client and `io_`
  ImageServer server_;
  std::map<std::string, std::vector<std::string>> names_ = {{"img.test", {"127.0.0.1"}}};
  std::atomic<int> lookups_ = 0;
  boost::asio::io_context io_;
  std::unique_ptr<WebClient> client_;
};

TEST_F(WebClientTest, FetchesFromNamesAndAddresses) {
  MakeClient({WithPort("img.test:%P")}, /*allow_private=*/true);
  const auto file = Fetch(WithPort("http://IMG.test:%P/5"));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->bytes, "xxxxx");
  EXPECT_EQ(server_.host(), WithPort("img.test:%P"));
  EXPECT_EQ(lookups_, 1);
  EXPECT_EQ(Fetch(WithPort("http://img.test:%P/chunks?7#x"))->bytes.size(), 7000u);
  // An address that is listed may be any.
  MakeClient({WithPort("127.0.0.1:%P")});
  EXPECT_EQ(Fetch(Own("/3"))->bytes, "xxx");
  EXPECT_EQ(lookups_, 2);
}

TEST_F(WebClientTest, AsksTheSystemForAddresses) {
  WebClient::Options options;
  options.hosts = *AllowedHosts::Parse({WithPort("localhost:%P")}, true);
  client_ = *WebClient::Create(io_, std::move(options));
  EXPECT_EQ(Fetch(WithPort("http://localhost:%P/5"))->bytes, "xxxxx");
}

// Every form of a URL that has led some program to its own machine or network. All hosts are
// allowed, on the server's port and the usual ones.
TEST_F(WebClientTest, NothingReachesPrivateAddresses) {
  names_["localhost"] = names_["localtest.example"] = {"127.0.0.1"};
  names_["two.example"] = {"::1", "127.0.0.1"};
  names_["zero.example"] = {"0.0.0.0"};
  names_["six.example"] = {"::1"};
  names_["mapped.example"] = {"::ffff:127.0.0.1"};
  names_["compatible.example"] = {"::127.0.0.1"};
  names_["nat64.example"] = {"64:ff9b::7f00:1"};
  names_["6to4.example"] = {"2002:7f00:1::1"};
  names_["teredo.example"] = {"2001:0:7f00:1::1"};
  names_["link.example"] = {"169.254.169.254", "fe80::1"};
  names_["ten.example"] = {"10.0.0.1"};
  names_["local.example"] = {"192.168.0.1", "172.16.0.1", "100.64.0.1", "fd00::1"};
  names_["scoped.example"] = {"fe80::1%lo"};
  names_["nonsense.example"] = {"127.1", "0x7f000001", ""};
  const char* const forms[] = {
      // Addresses as they are, and as some programs read numbers.
      "http://127.0.0.1:%P/1", "http://127.0.0.2:%P/1", "http://127.1:%P/1", "http://127.0.1:%P/1",
      "http://2130706433:%P/1", "http://017700000001:%P/1", "http://0177.0.0.1:%P/1",
      "http://0177.0.0.01:%P/1", "http://0x7f000001:%P/1", "http://0x7f.0.0.1:%P/1",
      "http://0x7F.0x0.0x0.0x1:%P/1", "http://127.0.0.0x1:%P/1", "http://4294967297:%P/1",
      "http://127.0.0.1.:%P/1", "http://127.0.0.1..:%P/1", "http://00127.0.0.1:%P/1",
      "http://0:%P/1", "http://0.0.0.0:%P/1", "http://127.000.000.001:%P/1", "http://127.0.0.1:%P",
      "http://127.0.0.1:0%P/1", "https://127.0.0.1:%P/1", "http://10.0.0.1:%P/1",
      "http://172.16.0.1:%P/1", "http://192.168.0.1:%P/1", "http://100.64.0.1:%P/1",
      "http://169.254.169.254/latest/meta-data/", "http://224.0.0.1/1",
      "http://255.255.255.255:%P/1", "http://192.0.2.1:%P/1", "http://198.18.0.1:%P/1",
      // IPv6, and what holds an IPv4 address.
      "http://[::1]:%P/1", "http://[0:0:0:0:0:0:0:1]:%P/1", "http://[::]:%P/1",
      "http://[::ffff:127.0.0.1]:%P/1", "http://[::FFFF:7f00:1]:%P/1", "http://[::127.0.0.1]:%P/1",
      "http://[64:ff9b::127.0.0.1]:%P/1", "http://[64:ff9b:1::7f00:1]:%P/1",
      "http://[2002:7f00:1::1]:%P/1", "http://[2001:0:7f00:1::1]:%P/1", "http://[fe80::1]:%P/1",
      "http://[fe80::1%25lo]:%P/1", "http://[fe80::1%lo]:%P/1", "http://[fd00::1]:%P/1",
      "http://[fec0::1]:%P/1", "http://[ff02::1]:%P/1", "http://[::1%2525]:%P/1", "http://::1:%P/1",
      "http://[::ffff:0:127.0.0.1]:%P/1",
      // Names, and what name servers answer.
      "http://localhost:%P/1", "http://LOCALHOST:%P/1", "http://localhost.:%P/1",
      "http://localtest.example:%P/1", "http://two.example:%P/1", "http://zero.example:%P/1",
      "http://six.example:%P/1", "http://mapped.example:%P/1", "http://compatible.example:%P/1",
      "http://nat64.example:%P/1", "http://6to4.example:%P/1", "http://teredo.example:%P/1",
      "http://link.example:%P/1", "http://ten.example:%P/1", "http://local.example:%P/1",
      "http://scoped.example:%P/1", "http://nonsense.example:%P/1", "http://none.example:%P/1",
      "http://127.0.0.1.nip.example:%P/1",
      // Users, and other ways to be read in two ways.
      "http://example.org@127.0.0.1:%P/1", "http://example.org:80@127.0.0.1:%P/1",
      "http://127.0.0.1:%P@example.org/1", "http://127.0.0.1:%P\\@example.org/1",
      "http://example.org\\@127.0.0.1:%P/1", "http://example.org#@127.0.0.1:%P/1",
      "http://example.org?@127.0.0.1:%P/1", "http://example.org%40127.0.0.1:%P/1",
      "http:\\\\127.0.0.1:%P/1", "http:/127.0.0.1:%P/1", "http:127.0.0.1:%P/1",
      "http:///127.0.0.1:%P/1", "//127.0.0.1:%P/1", "127.0.0.1:%P/1", " http://127.0.0.1:%P/1",
      "ht\ttp://127.0.0.1:%P/1", "http://127.0.0.1 :%P/1", "http://127.0.0.1:%P :80/1",
      "http://127.0.0.1:%P:80/1", "http://127.0.0.1,example.org:%P/1",
      "http://127.0.0.1%00.example.org:%P/1", "http://127.0.0.1\r\nHost: a:%P/1",
      // Escapes and other alphabets.
      "http://127%2e0%2e0%2e1:%P/1", "http://%31%32%37.0.0.1:%P/1", "http://loc%61lhost:%P/1",
      "http://127\u30020\u30020\u30021:%P/1", "http://\u2460\u2461\u2466.0.0.1:%P/1",
      "http://\uff4cocalhost:%P/1", "http://loc\u0430lhost:%P/1", "http://xn--lcalhost-54a:%P/1",
      "http://localh\u00adost:%P/1",
      // Other schemes.
      "file:///etc/passwd", "ftp://127.0.0.1:%P/1", "gopher://127.0.0.1:%P/_GET%20/1",
      "dict://127.0.0.1:%P/1", "unix:///var/run/docker.sock", "jar:http://127.0.0.1:%P/1!/",
      "http+unix://127.0.0.1:%P/1", "javascript:1", "data:,1", ""};
  MakeClient({"*", WithPort("*:%P")});
  for (const char* form : forms) {
    EXPECT_EQ(Fetch(WithPort(form)).status().code(), StatusCode::kInvalidArgument) << form;
    EXPECT_EQ(server_.requests, 0) << form;
  }
  EXPECT_GE(std::size(forms), 50u);
  // The test itself: some of them would reach the server.
  MakeClient({WithPort("*:%P")}, /*allow_private=*/true);
  for (const char* form : {"http://127.0.0.1:%P/1", "http://localhost:%P/1",
                           "http://two.example:%P/1", "http://0.0.0.0:%P/1"}) {
    EXPECT_TRUE(Fetch(WithPort(form)).ok()) << form;
  }
}

TEST_F(WebClientTest, RedirectsAreCheckedLikeUrls) {
  names_["localhost"] = {"127.0.0.1"};
  names_["public.example"] = {"127.0.0.1", "169.254.169.254"};
  MakeClient({WithPort("127.0.0.1:%P"), "public.example"});
  const char* const targets[] = {"http://localhost:%P/1", "http://[::1]:%P/1",
                                 "http://0.0.0.0:%P/1",   "http://public.example/1",
                                 "http://127.0.0.2:%P/1", "http://2130706433:%P/1",
                                 "//localhost:%P/1",      "http://user@127.0.0.1:%P/1",
                                 "file:///etc/passwd",    "ftp://127.0.0.1:%P/1",
                                 "http://127.0.0.1/1",    "http://127.0.0.1:%P~@a/1",
                                 "http://10.0.0.1/1",     "~~localhost:%P/1",
                                 "data:image/png,1",      "http://[::ffff:127.0.0.1]:%P/1"};
  int requests = 0;
  for (const char* target : targets) {
    EXPECT_EQ(Fetch(Own("/to?" + WithPort(target))).status().code(), StatusCode::kInvalidArgument)
        << target;
    EXPECT_EQ(server_.requests, ++requests) << target;  // of the redirect alone
  }
  for (const char* target : {"/4", "4", "http://127.0.0.1:%P/4", "//127.0.0.1:%P/4"}) {
    EXPECT_EQ(Fetch(Own("/to?" + WithPort(target)))->bytes, "xxxx") << target;
  }
}

TEST_F(WebClientTest, RedirectsAreBounded) {
  MakeClient({WithPort("127.0.0.1:%P")});
  std::string url = "/4";
  for (int i = 0; i < 5; ++i) url = "/to?" + url;
  EXPECT_EQ(Fetch(Own(url))->bytes, "xxxx");
  EXPECT_THAT(Error(Own("/to?" + url)), HasSubstr("is redirected more than 5 times"));
}

// A name server that answers differently the second time is not asked a second time.
TEST_F(WebClientTest, ANameIsLookedUpOncePerRequest) {
  WebClient::Options options;
  std::atomic<int> lookups = 0;
  options.resolve = [&](const std::string&) {
    return std::vector<std::string>{++lookups == 1 ? "127.0.0.1" : "127.0.0.2"};
  };
  MakeClient({WithPort("img.test:%P")}, /*allow_private=*/true, std::move(options));
  EXPECT_TRUE(Fetch(WithPort("http://img.test:%P/1")).ok());
  EXPECT_EQ(lookups, 1);
}

TEST_F(WebClientTest, ASlowLookupEndsItsFetchAtTheDeadline) {
  MakeClientOfSlowNames({.timeout_seconds = 0.2});
  std::string error;
  const auto fetch = client_->Get(At("slow.test"), [&](const Result<WebClient::File>& file) {
    error = file.status().ToString();
  });
  io_.run_for(kSoon);
  EXPECT_THAT(error, HasSubstr("looking up the host: it took too long"));
  EXPECT_EQ(slow_.asked(), 1);
}

TEST_F(WebClientTest, ACallerThatLeavesEndsTheWaitForALookup) {
  MakeClientOfSlowNames({.timeout_seconds = 1000});
  Abandon("slow.test");
  io_.run_for(kSoon);
  EXPECT_TRUE(io_.stopped()) << "it still waits";
  // A caller that leaves at once starts no lookup.
  client_->Get(At("slow.other.test"), [](const auto&) { ADD_FAILURE() << "cancelled"; });
  io_.restart();
  io_.run();
  EXPECT_EQ(slow_.asked(), 1);
}

// The client and `io_` end without waiting. SlowNames waits for the lookup's thread, which must not
// use them any more.
TEST_F(WebClientTest, TheEndDoesNotWaitForALookup) {
  MakeClientOfSlowNames({.timeout_seconds = 1000});
  Abandon("slow.test");
}

TEST_F(WebClientTest, OnlySoManyNamesAreLookedUpAtATime) {
  MakeClientOfSlowNames({.max_lookups = 2});
  Abandon("slow1.test");
  EXPECT_TRUE(Fetch(At("img.test")).ok()) << "a slow name holds no other";
  Abandon("slow2.test");
  const Status refused = Fetch(At("img.test")).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.ToString(), HasSubstr("too many hosts of images are being looked up"));
  EXPECT_TRUE(Fetch(Own("/1")).ok()) << "an address is not looked up";
  slow_.Release();
  while (!Fetch(At("img.test")).ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(Fetch(At("slow1.test")).ok());
}

TEST_F(WebClientTest, ANameIsLookedUpOnceForAllWhoWait) {
  MakeClientOfSlowNames({});
  Abandon("slow.test");
  int arrived = 0;
  const auto count = [&](const Result<WebClient::File>& file) { arrived += file.ok() ? 1 : 0; };
  const auto a = client_->Get(At("slow.test"), count), b = client_->Get(At("SLOW.test"), count);
  io_.poll();
  slow_.Release();
  io_.run_for(kSoon);
  EXPECT_EQ(arrived, 2);
  EXPECT_EQ(slow_.asked(), 1);
}

TEST_F(WebClientTest, LimitsAreKept) {
  WebClient::Options options;
  options.max_bytes = 3000;
  options.max_bytes_together = 5000;
  MakeClient({WithPort("127.0.0.1:%P")}, false, options);
  EXPECT_EQ(Fetch(Own("/3000"))->bytes.size(), 3000u);
  EXPECT_EQ(Fetch(Own("/chunks?3"))->bytes.size(), 3000u);
  for (const char* path : {"/3001", "/chunks?4", "/chunks?3000"}) {
    const Status status = Fetch(Own(path)).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << path;
    EXPECT_THAT(status.ToString(), HasSubstr("the file is longer than the limit of 3.0 KB"));
  }
  // Bytes count until nobody holds them.
  std::optional<WebClient::File> held = *Fetch(Own("/3000"));
  EXPECT_EQ(Fetch(Own("/3000")).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Fetch(Own("/2000")).ok());
  held->counted = nullptr;
  EXPECT_TRUE(Fetch(Own("/3000")).ok());
}

TEST_F(WebClientTest, OnlySoManyAreFetchedAtATime) {
  WebClient::Options options;
  options.max_fetches = 1;
  MakeClient({WithPort("127.0.0.1:%P")}, false, options);
  auto waiting = client_->Get(Own("/never"), [](const auto&) { ADD_FAILURE() << "cancelled"; });
  while (server_.requests == 0) io_.run_one_for(std::chrono::milliseconds(1));
  std::optional<Status> refused;
  const auto second = client_->Get(
      Own("/1"), [&](const Result<WebClient::File>& file) { refused = file.status(); });
  while (!refused) io_.run_one();
  EXPECT_EQ(refused->code(), StatusCode::kUnavailable);
  // A caller that gives up ends the connection.
  waiting = nullptr;
  io_.restart();
  io_.run_for(kSoon);
  EXPECT_TRUE(io_.stopped()) << "it still waits";
  while (server_.gone == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(Fetch(Own("/1")).ok());
}

TEST_F(WebClientTest, WhatDoesNotComeIsAnError) {
  WebClient::Options options;
  options.timeout_seconds = 0.2;
  MakeClient({WithPort("127.0.0.1:%P"), "127.0.0.1:1", WithPort("localhost:%P")}, true, options);
  EXPECT_THAT(Error(Own("/never")), HasSubstr("it took too long"));
  for (const int status : {204, 206, 301, 304, 401, 404, 500}) {
    EXPECT_THAT(Error(Own(fmt::format("/status?{}", status))),
                HasSubstr(fmt::format("answers with HTTP status {}", status)));
  }
  EXPECT_THAT(Error("http://127.0.0.1:1/"), HasSubstr("cannot be fetched from 127.0.0.1:1: "));
  EXPECT_THAT(Error(WithPort("http://localhost:%P/")), HasSubstr("the host has no public address"));
  EXPECT_THAT(Error(WithPort("https://127.0.0.1:%P/")), HasSubstr("TLS"));
}

TEST_F(WebClientTest, CertificatesAreVerified) {
  const std::string folder = testing::TempDir() + "/web_client_" + std::to_string(::getpid());
  const std::string cert = folder + ".crt", key = folder + ".key";
  const std::string command = fmt::format(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=test -addext subjectAltName=DNS:img.test -keyout {} -out {} >/dev/null 2>&1",
      key, cert);
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "there is no openssl";
  HttpServer::Options tls;
  tls.tls_cert_file = cert;
  tls.tls_key_file = key;
  ImageServer server(std::move(tls));
  names_["other.test"] = {"127.0.0.1"};
  const std::string port = std::to_string(server.port());
  const std::vector<std::string> hosts = {"img.test:" + port, "other.test:" + port};
  WebClient::Options options;
  options.ca_file = cert;
  MakeClient(hosts, true, options);
  EXPECT_EQ(Fetch("https://img.test:" + port + "/5")->bytes, "xxxxx");
  EXPECT_THAT(Error("https://other.test:" + port + "/5"), HasSubstr("certificate is not trusted"));
  EXPECT_THAT(Error("https://img.test:" + port + "/to?http://img.test:" + port + "/1"),
              HasSubstr("leads from https to http"));
  MakeClient(hosts, true);
  EXPECT_THAT(Error("https://img.test:" + port + "/5"), HasSubstr("certificate is not trusted"));
  EXPECT_EQ(server.requests, 2);
}

}  // namespace
}  // namespace tokamak
