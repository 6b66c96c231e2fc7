// Tests what operators see: /metrics, /debug/state and the access log.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/monitor/access_log.h"
#include "server/monitor/debug_state.h"
#include "server/monitor/metrics.h"
#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

// Maps name and labels to the sample.
std::map<std::string, double> Parse(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

class OperationsTest : public ServerFixture {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/operations_" + std::to_string(::getpid());
    ::mkdir(folder_.c_str(), 0700);
    log_ = folder_ + "/access.log";
    std::remove(log_.c_str());
  }
  std::vector<Json> LogLines(const std::string& path) {
    std::vector<Json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  // Waits for so many lines.
  std::vector<Json> WaitForLog(size_t lines) {
    EXPECT_TRUE(Eventually([&] {
      std::ifstream file(log_);
      size_t ends = 0;
      for (std::string line; std::getline(file, line);) ends += !file.eof();
      return ends >= lines;
    }));
    return LogLines(log_);
  }
  std::string KeyFile() {
    const std::string path = folder_ + "/keys";
    std::ofstream(path) << "secret\n";
    return path;
  }

  std::string folder_;
  std::string log_;
};

TEST(Metrics, HistogramsAreCumulativeAndEndWithTheirCount) {
  MetricsInput input;
  input.engine.inter_token.Observe(0.0004);
  input.engine.inter_token.Observe(0.0006);
  input.engine.inter_token.Observe(1000);
  const auto samples = Parse(FormatMetrics(input));
  const std::string name = "tokamak_inter_token_latency_seconds";
  EXPECT_EQ(samples.at(name + "_bucket{le=\"0.0005\"}"), 1);
  EXPECT_EQ(samples.at(name + "_bucket{le=\"0.001\"}"), 2);
  EXPECT_EQ(samples.at(name + "_bucket{le=\"600\"}"), 2);
  EXPECT_EQ(samples.at(name + "_bucket{le=\"+Inf\"}"), 3);
  EXPECT_EQ(samples.at(name + "_count"), 3);
  EXPECT_DOUBLE_EQ(samples.at(name + "_sum"), 1000.001);
}

TEST(Metrics, LabelsAreEscapedAndLargeCountsAreExact) {
  MetricsInput input;
  input.model = "a\"b\\c\nd";
  input.engine.generated_tokens = 9007199254740991;
  input.mask_table_bytes = 20971521;
  const std::string text = FormatMetrics(input);
  EXPECT_THAT(text, testing::HasSubstr(R"(model="a\"b\\c\nd")"));
  EXPECT_THAT(text, testing::HasSubstr("tokamak_generation_tokens_total 9007199254740991\n"));
  EXPECT_THAT(text, testing::HasSubstr("tokamak_mask_table_bytes 20971521\n"));
}

TEST(Metrics, TheImbalanceOfExpertsHasASamplePerLayer) {
  MetricsInput input;
  EXPECT_EQ(FormatMetrics(input).find("expert"), std::string::npos);
  input.engine.expert_positions = {{10, 10, 10, 10}, {0, 30, 10, 0}, {0, 0, 0, 0}};
  const auto samples = Parse(FormatMetrics(input));
  EXPECT_EQ(samples.at("tokamak_expert_imbalance{layer=\"0\"}"), 1);
  EXPECT_EQ(samples.at("tokamak_expert_imbalance{layer=\"1\"}"), 3);
  EXPECT_EQ(samples.at("tokamak_expert_imbalance{layer=\"2\"}"), 0);
}

TEST(Metrics, RanksHaveSamplesOfTheirOwn) {
  MetricsInput input;
  EXPECT_EQ(FormatMetrics(input).find("tokamak_rank"), std::string::npos);
  input.engine.ranks = {{.steps = 7, .step_seconds = 1.5},
                        {.stage = 1, .rank = 1, .wait_seconds = 0.25},
                        {.replica = 1, .received_bytes = 4096},
                        {.replica = 1, .stage = 1, .rank = 1}};
  const auto samples = Parse(FormatMetrics(input));
  const auto value = [&](const char* name, int replica, int stage) {
    return samples.at(
        fmt::format("tokamak_rank_{0}_total{{replica=\"{1}\",stage=\"{2}\",rank=\"{2}\"}}", name,
                    replica, stage));
  };
  for (const char* name : {"steps", "step_seconds", "wait_seconds", "received_bytes"}) {
    EXPECT_EQ(value(name, 1, 1), 0);
  }
  EXPECT_EQ(value("steps", 0, 0), 7);
  EXPECT_EQ(value("step_seconds", 0, 0), 1.5);
  EXPECT_EQ(value("wait_seconds", 0, 1), 0.25);
  EXPECT_EQ(value("received_bytes", 1, 0), 4096);
  EXPECT_EQ(
      std::ranges::count_if(
          samples, [](const auto& sample) { return sample.first.starts_with("tokamak_rank"); }),
      4 * 4);
}

TEST(Metrics, ImagesAreCountedIfTheModelTakesThem) {
  MetricsInput input;
  input.engine.images_encoded = 3;
  input.engine.image_rows_cached = 1152;
  input.engine.image_rows_evicted = 576;
  EXPECT_EQ(FormatMetrics(input).find("image"), std::string::npos);
  input.takes_images = true;
  const auto samples = Parse(FormatMetrics(input));
  EXPECT_EQ(samples.at("tokamak_images_encoded_total"), 3);
  EXPECT_EQ(samples.at("tokamak_image_cache_tokens"), 1152);
  EXPECT_EQ(samples.at("tokamak_image_cache_evicted_tokens_total"), 576);
}

TEST(Metrics, DraftsAreCountedByPosition) {
  MetricsInput input;
  const std::string accepted = "tokamak_spec_decode_num_accepted_tokens_per_pos_total";
  EXPECT_FALSE(Parse(FormatMetrics(input)).contains(accepted + "{position=\"0\"}"));
  input.engine.drafts = 7;
  input.engine.accepted_drafts = 4;
  input.engine.drafts_at = {5, 2};
  input.engine.accepted_drafts_at = {3, 1};
  input.engine.saved_seconds = -0.5;
  const auto samples = Parse(FormatMetrics(input));
  EXPECT_EQ(samples.at("tokamak_spec_decode_num_draft_tokens_total"), 7);
  EXPECT_EQ(samples.at("tokamak_spec_decode_num_accepted_tokens_total"), 4);
  EXPECT_EQ(samples.at("tokamak_spec_decode_num_draft_tokens_per_pos_total{position=\"0\"}"), 5);
  EXPECT_EQ(samples.at("tokamak_spec_decode_num_draft_tokens_per_pos_total{position=\"1\"}"), 2);
  EXPECT_EQ(samples.at(accepted + "{position=\"0\"}"), 3);
  EXPECT_EQ(samples.at(accepted + "{position=\"1\"}"), 1);
  EXPECT_EQ(samples.at("tokamak_spec_decode_saved_seconds"), -0.5);
}

TEST_F(OperationsTest, ResponsesAreCountedByStatus) {
  Start();
  HttpClient client = Connect();
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/nothing").status, 404);
  EXPECT_EQ(client.Get("/nothing").status, 404);
  EXPECT_EQ(client.Post("/v1/completions", "{").status, 400);
  EXPECT_EQ(client.Post("/v1/completions", R"({"prompt":"ab","max_tokens":2})").status, 200);
  EXPECT_EQ(Connect().Get("/health", "X: " + std::string(20000, 'x') + "\r\n").status, 431);
  const HttpClient::Response metrics = client.Get("/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.headers, testing::HasSubstr("text/plain; version=0.0.4"));
  const auto samples = Parse(metrics.body);
  EXPECT_EQ(samples.at("tokamak_http_responses_total{code=\"200\"}"), 2);
  EXPECT_EQ(samples.at("tokamak_http_responses_total{code=\"404\"}"), 2);
  EXPECT_EQ(samples.at("tokamak_http_responses_total{code=\"400\"}"), 1);
  EXPECT_EQ(samples.at("tokamak_http_responses_total{code=\"431\"}"), 1);
  EXPECT_EQ(samples.at("tokamak_engine_healthy"), 1);
}

TEST_F(OperationsTest, TheyNeedAKeyWhereTheApiDoes) {
  Start({{.api_key_file = KeyFile()}});
  for (const char* path : {"/metrics", "/debug/state"}) {
    EXPECT_EQ(Connect().Get(path).status, 401) << path;
    EXPECT_EQ(Connect().Get(path, "Authorization: Bearer secret\r\n").status, 200) << path;
    EXPECT_EQ(Connect().Post(path, "{}", "Authorization: Bearer secret\r\n").status, 405) << path;
  }
  EXPECT_EQ(engine_.snapshots(), 1);
}

TEST_F(OperationsTest, TakesSnapshotsOnlyOnRequest) {
  Start();
  EXPECT_EQ(Connect().Get("/metrics").status, 200);
  EXPECT_EQ(engine_.snapshots(), 0);
  const Json state = Json::parse(Connect().Get("/debug/state").body);
  EXPECT_EQ(engine_.snapshots(), 1);
  EXPECT_EQ(state["version"], 1);
  EXPECT_EQ(state["build"]["fingerprint"], "fp_fake");
  EXPECT_EQ(state["model"]["id"], "fake");
  EXPECT_EQ(state["kv"]["groups"][0]["map"], ".");
  EXPECT_EQ(state["prefix_tree"]["nodes"][0]["id"], 0);
  EXPECT_TRUE(state["engine"]["rates"]["ceiling_gb_s"].is_null());
}

TEST_F(OperationsTest, DoesNotWaitLongForASilentEngine) {
  engine_.HoldSnapshots();
  Start();
  HttpClient first = Connect(), second = Connect();
  const std::string request = "GET /debug/state HTTP/1.1\r\nHost: localhost\r\n\r\n";
  first.Send(request);
  second.Send(request);
  EXPECT_EQ(first.Receive().status, 503);
  EXPECT_EQ(second.Receive().status, 503);
  EXPECT_EQ(engine_.snapshots(), 1) << "the question is asked once";
  EXPECT_EQ(Connect().Get("/health").status, 200);
}

TEST(DebugState, RatesAreDifferencesPerSecond) {
  EngineSnapshot before, after;
  before.time = 100;
  after.time = 102;
  after.stats.steps = 20;
  after.stats.step_tokens = 40;
  after.stats.prefill_tokens = 30;
  after.stats.generated_tokens = 10;
  after.stats.kv_bytes_read = 1'000'000'000;
  ModelInfo model;
  model.weight_bytes = 1'000'000'000;
  const DebugRates rates = RatesBetween(before, after, model);
  EXPECT_DOUBLE_EQ(rates.steps_s, 10);
  EXPECT_DOUBLE_EQ(rates.output_tok_s, 5);
  EXPECT_DOUBLE_EQ(rates.prompt_tok_s, 15);
  EXPECT_DOUBLE_EQ(rates.weight_gb_s, 10);
  EXPECT_DOUBLE_EQ(rates.kv_gb_s, 0.5);
  EXPECT_EQ(RatesBetween(after, after, model).steps_s, 0);
}

TEST(DebugState, RanksHaveSharesOfTheTime) {
  EngineSnapshot before, after;
  before.time = 100;
  after.time = 102;
  before.stats.ranks = {{.steps = 5, .step_seconds = 10, .wait_seconds = 4}, {.steps = 50}, {}};
  after.stats.ranks = {{.steps = 6, .step_seconds = 11.5, .wait_seconds = 5},
                       {.steps = 3, .step_seconds = 0.5, .received_bytes = 4'000'000},
                       {.steps = 1, .step_seconds = 9, .wait_seconds = 3}};
  const auto ranks = RatesBetween(before, after, ModelInfo()).ranks;
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_DOUBLE_EQ(ranks[0].busy, 0.25);
  EXPECT_DOUBLE_EQ(ranks[0].wait, 0.5);
  EXPECT_DOUBLE_EQ(ranks[1].busy, 0.25);  // the process has started again
  EXPECT_DOUBLE_EQ(ranks[1].received_mb_s, 2);
  EXPECT_DOUBLE_EQ(ranks[2].busy, 1);  // of a step that began before
  EXPECT_DOUBLE_EQ(ranks[2].wait, 0);
  EXPECT_EQ(RatesBetween(after, after, ModelInfo()).ranks[0].busy, 0);
  EXPECT_TRUE(Json::parse(FormatDebugState({}, {}, {}, "", {}))["ranks"].empty());
  const Json state =
      Json::parse(FormatDebugState(after, RatesBetween(before, after, ModelInfo()), {}, "", {}));
  EXPECT_EQ(state["ranks"][0]["busy"], 0.25);
  EXPECT_EQ(state["ranks"][2]["steps"], 1);
}

TEST_F(OperationsTest, LogsALinePerRequestWithoutItsText) {
  Start({{.access_log = log_}});
  HttpClient client = Connect();
  const std::string body = R"({"prompt":"private words","max_tokens":3,"n":2})";
  const HttpClient::Response answer = client.Post("/v1/completions?key=hidden", body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(client.Get("/nothing", "Authorization: Bearer hidden\r\n").status, 404);
  const std::string stream = R"({"prompt":"private words","max_tokens":2,"stream":true})";
  client.SendPost("/v1/completions", stream);
  EXPECT_TRUE(client.SkipPast("[DONE]"));
  Connect().Send("GARBAGE\r\n\r\n");
  const std::vector<Json> lines = WaitForLog(4);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["id"], Json::parse(answer.body)["id"]);
  EXPECT_EQ(lines[0]["method"], "POST");
  EXPECT_EQ(lines[0]["path"], "/v1/completions");
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["bytes"], answer.body.size());
  EXPECT_EQ(lines[0]["client_gone"], false);
  EXPECT_EQ(lines[0]["prompt_tokens"], 13);
  EXPECT_EQ(lines[0]["output_tokens"], 6);
  EXPECT_EQ(lines[0]["finish_reasons"], Json({"length", "length"}));
  EXPECT_GE(lines[0]["duration_ms"], 0);
  EXPECT_EQ(lines[1]["status"], 404);
  EXPECT_FALSE(lines[1].contains("prompt_tokens"));
  EXPECT_EQ(lines[2]["finish_reasons"], Json({"length"}));
  EXPECT_GT(lines[2]["bytes"], 0);
  EXPECT_EQ(lines[3]["status"], 400);
  std::ifstream file(log_);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("private")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("hidden")));
}

