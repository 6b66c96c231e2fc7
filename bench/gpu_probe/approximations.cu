// How far ex2, rsqrt and rcp of the special function unit are from the correctly rounded result.
//
// Files of distances in ulps, for all 2^23 mantissas of a binade in ascending order. `bits` is 2 or
// 4 and `least` the distance of code 0, both in the table; element i is in byte i * bits / 8, the
// first element in the lowest bits. The highest code of 2 bits or of 4 means "that or more".
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <thread>

#include "bench/gpu_probe/bits.h"

namespace probe {
namespace {

enum class Function { kEx2, kRsqrt, kRcp };

constexpr uint32_t kMantissas = 1u << 23;

const char* Name(Function function) {
  switch (function) {
    case Function::kEx2:
      return "ex2.approx.ftz";
    case Function::kRsqrt:
      return "rsqrt.approx.ftz";
    case Function::kRcp:
      return "rcp.approx.ftz";
  }
  return "";
}

template <Function kFunction>
__device__ float Approximate(float x) {
  float y;
  if constexpr (kFunction == Function::kEx2) {
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  } else if constexpr (kFunction == Function::kRsqrt) {
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  } else {
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  }
  return y;
}

template <Function kFunction>
__global__ void Evaluate(const float* x, uint32_t first, float* out, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = Approximate<kFunction>(x != nullptr ? x[i] : __uint_as_float(first + i));
}

// Results for the arguments `x`, or, if it is empty, for the `count` bit patterns from `first`.
std::vector<float> Results(Function function, const std::vector<float>& x, uint32_t first,
                           uint32_t count) {
  DeviceMemory in;
  if (!x.empty()) in = Upload(x);
  const DeviceMemory out(size_t{count} * 4);
  const uint32_t blocks = (count + 255) / 256;
  switch (function) {
    case Function::kEx2:
      Evaluate<Function::kEx2><<<blocks, 256>>>(in.As<float>(), first, out.As<float>(), count);
      break;
    case Function::kRsqrt:
      Evaluate<Function::kRsqrt><<<blocks, 256>>>(in.As<float>(), first, out.As<float>(), count);
      break;
    case Function::kRcp:
      Evaluate<Function::kRcp><<<blocks, 256>>>(in.As<float>(), first, out.As<float>(), count);
      break;
  }
  PROBE_CHECK(cudaGetLastError());
  std::vector<float> results(count);
  PROBE_CHECK(cudaMemcpy(results.data(), out.As(), out.bytes(), cudaMemcpyDeviceToHost));
  return results;
}

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// The 64 bits of long double leave no doubt about the rounding to f32: the results of 2^24 evenly
// distributed arguments come within about 2^-48 of a point halfway between two f32.
float Exact(Function function, float x) {
  const long double wide = x;
  switch (function) {
    case Function::kEx2:
      return static_cast<float>(exp2l(wide));
    case Function::kRsqrt:
      return static_cast<float>(1.0L / sqrtl(wide));
    case Function::kRcp:
      return static_cast<float>(1.0L / wide);
  }
  return 0;
}

struct Binade {
  Function function;
  const char* range;
  uint32_t first;  // bits of the first argument
  uint32_t count;
  const char* file;
};

std::vector<int> Distances(const Binade& binade) {
  const std::vector<float> gpu = Results(binade.function, {}, binade.first, binade.count);
  std::vector<int> distances(binade.count);
  const uint32_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      for (uint32_t i = worker; i < binade.count; i += workers) {
        // Results are positive and finite, so that the distance of the bits is that in ulps.
        const float exact = Exact(binade.function, FromBits(binade.first + i));
        distances[i] = static_cast<int>(Bits(gpu[i])) - static_cast<int>(Bits(exact));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return distances;
}

void MeasureBinade(Report& report, const Binade& binade) {
  const std::vector<int> distances = Distances(binade);
  std::map<int, size_t> histogram;
  for (const int distance : distances) ++histogram[distance];
  const int least = histogram.begin()->first, most = histogram.rbegin()->first;
  const int bits = most - least <= 3 ? 2 : 4;
  const bool usual = least >= -1 && most <= 2;
  const int base = bits == 4 ? std::max(least, -8) : usual ? -1 : least;
  std::string text;
  for (const auto& [distance, count] : histogram) {
    if (text.size() > 300) break;
    text += (text.empty() ? "" : ", ") + std::to_string(distance) + ": " + std::to_string(count);
  }
  std::vector<uint8_t> file(size_t{binade.count} * static_cast<size_t>(bits) / 8);
  for (size_t i = 0; i < distances.size(); ++i) {
    const int code = std::clamp(distances[i] - base, 0, (1 << bits) - 1);
    const size_t bit = i * static_cast<size_t>(bits);
    file[bit / 8] |= static_cast<uint8_t>(code << bit % 8);
  }
  report.Row("%s | %s | %s | %d | %d | %s", Name(binade.function), binade.range, text.c_str(), bits,
             base, binade.file != nullptr ? binade.file : "-");
  if (binade.file != nullptr) report.File(binade.file, file.data(), file.size());
}

// Whether f(x * 2^n) is f(x) scaled, for 2^16 mantissas in each binade whose result is normal.
void MeasureScaling(Report& report, Function function) {
  constexpr uint32_t kSamples = 1u << 16;
  std::vector<float> base(kSamples), scaled(kSamples);
  const float first = function == Function::kRsqrt ? 2.0f : 1.0f;
  for (uint32_t i = 0; i < kSamples; ++i) {
    const uint32_t mantissa = (i * 2654435761u) >> 9;  // spread over all 2^23
    base[i] = FromBits(0x3F800000u | mantissa);
    if (i % 2 == 1) base[i] *= first;  // both binades of rsqrt
  }
  const std::vector<float> at_base = Results(function, base, 0, kSamples);
  size_t compared = 0, different = 0;
  int least = 1000, most = -1000;
  for (int n = -125; n <= 125; ++n) {
    if (function == Function::kRsqrt && n % 2 != 0) continue;
    for (uint32_t i = 0; i < kSamples; ++i) {
      scaled[i] =
          function == Function::kEx2 ? base[i] + static_cast<float>(n) : std::ldexp(base[i], n);
    }
    const std::vector<float> there = Results(function, scaled, 0, kSamples);
    for (uint32_t i = 0; i < kSamples; ++i) {
      // x + n must be exact, x * 2^n finite, the result normal.
      if (function == Function::kEx2 && scaled[i] - static_cast<float>(n) != base[i]) continue;
      if (function != Function::kEx2 && !std::isfinite(scaled[i])) continue;
      const int power = function == Function::kEx2 ? n : function == Function::kRsqrt ? -n / 2 : -n;
      const float expected = std::ldexp(at_base[i], power);
      if (!std::isnormal(expected)) continue;
      ++compared;
      if (Bits(there[i]) == Bits(expected)) continue;
      ++different;
      least = std::min(least, n);
      most = std::max(most, n);
    }
  }
  report.Row(
      "%s | %s | %zu | %zu | %s", Name(function),
      function == Function::kEx2     ? "ex2(x + n) = 2^n ex2(x), x in [1, 2)"
      : function == Function::kRsqrt ? "rsqrt(4^n x) = 2^-n rsqrt(x)"
                                     : "rcp(2^n x) = 2^-n rcp(x)",
      compared, different,
      different == 0 ? "-" : (std::to_string(least) + " to " + std::to_string(most)).c_str());
}

// Does ex2 first cut its argument x to 23 bits after the point? If so, ex2(x) has the mantissa of
// ex2(1 + the fraction of the cut x). Counts the results that do not, for x in [2^e, 2^(e+1)) with
// e < 0 and either sign.
void MeasureFixedPoint(Report& report) {
  constexpr uint32_t kSamples = 1u << 18;
  constexpr int kBits = 23;
  report.Table(
      "ex2: results that differ if the argument is first cut to 23 bits after the point, "
      "262,144 arguments a row",
      "sign | binade | down | nearest even | toward zero");
  for (const int sign : {1, -1}) {
    for (int exponent = -1; exponent >= -24; --exponent) {
      std::vector<float> x(kSamples);
      for (uint32_t i = 0; i < kSamples; ++i) {
        const uint32_t mantissa = i * 32 + (i * 2654435761u >> 27);
        x[i] = static_cast<float>(sign) * std::ldexp(FromBits(0x3F800000u | mantissa), exponent);
      }
      const std::vector<float> direct = Results(Function::kEx2, x, 0, kSamples);
      size_t different[3] = {};
      for (int mode = 0; mode < 3; ++mode) {
        std::vector<float> cut(kSamples);
        for (uint32_t i = 0; i < kSamples; ++i) {
          const double scaled = std::ldexp(static_cast<double>(x[i]), kBits);
          const double whole = mode == 0   ? std::floor(scaled)
                               : mode == 1 ? std::nearbyint(scaled)
                                           : std::trunc(scaled);
          // In [1, 2], where 23 bits after the point are exact.
          cut[i] = static_cast<float>((sign > 0 ? 1 : 2) + std::ldexp(whole, -kBits));
        }
        const std::vector<float> looked_up = Results(Function::kEx2, cut, 0, kSamples);
        for (uint32_t i = 0; i < kSamples; ++i) {
          different[mode] += direct[i] != std::ldexp(looked_up[i], sign > 0 ? -1 : -2);
        }
      }
      report.Row("%s | 2^%d | %zu | %zu | %zu", sign > 0 ? "+" : "-", exponent, different[0],
                 different[1], different[2]);
    }
  }
}

void PrintSpecialValues(Report& report) {
  const std::vector<float> x = {0.0f,
                                -0.0f,
                                FromBits(1),
                                FromBits(0x007FFFFF),
                                FromBits(0x807FFFFF),
                                FromBits(0x00800000),
                                FromBits(0x80800000),
                                FromBits(0x7E800000),
                                FromBits(0x7E800001),
                                FromBits(0x7EC00000),
                                FromBits(0x7F000000),
                                FromBits(0x7F7FFFFF),
                                FromBits(0x7F800000),
                                FromBits(0xFF800000),
                                FromBits(0x7FC00000),
                                FromBits(0xFFC00001),
                                FromBits(0x7F800001),
                                1.0f,
                                -1.0f,
                                4.0f,
                                127.0f,
                                127.99999f,
                                128.0f,
                                -125.0f,
                                -126.0f,
                                -126.00001f,
                                -127.0f,
                                -149.0f,
                                -150.0f,
                                -1e30f};
  report.Table("Special arguments, bits", "argument | value | ex2 | rsqrt | rcp");
  const auto count = static_cast<uint32_t>(x.size());
  const std::vector<float> ex2 = Results(Function::kEx2, x, 0, count);
  const std::vector<float> rsqrt = Results(Function::kRsqrt, x, 0, count);
  const std::vector<float> rcp = Results(Function::kRcp, x, 0, count);
  for (size_t i = 0; i < x.size(); ++i) {
    report.Row("%08x | %.9g | %08x | %08x | %08x", Bits(x[i]), static_cast<double>(x[i]),
               Bits(ex2[i]), Bits(rsqrt[i]), Bits(rcp[i]));
  }
}

}  // namespace

void MeasureApproximations(Report& report) {
  report.Table("Distance from the correctly rounded result: ulps and how many of the arguments",
               "function | arguments | distances | bits | least | file");
  constexpr uint32_t kOne = 0x3F800000;
  constexpr Binade kBinades[] = {
      {Function::kRcp, "[1, 2)", kOne, kMantissas, "rcp.bin"},
      {Function::kRsqrt, "[1, 4)", kOne, 2 * kMantissas, "rsqrt.bin"},
      {Function::kEx2, "[1, 2)", kOne, kMantissas, "ex2.bin"},
      {Function::kEx2, "[0.5, 1)", kOne - kMantissas, kMantissas, "ex2_half.bin"},
      {Function::kEx2, "(-1, -0.5]", 0x80000000u | (kOne - kMantissas), kMantissas, nullptr},
      {Function::kEx2, "(-2, -1]", 0x80000000u | kOne, kMantissas, nullptr},
  };
  for (const Binade& binade : kBinades) {
    if (!report.HasSeconds(15)) return;
    MeasureBinade(report, binade);
  }
  report.Table("The same result in other binades",
               "function | claim | compared | different | n of those");
  for (const Function function : {Function::kRcp, Function::kRsqrt, Function::kEx2}) {
    if (!report.HasSeconds(5)) return;
    MeasureScaling(report, function);
  }
  PrintSpecialValues(report);
  if (report.HasSeconds(5)) MeasureFixedPoint(report);
}

}  // namespace probe
