#include "server/monitor/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <iterator>

namespace tokamak {
namespace {

std::string Escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Writes metric families. All names start with "tokamak_", except those of the process.
class Writer {
 public:
  void Gauge(std::string_view name, std::string_view help, auto value) {
    Family(name, "gauge", help);
    Sample(name, "", value);
  }
  void Counter(std::string_view name, std::string_view help, auto value) {
    Family(name, "counter", help);
    Sample(name, "", value);
  }
  void Histogram(std::string_view name, std::string_view help, const LatencyHistogram& histogram) {
    Family(name, "histogram", help);
    int64_t total = 0;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      total += histogram.counts[i];
      const std::string bound = i < LatencyHistogram::kBounds.size()
                                    ? fmt::format("{}", LatencyHistogram::kBounds[i])
                                    : "+Inf";
      fmt::format_to(std::back_inserter(text_), "{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
    }
    fmt::format_to(std::back_inserter(text_), "{0}_sum {1}\n{0}_count {2}\n", name, histogram.sum,
                   total);
  }
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  // `labels` is the text between the braces.
  void Sample(std::string_view name, std::string_view labels, auto value) {
    text_ += name;
    if (!labels.empty()) fmt::format_to(std::back_inserter(text_), "{{{}}}", labels);
    fmt::format_to(std::back_inserter(text_), " {}\n", static_cast<double>(value));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void WriteLatencies(const EngineStats& stats, Writer& out) {
  out.Histogram("tokamak_time_to_first_token_seconds",
                "From a request's submission to its first token.", stats.time_to_first_token);
  out.Histogram("tokamak_inter_token_latency_seconds",
                "Between two tokens of a choice, preemptions included.", stats.inter_token);
  out.Histogram("tokamak_request_queue_time_seconds",
                "From a request's submission until it is first scheduled.", stats.queue_time);
  out.Histogram("tokamak_request_prefill_time_seconds",
                "From first scheduled to the first token, of requests that have ended.",
                stats.prefill_time);
  out.Histogram("tokamak_request_decode_time_seconds",
                "From the first token to the end, of requests that have ended.", stats.decode_time);
  out.Histogram("tokamak_e2e_request_latency_seconds",
                "From a request's submission to its end, however it ended.", stats.end_to_end);
}

void WriteWork(const EngineStats& stats, Writer& out) {
  out.Gauge("tokamak_num_requests_running", "Sequences (choices of requests) in the batch.",
            stats.running);
  out.Gauge("tokamak_num_requests_waiting", "Sequences that wait for room in the batch.",
            stats.waiting);
  out.Gauge("tokamak_num_requests_paused", "Requests whose streams nobody reads at the moment.",
            stats.paused);
  out.Counter("tokamak_num_preemptions_total",
              "Sequences put back to waiting for lack of slots or blocks.", stats.preemptions);
  out.Counter("tokamak_prompt_tokens_total", "Prompt tokens of all requests taken in.",
              stats.prompt_tokens);
  out.Counter("tokamak_generation_tokens_total", "Tokens generated.", stats.generated_tokens);
  out.Counter("tokamak_engine_steps_total", "Steps (forward passes of a batch).", stats.steps);
  out.Counter("tokamak_iteration_tokens_total", "Positions that steps computed.",
              stats.step_tokens);
  out.Family("tokamak_requests_total", "counter",
             "Ended requests by reason. If choices differ, the last in this order counts: stop, "
             "length, cancelled, error.");
  for (size_t i = 0; i < stats.ended_requests.size(); ++i) {
    const char* reason = FinishReasonName(static_cast<FinishReason>(i));
    out.Sample("tokamak_requests_total", fmt::format("finished_reason=\"{}\"", reason),
               stats.ended_requests[i]);
  }
}

void WriteDrafts(const EngineStats& stats, Writer& out) {
  out.Counter("tokamak_spec_decode_num_draft_tokens_total",
              "Tokens that speculative decoding proposed.", stats.drafts);
  out.Counter("tokamak_spec_decode_num_accepted_tokens_total",
              "Tokens that it proposed and that were generated.", stats.accepted_drafts);
  const auto by_position = [&out](std::string_view name, std::string_view help,
                                  const std::vector<int64_t>& counts) {
    out.Family(name, "counter", help);
    for (size_t i = 0; i < counts.size(); ++i) {
      out.Sample(name, fmt::format("position=\"{}\"", i), counts[i]);
    }
  };
  by_position("tokamak_spec_decode_num_draft_tokens_per_pos_total",
              "Proposed tokens by their position among those of a sequence in one step.",
              stats.drafts_at);
  by_position("tokamak_spec_decode_num_accepted_tokens_per_pos_total",
              "Those of them that were generated.", stats.accepted_drafts_at);
  out.Gauge("tokamak_spec_decode_saved_seconds",
            "Estimate of the time that speculative decoding has saved.", stats.saved_seconds);
}

// One sample per layer, because there may be thousands of experts.
void WriteExperts(const EngineStats& stats, Writer& out) {
  if (stats.expert_positions.empty()) return;
  out.Family(
      "tokamak_expert_imbalance", "gauge",
      "Positions of a layer's busiest expert over the mean of its experts, since the start.");
  for (size_t i = 0; i < stats.expert_positions.size(); ++i) {
    out.Sample("tokamak_expert_imbalance", fmt::format("layer=\"{}\"", i),
               ExpertImbalance(stats.expert_positions[i]));
  }
}

void WriteRanks(const EngineStats& stats, Writer& out) {
  if (stats.ranks.empty()) return;
  const auto by_rank = [&](std::string_view name, std::string_view help, auto field) {
    out.Family(name, "counter", help);
    for (const RankStats& rank : stats.ranks) {
      out.Sample(name,
                 fmt::format("replica=\"{}\",stage=\"{}\",rank=\"{}\"", rank.replica, rank.stage,
                             rank.rank),
                 rank.*field);
    }
  };
  by_rank("tokamak_rank_steps_total", "Steps of each rank.", &RankStats::steps);
  by_rank("tokamak_rank_step_seconds_total", "Time in these steps, waits included.",
          &RankStats::step_seconds);
  by_rank("tokamak_rank_wait_seconds_total", "Time in these steps, waiting for other ranks.",
          &RankStats::wait_seconds);
  by_rank("tokamak_rank_received_bytes_total", "Bytes received from other ranks.",
          &RankStats::received_bytes);
}

void WriteCache(const EngineStats& stats, Writer& out) {
  const double total = stats.total_blocks;
  out.Gauge("tokamak_kv_blocks_capacity", "KV cache blocks in all.", total);
  out.Gauge("tokamak_kv_blocks_used", "KV cache blocks that sequences refer to.",
            stats.used_blocks);
  out.Gauge("tokamak_kv_blocks_cached",
            "KV cache blocks that only the prefix cache holds; they can be evicted.",
            stats.cached_blocks);
  out.Gauge("tokamak_kv_cache_usage_perc", "Used share of the KV cache; 1 is all of it.",
            total > 0 ? stats.used_blocks / total : 0);
  out.Counter("tokamak_prefix_cache_queries_total",
              "Prompt tokens that were looked up in the prefix cache.",
              stats.queried_prompt_tokens);
  out.Counter("tokamak_prefix_cache_hits_total", "Prompt tokens that were found there.",
              stats.cached_prompt_tokens);
}

void WriteImages(const EngineStats& stats, Writer& out) {
  out.Counter("tokamak_images_encoded_total",
              "Images that the vision tower has encoded, again if they had been evicted.",
              stats.images_encoded);
  out.Gauge("tokamak_image_cache_tokens", "Tokens of images that the encoder cache holds.",
            stats.image_rows_cached);
  out.Counter("tokamak_image_cache_evicted_tokens_total",
              "Tokens of images dropped from it to make room for others.",
              stats.image_rows_evicted);
}

void WriteServer(const MetricsInput& input, Writer& out) {
  out.Gauge("tokamak_engine_healthy", "1 when /health says 200, else 0.", input.healthy ? 1 : 0);
  out.Gauge("tokamak_seconds_since_progress",
            "Since a step last finished while there was work; 0 when idle.",
            input.engine.seconds_since_progress);
  out.Gauge("tokamak_preparing", "Calls that are being parsed and tokenized, or wait for it.",
            input.preparing);
  out.Family("tokamak_http_responses_total", "counter", "HTTP responses by status.");
  for (const auto& [status, count] : input.http.responses) {
    out.Sample("tokamak_http_responses_total", fmt::format("code=\"{}\"", status), count);
  }
  out.Counter("tokamak_http_clients_gone_total", "Clients that left before their answer was whole.",
              input.http.clients_gone);
  out.Counter("tokamak_access_log_dropped_total", "Access log lines that could not be written.",
              input.log_lines_dropped);
  out.Counter("tokamak_unknown_fields_total", "Fields of requests that were ignored.",
              input.unknown_fields);
  out.Gauge("tokamak_mask_table_bytes", "Memory of what structured output needs of the vocabulary.",
            input.mask_table_bytes);
  out.Gauge("tokamak_mask_table_build_seconds", "How long making that took, during loading.",
            input.mask_table_seconds);
  out.Family("tokamak_build_info", "gauge", "What runs; always 1.");
  out.Sample("tokamak_build_info",
             fmt::format("version=\"{}\",fingerprint=\"{}\",model=\"{}\",backend=\"{}\"",
                         Escaped(input.version), Escaped(input.fingerprint), Escaped(input.model),
                         Escaped(input.backend)),
             1);
}

// These names are the same in every Prometheus client library.
void WriteProcess(double started, Writer& out) {
  out.Gauge("process_start_time_seconds", "When the server started, seconds since 1970.", started);
  struct rusage usage {};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    out.Counter("process_cpu_seconds_total", "CPU time of all threads.",
                seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  long long resident = 0;  // pages
  if (std::FILE* file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%*d %lld", &resident) == 1) {
      out.Gauge("process_resident_memory_bytes", "Memory that is resident.",
                static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    }
    std::fclose(file);
  }
}

}  // namespace

std::string FormatMetrics(const MetricsInput& input) {
  Writer out;
  WriteWork(input.engine, out);
  WriteDrafts(input.engine, out);
  WriteCache(input.engine, out);
  if (input.takes_images) WriteImages(input.engine, out);
  WriteExperts(input.engine, out);
  WriteRanks(input.engine, out);
  WriteLatencies(input.engine, out);
  WriteServer(input, out);
  WriteProcess(input.started, out);
  return out.Take();
}

}  // namespace tokamak
