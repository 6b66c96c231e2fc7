#include "loadgen/load.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/mutex.h"

namespace tokamak::loadgen {
namespace {

// A server in this process that writes whatever a test wants and hardly checks its input.
class FakeServer {
 public:
  // Writes the answer to a request's body.
  using Answer = std::function<void(int fd, const std::string& body)>;

  // Closes each connection after `answers` answers, without announcing it.
  explicit FakeServer(Answer answer, int answers = 1)
      : answer_(std::move(answer)), answers_(answers) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 1024), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FakeServer() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

  Url url() const { return {.host = "127.0.0.1", .port = fmt::format("{}", port_)}; }
  std::vector<std::string> bodies() {
    MutexLock lock(mutex_);
    return bodies_;
  }
  int connections() const { return connections_; }

 private:
  void Accept() {
    while (true) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      ++connections_;
      threads_.emplace_back([this, fd] {
        Serve(fd);
        ::close(fd);
      });
    }
  }
  void Serve(int fd) {
    for (int i = 0; i < answers_; ++i) {
      const std::string body = ReadBody(fd);
      if (i > 0 && body.empty()) return;  // the client has closed it
      {
        MutexLock lock(mutex_);
        bodies_.push_back(body);
      }
      answer_(fd, body);
    }
  }
  static std::string ReadBody(int fd) {
    std::string request;
    char buffer[65536];
    while (true) {
      const size_t head = request.find("\r\n\r\n");
      if (head != std::string::npos) {
        const size_t at = request.find("Content-Length: ");
        if (at == std::string::npos) return "";
        const size_t length = std::stoul(request.substr(at + 16));
        if (request.size() >= head + 4 + length) return request.substr(head + 4);
      }
      const ssize_t got = ::recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) return "";
      request.append(buffer, static_cast<size_t>(got));
    }
  }

  const Answer answer_;
  const int answers_;
  std::atomic<int> connections_ = 0;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // acceptor_, then the destructor
  Mutex mutex_;
  std::vector<std::string> bodies_ GUARDED_BY(mutex_);
};

void Write(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return;
    done += static_cast<size_t>(sent);
  }
}

constexpr char kHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr char kTail[] = "0\r\n\r\n";
std::string Piece(const std::string& bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}
std::string Token(const std::string& text) {
  return Piece(R"(data: {"choices": [{"index": 0, "delta": {"content": ")" + text +
               "\"}, \"finish_reason\": null}]}\n\n");
}
const std::string kStop =
    Piece("data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n");
const std::string kDone = Piece("data: [DONE]\n\n");
std::string UsageOf(int tokens) {
  return Piece(
      fmt::format("data: {{\"choices\": [], \"usage\": {{\"prompt_tokens\": 5, "
                  "\"completion_tokens\": {}}}}}\n\n",
                  tokens));
}

struct Outcome {
  std::vector<RequestRecord> records;
  LoadTotals totals;
};

Outcome RunLoad(const LoadSpec& load) {
  Outcome outcome;
  LoadObserver observer;
  observer.on_record = [&](const RequestRecord& record) { outcome.records.push_back(record); };
  observer.go_on = [](const LoadProgress&) { return true; };
  const auto totals = RunLoad(load, observer);
  EXPECT_TRUE(totals.ok()) << totals.status().ToString();
  if (totals.ok()) outcome.totals = *totals;
  return outcome;
}

LoadSpec Closed(const FakeServer& server, int32_t concurrency, int64_t requests) {
  LoadSpec load;
  load.url = server.url();
  load.pattern.concurrency = concurrency;
  load.requests = requests;
  load.workload.input = LengthDistribution::Fixed(3);
  load.workload.output = LengthDistribution::Fixed(2);
  return load;
}

std::string Sorted(std::vector<std::string> list) {
  std::sort(list.begin(), list.end());
  std::string all;
  for (const std::string& one : list) all += one + "\n";
  return all;
}

TEST(LoadSpec, AcceptsEveryFormOfAnswer) {
  const std::string answers[] = {
      kHead + Token("a") + Token("b") + kStop + UsageOf(7) + kDone + kTail,
      kHead + Token("a") + Token("b") + kStop + kTail,  // no usage, no [DONE]
      kHead + Token("a") + Token("b") + kDone,          // closed after the end
      kHead + Piece(": ping\n\n") + Token("a") + Token("b") + kDone + kTail,
      std::string("HTTP/1.0 200 OK\r\n\r\ndata: {\"choices\": [{\"text\": \"a\"}]}\n\n") +
          "data: {\"choices\": [{\"text\": \"b\"}]}\n\ndata: [DONE]\n\n",
      kHead + Piece("data: {\"choices\": [{\"delta\": {\"reasoning_content\": \"a\"}}]}\n\n") +
          Token("b") + kStop + kTail,
  };
  for (const std::string& answer : answers) {
    FakeServer server([&](int fd, const std::string&) { Write(fd, answer); });
    const Outcome outcome = RunLoad(Closed(server, 1, 2));
    ASSERT_EQ(outcome.records.size(), 2u);
    for (const RequestRecord& record : outcome.records) {
      EXPECT_EQ(record.error_kind, "") << record.error << answer;
      EXPECT_EQ(record.text_at.size(), 2u) << answer;
      EXPECT_EQ(record.output_tokens(), record.usage ? 7 : 2);
      EXPECT_LE(record.intended, record.sent);
      EXPECT_LE(record.sent, record.text_at.front());
      EXPECT_LE(record.text_at.back(), record.end);
    }
  }
}