TEST_F(OperationsTest, LogsRefusedRequestsByTheirFirstLine) {
  ServerOptions options;
  options.access_log = log_;
  options.max_body_bytes = 100;
  options.limits.body_seconds = 0.1;
  Start(std::move(options));
  const std::string host = "Host: localhost\r\n", line = "PUT /here?key=hidden HTTP/1.1\r\n";
  const std::vector<std::pair<std::string, int>> refused = {
      {line + host + "Content-Length: 101\r\n\r\n", 413},
      {line + host + "Transfer-Encoding: chunked\r\n\r\nfff\r\n", 413},
      {line + host + "Expect: tea\r\n\r\n", 417},
      {line + host + "X: " + std::string(20000, 'x'), 431},
      {line + host + host + "\r\n", 400},
      {line + host + "Content-Length: 5\r\n\r\n{", 408}};
  for (const auto& [request, status] : refused) {
    HttpClient client = Connect();
    client.Send(request);
    EXPECT_EQ(client.Receive().status, status) << request.substr(0, 200);
  }
  const std::vector<Json> lines = WaitForLog(refused.size());
  ASSERT_EQ(lines.size(), refused.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["status"], refused[i].second);
    EXPECT_EQ(lines[i]["method"], "PUT") << lines[i];
    EXPECT_EQ(lines[i]["path"], "/here") << lines[i];
  }
}

