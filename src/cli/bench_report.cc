#include "cli/bench_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "cli/bench_load.h"

namespace tokamak::cli {
namespace {

// " (12% of 909)"; empty if the roofline is unknown.
std::string PercentOf(double value, double roofline) {
  return roofline > 0 ? fmt::format(" ({:.0f}% of {:.0f})", 100 * value / roofline, roofline) : "";
}

void PrintExperts(const BenchResult& result) {
  const std::vector<double>& imbalance = result.expert_imbalance;
  if (imbalance.empty()) return;
  std::printf("  %s routing: %.1f experts of a layer touched per decode step\n",
              result.uniform_routing ? "uniform" : "the model's", result.experts_touched);
  const auto worst = std::max_element(imbalance.begin(), imbalance.end());
  std::printf(
      "  busiest expert %.2f times the mean of its layer (median of %zu layers), %.2f in layer "
      "%td\n",
      loadgen::SpreadOf(imbalance).p50, imbalance.size(), *worst, worst - imbalance.begin());
}

void PrintText(const BenchResult& r) {
  const CpuRoofline roofline = r.roofline.value_or(CpuRoofline());
  const bool precise = r.backend.ends_with("/precise");
  const double peak_gmac_s = precise ? roofline.f32_gmac_s : roofline.int8_gmac_s;
  std::printf("%s  %s  %d threads  batch %d\n", r.model.c_str(), r.backend.c_str(), r.threads,
              r.batch);
  std::printf("  %lld requests, %lld tokens in, %lld out, %.2f s\n",
              static_cast<long long>(r.requests), static_cast<long long>(r.input_tokens),
              static_cast<long long>(r.output_tokens), r.seconds);
  std::printf("  prompt %.1f tok/s   %.1f GMAC/s%s\n", r.prompt_tok_s, r.prompt_gmac_s,
              PercentOf(r.prompt_gmac_s, peak_gmac_s).c_str());
  const double gb_s = r.weight_gb_s + r.kv_gb_s;
  std::printf("  output %.1f tok/s   %.1f GMAC/s%s   weights %.2f + KV %.2f GB/s%s\n",
              r.output_tok_s, r.output_gmac_s, PercentOf(r.output_gmac_s, peak_gmac_s).c_str(),
              r.weight_gb_s, r.kv_gb_s, PercentOf(gb_s, roofline.weights_gb_s).c_str());
  std::printf("  first token p50 %.1f  p90 %.1f  p99 %.1f ms\n", r.ttft_ms.p50, r.ttft_ms.p90,
              r.ttft_ms.p99);
  std::printf("  per token   p50 %.2f  p90 %.2f  p99 %.2f ms\n", r.tpot_ms.p50, r.tpot_ms.p90,
              r.tpot_ms.p99);
  if (r.drafts > 0) {
    std::printf("  %lld of %lld drafts accepted (%.0f%%)\n",
                static_cast<long long>(r.accepted_drafts), static_cast<long long>(r.drafts),
                100 * static_cast<double>(r.accepted_drafts) / static_cast<double>(r.drafts));
  }
  PrintExperts(r);
  std::printf("  loaded in %.2f s, peak memory %.0f MB\n", r.load_s, r.peak_rss_mb);
  if (r.roofline) {
    std::printf(
        "  this machine: %.0f GMAC/s in int8, %.0f in f32; reads %.1f GB/s from memory, %.1f from "
        "an array as large as the weights, %.1f from caches\n",
        roofline.int8_gmac_s, roofline.f32_gmac_s, roofline.memory_gb_s, roofline.weights_gb_s,
        roofline.cache_gb_s);
  }
}

// Prints the mean step of a kind.
void PrintSteps(const Profile::Steps& steps) {
  const double whole =
      steps.busy_seconds + steps.inside_steps_seconds + steps.between_steps_seconds;
  if (whole <= 0) return;
  const auto count = static_cast<double>(steps.count);
  const auto line = [&](const char* name, int64_t calls, double seconds) {
    std::fprintf(stderr, "  %-18s %9.1f %11.4f ms %6.1f%%\n", name,
                 static_cast<double>(calls) / count, seconds / count * 1e3, 100 * seconds / whole);
  };
  std::fprintf(stderr, "%s: %lld steps of %.3f ms; calls and time per step\n", steps.kind.c_str(),
               static_cast<long long>(steps.count), whole / count * 1e3);
  for (const Profile::Op& op : steps.ops) line(op.name.c_str(), op.calls, op.seconds);
  line("gaps inside steps", steps.count, steps.inside_steps_seconds);
  line("gaps between steps", steps.count, steps.between_steps_seconds);
  std::fprintf(stderr, "  longest gap between steps %.3f ms\n", steps.longest_gap_seconds * 1e3);
  if (steps.host_seconds <= 0) return;
  const double busy = 1 - steps.host_waiting_seconds / steps.host_seconds;
  std::fprintf(stderr, "  host busy %.1f%% of the time, %.4f ms per step\n", 100 * busy,
               busy * whole / count * 1e3);
}

void PrintProfile(const Profile& profile) {
  for (const Profile::Steps& steps : profile.steps) PrintSteps(steps);
}

}  // namespace

Result<TraceFile> TraceFile::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return Unavailable("--trace: cannot write {}: {}", path, strerror(errno));
  std::fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", file);
  return TraceFile(path, file);
}

