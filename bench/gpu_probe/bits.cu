// Do mma.sync, wgmma and the model of mmasim agree in every bit?
#include <cstring>
#include <utility>

#include "bench/gpu_probe/bits.h"
#include "bench/gpu_probe/tensor_ptx.h"

namespace probe {
namespace {

__device__ uint32_t Load32(const uint8_t* row, int offset) {
  return *reinterpret_cast<const uint32_t*>(row + offset);
}

// One warp per 16 x 8 outputs.
template <Type kType, bool kHalf>
__global__ void MmaChain(Chain chain) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const int tiles_y = chain.y_rows / 8;
  if (tile >= chain.x_rows / 16 * tiles_y) return;
  const int x0 = tile / tiles_y * 16, y0 = tile % tiles_y * 8;
  const uint8_t* upper = chain.x + size_t(x0 + g) * chain.bytes;
  const uint8_t* lower = upper + size_t{8} * chain.bytes;
  const uint8_t* column = chain.y + size_t(y0 + g) * chain.bytes;
  const auto place = [&](int i) {
    return size_t(x0 + g + i / 2 * 8) * chain.x_stride +
           size_t(y0 + 2 * t + i % 2) * chain.y_stride;
  };
  float d[4] = {};
  if (chain.start != nullptr) {
    for (int i = 0; i < 4; ++i) d[i] = chain.start[place(i)];
  }
  for (int k = 0; k < chain.bytes; k += kStepBytes) {
    const uint32_t a[4] = {Load32(upper, k + 4 * t), Load32(lower, k + 4 * t),
                           Load32(upper, k + 16 + 4 * t), Load32(lower, k + 16 + 4 * t)};
    const uint32_t b[2] = {Load32(column, k + 4 * t), Load32(column, k + 16 + 4 * t)};
    if constexpr (kHalf) {
      MmaHalf<kType>(d, a[0], a[1], b[0]);
      MmaHalf<kType>(d, a[2], a[3], b[1]);
    } else {
      Mma<kType>(d, a, b);
    }
  }
  for (int i = 0; i < 4; ++i) chain.out[place(i)] = d[i];
}

// Copies 32 bytes of each of `rows` rows into 8 x 16-byte core matrices: neighbours in k are 128
// bytes apart, groups of 8 rows 256.
__device__ void StageStep(uint8_t* tile, const uint8_t* rows, int count, int bytes, int k) {
  for (int i = threadIdx.x; i < 2 * count; i += blockDim.x) {
    const int row = i / 2, half = i % 2;
    *reinterpret_cast<uint4*>(tile + row / 8 * 256 + half * 128 + row % 8 * 16) =
        *reinterpret_cast<const uint4*>(rows + size_t(row) * bytes + k + half * 16);
  }
}

// One warpgroup per 64 x kTile outputs.
template <Type kType, int kTile>
__global__ void __launch_bounds__(128) WgmmaChain(Chain chain) {
  __shared__ alignas(128) uint8_t x_tile[64 * kStepBytes];
  __shared__ alignas(128) uint8_t y_tile[kTile * kStepBytes];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int x0 = blockIdx.x * 64, y0 = blockIdx.y * kTile;
  const auto place = [&](int i) {
    const int row = x0 + 16 * warp + lane / 4 + i % 4 / 2 * 8;
    const int column = y0 + i / 4 * 8 + 2 * (lane % 4) + i % 2;
    return size_t(row) * chain.x_stride + size_t(column) * chain.y_stride;
  };
  float d[kTile / 2];
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) d[i] = chain.start != nullptr ? chain.start[place(i)] : 0.0f;
  for (int k = 0; k < chain.bytes; k += kStepBytes) {
    StageStep(x_tile, chain.x + size_t(x0) * chain.bytes, 64, chain.bytes, k);
    StageStep(y_tile, chain.y + size_t(y0) * chain.bytes, kTile, chain.bytes, k);
    FenceAsyncProxy();
    __syncthreads();
    PinRegisters(d);
    WgmmaFence();
    Wgmma<kTile>::template Run<kType>(d, PlainDescriptor(x_tile, 128, 256),
                                      PlainDescriptor(y_tile, 128, 256),
                                      k > 0 || chain.start != nullptr);
    WgmmaCommit();
    WgmmaWait<0>();
    PinRegisters(d);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) chain.out[place(i)] = d[i];
}

template <Type kType>
void LaunchWgmma(const Chain& chain, int tile) {
  const dim3 grid(chain.x_rows / 64, chain.y_rows / tile);
  if (tile == 8) WgmmaChain<kType, 8><<<grid, 128>>>(chain);
  if (tile == 64) WgmmaChain<kType, 64><<<grid, 128>>>(chain);
  if (tile == 256) WgmmaChain<kType, 256><<<grid, 128>>>(chain);
}

