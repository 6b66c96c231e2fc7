#include "local/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/roofline.h"
#include "weights/memory.h"

namespace tokamak {
namespace {

struct Gpu {
  std::string_view short_name;
  const char* name;
  double memory_gb;
  double memory_gb_s;
  double dense_bf16_tflop_s;
  double f32_tflop_s;  // without tensor cores
};

// From NVIDIA's data sheets, without sparsity.
constexpr Gpu kGpus[] = {
    {"h200", "NVIDIA H200 SXM", 141, 4800, 989, 67},
    {"h100", "NVIDIA H100 SXM", 80, 3350, 989, 67},
    {"h100-pcie", "NVIDIA H100 PCIe", 80, 2000, 756, 51},
    {"gh200", "NVIDIA GH200", 96, 4000, 989, 67},
    {"b200", "NVIDIA B200", 180, 7700, 2250, 75},
    {"a100", "NVIDIA A100 80GB SXM", 80, 2039, 312, 19.5},
    {"a10", "NVIDIA A10", 24, 600, 125, 31.2},
    {"l40s", "NVIDIA L40S", 48, 864, 362, 91.6},
    {"l4", "NVIDIA L4", 24, 300, 121, 30.3},
    {"rtx4090", "NVIDIA RTX 4090", 24, 1008, 165, 82.6},
};
// The rest is used by the driver, libraries and graphs.
constexpr double kUsableShare = 0.97;

Result<Hardware> ThisMachine(const EngineOptions& options, bool quantized, int64_t weight_bytes) {
  const std::string isa = options.isa == "reference" ? "auto" : options.isa;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Ops> ops,
      MakeCpuOps({.threads = options.threads, .isa = isa + (options.precise ? "/precise" : "")}));
  const int threads = options.threads > 0 ? options.threads : ThreadPool::PhysicalCores();
  Hardware here;
  here.name = fmt::format("this machine ({}, {} threads)", ops->name(), threads);
  const CpuRoofline roofline = MeasureCpuRoofline(threads, ops->name(), weight_bytes);
  here.memory_gb_s = roofline.weights_gb_s;
  const bool int8 = quantized && !options.precise && roofline.int8_gmac_s > 0;
  here.gmac_s = int8 ? roofline.int8_gmac_s : roofline.f32_gmac_s;
  here.multiplies_in = int8 ? "int8" : "f32";
  ASSIGN_OR_RETURN(const MemoryBudget memory, AvailableMemory());
  here.memory_bytes = static_cast<int64_t>(memory.available_bytes);
  return here;
}

}  // namespace

Result<Hardware> FindHardware(const EngineOptions& options, bool quantized, int64_t weight_bytes) {
  if (options.device == "auto" || options.device == "cpu") {
    return ThisMachine(options, quantized, weight_bytes);
  }
  for (const Gpu& gpu : kGpus) {
    if (gpu.short_name != options.device) continue;
    constexpr double kMacsPerTflop = 500;  // one MAC is two operations; result in units of 1e9
    return Hardware{
        .name = gpu.name,
        .gpu = true,
        .memory_bytes = static_cast<int64_t>(gpu.memory_gb * kUsableShare * 1e9),
        .memory_gb_s = gpu.memory_gb_s,
        .gmac_s = (options.precise ? gpu.f32_tflop_s : gpu.dense_bf16_tflop_s) * kMacsPerTflop,
        .multiplies_in = options.precise ? "f32" : "bf16"};
  }
  return InvalidArgument("device: must be auto, cpu or one of {}, got \"{}\"",
                         fmt::join(KnownHardware(), ", "), options.device);
}

std::vector<std::string_view> KnownHardware() {
  std::vector<std::string_view> names;
  for (const Gpu& gpu : kGpus) names.push_back(gpu.short_name);
  return names;
}

}  // namespace tokamak