TEST(LoadSpec, ReusesConnections) {
  const std::string answer = kHead + Token("a") + kStop + kDone + kTail;
  FakeServer server([&](int fd, const std::string&) { Write(fd, answer); }, /*answers=*/100);
  LoadSpec load = Closed(server, 2, 10);
  const auto succeeded = [&] {
    const Outcome outcome = RunLoad(load);
    int64_t ok = 0;
    for (const RequestRecord& record : outcome.records) ok += record.ok();
    return ok;
  };
  EXPECT_EQ(succeeded(), 10);
  EXPECT_EQ(server.connections(), 2);
  load.connection.keep_alive = false;
  EXPECT_EQ(succeeded(), 10);
  EXPECT_EQ(server.connections(), 12);

  // This server closes connections without notice; no request may be lost.
  FakeServer other([&](int fd, const std::string&) { Write(fd, answer); }, /*answers=*/3);
  load = Closed(other, 2, 40);
  EXPECT_EQ(succeeded(), 40);
  EXPECT_EQ(other.bodies().size(), 40u);
  EXPECT_GE(other.connections(), 40 / 3);
  EXPECT_LE(other.connections(), 40);
}

TEST(LoadSpec, NamesTheKindOfEachFailure) {
  const std::pair<const char*, std::string> cases[] = {
      {"http_503",
       "HTTP/1.1 503 Busy\r\nContent-Length: 32\r\n\r\n"
       "{\"error\": {\"message\": \"full\"}}\n\n"},
      {"closed", kHead + Token("a")},
      {"closed", ""},
      {"incomplete", kHead + Token("a") + kTail},
      {"incomplete", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"},
      {"server",
       kHead + Token("a") + Piece("data: {\"error\": {\"message\": \"oh\"}}\n\n") + kTail},
      {"malformed", kHead + Piece("data: {\n\n") + kDone + kTail},
      {"malformed", kHead + Piece(std::string(EventStream::kMaxEventBytes + 1, 'x')) + kTail},
      {"malformed", "nonsense\r\n\r\n"},
  };
  for (const auto& [kind, answer] : cases) {
    FakeServer server([&, text = answer](int fd, const std::string&) { Write(fd, text); });
    LoadSpec load = Closed(server, 2, 3);
    load.workload.turns = LengthDistribution::Fixed(3);  // only the first of them is made
    const Outcome outcome = RunLoad(load);
    ASSERT_EQ(outcome.records.size(), 3u);
    for (const RequestRecord& record : outcome.records) {
      EXPECT_EQ(record.error_kind, kind) << record.error;
      EXPECT_NE(record.error, "");
    }
  }
}

TEST(LoadSpec, GivesUpOnSlowAndUnreachableServers) {
  FakeServer server([](int fd, const std::string&) {
    Write(fd, kHead);
    for (int i = 0; i < 100; ++i) {
      Write(fd, Piece(": still here\n\n"));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  LoadSpec load = Closed(server, 1, 1);
  load.request_seconds = 0.1;
  EXPECT_EQ(RunLoad(load).records.at(0).error_kind, "timeout");
  load.request_seconds = 0;
  load.url.port = "1";
  EXPECT_EQ(RunLoad(load).records.at(0).error_kind, "connect");
}

TEST(LoadSpec, LatencyBeginsAtTheIntendedTimeOfARequest) {
  // Arrivals come about every 5 ms and each takes 20 ms of the server's time, one after the other.
  // The queue grows, which a client that sends only after an answer would not see.
  Mutex one_at_a_time;
  FakeServer server([&](int fd, const std::string&) {
    MutexLock lock(one_at_a_time);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Write(fd, kHead + Token("a") + kDone + kTail);
  });
  LoadSpec load = Closed(server, 0, 20);
  load.pattern = {.concurrency = 0, .rate = 200, .burstiness = 1000, .replayed = nullptr};
  const Outcome outcome = RunLoad(load);
  ASSERT_EQ(outcome.records.size(), 20u);
  double longest = 0, last = 0;
  for (const RequestRecord& record : outcome.records) {
    EXPECT_TRUE(record.ok()) << record.error;
    EXPECT_GE(record.sent, record.intended);
    longest = std::max(longest, record.e2e());
    last = std::max(last, record.intended);
  }
  EXPECT_NEAR(last, 19 / 200.0, 0.01);          // follows the schedule, not the clock
  EXPECT_GT(longest, 20 * 0.02 - last - 1e-3);  // the last one waited for the others
}

TEST(LoadSpec, LastsForItsDurationWithoutRequestsAtTheEnd) {
  FakeServer server(
      [](int fd, const std::string&) { Write(fd, kHead + Token("a") + kDone + kTail); });
  LoadSpec load = Closed(server, 0, 0);
  load.pattern = {.concurrency = 0, .rate = 0.001, .burstiness = 1, .replayed = nullptr};
  load.duration_seconds = 0.3;
  const Outcome outcome = RunLoad(load);
  EXPECT_EQ(outcome.records.size(), 1u);
  EXPECT_GE(outcome.totals.seconds, 0.3);
}

TEST(LoadSpec, TurnsCarryTheWholeConversation) {
  FakeServer server([](int fd, const std::string&) {
    Write(fd, kHead + Token("well") + Token(" said") + kStop + kDone + kTail);
  });
  LoadSpec load = Closed(server, 1, 6);
  load.workload.turns = LengthDistribution::Fixed(3);
  const Outcome outcome = RunLoad(load);
  ASSERT_EQ(outcome.records.size(), 6u);
  int longest = 0;
  for (const std::string& body : server.bodies()) {
    const auto messages = nlohmann::json::parse(body)["messages"];
    if (messages.size() != 5) continue;
    ++longest;
    EXPECT_EQ(messages[1]["role"], "assistant");
    EXPECT_EQ(messages[3]["content"], "well said");
    EXPECT_EQ(messages[4]["role"], "user");
  }
  EXPECT_EQ(longest, 2);
}

TEST(LoadSpec, SendsTheSameRequestsAtAnyConcurrency) {
  FakeServer server(
      [](int fd, const std::string&) { Write(fd, kHead + Token("a") + kDone + kTail); });
  LoadSpec load = Closed(server, 1, 20);
  load.workload.input = *LengthDistribution::Parse("1:50");
  load.workload.turns = *LengthDistribution::Parse("1:4");
  RunLoad(load);
  const std::string one = Sorted(server.bodies());
  FakeServer again(
      [](int fd, const std::string&) { Write(fd, kHead + Token("a") + kDone + kTail); });
  load.url = again.url();
  load.pattern = {.concurrency = 0, .rate = 2000, .burstiness = 1, .replayed = nullptr};
  RunLoad(load);
  EXPECT_EQ(Sorted(again.bodies()), one);
}

TEST(LoadSpec, MergesTheExtraBody) {
  FakeServer server(
      [](int fd, const std::string&) { Write(fd, kHead + Token("a") + kDone + kTail); });
  LoadSpec load = Closed(server, 1, 1);
  load.shape = {.chat = false, .model = "m", .extra_body = R"({"ignore_eos": null, "top_k": 3})"};
  RunLoad(load);
  const auto body = nlohmann::json::parse(server.bodies().at(0));
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_EQ(body["top_k"], 3);
  EXPECT_EQ(body["model"], "m");
  EXPECT_TRUE(body["prompt"].is_string());
}

TEST(LoadSpec, StopsWhenItIsCancelled) {
  FakeServer server([](int fd, const std::string&) {
    char byte;
    ::recv(fd, &byte, 1, 0);  // until the client disconnects
  });
  LoadObserver observer;
  observer.on_record = [](const RequestRecord&) { FAIL(); };
  observer.go_on = [](const LoadProgress& now) { return now.running < 4; };
  const auto totals = RunLoad(Closed(server, 4, 8), observer);
  ASSERT_TRUE(totals.ok());
  EXPECT_EQ(totals->cancelled, 4);
}

TEST(LoadSpec, KeepsUpWithAServerThatAnswersAtOnce) {
  constexpr int kTokens = 256, kRequests = 64;
  std::string answer = kHead;
  for (int i = 0; i < kTokens; ++i) answer += Token("x");
  answer += kStop + UsageOf(kTokens) + kDone + kTail;
  FakeServer server([&](int fd, const std::string&) { Write(fd, answer); });
  const Outcome outcome = RunLoad(Closed(server, 8, kRequests));
  ASSERT_EQ(outcome.records.size(), size_t{kRequests});
  double end = 0;
  for (const RequestRecord& record : outcome.records) {
    EXPECT_TRUE(record.ok()) << record.error;
    EXPECT_EQ(record.text_at.size(), size_t{kTokens});
    end = std::max(end, record.end);
  }
  EXPECT_GT(outcome.totals.cpu_seconds, 0);
  std::printf("measured: %.0f tokens per second of this client's CPU time, %.0f of wall time\n",
              kRequests * kTokens / outcome.totals.cpu_seconds, kRequests * kTokens / end);
}

}  // namespace
}  // namespace tokamak::loadgen