__device__ uint32_t Ordered(uint32_t bits) {
  return bits & 0x80000000u ? ~bits + 1 : bits | 0x80000000u;
}

__device__ bool IsNan(uint32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; }

__device__ void Count(uint32_t a, uint32_t b, int shift, Difference* out) {
  if (a == b) return;
  atomicAdd(&out->count, 1ull);
  if (IsNan(a) && IsNan(b)) atomicAdd(&out->nans, 1ull);
  if (IsNan(a) != IsNan(b)) atomicMax(&out->max_ulp, 0xFFFFFFFFu);
  if (IsNan(a) || IsNan(b)) return;
  const uint32_t x = Ordered(a) >> shift, y = Ordered(b) >> shift;
  atomicMax(&out->max_ulp, x > y ? x - y : y - x);
}

__global__ void CompareKernel(const uint32_t* a, const uint32_t* b, size_t count, Difference* out) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) Count(a[i], b[i], 0, out);
}

__global__ void CompareBf16Kernel(const uint16_t* a, const uint32_t* b, size_t count,
                                  Difference* out) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t rounded =
      IsNan(b[i]) ? b[i] : (b[i] + 0x7FFF + (b[i] >> 16 & 1)) & 0xFFFF0000u;  // nearest even
  Count(uint32_t{a[i]} << 16, rounded, 16, out);
}

template <typename Launch>
Difference CountOnDevice(const Launch& launch) {
  DeviceMemory memory(sizeof(Difference));
  PROBE_CHECK(cudaMemset(memory.As(), 0, sizeof(Difference)));
  launch(memory.As<Difference>());
  PROBE_CHECK(cudaGetLastError());
  Difference difference{};
  PROBE_CHECK(cudaMemcpy(&difference, memory.As(), sizeof(difference), cudaMemcpyDeviceToHost));
  return difference;
}

// One instruction with an accumulator, 256 x 256 dot products of one kind of inputs.
struct Step {
  static constexpr int kRows = 256;
  Type type;
  Inputs inputs;
  std::vector<uint8_t> x, y;
  std::vector<float> start, mma, wgmma;
};

Step RunStep(Type type, Inputs inputs) {
  Step step{type, inputs, {}, {}, {}, {}, {}};
  constexpr int kRows = Step::kRows;
  const uint64_t seed = 100 + static_cast<uint64_t>(inputs);
  step.x = MakeOperand(type, inputs, kRows, kStepBytes, seed, false);
  step.y = MakeOperand(type, inputs, kRows, kStepBytes, seed + 1000, inputs == Inputs::kCancelling);
  step.start = MakeAccumulators(type, inputs, kRows * kRows, seed + 2000);
  step.mma.resize(step.start.size());
  step.wgmma.resize(step.start.size());
  const DeviceMemory x = Upload(step.x), y = Upload(step.y), start = Upload(step.start);
  const DeviceMemory out(start.bytes());
  const Chain chain{type,       x.As<uint8_t>(),   y.As<uint8_t>(), kRows, kRows,
                    kStepBytes, start.As<float>(), out.As<float>(), kRows, 1};
  RunMma(chain);
  PROBE_CHECK(cudaMemcpy(step.mma.data(), out.As(), out.bytes(), cudaMemcpyDeviceToHost));
  RunWgmma(chain, 64);
  PROBE_CHECK(cudaMemcpy(step.wgmma.data(), out.As(), out.bytes(), cudaMemcpyDeviceToHost));
  return step;
}