void TraceFile::AddRun(const std::string& name, const Profile& profile) {
  // A run is a "process" of the format, named by a metadata event. Times are in microseconds.
  fmt::print(file_.get(),
             "{}\n{{\"ph\": \"M\", \"pid\": {}, \"name\": \"process_name\", "
             "\"args\": {{\"name\": \"{}\"}}}}",
             runs_ == 0 ? "" : ",", runs_, name);
  for (const Profile::Event& event : profile.events) {
    fmt::print(file_.get(),
               ",\n{{\"ph\": \"X\", \"pid\": {}, \"tid\": 0, \"name\": \"{}\", \"ts\": {:.3f}, "
               "\"dur\": {:.3f}}}",
               runs_, event.name, event.begin_seconds * 1e6,
               (event.end_seconds - event.begin_seconds) * 1e6);
  }
  if (profile.dropped_events > 0) {
    std::fprintf(
        stderr, "the trace holds the first %zu events of %s and lacks the %lld after them\n",
        profile.events.size(), name.c_str(), static_cast<long long>(profile.dropped_events));
  }
  ++runs_;
}

Status TraceFile::Finish() {
  std::fputs("\n]}\n", file_.get());
  const bool failed = std::ferror(file_.get()) != 0;
  if (std::fclose(file_.release()) != 0 || failed) {
    return Unavailable("--trace: cannot write {} completely: {}", path_, strerror(errno));
  }
  return Status();
}

Result<Reporter> Reporter::Create(Engine& engine, const ReportFlags& flags) {
  Reporter reporter(engine, flags);
  if (!flags.trace.empty()) {
    ASSIGN_OR_RETURN(reporter.trace_, TraceFile::Create(flags.trace));
  }
  reporter.MeasureMachine();
  return reporter;
}

void Reporter::MeasureMachine() {
  const ModelInfo& model = engine_->model();
  if (model.device != "cpu") return;
  peak_rss_mb_ = PeakRssMb();
  roofline_ = MeasureCpuRoofline(model.threads, model.backend, model.weight_bytes);
  // Resets the peak of the resident memory (proc(5)), because the measurement's own memory must not
  // count as the engine's.
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w"); file != nullptr) {
    std::fputc('5', file);
    std::fclose(file);
  }
}

void Reporter::Report(BenchResult result, const std::string& name) {
  const Profile profile = engine_->TakeProfile();
  result.roofline = roofline_;
  result.peak_rss_mb = std::max(result.peak_rss_mb, peak_rss_mb_);
  if (flags_.json) {
    std::printf("%s\n", BenchJson(result).c_str());
  } else {
    PrintText(result);
  }
  std::fflush(stdout);
  if (flags_.profile) PrintProfile(profile);
  if (trace_) trace_->AddRun(name, profile);
}

}  // namespace tokamak::cli