TEST_F(OperationsTest, LogsAndCountsClientsThatLeave) {
  engine_.SetTick(std::chrono::milliseconds(5));
  Start({{.access_log = log_}});
  HttpClient client = Connect();
  client.SendPost("/v1/completions", R"({"prompt":"ab","max_tokens":4000,"stream":true})");
  EXPECT_TRUE(client.SkipPast("data:"));
  client.Close();
  const std::vector<Json> lines = WaitForLog(1);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["client_gone"], true);
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["prompt_tokens"], 2);
  EXPECT_GE(lines[0]["output_tokens"], 1);
  EXPECT_TRUE(Eventually([&] { return engine_.cancelled() == 1; }));
  const auto samples = Parse(Connect().Get("/metrics").body);
  EXPECT_EQ(samples.at("tokamak_http_clients_gone_total"), 1);
}

TEST_F(OperationsTest, ALogThatWasMovedAwayIsMadeAnew) {
  Start({{.access_log = log_}});
  HttpClient client = Connect();
  client.Get("/health");
  EXPECT_EQ(WaitForLog(1).size(), 1u);
  ASSERT_EQ(std::rename(log_.c_str(), (log_ + ".1").c_str()), 0);
  client.Get("/nothing");
  const std::vector<Json> lines = WaitForLog(1);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["path"], "/nothing");
  EXPECT_EQ(LogLines(log_ + ".1").size(), 1u);
}