std::string Hex(const uint8_t* bytes) {
  std::string text;
  char digits[8];
  for (int i = 0; i < kStepBytes; ++i) {
    std::snprintf(digits, sizeof(digits), "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

std::string DescribeCase(const Step& step, size_t place, uint32_t gpu, uint32_t model) {
  char bits[64];
  std::snprintf(bits, sizeof(bits), "c %08x gpu %08x model %08x", Bits(step.start[place]), gpu,
                model);
  return std::string("    ") + Name(step.type) + ", " + Name(step.inputs) + ": " + bits + " a " +
         Hex(&step.x[place / Step::kRows * kStepBytes]) + " b " +
         Hex(&step.y[place % Step::kRows * kStepBytes]);
}

// Compares one instruction's results with the model; adds the first that differ to `cases`.
void CompareModel(Report& report, const std::vector<Step>& steps, const char* instruction,
                  const DotModel& model, std::vector<std::string>* cases) {
  size_t compared = 0, different = 0, nans = 0;
  std::string by_inputs;
  for (const Step& step : steps) {
    const std::vector<float>& gpu = instruction[0] == 'w' ? step.wgmma : step.mma;
    size_t here = 0;
    for (size_t i = 0; i < gpu.size(); ++i) {
      const uint32_t value = ModelDot(step.type, model, &step.x[i / Step::kRows * kStepBytes],
                                      &step.y[i % Step::kRows * kStepBytes], Bits(step.start[i]));
      if (value == Bits(gpu[i])) continue;
      ++here;
      nans += (value & 0x7FFFFFFF) > 0x7F800000 && gpu[i] != gpu[i];
      if (cases != nullptr && here <= 4) {
        cases->push_back(DescribeCase(step, i, Bits(gpu[i]), value) + " " + instruction);
      }
    }
    compared += gpu.size();
    different += here;
    by_inputs +=
        std::string(by_inputs.empty() ? "" : ", ") + Name(step.inputs) + " " + std::to_string(here);
  }
  report.Row("%s | %s | %s | %zu | %zu | %zu | %s", Name(steps[0].type), instruction, model.name,
             compared, different, nans, by_inputs.c_str());
}

// Writes bits_<type>.bin: 8,192 cases of 80 bytes, little-endian:
//   0: 32 bytes of operand a   32: 32 bytes of operand b   64: f32 accumulator
//   68: f32 result of mma.sync   72: f32 result of wgmma   76: u32 kind of inputs (enum Inputs)
void SaveCases(Report& report, const std::vector<Step>& steps) {
  constexpr size_t kCases = 8192, kCaseBytes = 80;
  std::vector<uint8_t> file(kCases * kCaseBytes);
  for (size_t i = 0; i < kCases; ++i) {
    const Step& step = steps[i % steps.size()];
    const size_t place = i / steps.size() * 40503 % step.start.size();
    uint8_t* out = &file[i * kCaseBytes];
    std::memcpy(out, &step.x[place / Step::kRows * kStepBytes], kStepBytes);
    std::memcpy(out + 32, &step.y[place % Step::kRows * kStepBytes], kStepBytes);
    std::memcpy(out + 64, &step.start[place], 4);
    std::memcpy(out + 68, &step.mma[place], 4);
    std::memcpy(out + 72, &step.wgmma[place], 4);
    const auto kind = static_cast<uint32_t>(step.inputs);
    std::memcpy(out + 76, &kind, 4);
  }
  report.File(std::string("bits_") + Name(steps[0].type) + ".bin", file.data(), file.size());
}

std::vector<Step> CompareModels(Report& report, Type type, std::vector<std::string>* cases) {
  using Split = DotModel::Split;
  const DotModel full = {"25 bits, 32 bytes of k at once", 25, 23, Split::kWhole};
  std::vector<Step> steps;
  for (const Inputs inputs : kAllInputs) steps.push_back(RunStep(type, inputs));
  if (type != Type::kE4m3) {
    CompareModel(report, steps, "mma.sync", full, cases);
    CompareModel(report, steps, "wgmma", full, cases);
    return steps;
  }
  CompareModel(report, steps, "wgmma", {"13 bits, result 13 bits", 13, 13, Split::kWhole}, cases);
  CompareModel(report, steps, "wgmma", {"13 bits, result 23 bits", 13, 23, Split::kWhole}, nullptr);
  CompareModel(report, steps, "mma.sync",
               {"25 bits, as f16, k % 4 in {0, 1}, then {2, 3}", 25, 23, Split::kPairsAsF16},
               cases);
  CompareModel(report, steps, "mma.sync", full, nullptr);
  CompareModel(report, steps, "mma.sync", {"25 bits, k 0-15 then 16-31", 25, 23, Split::kHalves},
               nullptr);
  return steps;
}

// A column of a row of CompareChains: "different bits (max ulp)".
std::string Cell(const Difference& difference) {
  if (difference.count == 0) return "0";
  return std::to_string(difference.count) + " (ulp " + std::to_string(difference.max_ulp) +
         ", both NaN " + std::to_string(difference.nans) + ")";
}

void CompareChains(Report& report, Type type, bool with_start) {
  constexpr int kRows = 256;
  for (const Inputs inputs : kAllInputs) {
    for (const int steps : {1, 3, 4, 13, 64, 256, 1024}) {
      const int bytes = steps * kStepBytes;
      const DeviceMemory x = Upload(MakeOperand(type, inputs, kRows, bytes, 1, false));
      const DeviceMemory y =
          Upload(MakeOperand(type, inputs, kRows, bytes, 2, inputs == Inputs::kCancelling));
      const DeviceMemory start = Upload(MakeAccumulators(type, inputs, kRows * kRows, 3));
      const DeviceMemory mma(start.bytes()), other(start.bytes());
      Chain chain{type,
                  x.As<uint8_t>(),
                  y.As<uint8_t>(),
                  kRows,
                  kRows,
                  bytes,
                  with_start ? start.As<float>() : nullptr,
                  mma.As<float>(),
                  kRows,
                  1};
      RunMma(chain);
      chain.out = other.As<float>();
      const auto differs = [&] {
        return Cell(Compare(mma.As<float>(), other.As<float>(), size_t{kRows} * kRows));
      };
      std::string half = "-", tokens[3];
      if (type != Type::kE4m3) {
        RunMmaHalf(chain);
        half = differs();
      }
      RunWgmma(chain, 64);
      tokens[0] = differs();
      // Weights as the 64-row operand: the roles of x and y change, the place of each output stays.
      std::swap(chain.x, chain.y);
      std::swap(chain.x_stride, chain.y_stride);
      RunWgmma(chain, 8);
      tokens[1] = differs();
      RunWgmma(chain, 256);
      tokens[2] = differs();
      report.Row("%s | %s | %s | %d | %s | %s | %s | %s", Name(type), Name(inputs),
                 with_start ? "random" : "0", steps * (type == Type::kE4m3 ? 32 : 16),
                 tokens[0].c_str(), tokens[1].c_str(), tokens[2].c_str(), half.c_str());
    }
  }
}

}  // namespace

void RunMma(const Chain& chain) {
  const int blocks = (chain.x_rows / 16 * (chain.y_rows / 8) + 3) / 4;
  switch (chain.type) {
    case Type::kBf16:
      MmaChain<Type::kBf16, false><<<blocks, 128>>>(chain);
      break;
    case Type::kF16:
      MmaChain<Type::kF16, false><<<blocks, 128>>>(chain);
      break;
    case Type::kE4m3:
      MmaChain<Type::kE4m3, false><<<blocks, 128>>>(chain);
      break;
  }
  PROBE_CHECK(cudaGetLastError());
}

void RunMmaHalf(const Chain& chain) {
  const int blocks = (chain.x_rows / 16 * (chain.y_rows / 8) + 3) / 4;
  if (chain.type == Type::kBf16) MmaChain<Type::kBf16, true><<<blocks, 128>>>(chain);
  if (chain.type == Type::kF16) MmaChain<Type::kF16, true><<<blocks, 128>>>(chain);
  PROBE_CHECK(cudaGetLastError());
}

void RunWgmma(const Chain& chain, int tile) {
  switch (chain.type) {
    case Type::kBf16:
      LaunchWgmma<Type::kBf16>(chain, tile);
      break;
    case Type::kF16:
      LaunchWgmma<Type::kF16>(chain, tile);
      break;
    case Type::kE4m3:
      LaunchWgmma<Type::kE4m3>(chain, tile);
      break;
  }
  PROBE_CHECK(cudaGetLastError());
}

Difference Compare(const float* a, const float* b, size_t count) {
  return CountOnDevice([&](Difference* out) {
    CompareKernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(
        reinterpret_cast<const uint32_t*>(a), reinterpret_cast<const uint32_t*>(b), count, out);
  });
}

Difference CompareBf16(const uint16_t* a, const float* b, size_t count) {
  return CountOnDevice([&](Difference* out) {
    CompareBf16Kernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(
        a, reinterpret_cast<const uint32_t*>(b), count, out);
  });
}

void RunBits(Report& report) {
  constexpr Type kTypes[] = {Type::kBf16, Type::kF16, Type::kE4m3};
  report.Table("One instruction with an accumulator against the model of mmasim",
               "type | instruction | model | dot products | different | both NaN | by inputs");
  std::vector<std::string> cases;
  for (const Type type : kTypes) SaveCases(report, CompareModels(report, type, &cases));
  if (!cases.empty()) report.Text("\nThe first results that differ from the model:\n");
  for (const std::string& text : cases) report.Text("%s", text.c_str());
  for (const Type type : kTypes) {
    if (!report.HasSeconds(60)) break;
    report.Table(
        std::string("A chain over k, 256 x 256 results: bits that differ from mma.sync, ") +
            Name(type),
        "type | inputs | start | K | wgmma, tokens as 64 rows | wgmma n8, weights as 64 "
        "rows | wgmma n256, weights as 64 rows | mma.sync of half the k");
    CompareChains(report, type, false);
    CompareChains(report, type, true);
    CompareCublas(report, type);
  }
  MeasureApproximations(report);
}

}  // namespace probe