TEST_F(OperationsTest, ALogThatCannotBeOpenedIsAnError) {
  const Result<std::unique_ptr<Server>> server =
      Server::Create(engine_, {{.port = 0, .access_log = folder_ + "/no/such/folder/log"}});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), testing::HasSubstr("access_log="));
}

TEST(AccessLog, DropsLinesForASlowReaderWithoutBlocking) {
  const std::string path = testing::TempDir() + "/fifo_" + std::to_string(::getpid());
  std::remove(path.c_str());
  std::signal(SIGPIPE, SIG_IGN);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);  // it never reads
  ASSERT_GE(reader, 0);
  Result<std::unique_ptr<AccessLog>> log = AccessLog::Open(path);
  ASSERT_TRUE(log.ok());
  AccessLogEntry entry;
  entry.path = std::string(200, 'x');
  for (int i = 0; i < 40000; ++i) (*log)->Write(entry);
  EXPECT_GT((*log)->dropped(), 0);
  log = Status(StatusCode::kCancelled, "done");  // ends although the reader has stopped
  ::close(reader);
  std::remove(path.c_str());
}

TEST(AccessLog, LinesAreUtf8ForAnyPath) {
  AccessLogEntry entry;
  entry.time = 1.5;
  entry.path = "/\xff\"\n" + std::string(5000, 'a');
  const std::string line = FormatLogLine(entry);
  const Json json = Json::parse(line);
  EXPECT_EQ(json["time"], "1970-01-01T00:00:01.500Z");
  EXPECT_LT(line.size(), 600u);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tokamak
